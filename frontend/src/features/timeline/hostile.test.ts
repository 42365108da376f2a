import { cleanup, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import { core, HARMFUL, HOSTILE, ended, of, project, session, shown, step, ev, world } from '../../test/world'
import App from '../../App.svelte'
import Diff from '../../ui/Diff.svelte'
import TextRows from '../../ui/TextRows.svelte'
import { claimed } from './edit'
import { looksLike } from './pictures'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const LINK = 'see https://evil.example/x and javascript:alert(1)'

function harmless(el: Element) {
  expect(el.querySelectorAll('img, script, iframe, a, object, embed').length).toBe(0)
  expect(HARMFUL.exec(shown(el))).toBeNull()
}

it('shows hostile output as text: raw or not, looked through or not', async () => {
  for (const raw of [false, true]) {
    const { container, unmount } = render(TextRows, { text: `${HOSTILE}\n${LINK}\r${HOSTILE}\n\u001b]8;;http://x\u0007click\u001b]8;;\u0007`, label: 'x', raw, words: 'onerror' })
    harmless(container)
    expect(container.textContent).toContain('<img src=x onerror=alert(1)>')
    expect(container.querySelectorAll('mark').length).toBeGreaterThan(0)
    for (const r of container.querySelectorAll('.r')) expect(r.classList.contains('guest')).toBe(true)
    unmount()
  }
})

it('shows hostile lines of a diff as text, also where colours and marks cut them', async () => {
  const lines = [{ op: ' ', text: `const a = "${HOSTILE}" // ${LINK}`, old: 1, new: 1 }, { op: '-', text: `x = "${HOSTILE}" + 1`, old: 2 }, { op: '+', text: `x = "${HOSTILE}" + 2\u202e`, new: 2, no_eol: true }]
  const { container } = render(Diff, { hunks: [{ id: 'h', old_start: 1, old_lines: 2, new_start: 1, new_lines: 2, lines }], path: 'a.ts' })
  await waitFor(() => expect(container.querySelectorAll('.tk-k, .tk-s').length).toBeGreaterThan(0))
  harmless(container)
  expect(container.querySelectorAll('mark').length).toBeGreaterThan(0)
  expect([...container.querySelectorAll('.t')].map((t) => t.textContent?.includes('<img src=x onerror=alert(1)>'))).toEqual([true, true, true])
})

it('shows a line of a megabyte cut, and a file of many lines in parts', () => {
  const { container } = render(Diff, { hunks: [{ id: 'h', old_start: 0, old_lines: 0, new_start: 1, new_lines: 9000, lines: [{ op: '+', text: 'x'.repeat(1 << 20) }, ...Array.from({ length: 9000 }, (_, i) => ({ op: '+', text: `l${i}` }))] }], path: 'a.ts' })
  expect((container.textContent ?? '').length).toBeLessThan(20_000)
  expect(screen.getByRole('button', { name: /more characters: show/ })).toBeTruthy()
  expect(screen.getByRole('button', { name: /8,401 more lines: show/ })).toBeTruthy()
})

it('keeps what is in turns, tools and results from being anything but text', async () => {
  core({})
  const { store } = world(project(), session(), ev('turn.started', { turn_id: 't1', prompt: `${HOSTILE}${LINK}` }), step(1, `${HOSTILE}${LINK}`, HOSTILE, { argv: [HOSTILE, { toString: 1 }], path: { a: 1 } }), ended(1, { outcome: HOSTILE, signal: HOSTILE, result: { matches: HOSTILE, text: 5, lines: {} } }), ev('turn.ended', { turn_id: 't1', result: HOSTILE, reason: HOSTILE }), ev('step.sealed', { commit: HOSTILE, changes: [], not_captured: [HOSTILE] }, of(1)))
  const { container } = render(App, { store, live: false })
  const feed = container.querySelector('[role=feed]')!
  harmless(feed)
  for (const b of feed.querySelectorAll<HTMLElement>('button.step')) b.click()
  await waitFor(() => expect(feed.querySelector('.open')).toBeTruthy())
  for (const t of feed.querySelectorAll<HTMLElement>('[role=tab]')) {
    t.click()
    await Promise.resolve()
    harmless(feed)
  }
})

it('takes no claim of an agent for more than it is', () => {
  expect(claimed({ tool: 'edit', args: { path: 5, old: 'a', new: 'b' } })?.path).toBe('')
  expect(claimed({ tool: 'edit', args: { old: 'a' } })).toBeUndefined()
  expect(claimed({ tool: 'write', args: null })).toBeUndefined()
  expect(claimed({ tool: 'write', args: { content: 'x\n'.repeat(9999) } })?.hunks[0]?.lines?.length).toBe(2000)
  expect(looksLike('image/svg+xml', new Uint8Array(9))).toBe(false)
  expect(looksLike('constructor', new Uint8Array(9))).toBe(false)
  expect(looksLike('image/webp', new Uint8Array([0x52, 0x49, 0x46, 0x46, 0, 0, 0, 0, 0x57, 0x45, 0x42, 0x50]))).toBe(true)
})
