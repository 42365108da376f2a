import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, beforeAll, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ended, ev, HARMFUL, HOSTILE, of, project, session, shown, step, world } from '../../test/world'
import { fileRows } from '../changes/rows'
import { reckon, wanted, whyNot } from './restore'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})
beforeAll(() => {
  Element.prototype.scrollIntoView ??= () => {}
})

const C = ['a', 'b', 'c', 'd', 'e'].map((x) => x.repeat(40))
const change = (path: string, op = 'modify', more: object = {}) => ({ path, op, added: 1, deleted: 1, ...more })
/** A step that changed files: it went from one checkpoint to the next. */
const sealed = (n: number, paths: object[], more: object = {}) => ev('step.sealed', { commit: C[n], base: C[n - 1], tree: 't', changes: paths, ...more }, of(n))
const did = (n: number, ...paths: object[]) => [step(n), ev('step.started', {}, of(n)), ended(n, { exit_code: 0 }), sealed(n, paths)]
const restored = (n: number, to = 'after step 1', before = C[n - 1]) => [
  step(n, `Restore to ${to}`, 'restore', { checkpoint: C[1], label: to, before }), ev('step.started', {}, of(n)),
  ended(n, { result: { checkpoint: C[1], before, files: 2 } }), sealed(n, [change('a.txt'), change('b.txt')]),
]

function show(...events: Parameters<typeof world>) {
  const w = world(project(), session(), ...events)
  const r = render(App, { store: w.store, live: false })
  return { ...w, ...r }
}
const row = (n: number) => document.querySelector<HTMLElement>(`[data-step="${n}"]`)!
const VIEW = `GET /v1/projects/p1/restore?step=st1&side=after`

it('says in numbers what a restore would change before it is done, does it, and shows its line', async () => {
  const seen = core({
    [VIEW]: () => ({ checkpoint: C[1], label: 'after step 1', changes: [change('a.txt'), change('gone.txt', 'add'), change('new.txt', 'delete')] }),
    'POST /v1/projects/p1/restore?wait=started': () => ({ session_id: 's1', execution_id: 'st3', state: 'running' }),
  })
  const { store } = show(...did(1, change('a.txt')), ...did(2, change('a.txt'), change('new.txt', 'add')))
  await fireEvent.click(row(1))
  await fireEvent.click(screen.getByRole('button', { name: 'Restore to after this step' }))
  const panel = screen.getByRole('region', { name: 'Restore to after step 1' })
  // Until the core has read it, the log's own sum.
  expect(panel.textContent).toContain('2 files at most')
  expect(document.activeElement?.textContent).toBe('Leave it')
  await waitFor(() => expect(panel.textContent).toContain('3 files change against the newest checkpoint: 1 changed back, 1 brought back, 1 deleted.'))
  expect(panel.textContent).toContain('kept as a checkpoint first')
  expect(panel.textContent).toContain('Ignored files stay as they are. .git stays as it is; where it was destroyed, it is made anew.')
  expect(seen.filter((c) => c.method === 'POST')).toEqual([])
  await fireEvent.click(within(panel).getByRole('button', { name: 'Restore' }))
  await waitFor(() => expect(seen.filter((c) => c.method === 'POST').map((c) => c.body)).toEqual([{ step: 'st1', side: 'after', session_id: 's1' }]))
  await waitFor(() => expect(screen.queryByRole('region', { name: /^Restore to/ })).toBeNull())
  store.take(restored(3))
  await waitFor(() => expect(document.activeElement).toBe(row(3)))
  expect([...row(3).children].map((c) => c.textContent?.trim().replaceAll('\u00a0', ' '))).toEqual(['3', 'You restored the workspace to after step 1', '2 files', ''])
})

it('undoes the newest restore from its line and by key, to what was there before it', async () => {
  const seen = core({
    [`GET /v1/projects/p1/restore?checkpoint=${C[2]}`]: () => ({ checkpoint: C[2], label: '', changes: [change('a.txt'), change('b.txt')] }),
    'POST /v1/projects/p1/restore?wait=started': () => ({ session_id: 's1', execution_id: 'st4', state: 'running' }),
  })
  const { store } = show(...did(1, change('a.txt')), ...did(2, change('b.txt')), ...restored(3))
  await fireEvent.click(screen.getByRole('button', { name: 'Undo the restore of step 3' }))
  const panel = await screen.findByRole('region', { name: 'Undo the restore of step 3' })
  await waitFor(() => expect(panel.textContent).toContain('2 files change'))
  await fireEvent.keyDown(panel, { key: 'Escape' })
  expect(screen.queryByRole('region', { name: /^Undo/ })).toBeNull()
  expect(document.activeElement).toBe(row(3))
  await fireEvent.keyDown(row(3), { key: 'u' })
  await fireEvent.click(within(await screen.findByRole('region', { name: 'Undo the restore of step 3' })).getByRole('button', { name: 'Undo the restore' }))
  await waitFor(() => expect(seen.filter((c) => c.method === 'POST').map((c) => c.body)).toEqual([{ checkpoint: C[2], session_id: 's1' }]))
  // Once something followed, its line has no Undo any more; the opened step still has.
  store.take(did(4, change('c.txt')))
  await tick()
  expect(screen.queryByRole('button', { name: 'Undo the restore of step 3' })).toBeNull()
  expect(screen.getByRole('button', { name: 'Undo this restore' })).toBeTruthy()
})

