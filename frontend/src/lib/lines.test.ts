import { expect, it } from 'vitest'
import { HARMFUL, HOSTILE } from '../test/world'
import { paint, PLAIN } from './ansi'
import { Lines } from './lines'

const E = '\u001b'
const said = (s: string) => {
  const p = paint(s)
  return p.spans.map((x) => [p.text.slice(x.from, x.to), x.cls])
}

it('follows colours, bold and underline, and nothing else', () => {
  expect(said(`${E}[31mred${E}[0m plain ${E}[1;4mstrong${E}[22;24m`)).toEqual([['red', 'an-1'], ['strong', 'an-b an-u']])
  expect(said(`${E}[92mbright${E}[39m ${E}[38;5;196mtable${E}[m ${E}[38;2;10;20;240mrgb`)).toEqual([['bright', 'an-2'], ['table', 'an-1'], ['rgb', 'an-4']])
  // A background could hide the letters: it is passed over.
  expect(said(`${E}[30m${E}[40mx`)).toEqual([['x', 'an-0']])
  expect(paint(`${E}[30m${E}[46m RUN ${E}[49m${E}[39m`).text).toBe(' RUN ')
})

it('draws what moves, erases, hides, names or links as text', () => {
  for (const s of [`${E}[2J`, `${E}[1A`, `${E}[8mhidden`, `${E}]0;title\u0007`, `${E}]8;;http://x${E}\\`, `${E}[31`, `${E}[999m`, `${E}[38;9m`, `${E}c`, `${E}[${'1;'.repeat(60)}m`, E, `${E}${E}[`, HOSTILE.replace(`${E}[31m`, '')]) {
    const p = paint(s)
    expect(p.text, JSON.stringify(s)).toContain('\\x1b')
    expect(HARMFUL.exec(p.text)).toBeNull()
    expect(p.spans).toEqual([])
  }
  expect(paint(`${E}[31mred`, PLAIN, true).text).toBe('\\x1b[31mred')
})

it('shows the last of what a line wrote over itself, and says how often', () => {
  const p = paint(`10 %\r20 %\r${E}[2K${E}[32m100 %\r`)
  expect([p.text, p.over, p.ink.fg]).toEqual(['100 %', 2, 2])
  expect(paint('windows line\r')).toMatchObject({ text: 'windows line', over: 0 })
  expect(paint('').over).toBe(0)
  // What was written over is there to be seen.
  expect(paint('rm -rf /\rls', PLAIN, true).text).toBe('rm -rf /\\x0dls')
})

it('goes over lines with a colour, and over pieces with a line', () => {
  const l = new Lines(80)
  for (const piece of [`a ${E}[3`, '1mr', 'ed', `\nstill red`, `\n${E}[0mplain\n`]) l.add(piece)
  expect([l.lines, l.rows]).toEqual([3, 3])
  expect([0, 1, 2].map((i) => l.row(i)?.spans.map((s) => s.cls))).toEqual([['an-1'], ['an-1'], []])
  expect(l.row(0)?.spans[0]?.from).toBe(2)
  expect(l.row(0)?.text).toBe('a red')
  expect(l.text()).toBe(`a ${E}[31mred\nstill red\n${E}[0mplain\n`)
})

it('gives the same rows whether the text came whole or in pieces', () => {
  const text = Array.from({ length: 300 }, (_, i) => `${E}[3${i % 8}m${'x'.repeat((i * 37) % 400)}\u202e${i % 5 ? '' : '\r'}${i}`).join('\n')
  const whole = new Lines(50).add(text)
  const pieces = new Lines(50)
  for (let i = 0; i < text.length; i += 7) pieces.add(text.slice(i, i + 7))
  const all = (l: Lines) => Array.from({ length: l.rows }, (_, i) => l.row(i))
  expect(all(pieces)).toEqual(all(whole))
  expect(all(Lines.of(new Lines(9).add(text), 50))).toEqual(all(whole))
  expect(HARMFUL.exec(all(whole).map((r) => r?.text).join('\n'))).toBeNull()
})

it('holds a line of a megabyte as rows, and finds in it', () => {
  const l = new Lines(100).add(`${'x'.repeat(1 << 20)}needle\nend`)
  // Cut at first, with a row that says how much more there is; the rest is asked for.
  expect(l.rows).toBe(40 + 1 + 1)
  expect(l.row(40)).toMatchObject({ text: '', more: (1 << 20) + 6 - 4000 })
  expect(l.find('NEEDLE', 10)).toEqual([40])
  l.expand(0)
  expect(l.rows).toBe(Math.ceil(((1 << 20) + 6) / 100) + 1)
  expect(l.find('NEEDLE', 10)).toEqual([Math.floor((1 << 20) / 100)])
  expect(l.row(l.rows - 1)).toMatchObject({ text: 'end', line: 1, first: true })
  expect(l.row(l.rows)).toBeUndefined()
  expect(l.find('', 10)).toEqual([])
})
