import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ended, ev, of, project, session, step, world } from '../../test/world'
import Picture from './Picture.svelte'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

function show(...events: Parameters<typeof world>) {
  const w = world(project(), session(), ...events)
  const r = render(App, { store: w.store, live: false })
  return { ...w, ...r }
}

it('writes a step on one line and opens it in place', async () => {
  core({})
  show(step(1, 'Run npm test'), ended(1, { outcome: 'failed', exit_code: 2, duration_ms: 1500, stdout: { total: 3, head: 'boo' } }))
  const row = screen.getByRole('button', { name: /npm test/ })
  expect([...row.children].map((c) => c.textContent?.trim())).toEqual(['1', 'exec', 'npm test', 'exit 2', '1.5 s'])
  expect(screen.queryByText('boo')).toBeNull()
  await fireEvent.click(row)
  expect(row.getAttribute('aria-expanded')).toBe('true')
  expect(screen.getByText('boo')).toBeTruthy()
})

it('shows live output while a step runs and the final one after', async () => {
  core({})
  const { store } = show(step(1), ev('step.started', {}, of(1)), ev('step.output', { text: 'so far' }, { ...of(1), id: 0 }))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  expect(screen.getByLabelText('output so far').textContent).toContain('so far')
  store.take([ev('step.output', { text: ' and on' }, { ...of(1), id: 0 })])
  await tick()
  expect(screen.getByLabelText('output so far').textContent).toContain('so far and on')
  store.take([ended(1, { exit_code: 0, stdout: { total: 4, head: 'done' } })])
  await tick()
  expect(screen.queryByLabelText('output so far')).toBeNull()
  expect(screen.getByText('done')).toBeTruthy()
})

it('says how much lies between the ends of a long output, and gets all of it', async () => {
  const seen = core({ 'GET /v1/blobs/feed': () => new Response('all of it') })
  show(step(1), ended(1, { exit_code: 0, stdout: { total: 5000, head: 'head', tail: 'tail', blob: { sha256: 'feed', size: 5000 } } }))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  expect(screen.getByLabelText('output', { exact: true }).textContent).toContain('head')
  expect(screen.getByText(/4.9 KB between, about/)).toBeTruthy()
  expect(screen.getByLabelText('output, its end').textContent).toContain('tail')
  await fireEvent.click(screen.getByRole('button', { name: 'Show all 4.9 KB' }))
  await waitFor(() => expect(screen.getByLabelText('output', { exact: true }).textContent).toContain('all of it'))
  expect(screen.queryByText(/between/)).toBeNull()
  expect(seen).toHaveLength(1)
})

it('finds in an output, and goes from place to place', async () => {
  core({})
  show(step(1), ended(1, { exit_code: 0, stdout: { total: 90, head: Array.from({ length: 400 }, (_, i) => `line ${i}`).join('\n') } }))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  const find = screen.getByRole('searchbox', { name: 'Find in the output' })
  await fireEvent.input(find, { target: { value: 'LINE 33' } })
  await waitFor(() => expect(screen.getByText('1 of 11')).toBeTruthy())
  await fireEvent.keyDown(find, { key: 'Enter', shiftKey: true })
  await waitFor(() => expect(screen.getByText('11 of 11')).toBeTruthy())
  await fireEvent.input(find, { target: { value: 'nowhere' } })
  await waitFor(() => expect(screen.getByText('none')).toBeTruthy())
})

