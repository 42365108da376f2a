import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, HARMFUL, HOSTILE, of, project, session, shown, step, world } from '../../test/world'
import { over } from './rows'

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const seal = (n: number, changes: object[], more: object = {}) => [step(n), ev('step.sealed', { commit: `c${n}`, tree: 't', changes, ...more }, of(n))]
const sealed = (n: number, path: string, op = 'modify') => seal(n, [{ path, op, added: 2, deleted: 1 }])
const touched = (path: string, op = 'modify', more: object = {}) => ev('files.touched', { changes: [{ path, op, added: 0, deleted: 0 }] }, { id: 0, at: Date.now(), session_id: undefined, ...more } as never)
const pane = () => screen.getByRole('region', { name: 'Changes' })
const rows = () => [...pane().querySelectorAll('.r')].map((r) => (r.textContent ?? '').replace(/\s+/g, ' ').trim())
const hunk = { id: 'h', old_start: 1, old_lines: 1, new_start: 1, new_lines: 1, lines: [{ op: '-', text: 'was so', old: 1 }, { op: '+', text: 'is so', new: 1 }] }

it('shows what changed by step, newest first, and counts a file once', () => {
  core({})
  const { store } = world(project(), session(), ...sealed(1, 'a.ts'), ...sealed(2, 'b.ts', 'add'), ...sealed(3, 'a.ts'))
  render(App, { store, live: false })
  expect(pane().textContent).toContain('2 files in this session')
  expect(rows()).toEqual(['M a.ts +2 −1step 3', 'A b.ts +2 −1step 2', 'M a.ts +2 −1step 1'])
})

it('groups by file on wish, sums up, and remembers it', async () => {
  core({})
  const w = () => world(project(), session(), ...sealed(1, 'a.ts', 'add'), ...sealed(2, 'b.ts'), ...seal(3, [{ path: 'a.ts', op: 'modify', added: 3, deleted: 0 }])).store
  render(App, { store: w(), live: false })
  await fireEvent.click(screen.getByRole('button', { name: 'by file' }))
  expect(rows()).toEqual(['A a.ts 2 steps+5 −1step 3', 'M b.ts +2 −1step 2'])
  cleanup()
  render(App, { store: w(), live: false })
  expect(rows().length).toBe(2)
})

it('opens what a step did to a file in place, and says why where there is nothing to show', async () => {
  const seen = core({
    'GET /v1/sessions/s1/steps/st1/diff?path=a.ts': () => ({ path: 'a.ts', op: 'modify', binary: false, too_large: false, hunks: [hunk] }),
    'GET /v1/sessions/s1/steps/st2/diff?path=b.bin': () => ({ path: 'b.bin', op: 'modify', binary: true, too_large: false, hunks: [], old_mode: 33188, new_mode: 33188, old_size: 10, new_size: 2048 }),
    'GET /v1/sessions/s1/steps/st3/diff?path=c.ts': () => ({ status: 503, error: { code: 'unavailable', what: 'the machine of project shop is off', hint: 'start it' } }),
  })
  const { store } = world(project(), session(), ...sealed(1, 'a.ts'), ...sealed(2, 'b.bin'), ...sealed(3, 'c.ts'))
  render(App, { store, live: false })
  const button = (n: number) => pane().querySelectorAll<HTMLElement>('button.file')[n]!
  await fireEvent.click(button(2))
  await waitFor(() => expect(pane().textContent).toContain('is so'))
  expect(button(2).getAttribute('aria-expanded')).toBe('true')
  await fireEvent.click(button(1))
  await waitFor(() => expect(pane().textContent).toContain('Not text: 10 B → 2.0 KB'))
  expect(pane().textContent).not.toContain('is so')
  await fireEvent.click(button(0))
  await waitFor(() => expect(pane().textContent).toContain('the machine of project shop is off'))
  expect(screen.getByRole('button', { name: 'Start the machine' })).toBeTruthy()
  // What was read once is not asked for again.
  await fireEvent.click(button(2))
  await waitFor(() => expect(pane().textContent).toContain('is so'))
  expect(seen.filter((c) => c.path.includes('st1/diff')).length).toBe(1)
})

it('shows what is touched before its checkpoint, and no longer after it', async () => {
  core({})
  const { store } = world(project(), session(), ...sealed(1, 'a.ts'), step(2), touched('x.ts', 'add', of(2)), touched('a.ts'))
  render(App, { store, live: false })
  expect(rows().slice(0, 2)).toEqual([expect.stringMatching(/^M a\.ts live.*no step$/), expect.stringMatching(/^A x\.ts live.*step 2$/)])
  expect(pane().textContent).toContain('2 not in a checkpoint yet')
  store.take([ev('step.sealed', { commit: 'c2', tree: 't', changes: [{ path: 'x.ts', op: 'add', added: 1, deleted: 0 }] }, { ...of(2), at: Date.now() + 1000 })])
  await waitFor(() => expect(rows()).toEqual(['A x.ts +1step 2', 'M a.ts +2 −1step 1']))
})

it('counts ignored files when their number changes, as what is known and no more', () => {
  core({})
  const { store } = world(project(), session(), ...seal(1, [], { ignored: 212 }), ...seal(2, [{ path: 'a', op: 'add', added: 1, deleted: 0 }], { ignored: 212 }), ...seal(3, [], { ignored: 300 }))
  render(App, { store, live: false })
  expect(rows()).toEqual(['·88 more ignored files, 300 in all: no checkpoint holds themstep 3', 'A a +1step 2', '·212 ignored files: no checkpoint holds themstep 1'])
})

it('draws a bounded number of rows, however many there are', () => {
  core({})
  const { store } = world(project(), session(), ...Array.from({ length: 1300 }, (_, i) => sealed(i + 1, `f${i}`)).flat())
  render(App, { store, live: false })
  expect(pane().querySelectorAll('.r').length).toBeLessThan(120)
  expect(rows()[0]).toContain('f1299')
})

it('shows hostile names as text, everywhere they appear', async () => {
  core({ [`GET /v1/sessions/s1/steps/st1/diff?path=${encodeURIComponent(HOSTILE)}`]: () => ({ path: HOSTILE, old_path: HOSTILE + 'o', op: 'rename', binary: false, too_large: false, why: HOSTILE, hunks: [{ ...hunk, lines: [{ op: '+', text: HOSTILE, new: 1 }] }] }) })
  const { store } = world(project(), session(), ...seal(1, [{ path: HOSTILE, old_path: HOSTILE + 'o', op: 'rename', added: 1, deleted: 0 }]), touched(HOSTILE + 'l'))
  render(App, { store, live: false })
  await fireEvent.click(pane().querySelectorAll('button.file')[1]!)
  await waitFor(() => expect(pane().textContent).toContain('renamed from'))
  expect(shown(pane())).not.toMatch(HARMFUL)
  expect(pane().querySelector('img, script')).toBeNull()
})

it('knows what became of a file over several steps', () => {
  expect([over('add', 'modify'), over('delete', 'add'), over('modify', 'delete'), over(undefined, 'rename')]).toEqual(['add', 'modify', 'delete', 'rename'])
})
