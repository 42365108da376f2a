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
  expect(screen.getByLabelText('output so far').textContent).toBe('so far')
  store.take([ev('step.output', { text: ' and on' }, { ...of(1), id: 0 })])
  await tick()
  expect(screen.getByLabelText('output so far').textContent).toBe('so far and on')
  store.take([ended(1, { exit_code: 0, stdout: { total: 4, head: 'done' } })])
  await tick()
  expect(screen.queryByLabelText('output so far')).toBeNull()
  expect(screen.getByText('done')).toBeTruthy()
})

it('says how much lies between the ends of a long output, and gets all of it', async () => {
  const seen = core({ 'GET /v1/blobs/feed': () => new Response('all of it') })
  show(step(1), ended(1, { exit_code: 0, stdout: { total: 5000, head: 'head', tail: 'tail', blob: { sha256: 'feed', size: 5000 } } }))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  expect(screen.getByLabelText('output', { exact: true }).textContent).toContain('[… 4.9 KB between …]')
  await fireEvent.click(screen.getByRole('button', { name: 'All 4.9 KB' }))
  await waitFor(() => expect(screen.getByLabelText('output', { exact: true }).textContent).toBe('all of it'))
  expect(seen).toHaveLength(1)
})

it('cancels a running step, and all of a session', async () => {
  const seen = core({ 'POST /v1/sessions/s1/cancel': () => ({}) })
  show(step(1), ev('step.started', {}, of(1)))
  await fireEvent.click(screen.getByRole('button', { name: /step 1/ }))
  const [all, one] = screen.getAllByRole('button', { name: 'Cancel step' })
  await fireEvent.click(one!)
  await fireEvent.click(all!)
  await waitFor(() => expect(seen.map((c) => c.body)).toEqual([{ step_id: 'st1' }, {}]))
})

it('stays at the newest line, unless the person scrolled away; then it counts what came', async () => {
  core({})
  const { store, container } = show(...Array.from({ length: 30 }, (_, i) => step(i + 1)))
  const list = container.querySelector<HTMLElement>('[role=feed]')!
  Object.defineProperty(list, 'scrollHeight', { value: 1000, configurable: true })
  Object.defineProperty(list, 'clientHeight', { value: 200, configurable: true })
  store.take([step(31)])
  await tick()
  await tick()
  expect(list.scrollTop).toBe(1000)
  list.scrollTop = 300
  await fireEvent.scroll(list)
  store.take([step(32), step(33)])
  await tick()
  expect(list.scrollTop).toBe(300)
  await fireEvent.click(screen.getByRole('button', { name: /2 new/ }))
  expect(list.scrollTop).toBe(1000)
  expect(screen.queryByRole('button', { name: /new ↓/ })).toBeNull()
})

it('draws the newest lines of a very long session, and earlier ones on demand', async () => {
  core({})
  const { container } = show(...Array.from({ length: 450 }, (_, i) => step(i + 1)))
  expect(container.querySelectorAll('[data-step]').length).toBe(400)
  const earlier = container.querySelector('.earlier')!
  expect(earlier.textContent).toBe('Show 50 of 50 earlier lines')
  await fireEvent.click(earlier)
  expect(container.querySelectorAll('[data-step]').length).toBe(450)
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
  core({ 'GET /v1/blobs/cafe': () => new Response(new Uint8Array([0x89, 0x50]), { headers: { 'Content-Type': 'text/html' } }) })
  const made = vi.spyOn(URL, 'createObjectURL').mockReturnValue('blob:made')
  const gone = vi.spyOn(URL, 'revokeObjectURL').mockImplementation(() => {})
  const { container, unmount } = render(Picture, { artefact: { sha256: 'cafe', size: 2, mime: 'image/png' }, title: 'Take a screenshot' })
  await waitFor(() => expect(container.querySelector('img')?.src).toBe('blob:made'))
  expect((made.mock.calls[0]?.[0] as Blob).type).toBe('image/png')
  unmount()
  expect(gone).toHaveBeenCalledWith('blob:made')
})