it('shows the lines a step changed, as the core reads them', async () => {
  const hunks = [{ id: 'h', old_start: 1, old_lines: 1, new_start: 1, new_lines: 1, lines: [{ op: '-', text: 'const a = 1', old: 1 }, { op: '+', text: 'const a = 2', new: 1 }] }]
  const seen = core({ 'GET /v1/sessions/s1/steps/st1/diff?path=cart%2Ftotal.ts': () => ({ hunks, binary: false, added: 1, deleted: 1, old_size: 11, new_size: 11, display: 'cart/total.ts', op: 'modify' }) })
  const { container } = show(step(1, 'Edit cart/total.ts', 'edit', { path: 'cart/total.ts', old: 'x', new: 'y' }), ended(1, {}), ev('step.sealed', { commit: 'c0ffee', tree: 't', changes: [{ path: 'cart/total.ts', op: 'modify', added: 1, deleted: 1 }], not_captured: ['big.bin'], ignored: 2 }, of(1)))
  const row = container.querySelector('[data-step="1"]')!
  expect(row.textContent).not.toContain('✓')
  await fireEvent.click(row)
  await waitFor(() => expect([...container.querySelectorAll('.open mark')].map((m) => m.textContent)).toEqual(['1', '2']))
  await waitFor(() => expect(container.querySelectorAll('.open .tk-k').length).toBe(2))
  expect(seen.filter((c) => c.path.includes('/diff')).length).toBe(1)
  await fireEvent.click(screen.getByRole('tab', { name: 'Checkpoint' }))
  expect(screen.getByText('c0ffee')).toBeTruthy()
  expect(screen.getByText(/1 path could not be kept/)).toBeTruthy()
  expect(screen.getByText(/2 ignored files changed/)).toBeTruthy()
})

it('cancels a running step, and all of a session', async () => {
  const seen = core({ 'POST /v1/sessions/s1/cancel': () => ({}) })
  show(step(1), ev('step.started', {}, of(1)))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  await fireEvent.click(screen.getByRole('button', { name: 'Cancel step' }))
  await fireEvent.click(screen.getByRole('button', { name: 'Stop all steps' }))
  await waitFor(() => expect(seen.filter((c) => c.method === 'POST').map((c) => c.body)).toEqual([{ step_id: 'st1' }, {}]))
})

/** A list without layout: what it is told about its heights holds. */
function layout(list: HTMLElement, rows: number) {
  Object.defineProperty(list, 'scrollHeight', { value: rows * 30, configurable: true })
  Object.defineProperty(list, 'clientHeight', { value: 800, configurable: true })
}

it('stays at the newest line, unless the person scrolled away; then it counts what came', async () => {
  core({})
  const { store, container } = show(...Array.from({ length: 60 }, (_, i) => step(i + 1)))
  const list = container.querySelector<HTMLElement>('[role=feed]')!
  layout(list, 60)
  store.take([step(61)])
  await tick()
  expect(list.scrollTop).toBe(61 * 30 - 800)
  list.scrollTop = 300
  await fireEvent.scroll(list)
  store.take([step(62), step(63)])
  await tick()
  expect(list.scrollTop).toBe(300)
  await fireEvent.click(screen.getByRole('button', { name: /2 new/ }))
  expect(list.scrollTop).toBe(63 * 30 - 800)
  expect(screen.queryByRole('button', { name: /new ↓/ })).toBeNull()
})

it('draws only the lines in view, whichever they are', async () => {
  core({})
  const { container } = show(...Array.from({ length: 5000 }, (_, i) => step(i + 1)))
  const drawn = () => [...container.querySelectorAll<HTMLElement>('[data-step]')].map((e) => Number(e.dataset.step))
  expect(drawn().length).toBeLessThan(80)
  expect(drawn().at(-1)).toBe(5000)
  const list = container.querySelector<HTMLElement>('[role=feed]')!
  layout(list, 5000)
  list.scrollTop = 0
  await fireEvent.scroll(list)
  expect(drawn()[0]).toBe(1)
  expect(drawn().length).toBeLessThan(80)
  expect(list.querySelector('[data-at="0"]')?.getAttribute('aria-posinset')).toBe('1')
  expect(list.querySelector('[data-at="0"]')?.getAttribute('aria-setsize')).toBe('5000')
})

