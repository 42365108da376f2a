import { describe, expect, it } from 'vitest'
import type { DiffLine, Hunk, ReviewComment, ReviewFile } from '../../api/types'
import { editorsOf } from './notes'
import { branchFor, protocol } from './push.svelte'
import { onlySpace, rowsOf, spotOf, WordMarks, type View } from './rows'
import { lastChecks } from './steps'
import { inOrder, treeOf } from './tree'
import { ev, project, world } from '../../test/world'

const view = (v: Partial<View> = {}): View => ({ split: false, quietSpace: false, comments: [], editors: [], opened: {}, ...v })
function hunkOf(id: string, text: string, at = 1): Hunk {
  let o = at
  let n = at
  const lines: DiffLine[] = text.split('\n').map((l) => {
    const op = l[0] ?? ' '
    return { op, text: l.slice(1), ...(op === '+' ? {} : { old: o++ }), ...(op === '-' ? {} : { new: n++ }) }
  })
  return { id, old_start: at, old_lines: o - at, new_start: at, new_lines: n - at, lines }
}
const file = (hunks: Hunk[], more: Partial<ReviewFile> = {}): ReviewFile => ({ id: 'f', path: 'a.ts', display: 'a.ts', op: 'modify', added: 1, deleted: 1, new_size: 1, old_size: 1, viewed: false, units: hunks.map((h) => h.id), decisions: {}, hunks, ...more })
const note = (more: Partial<ReviewComment>): ReviewComment => ({ id: 'c1', review_id: 'r', path: 'a.ts', file: 'f', text: 't', state: 'draft', at: 1, ...more })
/** Rows in short: what stands beside what. */
const short = (f: ReviewFile, v: View) => rowsOf(f, v).map((r) => (r.kind === 'pair' ? `${r.old?.text ?? '~'}|${r.new?.text ?? '~'}` : r.kind === 'line' ? `${r.same ? '=' : r.line.op}${r.line.text}` : r.kind === 'gap' ? `gap ${r.n}` : r.kind))

describe('rows', () => {
  const f = file([hunkOf('h1', ' a\n-b\n-c\n+B\n d', 10)])
  it('puts old above new, with what is left out', () => expect(short(f, view())).toEqual(['gap 9', 'unit', ' a', '-b', '-c', '+B', ' d', 'gap -1']))
  it('puts old beside new and fills what has no other side', () => expect(short(f, view({ split: true }))).toEqual(['gap 9', 'unit', 'a|a', 'b|B', 'c|~', 'd|d', 'gap -1']))
  it('draws lines that were asked for, numbered on both sides', () => {
    const rows = rowsOf(f, view({ opened: { 1: ['x', 'y'], 13: ['z'] }, total: 13 }))
    expect(rows.map((r) => (r.kind === 'line' ? `${r.line.old ?? ''}:${r.line.new ?? ''}` : r.kind === 'gap' ? `gap ${r.n}` : r.kind))).toEqual(['1:1', '2:2', 'gap 7', 'unit', '10:10', '11:', '12:', ':11', '13:12', '14:13'])
  })
  it('takes a change of blanks for none, where it is asked to', () => {
    const s = file([hunkOf('h1', '-\tx = 1\n+  x = 1'), hunkOf('h2', '-\ty\n+z', 40)])
    expect(short(s, view({ quietSpace: true })).slice(0, 3)).toEqual(['unit', '=  x = 1', 'gap 38'])
    expect(onlySpace(s.hunks![0]!)).toBe(true)
    expect(onlySpace(s.hunks![1]!)).toBe(false)
    // What is decided stays: the units do not depend on the view.
    expect(rowsOf(s, view({ quietSpace: true })).filter((r) => r.kind === 'unit').map((r) => r.unit)).toEqual(['h1', 'h2'])
  })
  it('a hunk of a file that is decided as a whole belongs to the whole', () => {
    const rows = rowsOf(file([hunkOf('h1', '+a')], { op: 'add', units: ['file'] }), view())
    expect(rows.map((r) => [r.kind, r.unit])).toEqual([['unit', 'file'], ['line', 'file']])
  })
  it('puts comments and editors under their line, in both views', () => {
    for (const split of [false, true]) {
      const got = short(f, view({ split, comments: [note({ side: 'old', line: 12 })], editors: [{ spot: { side: 'new', line: 11 }, draft: 'd' }] }))
      expect(got.indexOf('note')).toBe(got.indexOf(split ? 'c|~' : '-c') + 1)
      expect(got.indexOf('edit')).toBe(got.indexOf(split ? 'b|B' : '+B') + 1)
    }
  })
  it('a comment on a context line of the old side stands there too', () => {
    expect(short(f, view({ comments: [note({ side: 'old', line: 13 })] })).slice(-3)).toEqual([' d', 'note', 'gap -1'])
  })
  it('never hides a comment whose line is not drawn or is gone', () => {
    const rows = short(f, view({ comments: [note({ id: 'c1', side: 'new', line: 99 }), note({ id: 'c2', outdated: true }), note({ id: 'c3' })] }))
    expect(rows.filter((r) => r === 'note').length).toBe(3)
    expect(rows[0]).toBe('note') // about the file as a whole
    expect(rows.slice(-3)).toEqual(['lost', 'note', 'note'])
  })
  it('keys are unique, whatever is shown', () => {
    const many = file([hunkOf('h1', ' a\n-b\n+B\n a'), hunkOf('h2', '-b\n+B', 20)])
    for (const split of [false, true]) {
      const keys = rowsOf(many, view({ split, comments: [note({ side: 'new', line: 2 }), note({ id: 'c2', side: 'old', line: 2 })], opened: { 4: ['q'] } })).map((r) => r.key)
      expect(new Set(keys).size).toBe(keys.length)
    }
  })
  it('says which line a row stands for', () => {
    const rows = rowsOf(f, view({ split: true }))
    expect(spotOf(rows.find((r) => r.kind === 'pair' && r.old?.text === 'c'), 'new')).toEqual({ side: 'old', line: 12 })
    expect(spotOf(rows.find((r) => r.kind === 'pair' && r.old?.text === 'b'), 'new')).toEqual({ side: 'new', line: 11 })
    expect(spotOf(rows[0], 'new')).toBeUndefined()
  })
})

