import { expect, it } from 'vitest'
import type { Envelope } from '../api/types'
import { apply, empty } from './state'

let id = 0
const ev = (type: string, data: unknown, extra: Partial<Envelope> = {}): Envelope => ({ id: ++id, stream: 'x', seq: id, at: id, type, origin: 'host', project_id: 'p1', session_id: 's1', step_id: 'st1', data, ...extra })

it('folds a step from request to seal and drops what came already', () => {
  const s = empty()
  const all = [
    ev('project.created', { project: { id: 'p1', name: 'shop', machine_kind: 'local' } }),
    ev('session.created', { session: { id: 's1', project_id: 'p1', title: 't', agent: 'playbook' } }),
    ev('step.requested', { number: 1, tool: 'exec', title: 'true' }),
    ev('approval.requested', { approval_id: 'a1', kind: 'step', title: 'true', digest: 'd', choices: [{ id: 'once', label: 'Allow once' }] }),
  ]
  all.forEach((e) => apply(s, e))
  expect(s.steps.st1?.state).toBe('asking')
  expect(Object.keys(s.questions)).toEqual(['a1'])
  const rest = [
    ev('approval.answered', { approval_id: 'a1', choice: 'once', by: 'person' }),
    ev('step.started', {}),
    ev('step.output', { text: 'hello', offset: 0 }, { id: 0 }),
    ev('step.ended', { outcome: 'ok', exit_code: 0, duration_ms: 3, stdout: { total: 5, head: 'hello' } }),
    ev('step.sealed', { changes: [{ path: 'a', op: 'add', added: 1, deleted: 0 }] }),
  ]
  rest.forEach((e) => apply(s, e))
  expect(s.questions).toEqual({})
  expect(s.steps.st1).toMatchObject({ state: 'sealed', exit: 0, changes: [{ path: 'a' }] })
  const before = JSON.stringify(s)
  ;[...all, ...rest.filter((e) => e.id > 0)].forEach((e) => apply(s, e))
  expect(JSON.stringify(s)).toBe(before)
})