it('finds the place again after another session was looked at', async () => {
  core({})
  const other = ev('session.created', { session: { id: 's2', project_id: 'p1', title: 'other', agent: 'playbook' } }, { session_id: 's2' })
  const { container } = show(...Array.from({ length: 200 }, (_, i) => step(i + 1)), other)
  const feed = () => container.querySelector<HTMLElement>('[role=feed]')!
  await fireEvent.click(screen.getByRole('treeitem', { name: /\bwork/ }))
  await waitFor(() => expect(container.querySelector('[data-step="200"]')).toBeTruthy())
  layout(feed(), 200)
  feed().scrollTop = 1515
  await fireEvent.scroll(feed())
  await fireEvent.click(container.querySelector('[data-step="52"]')!)
  await fireEvent.click(screen.getByRole('treeitem', { name: /other/ }))
  await waitFor(() => expect(container.querySelector('[data-step]')).toBeNull())
  await fireEvent.click(screen.getByRole('treeitem', { name: /\bwork/ }))
  await waitFor(() => expect(feed().scrollTop).toBe(1515))
  expect(container.querySelector('[data-step="52"]')?.getAttribute('aria-expanded')).toBe('true')
})

it('goes to the ends and over screens by keys, opens, folds, and comes back by Escape', async () => {
  core({})
  const { container } = show(ev('turn.started', { turn_id: 't1', prompt: 'Fix it' }), ...Array.from({ length: 200 }, (_, i) => {
    const e = step(i + 1)
    Object.assign(e.data as object, { turn_id: 't1' })
    return e
  }))
  const on = () => (document.activeElement as HTMLElement | null)?.dataset.step
  const press = async (key: string) => {
    await fireEvent.keyDown(document.activeElement ?? document.body, { key })
    await tick()
    await tick()
  }
  await press('g')
  await press('ArrowDown')
  await waitFor(() => expect(on()).toBe('1'))
  await press('G')
  await waitFor(() => expect(on()).toBe('200'))
  await press('PageUp')
  await waitFor(() => expect(Number(on())).toBeLessThan(190))
  const at = Number(on())
  expect(at).toBeGreaterThan(160)
  await press('k')
  await waitFor(() => expect(on()).toBe(String(at - 1)))
  await press('ArrowRight')
  expect(document.activeElement?.getAttribute('aria-expanded')).toBe('true')
  await press('ArrowRight')
  expect(document.activeElement?.getAttribute('role')).toBe('tab')
  await press('Escape')
  await waitFor(() => expect(on()).toBe(String(at - 1)))
  await press('ArrowLeft')
  expect(document.activeElement?.getAttribute('aria-expanded')).toBe('false')
  await press('ArrowLeft')
  await waitFor(() => expect(container.querySelectorAll('[data-step]').length).toBe(0))
  await waitFor(() => expect(document.activeElement?.textContent).toContain('Fix it'))
  expect(document.activeElement?.textContent).toContain('200 steps')
  await press('ArrowRight')
  expect(container.querySelectorAll('[data-step]').length).toBeGreaterThan(0)
  // One line alone is reached by Tab.
  expect(container.querySelectorAll('[role=feed] [data-row][tabindex="0"]').length).toBe(1)
})

it('copies what a step called and what it said', async () => {
  core({})
  const copied: string[] = []
  vi.spyOn(navigator.clipboard, 'writeText').mockImplementation(async (t: string) => void copied.push(t))
  show(step(1, 'Run npm test', 'exec', { argv: ['npm', 'test', "it's"] }), ended(1, { exit_code: 0, stdout: { total: 3, head: 'boo' } }))
  await fireEvent.keyDown(document.body, { key: 'j' })
  await waitFor(() => expect((document.activeElement as HTMLElement).dataset.step).toBe('1'))
  await fireEvent.keyDown(document.activeElement!, { key: 'c' })
  await fireEvent.keyDown(document.activeElement!, { key: 'C' })
  await waitFor(() => expect(copied).toEqual(["npm test 'it'\\''s'", 'boo']))
})