it('is reached by key and by the palette, for both sides of the selected step', async () => {
  core({ [VIEW]: () => ({ checkpoint: C[1], label: '', changes: [] }) })
  show(...did(1, change('a.txt')), ...did(2, change('a.txt')))
  row(1).focus()
  await fireEvent.keyDown(row(1), { key: 'b' })
  expect(screen.getByRole('region', { name: 'Restore to before step 1' })).toBeTruthy()
  await fireEvent.keyDown(screen.getByRole('region', { name: 'Restore to before step 1' }), { key: 'Escape' })
  await fireEvent.keyDown(row(1), { key: 'a' })
  await waitFor(() => expect(screen.getByRole('region', { name: 'Restore to after step 1' }).textContent).toContain('No file differs from the newest checkpoint.'))
  await fireEvent.keyDown(window, { key: 'k', ctrlKey: true })
  const box = await screen.findByRole('combobox')
  await fireEvent.input(box, { target: { value: 'restore to' } })
  await waitFor(() => expect(screen.getAllByRole('option').map((o) => o.textContent)).toEqual(expect.arrayContaining([expect.stringContaining('Restore to before step 1'), expect.stringContaining('Restore to after step 1')])))
})

it('waits, and says for what, while a turn or a step runs in the project', async () => {
  core({})
  const { store } = show(...did(1, change('a.txt')))
  await fireEvent.pointerDown(row(1))
  await fireEvent.click(row(1))
  const button = () => screen.getByRole<HTMLButtonElement>('button', { name: 'Restore to after this step' })
  expect(button().disabled).toBe(false)
  store.take([ev('session.created', { session: { id: 's2', project_id: 'p1', title: 'other', agent: 'manual' } }, { session_id: 's2' }), ev('step.requested', { number: 1, tool: 'exec', title: 'Run sleep', args: {}, reach: 'machine', digest: 'd' }, { session_id: 's2', step_id: 'o1' }), ev('step.started', {}, { session_id: 's2', step_id: 'o1' })])
  await tick()
  expect(button().disabled).toBe(true)
  expect(button().title).toBe('Step 1 runs in the session “other”.')
  expect(button().parentElement?.textContent).toContain('Not now: Step 1 runs in the session “other”.')
  // It begins while the panel is open: nothing is sent.
  store.take([ev('step.ended', { outcome: 'ok', duration_ms: 1 }, { session_id: 's2', step_id: 'o1' })])
  await tick()
  await fireEvent.click(button())
  store.take([ev('session.state', { state: 'running' }), ev('turn.started', { turn_id: 't1', prompt: 'go', agent: 'model' })])
  await tick()
  const panel = screen.getByRole('region', { name: 'Restore to after step 1' })
  expect(within(panel).getByRole<HTMLButtonElement>('button', { name: 'Restore' }).disabled).toBe(true)
  expect(within(panel).getByRole('status').textContent).toBe('Not now: A turn runs.')
})

it('says what the core said where it refuses, and keeps the panel', async () => {
  core({ 'POST /v1/projects/p1/restore?wait=started': () => ({ status: 409, error: { code: 'conflict', what: 'step 9 is at work', hint: 'wait for its end' } }) })
  show(...did(1, change('a.txt')))
  await fireEvent.click(row(1))
  await fireEvent.click(screen.getByRole('button', { name: 'Restore to before this step' }))
  const panel = screen.getByRole('region', { name: 'Restore to before step 1' })
  // The core cannot be asked what would change: the log's own sum stays, and why.
  await waitFor(() => expect(panel.textContent).toContain('Counted from the log'))
  expect(panel.textContent).toContain('1 file at most')
  await fireEvent.click(within(panel).getByRole('button', { name: 'Restore' }))
  await waitFor(() => expect(within(panel).getByRole('alert').textContent).toContain('step 9 is at work'))
})

