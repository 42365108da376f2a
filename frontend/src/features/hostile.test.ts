import { render, screen, cleanup, fireEvent } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../App.svelte'
import { core, ended, ev, HARMFUL, HOSTILE, of, project, question, session, shown, step, world } from '../test/world'
import ReviewOpen from './review/ReviewOpen.svelte'
import { line, visible } from '../lib/text'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

// A guest and an agent that put the same hostile text everywhere they can.
const H = HOSTILE
const all = () => [
  project(H), session(H),
  ev('machine.state', { machine_id: 'm', kind: 'local', state: 'trouble', problem: H }, { session_id: undefined }),
  ev('turn.started', { turn_id: 't1', prompt: H }),
  ev('message', { role: 'agent', text: H }),
  step(1, H, 'exec', { argv: [H], [H]: H }),
  ev('step.started', {}, of(1)),
  ev('step.output', { text: H, offset: 0 }, { ...of(1), id: 0 }),
  step(2, H, 'edit', { path: H, old: H, new: H }),
  ended(2, { outcome: 'failed', error: H, exit_code: 1, stdout: { total: 99, head: H, tail: H, dropped: 5 }, stderr: { total: 99, head: H }, background: [H], artefacts: [{ sha256: 'ab', size: 1, mime: H, name: H }] }),
  ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: H, old_path: `${H}2`, op: 'rename', added: 1, deleted: 0 }], failed: H }, of(2)),
  ev('egress.opened', { conn_id: 'c', host: H, port: 1, addr: 'x', rule: H, claim: H, method: H }, of(2)),
  ev('egress.blocked', { host: H, port: 1, reason: H, claim: H }),
  step(3, H, H), ended(3, { result: { text: `${H}\n${H}`, [H]: H } }),
  ev('step.refused', { state: 'denied', reason: H, allowed: H }, { ...of(4) }),
  ev('check.ran', { name: H, ok: false, reason: H }),
  question({ title: H, kind: 'question', free_text: true, detail: [{ name: H, value: `${H}\n${H}`, origin: 'guest' }], choices: [{ id: 'option-1', label: H, covers: H }] }),
  ev('turn.ended', { turn_id: 't1', result: 'failed', reason: H }),
  ev('review.opened', { review_id: 'r1', base: 'b'.repeat(40), candidate: 'c'.repeat(40), files: 1, units: 1, ref: H, remote: H }, { session_id: undefined }),
]

function harmless(el: Element) {
  expect(el.querySelectorAll('img, script, iframe, a[href]').length).toBe(0)
  const text = shown(el)
  expect(text).toContain('<img src=x onerror=alert(1)>')
  expect(text).toContain('\\x1b[31mred')
  expect(HARMFUL.exec(text)).toBeNull()
}

it('shows hostile names, output, questions and changes as harmless text, everywhere at once', async () => {
  core({})
  const { store } = world(...all())
  const { container } = render(App, { store, live: false })
  for (const b of container.querySelectorAll<HTMLElement>('button.step')) await fireEvent.click(b)
  harmless(container)
  // Each part of each open step.
  for (const name of [/^Diff/, /^Output$/, /^Network/, /^Checkpoint$/, /^Call$/]) {
    for (const tab of screen.queryAllByRole('tab', { name }).filter((t) => t.closest('.open'))) await fireEvent.click(tab)
    harmless(container)
  }
  expect(HARMFUL.exec(document.title)).toBeNull()
})

it('isolates the direction of every text of a guest', async () => {
  core({})
  const { store } = world(...all())
  const { container } = render(App, { store, live: false })
  for (const b of container.querySelectorAll<HTMLElement>('button.step')) await fireEvent.click(b)
  const walk = document.createTreeWalker(container, NodeFilter.SHOW_TEXT)
  let n = 0
  for (let t = walk.nextNode(); t; t = walk.nextNode()) {
    if (!t.textContent?.includes('onerror=')) continue
    n++
    expect(t.parentElement?.closest('.guest'), t.parentElement?.outerHTML).not.toBeNull()
  }
  expect(n).toBeGreaterThan(20)
})

it('shows a review of hostile files, lines and comments', async () => {
  const hunk = { id: 'h1', section: H, old_start: 1, old_lines: 1, new_start: 1, new_lines: 1, lines: [{ op: '-', text: `${H} a`, old: 1 }, { op: '+', text: `${H} b`, new: 1 }] }
  const file = { id: 'f', path: H, display: H, op: 'rename', added: 1, deleted: 1, new_size: 1, old_size: 1, old_path: H, whole: H, units: ['h1', 'content', 'rename'], decisions: { h1: 'accept' }, viewed: false, flags: [{ kind: 'bidi', text: H }, { kind: H, text: H }], hunks: [hunk] }
  const comment = { id: 'c', review_id: 'r', path: H, file: 'f', side: 'new', line: 1, text: H, quoted: H, state: 'answered', answer: H, at: 1 }
  core({ 'GET /v1/reviews/r': () => ({ id: 'r', project_id: 'p1', base: 'b', candidate: 'c', remote: '/r', ref: 'main', opened_at: 1, accepted: 1, rejected: 0, undecided: 2, files: [file], comments: [comment, { ...comment, id: 'd', outdated: true, why: H }], pushes: [{ remote: H, ref: H, commit: H, tree: H, state: 'failed', reason: H, output: H, at: 1 }] }) })
  const w = world(project(H), ev('review.opened', { review_id: 'r', base: 'b', candidate: 'c', files: 1, units: 3, remote: H, ref: H }))
  w.desk.openReview('r')
  const { container, findAllByText } = render(ReviewOpen, { store: w.store, desk: w.desk, project: w.store.s.projects.p1!, id: 'r' })
  await findAllByText(/onerror/)
  harmless(container)
})

it('spells out what hides also when it is cut', () => {
  expect(HARMFUL.exec(line(H.repeat(100)))).toBeNull()
  expect(HARMFUL.exec(visible(H))).toBeNull()
  expect(line('a\r\nb\u2028c')).toBe('a\\x0d\\nb\\u{2028}c')
})