it('shows the beginning of a long reason, and the step that failed', async () => {
  core({})
  const bad = step(1, 'Run npm test')
  Object.assign(bad.data as object, { turn_id: 't1' })
  const { container } = show(ev('turn.started', { turn_id: 't1', prompt: 'Fix it' }), bad, ended(1, { outcome: 'failed', exit_code: 1, stdout: { total: 3, head: 'boo' } }), ev('turn.ended', { turn_id: 't1', result: 'failed', reason: Array.from({ length: 90 }, (_, i) => `line ${i}`).join('\n') }))
  expect(container.querySelector('.reason')?.textContent).toBe('line 0\nline 1\nline 2…')
  await fireEvent.click(screen.getByRole('button', { name: 'Show all' }))
  expect(container.querySelector('.reason')?.textContent).toContain('line 89')
  await fireEvent.click(screen.getByRole('button', { name: 'Show the step' }))
  await waitFor(() => expect(container.querySelector('[data-step="1"]')?.getAttribute('aria-expanded')).toBe('true'))
})

it('says what went wrong in a turn and what to do next', async () => {
  core({})
  show(ev('turn.started', { turn_id: 't1', prompt: 'Fix it' }), ev('turn.ended', { turn_id: 't1', result: 'interrupted', reason: 'the core ended' }))
  expect(screen.getByText('the core ended')).toBeTruthy()
  await fireEvent.click(screen.getByRole('button', { name: 'Start again…' }))
  expect(screen.getByRole('dialog')).toBeTruthy()
})

it('moves by j and k and opens by the keyboard alone', async () => {
  core({})
  show(step(1), step(2), step(3))
  for (const key of ['j', 'j', 'j', 'k']) await fireEvent.keyDown(document.body, { key })
  await waitFor(() => expect(document.activeElement?.getAttribute('data-step')).toBe('2'))
  await fireEvent.keyDown(document.body, { key: 'Enter' })
  expect(document.activeElement?.getAttribute('aria-expanded')).toBe('true')
})

it('keys belong to a text field while one is typed in', async () => {
  core({})
  show(step(1))
  const box = screen.getByLabelText('Message')
  box.focus()
  await fireEvent.keyDown(box, { key: 'n' })
  expect(screen.queryByRole('dialog')).toBeNull()
  await fireEvent.keyDown(document.body, { key: 'n' })
  expect(screen.getByRole('dialog', { name: 'New project' })).toBeTruthy()
})

it('folds a turn, and shows its end with the reason', async () => {
  core({})
  show(ev('turn.started', { turn_id: 't1', prompt: 'Fix it' }), step(1), ev('turn.ended', { turn_id: 't1', result: 'failed', reason: 'line 3: expected exit 0' }))
  expect(screen.getByText('line 3: expected exit 0')).toBeTruthy()
  const turn = screen.getByRole('button', { name: /Fix it/ })
  expect(turn.textContent).toContain('Failed')
  await fireEvent.click(turn)
  expect(screen.queryByRole('button', { name: /step 1/ })).toBeNull()
})

it('makes an image of a picture’s bytes and lets go of it afterwards', async () => {
  core({ 'GET /v1/blobs/cafe': () => new Response(new Uint8Array([0x89, 0x50, 0x4e, 0x47]), { headers: { 'Content-Type': 'text/html' } }) })
  const made = vi.spyOn(URL, 'createObjectURL').mockReturnValue('blob:made')
  const gone = vi.spyOn(URL, 'revokeObjectURL').mockImplementation(() => {})
  const { container, unmount } = render(Picture, { artefact: { sha256: 'cafe', size: 4, mime: 'image/png' }, title: 'Take a screenshot' })
  await waitFor(() => expect(container.querySelector('img')?.src).toBe('blob:made'))
  expect((made.mock.calls[0]?.[0] as Blob).type).toBe('image/png')
  unmount()
  expect(gone).toHaveBeenCalledWith('blob:made')
})

it('shows no picture whose bytes are none, whatever it is called', async () => {
  core({ 'GET /v1/blobs/cafe': () => new Response('<svg onload=alert(1)>') })
  const made = vi.spyOn(URL, 'createObjectURL').mockReturnValue('blob:made')
  made.mockClear()
  const { container } = render(Picture, { artefact: { sha256: 'cafe', size: 2, mime: 'image/png' }, title: 'Take a screenshot' })
  await waitFor(() => expect(container.textContent).toContain('the picture cannot be shown'))
  expect(made).not.toHaveBeenCalled()
})