it('marks words of lines that stand beside each other, also where one side has more', () => {
  const h = hunkOf('h1', '-sum + l.price * q\n+sum + round(l.price) * q\n+more')
  const m = new WordMarks(file([h]))
  const [was, now, more] = h.lines as [DiffLine, DiffLine, DiffLine]
  expect(m.of(now)?.map(([a, b]) => now.text.slice(a, b)).join('')).toContain('round(')
  expect(m.of(was) ?? []).toEqual([])
  expect(m.of(more)).toBeUndefined()
})

it('makes a tree of paths, with chains of folders on one line', () => {
  const fs = ['a.ts', 'src/deep/only/x.ts', 'src/deep/only/y.ts', 'z/z.ts'].map((p) => file([], { id: p, path: p, display: p, viewed: p.endsWith('x.ts') }))
  expect(treeOf(fs, {}).map((l) => `${' '.repeat(l.depth)}${l.name}`)).toEqual(['src/deep/only', ' x.ts', ' y.ts', 'z', ' z.ts', 'a.ts'])
  const shut = treeOf(fs, { 'src/deep/only': true })
  expect(shut[0]).toMatchObject({ kind: 'folder', files: 2, viewed: 1 })
  expect(shut.length).toBe(4)
  expect(inOrder(fs).map((f) => f.display)).toEqual(['src/deep/only/x.ts', 'src/deep/only/y.ts', 'z/z.ts', 'a.ts'])
})

it('finds the editors that are open among the drafts', () => {
  expect(editorsOf({ 'comment.r.f.new:3': '', 'comment.r.f.file': 'x', 'comment.r.g.new:3': 'y', 'say.s': 'z', 'comment.r.f.new:x': '' }, 'r', 'f').map((e) => e.spot)).toEqual([{ side: 'new', line: 3 }, { side: 'new', line: 0 }])
})

it('names how a remote is reached, and a branch', () => {
  expect(['https://h/x', 'git@h:x', 'ssh://h/x', '/a/b', 'file:///a', ''].map(protocol)).toEqual(['https', 'ssh', 'ssh', 'this computer', 'this computer', ''])
  expect(branchFor('Fix the failing checkout test!')).toBe('fix-the-failing-checkout-test')
  expect(branchFor('ü')).toBe('changes')
})

it('names checks that were declared and have not run, and the last verdict of those that have', () => {
  const { store } = world(project(), ev('session.created', { session: { id: 's1', project_id: 'p1', title: 'work', agent: 'playbook' }, checks: [{ name: 'unit tests' }, { name: 'lint' }] }))
  const of = () => lastChecks(store.s, store.s.projects.p1!, Infinity).map((c) => [c.name, c.ok])
  expect(of()).toEqual([['unit tests', undefined], ['lint', undefined]])
  store.take([ev('check.ran', { name: 'lint', ok: false, reason: 'exit 1' })])
  expect(of()).toEqual(expect.arrayContaining([['unit tests', undefined], ['lint', false]]))
})
