import type { Data, Envelope } from '../api/types'
import { ended, ev, of, project } from './world'

// A made-up model at work, for tests of views and folds.

export const MODEL = { agent: 'model', model: 'big', context: 128_000 }
export const modelSession = (more: object = {}, id = 's1') =>
  ev('session.created', { session: { id, project_id: 'p1', title: 'Fix the checkout test', agent: 'model' }, mode: 'auto', model: MODEL.model, ...more }, { session_id: id })
export const turn = (prompt = 'The checkout test fails. Find out why and fix it.', id = 't1', more: object = {}) => ev('turn.started', { turn_id: id, prompt, agent: 'model', ...more })
export const turnEnded = (result: string, reason = '', id = 't1') => ev('turn.ended', { turn_id: id, result, ...(reason ? { reason } : {}) })

type Part = NonNullable<Data<'model.answered'>['parts']>[number]
export const text = (t: string): Part => ({ kind: 'text', text: t })
export const thought = (t: string): Part => ({ kind: 'thought', text: t })
export const call = (key: string, tool = 'exec', args: unknown = { argv: ['true'] }): Part => ({ kind: 'call', key, id: `srv_${key}`, tool, args: typeof args === 'string' ? args : JSON.stringify(args) })
export const answered = (n: number, parts: Part[], more: Partial<Data<'model.answered'>> = {}) =>
  ev('model.answered', {
    turn_id: 't1', answer_id: `an${n}`, number: n, model: MODEL.model, served: 'big-2026', parts, stop: parts.some((p) => p.kind === 'call') ? 'calls' : 'end',
    usage: { input: 1000, cache_read: 200, output: 80, reasoning: 0 }, cost_nanos: 4_100_000, priced: true, context_used: 20_000 + 1000 * n, context_size: MODEL.context, attempts: 1, first_ms: 800, took_ms: 4100, ...more,
  } satisfies Data<'model.answered'>)
export const delta = (n: number, kind: 'text' | 'thought' | 'call', offset: number, t: string, more: object = {}) =>
  ev('message.delta', { turn_id: 't1', answer_id: `an${n}`, attempt: 1, kind, offset, text: t, ...more }, { id: 0 })
export const retried = (n: number, attempt = 1, more: object = {}) => ev('model.retried', { turn_id: 't1', answer_id: `an${n}`, attempt, kind: 'busy', status: 529, reason: 'the server is overloaded', wait_ms: 4000, ...more })
export const told = (n: number, results: object[]) => ev('model.told', { turn_id: 't1', answer_id: `an${n}`, results })
export const plan = (...items: [string, string][]) => ev('plan.updated', { turn_id: 't1', items: items.map(([state, t]) => ({ text: t, state })) })
export const compacted = (more: object = {}) => ev('context.compacted', { turn_id: 't1', through_event_id: 1, kept: 'You asked: fix the test.', summary: 'The total is **rounded** twice.', before_tokens: 92_100, after_tokens: 14_200, reason: 'the context is 80 % full', ...more })
/** A step that an answer's call became. */
export const calledStep = (n: number, key: string, title = `step ${n}`, tool = 'exec', args: unknown = {}) => ev('step.requested', { number: n, key, turn_id: 't1', tool, title, args, reach: 'machine', digest: 'd' }, of(n))
export const done = (n: number, d: object = {}): Envelope[] => [ev('step.started', {}, of(n)), ended(n, d)]

/** A project, a session of a model, and its turn. */
export const begun = (more: object = {}) => [project(), modelSession(more), ev('session.state', { state: 'running' }), turn()]