it('goes to the new session where that of the step has ended', async () => {
  const seen = core({ 'POST /v1/projects/p1/restore?wait=started': () => ({ session_id: 's9', execution_id: 'r1', state: 'running' }) })
  const { store } = show(...did(1, change('a.txt')), ev('session.state', { state: 'ended' }))
  await fireEvent.click(row(1))
  await fireEvent.click(screen.getByRole('button', { name: 'Restore to after this step' }))
  const panel = screen.getByRole('region', { name: 'Restore to after step 1' })
  expect(panel.textContent).toContain('a new session, “Restore”')
  await fireEvent.click(within(panel).getByRole('button', { name: 'Restore' }))
  await waitFor(() => expect(seen.some((c) => c.method === 'POST')).toBe(true))
  expect(seen.find((c) => c.method === 'POST')?.body).toEqual({ step: 'st1', side: 'after' })
  const there = { session_id: 's9', step_id: 'r1' }
  await tick()
  store.take([ev('session.created', { session: { id: 's9', project_id: 'p1', title: 'Restore', agent: 'manual' } }, { session_id: 's9' }), ev('step.requested', { number: 1, tool: 'restore', title: 'Restore to after step 1', args: {}, reach: 'machine', digest: 'd' }, there)])
  await waitFor(() => expect(screen.getByRole('heading', { name: 'Restore' })).toBeTruthy())
  await waitFor(() => expect(document.activeElement).toBe(row(1)))
  expect(row(1).textContent).toContain('Restore the workspace to after step 1')
})

it('knows which sides of a step there are, and what lies between', () => {
  const { store } = world(project(), session(),
    ...did(1, change('a.txt')), ...did(2, change('b.txt', 'rename', { old_path: 'old.txt' })),
    step(3), ended(3, { exit_code: 0 }), ev('step.sealed', { commit: C[2], same: true, tree: 't', changes: [] }, of(3)),
    step(4), ended(4, { exit_code: 0 }), ev('step.sealed', { failed: 'the disk is full', tree: '', changes: [] }, of(4)))
  const of_ = (n: number) => store.s.steps[`st${n}`]!
  expect([1, 2, 3, 4].map((n) => (['before', 'after'] as const).filter((x) => wanted(of_(n), x)))).toEqual([['before', 'after'], ['before', 'after'], ['after'], []])
  expect(reckon(store.s, of_(1), 'after')).toEqual({ known: true, paths: ['b.txt', 'old.txt'], steps: 1, more: false, loose: 0 })
  expect(reckon(store.s, of_(1), 'before').paths).toEqual(['a.txt', 'b.txt', 'old.txt'])
  expect(reckon(store.s, of_(3), 'after').paths).toEqual([])
  store.take([ev('files.touched', { changes: [{ path: 'hand.txt', op: 'modify' }] }, { session_id: undefined, id: 0, at: 1_800_000_000_000 })])
  expect(reckon(store.s, of_(1), 'after')).toMatchObject({ paths: ['b.txt', 'hand.txt', 'old.txt'], loose: 1 })
  expect(whyNot(store.s, of_(1))).toBe('')
})

it('shows hostile names of what would change as text', async () => {
  core({ [VIEW]: () => ({ checkpoint: C[1], label: '', changes: [change(HOSTILE)] }) })
  const { container } = show(...did(1, change('a.txt')), ...did(2, change(HOSTILE)))
  await fireEvent.click(row(1))
  await fireEvent.click(screen.getByRole('button', { name: 'Restore to after this step' }))
  await waitFor(() => expect(screen.getByRole('region', { name: 'Restore to after step 1' }).textContent).toContain('against the newest checkpoint'))
  expect(shown(container)).not.toMatch(HARMFUL)
  expect(container.querySelector('img')).toBeNull()
})

