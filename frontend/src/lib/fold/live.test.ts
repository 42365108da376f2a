import { expect, it } from 'vitest'
import { ev, of, project, session, step, world } from '../../test/world'
import { CONNS } from './net'

const touch = (path: string, op = 'modify', more: object = {}) => ev('files.touched', { changes: [{ path, op, added: 0, deleted: 0 }] }, { id: 0, session_id: undefined, ...more } as never)
const p = (w: ReturnType<typeof world>) => w.store.s.projects['p1']!

it('keeps what is touched until a checkpoint holds it', () => {
  const w = world(project(), session(), step(1), touch('a', 'add', of(1)), touch('a'), touch('b', 'delete'))
  expect(p(w).touched['a']).toMatchObject({ op: 'add', sealed: false, step: '' })
  expect(Object.keys(p(w).touched)).toEqual(['a', 'b'])
  w.store.take([ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: 'a', op: 'add', added: 1, deleted: 0 }] }, of(1))])
  expect(Object.values(p(w).touched).every((t) => t.sealed)).toBe(true)
  // The watcher is a moment late: what the checkpoint lists is not new again; something else is.
  w.store.take([touch('a'), touch('c')])
  expect(p(w).touched['a']!.sealed).toBe(true)
  expect(p(w).touched['c']!.sealed).toBe(false)
})

it('takes what the watcher says ahead of the record of a checkpoint for what that one holds', () => {
  const w = world(project(), session(), step(1))
  const seal = ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: 'a', op: 'add', added: 1, deleted: 0 }] }, of(1))
  w.store.take([touch('a', 'add', { ...of(1), at: seal.at + 30 }), touch('b', 'add', { ...of(1), at: seal.at + 30 }), seal])
  expect(p(w).touched['a']!.sealed).toBe(true)
  expect(p(w).touched['b']!.sealed).toBe(false)
})

it('counts nothing that fills the workspace as a change, but what a step does meanwhile', () => {
  const w = world(project(), session(), step(1), touch('a', 'add'))
  w.store.take([ev('project.imported', { files: 2 }, { session_id: undefined } as never)])
  w.store.take([touch('b', 'add'), touch('c', 'add', of(1))])
  expect(Object.entries(p(w).touched).map(([path, t]) => [path, t.sealed])).toEqual([['a', true], ['b', true], ['c', false]])
})

it('knows a late word about both names of a file, and about a checkpoint of another session', () => {
  const w = world(project(), session(), step(1), step(2))
  w.store.take([ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: 'new', old_path: 'old', op: 'rename', added: 0, deleted: 0 }] }, of(1))])
  w.store.take([ev('step.sealed', { commit: 'd', tree: 't', changes: [{ path: 'other', op: 'add', added: 1, deleted: 0 }] }, of(2))])
  w.store.take([touch('old', 'delete'), touch('new', 'add'), touch('other', 'add'), touch('more', 'add')])
  expect(Object.entries(p(w).touched).map(([path, t]) => [path, t.sealed])).toEqual([['old', true], ['new', true], ['other', true], ['more', false]])
})

it('remembers the newest touched paths, and what is known of the watcher', () => {
  const w = world(project(), ...Array.from({ length: 700 }, (_, i) => touch(`f${i}`)))
  expect(Object.keys(p(w).touched).length).toBe(500)
  expect(p(w).touched['f0']).toBeUndefined()
  w.store.take([ev('files.touched', { changes: null, degraded: true, resync: true, dropped: 7 }, { id: 0 })])
  expect(p(w).watch).toMatchObject({ degraded: true, resyncs: 1, dropped: 7 })
})

const opened = (n: number, more = {}) => ev('egress.opened', { conn_id: `c${n}`, host: 'example.org', port: 443, addr: '203.0.113.7', rule: 'allow example.org', claim: 'curl', ...more }, of(1))
const closed = (n: number) => ev('egress.closed', { conn_id: `c${n}`, bytes_out: 10, bytes_in: 20, duration_ms: 5 }, of(1))

it('follows each connection from its opening to its end', () => {
  const w = world(project(), session(), step(1), opened(1), opened(2), closed(1), ev('egress.blocked', { host: 'evil.test', port: 80, reason: 'no rule', approval_id: 'a1' }, of(1)))
  const log = p(w).net
  expect([...log.all.values()].map((c) => [c.state, c.host, c.out, c.in])).toEqual([['closed', 'example.org', 10, 20], ['open', 'example.org', 0, 0], ['blocked', 'evil.test', 0, 0]])
  expect(log).toMatchObject({ open: 1, blocked: 1, out: 10, in: 20, dropped: 0 })
  expect(w.store.s.steps['st1']!.net.map((n) => [n.mark, n.sum])).toEqual([['→', '10 B out, 20 B in'], ['→', undefined], ['⊘', undefined]])
})

it('keeps the newest connections and counts the others, in time that does not grow', () => {
  const n = CONNS * 5
  const w = world(project(), session(), step(1), ...Array.from({ length: n }, (_, i) => opened(i)))
  expect(p(w).net.all.size).toBe(CONNS)
  expect(p(w).net).toMatchObject({ dropped: n - CONNS, open: CONNS })
  w.store.take([closed(0), closed(n - 1), closed(n - 1)])
  expect(p(w).net).toMatchObject({ open: CONNS - 1, in: 20 })
  expect(w.store.s.steps['st1']!.net.length).toBe(1000)
  expect(w.store.s.steps['st1']!.net.at(-1)!.sum).toBe('10 B out, 20 B in')
})