it('keeps half-typed words a session each, sends them by key, and keeps them when that fails', async () => {
  let fails = true
  const seen = core({ 'POST /v1/sessions/s1/messages': () => (fails ? { error: { code: 'conflict', what: 'the session is busy', hint: 'try again' } } : {}) })
  const other = ev('session.created', { session: { id: 's2', project_id: 'p1', title: 'other', agent: 'claude' }, mode: 'plan' }, { session_id: 's2' })
  show(step(1), ended(1, {}), other)
  const box = () => screen.getByLabelText<HTMLTextAreaElement>('Message')
  expect(screen.getByRole('button', { name: 'Mode: Plan' })).toBeTruthy()
  expect(box().placeholder).toBe('Tell the agent what to do next…')
  await fireEvent.click(screen.getByRole('treeitem', { name: /\bwork/ }))
  expect(screen.getByRole('button', { name: 'Mode: Auto' })).toBeTruthy()
  await fireEvent.input(box(), { target: { value: 'round once' } })
  await fireEvent.click(screen.getByRole('treeitem', { name: /other/ }))
  expect(box().value).toBe('')
  await fireEvent.click(screen.getByRole('treeitem', { name: /\bwork/ }))
  expect(box().value).toBe('round once')
  await fireEvent.keyDown(box(), { key: 'Enter', ctrlKey: true })
  await waitFor(() => expect(screen.getByText('the session is busy')).toBeTruthy())
  expect(box().value).toBe('round once')
  fails = false
  await fireEvent.keyDown(box(), { key: 'Enter', ctrlKey: true })
  await waitFor(() => expect(box().value).toBe(''))
  expect(seen.filter((c) => c.path.endsWith('/messages')).map((c) => c.body)).toEqual([{ text: 'round once' }, { text: 'round once' }])
})

it('leaves a line for each change of mode, model or limit', async () => {
  core({})
  const { container } = show(ev('session.changed', { mode: 'plan' }, { actor: 'person' }), ev('session.changed', { model: 'small', limit_nanos: 2_000_000_000 }, { actor: 'script' }), ev('session.changed', { mode: 'plan' }, { actor: 'person' }))
  // What is as it was is no change.
  expect([...container.querySelectorAll('[data-at]')].map((r) => r.textContent?.trim().replace(/\s+/g, ' '))).toEqual(['setYou changed the mode from auto to plan', 'setScript changed the model from the default to small, and the spending limit from none to $2.00'])
})

it('says on its line which mode or rule denied a step, and a person’s no as a person’s', async () => {
  core({})
  const refused = (n: number, reason: string) => ev('step.refused', { state: 'denied', reason, allowed: '' }, of(n))
  show(
    step(1, 'Write a.txt', 'write'), ev('step.decided', { decision: 'deny', rule: 'mode:plan', reason: 'In plan mode nothing is changed.' }, of(1)), refused(1, 'In plan mode nothing is changed.'),
    step(2, 'Run rm'), ev('step.decided', { decision: 'deny', rule: 'user:no-rm', reason: 'Nothing is removed here.' }, of(2)), refused(2, 'Nothing is removed here.'),
    step(3, 'Run curl'), ev('step.decided', { decision: 'ask', rule: 'default', reason: 'It leaves the machine.' }, of(3)), refused(3, 'the person said no'))
  const said = (n: number) => document.querySelector(`[data-step="${n}"] .res`)?.textContent?.trim()
  expect([said(1), said(2), said(3)]).toEqual(['denied by plan mode', 'denied by rule no-rm', 'denied'])
  await fireEvent.click(document.querySelector('[data-step="2"]')!)
  expect(document.querySelector('.open .why')?.textContent).toContain('Denied by rule no-rm. Nothing is removed here.')
})