it('says of a session’s files what stands after a restore, and after its undo', () => {
  const { store } = world(project(), session(), ...did(1, change('a.txt')), ...did(2, change('b.txt', 'add'), change('a.txt')))
  const files = () => fileRows(store.s.sessions['s1'], store.s.steps).flatMap((r) => (r.kind === 'file' ? [`${r.op} ${r.path} ${r.steps.map((x) => x.number).join()}`] : []))
  const sums = () => ({ files: [...store.s.sessions['s1']!.files].sort(), ...store.s.sessions['s1']!.lines })
  expect(files()).toEqual(['modify a.txt 2,1', 'add b.txt 2'])
  expect(sums()).toEqual({ files: ['a.txt', 'b.txt'], added: 3, deleted: 3 })
  const back = (n: number, checkpoint: string, paths: object[]) => [step(n, 'Restore to somewhere', 'restore', {}), ev('step.started', {}, of(n)), ended(n, { result: { checkpoint, before: C[n - 1], files: paths.length } }), sealed(n, paths)]
  store.take(back(3, C[1]!, [change('a.txt'), change('b.txt', 'delete')]))
  expect(files()).toEqual(['modify a.txt 1'])
  expect(sums()).toEqual({ files: ['a.txt'], added: 1, deleted: 1 })
  // Undone, all of it stands again; before the first step nothing does.
  store.take(back(4, C[2]!, [change('a.txt'), change('b.txt', 'add')]))
  expect(files()).toEqual(['modify a.txt 2,1', 'add b.txt 2'])
  store.take([step(5, 'Restore to before step 1', 'restore', {}), ended(5, { result: { checkpoint: C[0], before: C[4], files: 2 } }), ev('step.sealed', { commit: 'f'.repeat(40), base: C[4], tree: 't', changes: [change('a.txt'), change('b.txt', 'delete')] }, of(5))])
  expect(files()).toEqual([])
  expect(sums()).toEqual({ files: [], added: 0, deleted: 0 })
  // What comes then counts from there; one checkpoint nobody knows is a change like others.
  store.take([step(6), ended(6, {}), ev('step.sealed', { commit: '1'.repeat(40), base: 'f'.repeat(40), tree: 't', changes: [change('c.txt')] }, of(6)),
    step(7, 'Restore', 'restore', {}), ended(7, { result: { checkpoint: '9'.repeat(40), before: '1'.repeat(40), files: 1 } }), ev('step.sealed', { commit: '2'.repeat(40), base: '1'.repeat(40), tree: 't', changes: [change('d.txt')] }, of(7))])
  expect(files()).toEqual(['modify d.txt 7', 'modify c.txt 6'])
})

it('says in its line and opened what became of a destroyed repository', async () => {
  core({})
  const told = (n: number, repository?: string) => [step(n, 'Restore to after step 1', 'restore', { checkpoint: C[1], label: 'after step 1' }), ended(n, { result: { checkpoint: C[1], before: C[n - 1], files: 2, ...(repository ? { repository } : {}) } }), sealed(n, [change('a.txt')])]
  show(...did(1, change('a.txt')), ...told(2, 'made anew'), ...told(3, `it could not be made anew: ${HOSTILE}`), ...told(4))
  const cells = (n: number) => row(n).textContent?.replaceAll('\u00a0', ' ') ?? ''
  expect(cells(2)).toContain('new repository')
  expect(cells(3)).toContain('no repository')
  expect(cells(4)).not.toContain('repository')
  await fireEvent.click(row(2))
  expect((await screen.findByRole('note')).textContent).toBe('Its repository had been destroyed and was made anew, without the commits and branches made inside. What was left of the old one, if anything, is in .git/glasshouse-before.')
  await fireEvent.click(row(2))
  await fireEvent.click(row(3))
  await waitFor(() => expect(screen.getByRole('note').textContent).toMatch(/^The files are back, but the repository is not known to be whole: it could not be made anew: .*Restoring again tries once more\.$/s))
  expect(shown(document.body)).not.toMatch(HARMFUL)
})

it('names an undo after the restore it undoes', () => {
  const back = (n: number, checkpoint: string, label: string) => [step(n, `restore to ${label}`, 'restore', { checkpoint, label }), ended(n, { result: { checkpoint, before: C[n - 1], files: 2 } }), sealed(n, [change('a.txt')])]
  const { store } = show(...did(1, change('a.txt')), ...did(2, change('b.txt')), ...restored(3), ...back(4, C[2]!, 'checkpoint cccccccccccc'))
  const words = (n: number) => row(n).querySelector('.title')?.textContent
  expect(words(4)).toBe('You undid the restore of step 3')
  // The same state asked for by the step it was after, and one that was before no restore, are no undo.
  store.take([step(5, 'restore to after step 2', 'restore', { checkpoint: C[2], label: 'after step 2' }), step(6, 'restore to checkpoint 999999999999', 'restore', { checkpoint: '9'.repeat(40), label: 'checkpoint 999999999999' })])
  expect([5, 6].map((n) => store.s.steps[`st${n}`]?.undoes)).toEqual([undefined, undefined])
  // Until it is done it is not said to be.
  store.take([step(7, 'restore to checkpoint dddddddddddd', 'restore', { checkpoint: C[3], label: 'checkpoint dddddddddddd' })])
  expect(store.s.steps.st7?.undoes).toBe(4)
})
