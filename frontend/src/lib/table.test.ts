import { cleanup, render, waitFor } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import DiffTab from '../features/timeline/DiffTab.svelte'
import Tree from '../features/review/Tree.svelte'
import Question from '../features/questions/Question.svelte'
import { core, ended, ev, of, project, question, session, step, world } from '../test/world'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

// What every plain object has already; a file may be called so too.
const NAMES = ['constructor', '__proto__', 'toString', 'valueOf', 'hasOwnProperty']
const change = (path: string) => ({ path, op: 'add', added: 1, deleted: 0 })

it('knows what is touched by its name alone', () => {
  const { store } = world(project(), session())
  const touched = () => store.s.projects['p1']!.touched
  for (const n of NAMES) expect(touched()[n], n).toBeUndefined()
  store.take([ev('files.touched', { changes: NAMES.map(change) }, { id: 0, session_id: undefined })])
  expect(Object.keys(touched())).toEqual(NAMES)
  for (const n of NAMES) expect(touched()[n]?.op, n).toBe('add')
  store.take([step(1), ev('step.sealed', { commit: 'c', changes: NAMES.map(change) }, of(1))])
  for (const n of NAMES) expect(touched()[n]?.sealed, n).toBe(true)
})

it('shows the lines of a step’s files, or why not, whatever they are called', async () => {
  const diff = (n: string) => ({ path: n, display: n, op: 'add', binary: false, added: 1, deleted: 0, old_size: 0, new_size: 3, hunks: [{ id: 'h', old_start: 0, old_lines: 0, new_start: 1, new_lines: 1, lines: [{ op: '+', text: `the line of ${n}`, new: 1 }] }] })
  const asked = core({ ...Object.fromEntries(NAMES.slice(0, -1).map((n) => [`GET /v1/sessions/s1/steps/st1/diff?path=${n}`, () => diff(n)])) })
  const { store } = world(project(), session(), step(1), ended(1, {}), ev('step.sealed', { commit: 'c', changes: NAMES.map(change) }, of(1)))
  const { container } = render(DiffTab, { step: store.s.steps['st1']! })
  // Closed at first when there are many; none is opened by its name.
  await waitFor(() => expect(asked.length).toBe(3))
  const heads = [...container.querySelectorAll<HTMLElement>('button.name')]
  expect(heads.map((b) => b.getAttribute('aria-expanded'))).toEqual(['true', 'true', 'true', 'false', 'false'])
  for (const b of heads.slice(3)) b.click()
  await waitFor(() => {
    for (const n of NAMES.slice(0, -1)) expect(container.textContent).toContain(`the line of ${n}`)
    expect(container.textContent).toContain('nothing at')
  })
})

it('folds no folder of a review by its name', () => {
  const file = (n: string) => ({ id: `f${n}`, path: `${n}/a`, display: `${n}/a`, op: 'add', added: 1, deleted: 0, units: [], viewed: false })
  const files = NAMES.map(file)
  const { container } = render(Tree, { files, all: files, current: '', comments: new Map(), find: '', onpick: () => {}, onmark: () => {} } as never)
  const folders = [...container.querySelectorAll('[role=treeitem][aria-expanded]')]
  expect(folders.length).toBe(NAMES.length)
  expect(folders.map((f) => f.getAttribute('aria-expanded'))).toEqual(NAMES.map(() => 'true'))
})

it('asks with answers of any name, as an agent words them', () => {
  const w = world(project(), session(), step(1), question({ kind: 'question', choices: NAMES.map((n, i) => ({ id: i ? `option-${i}` : n, label: n })) }))
  const { container } = render(Question, { desk: w.desk, question: w.store.s.questions['a1']! })
  for (const n of NAMES) expect(container.textContent).toContain(n)
})

it('knows nothing by the name of what every object has', () => {
  const { store, desk } = world(project(), session())
  for (const n of NAMES) {
    expect([store.s.projects[n], store.s.sessions[n], store.s.steps[n], store.s.questions[n]]).toEqual([undefined, undefined, undefined, undefined])
    desk.show(n)
    expect(desk.current?.id).toBe('p1')
  }
})
