import { Terminal } from '@xterm/xterm'
import { expect, it } from 'vitest'
import { guard } from './guard'

// What a hostile program writes to stop the page. Each of these must be over before
// the test is given up, and leave a terminal that goes on.
const E = '\u001b'
const N = '2147483647'

async function after(...texts: string[]): Promise<{ lines: string[]; cursor: [number, number] }> {
  const t = new Terminal({ cols: 80, rows: 24, scrollback: 10_000, allowProposedApi: true, logLevel: 'off' })
  guard(t, () => true)
  for (const s of texts) await new Promise<void>((done) => t.write(new TextEncoder().encode(s), done))
  const a = t.buffer.active
  const lines = Array.from({ length: t.rows }, (_, y) => a.getLine(a.baseY + y)?.translateToString(true) ?? '')
  const cursor: [number, number] = [a.cursorX, a.cursorY]
  t.dispose()
  return { lines, cursor }
}
const full = Array.from({ length: 24 }, (_, i) => `line ${i}`).join('\r\n')

it.each(['L', 'M', 'S', 'T'])('does CSI n %s as often as there are rows, however often it is asked', async (final) => {
  for (const n of ['24', '25', '65535', N, '99999999999999999999']) expect((await after(full, `${E}[H${E}[${n}${final}`)).lines, n).toEqual(Array(24).fill(''))
  // Less than that is done as it is asked.
  const { lines } = await after(full, `${E}[H${E}[2${final}`)
  expect(lines.filter((l) => l === '').length).toBe(2)
})

it.each(['@', 'P', 'X'])('does CSI n %s as often as there are columns', async (final) => {
  for (const n of ['80', '65535', N]) expect((await after(full, `${E}[H${E}[${n}${final}`)).lines[0], n).toBe('')
})

it.each(['I', 'Z', 'b', "'}", "'~", ' @', ' A'])('goes on after CSI n %s with any number', async (final) => {
  for (const n of ['80', '65535', N, '99999999999999999999']) {
    const { lines } = await after(full, `${E}[Ha${E}[${n}${final}`, `${E}[5Hok`)
    expect(lines[4], n).toMatch(/^ok/)
  }
  if (final === 'b') expect((await after(`a${E}[4b`)).lines[0]).toBe('aaaaa')
  if (final === 'b') expect((await after(`a${E}[${N}b`)).lines.join('')).toBe('a'.repeat(81))
})

const floods: Record<string, string> = {
  'many parameters': `${E}[${'1;'.repeat(100_000)}m${E}[${'4:3:'.repeat(50_000)}m`, 'a huge title': `${E}]0;${'t'.repeat(12_000_000)}\u0007`, 'a string without an end': `${E}P$q${'x'.repeat(11_000_000)}${E}\\`,
  'two screens': `${E}[?1049h${E}[?1049l`.repeat(5000), resets: `${E}c`.repeat(1000), 'marks upon a letter': `a${'\u0301'.repeat(500_000)}`, 'joined signs': `👩${'\u200d👩'.repeat(100_000)}`, 'a line without an end': 'x'.repeat(2_000_000),
  bells: '\u0007'.repeat(500_000), 'a picture that waits': `${E}[?2026h`, repetitions: `a${E}[65535b`.repeat(5000), 'halves of characters': '\ud83d\udc00'.repeat(10) + '\u00c3',
}
it.each(Object.entries(floods))('goes on after %s', async (_, text) => {
  const { lines } = await after(text, `${E}c`, 'ok')
  expect(lines[0]).toBe('ok')
})
