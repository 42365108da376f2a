import { describe, expect, it } from 'vitest'
import type { Envelope } from '../api/types'
import { apply, empty, open, waiting, type State } from './state'
import { Store } from './store.svelte'

let id = 0
const ev = (type: string, data: unknown, extra: Partial<Envelope> = {}): Envelope => ({ id: ++id, stream: 'x', seq: id, at: id, type, origin: 'host', project_id: 'p1', session_id: 's1', step_id: 'st1', data, ...extra }) as Envelope
const begin = () => [
  ev('project.created', { project: { id: 'p1', name: 'shop', source: '/s', machine_kind: 'local' } }),
  ev('session.created', { session: { id: 's1', project_id: 'p1', title: 't', agent: 'playbook' } }),
  ev('step.requested', { number: 1, tool: 'exec', title: 'true' }),
]
const fold = (...es: Envelope[]): State => es.reduce(apply, empty())

it('folds a step from request to seal and drops what came already', () => {
  const s = empty()
  const all = [...begin(), ev('approval.requested', { approval_id: 'a1', kind: 'step', title: 'true', digest: 'd', choices: [{ id: 'once', label: 'Allow once' }] })]
  all.forEach((e) => apply(s, e))
  expect(s.steps.st1?.asks).toBe(1)
  expect(s.steps.st1?.state).toBe('asking')
  expect(waiting(s).map((q) => q.id)).toEqual(['a1'])
  const rest = [
    ev('approval.answered', { approval_id: 'a1', choice: 'once', by: 'person' }),
    ev('step.started', {}),
    ev('step.output', { text: 'hello', offset: 0 }, { id: 0 }),
    ev('step.ended', { outcome: 'ok', exit_code: 0, duration_ms: 3, stdout: { total: 5, head: 'hello' } }),
    ev('step.sealed', { changes: [{ path: 'a', op: 'add', added: 1, deleted: 0 }] }),
  ]
  rest.forEach((e) => apply(s, e))
  expect(waiting(s)).toEqual([])
  expect(s.questions.a1?.answer).toMatchObject({ choice: 'once', label: 'Allow once', by: 'person', refused: false })
  expect(s.steps.st1).toMatchObject({ state: 'sealed', asks: 0, exit: 0, changes: [{ path: 'a' }] })
  const before = JSON.stringify(s)
  ;[...all, ...rest.filter((e) => e.id > 0)].forEach((e) => apply(s, e))
  expect(JSON.stringify(s)).toBe(before)
})

it('replaces what changed and keeps what did not', () => {
  const s = fold(...begin(), ev('step.requested', { number: 2, tool: 'read', title: 'x' }, { step_id: 'st2' }))
  const [one, two, session] = [s.steps.st1, s.steps.st2, s.sessions.s1]
  apply(s, ev('step.started', {}))
  expect(s.steps.st1).not.toBe(one)
  expect(s.steps.st2).toBe(two)
  expect(s.sessions.s1).toBe(session)
  apply(s, ev('message', { role: 'agent', text: 'hi' }))
  expect(s.sessions.s1).not.toBe(session)
})

describe('output of a running step', () => {
  it('keeps the end of it, and none after the step', () => {
    const s = fold(...begin(), ev('step.started', {}), ev('step.output', { text: 'x'.repeat(200_000) }, { id: 0 }), ev('step.output', { text: 'end' }, { id: 0 }))
    expect(s.steps.st1?.live?.length).toBe(64 * 1024 + 3)
    expect(s.steps.st1?.live?.endsWith('end')).toBe(true)
    apply(s, ev('step.ended', { outcome: 'ok', duration_ms: 1 }))
    apply(s, ev('step.output', { text: 'late' }, { id: 0 }))
    expect(s.steps.st1?.live).toBeUndefined()
  })
})

describe('questions', () => {
  it('tell a saved refusal from an allowance', () => {
    const s = fold(...begin(), ev('approval.requested', { approval_id: 'a', kind: 'egress', title: 't', digest: 'd', choices: [{ id: 'never', label: 'Never', covers: 'x', grant: { decision: 'deny' } }] }), ev('approval.answered', { approval_id: 'a', choice: 'never', by: 'demo' }))
    expect(s.questions.a?.answer).toMatchObject({ refused: true, by: 'demo' })
  })
  it('end without an answer, and stay in the timeline', () => {
    const s = fold(...begin(), ev('approval.requested', { approval_id: 'a', kind: 'step', title: 't', digest: 'd', choices: [] }), ev('approval.closed', { approval_id: 'a', why: 'expired' }))
    expect(open(s.questions.a)).toBe(false)
    expect(s.questions.a?.answer).toBeUndefined()
    expect(s.sessions.s1?.items.at(-1)).toEqual({ kind: 'ask', question: 'a' })
  })
})

it('puts a connection on its step, else in the session, and counts at the gate', () => {
  const s = fold(
    ...begin(),
    ev('egress.opened', { conn_id: 'c', host: 'a.example', port: 443, addr: '192.0.2.1', rule: 'project' }),
    ev('egress.closed', { conn_id: 'c', bytes_out: 5, bytes_in: 7, duration_ms: 1 }),
    ev('egress.blocked', { host: 'b.example', port: 80, reason: 'denied' }, { step_id: undefined }),
    ev('egress.opened', { conn_id: 'd', host: 'a.example', port: 443, addr: '192.0.2.1', rule: 'project' }),
  )
  expect(s.steps.st1?.net).toMatchObject([{ mark: '→', text: 'a.example:443', sum: '5 B out, 7 B in' }, { mark: '→' }])
  expect(s.sessions.s1?.items.at(-1)).toMatchObject({ kind: 'net', net: { mark: '⊘', text: 'b.example:80', why: 'denied' } })
  expect(s.projects.p1).toMatchObject({ hosts: ['a.example:443'], blocked: 1 })
})

it('follows reviews and pushes of a project', () => {
  const s = fold(
    ...begin(),
    ev('review.opened', { review_id: 'r1', base: 'b', candidate: 'c', files: 2, units: 3 }),
    ev('review.opened', { review_id: 'r2', base: 'b', candidate: 'd', files: 1, units: 1, ref: 'refs/heads/x' }),
    ev('review.decided', { review_id: 'r1', file: '', decision: 'accept' }),
    ev('push.started', { review_id: 'r1', remote: 'm', ref: 'r', expected: '', commit: 'c', tree: 't' }),
    ev('push.ended', { review_id: 'r1', ok: false, reason: 'moved' }),
  )
  expect(s.projects.p1?.reviews).toMatchObject([{ id: 'r2', ref: 'refs/heads/x' }, { id: 'r1', pushed: 'failed' }])
  expect(s.projects.p1?.reviewed).toBe(5)
})

it('shows progress until the machine says its state, and keeps the host’s apart', () => {
  const s = fold(...begin(), ev('machine.progress', { phase: 'boot', text: 'booting' }, { id: 0 }), ev('machine.progress', { phase: 'image', text: 'packages', done: 1, total: 3 }, { id: 0, project_id: undefined }))
  expect([s.projects.p1?.progress, s.progress]).toMatchObject([{ text: 'booting' }, { text: 'packages', done: 1, total: 3 }])
  apply(s, ev('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' }))
  expect(s.projects.p1).toMatchObject({ progress: undefined, machine: 'ready' })
})

it('gives a turn its result, also when others began since', () => {
  const s = fold(...begin(), ev('turn.started', { turn_id: 't1' }), ev('turn.started', { turn_id: 't2' }), ev('turn.ended', { turn_id: 't1', result: 'failed', reason: 'why' }))
  expect(s.sessions.s1?.items.filter((i) => i.kind === 'turn')).toMatchObject([{ turn: 't1', result: 'failed', reason: 'why' }, { turn: 't2' }])
})

it('keeps the sums of a session and of its turns while events come', () => {
  const s = fold(
    ...begin(),
    ev('turn.started', { turn_id: 't1', prompt: 'go' }),
    ev('step.requested', { number: 2, tool: 'edit', title: 'x', turn_id: 't1' }, { step_id: 'st2' }),
    ev('step.requested', { number: 3, tool: 'exec', title: 'y', turn_id: 't1' }, { step_id: 'st3' }),
    ev('step.ended', { outcome: 'ok', duration_ms: 1 }, { step_id: 'st2' }),
    ev('step.sealed', { changes: [{ path: 'a', op: 'add', added: 2, deleted: 0 }, { path: 'b', op: 'modify', added: 1, deleted: 1 }] }, { step_id: 'st2' }),
    ev('step.refused', { state: 'denied', reason: 'no' }, { step_id: 'st3' }),
    ev('step.ended', { outcome: 'ok', duration_ms: 1 }),
    ev('step.sealed', { changes: [{ path: 'a', op: 'modify', added: 1, deleted: 1 }] }),
  )
  const x = s.sessions.s1
  expect([...(x?.files ?? [])]).toEqual(['a', 'b'])
  expect([x?.busy.size, x?.lines, x?.changing]).toEqual([0, { added: 4, deleted: 2 }, ['st2', 'st1']])
  expect(x?.turn).toMatchObject({ n: 1, steps: 2, text: 'go' })
  // The step of no turn counts for the session alone.
  expect(x?.turn?.files).toEqual(new Set(['a', 'b']))
  expect(x?.items[x.turns.get('t1') ?? -1]).toBe(x?.turn)
})

it('ignores types it does not know and events of things it never saw', () => {
  const s = fold(ev('a.new.type', {}), ev('step.ended', { outcome: 'ok' }), ev('machine.state', { state: 'ready' }), ev('approval.answered', { approval_id: 'zz', choice: 'x', by: 'y' }), ev('turn.ended', { turn_id: 'q', result: 'ok' }))
  expect(s).toMatchObject({ projects: {}, sessions: {}, steps: {}, questions: {} })
})

it('a fault in one event does not lose the next', () => {
  const store = new Store()
  store.take([ev('session.created', {}), ...begin()])
  expect(store.s.steps.st1?.number).toBe(1)
})
