import type { Envelope } from '../../api/types'
import type { Question, State } from '../state'
import { open } from '../state'
import { nothing } from './model'
import type { About } from './fold'

export function foldSession({ s, session, put }: About, { type, data: d, at, actor }: Envelope) {
  switch (type) {
    case 'session.created':
      s.sessions[d.session.id] = { id: d.session.id, project: d.session.project_id, title: d.session.title || d.session.agent, agent: d.session.agent, class: d.session.class ?? '', mode: d.mode || 'auto', checks: (d.checks ?? []).map((c) => c.name), state: 'idle', reason: '', items: [], steps: [], at, busy: new Set(), files: new Set(), lines: { added: 0, deleted: 0 }, changing: [], standing: undefined, stood: new Map(), turns: new Map(), model: d.model ?? '', limitNanos: d.limit_nanos ?? 0, limitTokens: d.limit_tokens ?? 0, spent: nothing(), calls: new Map(), retries: new Map() }
      break
    case 'session.state':
      put.session({ state: d.state, reason: d.reason ?? '' })
      break
    case 'session.changed': {
      if (!session) break
      const now = { mode: d.mode === undefined ? undefined : d.mode || 'auto', model: d.model, cost: d.limit_nanos, tokens: d.limit_tokens }
      const was = { mode: session.mode, model: session.model, cost: session.limitNanos, tokens: session.limitTokens }
      const changes = (['mode', 'model', 'cost', 'tokens'] as const).flatMap((what) => {
        const to = now[what]
        return to === undefined || to === was[what] ? [] : [{ what, from: was[what], to }]
      })
      if (changes.length) put.item({ kind: 'set', by: actor ?? '', changes, at })
      put.session({ ...(d.mode === undefined ? {} : { mode: d.mode || 'auto' }), ...(d.model === undefined ? {} : { model: d.model }), ...(d.limit_nanos === undefined ? {} : { limitNanos: d.limit_nanos }), ...(d.limit_tokens === undefined ? {} : { limitTokens: d.limit_tokens }) })
      break
    }
    case 'turn.started':
      if (!session) break
      session.turns.set(d.turn_id, session.items.length)
      put.item({ kind: 'turn', turn: d.turn_id, n: session.turns.size, by: actor ?? '', text: d.prompt ?? '', at, steps: 0, files: new Set(), ...(d.agent ? { agent: d.agent } : {}), ...(d.go_on ? { goOn: true } : {}) })
      break
    case 'turn.ended':
      put.turn(d.turn_id, { result: d.result, reason: d.reason, until: at })
      break
    case 'message':
      put.item({ kind: 'say', role: d.role, by: actor ?? '', text: d.text, at })
      break
    case 'check.ran':
      put.item({ kind: 'check', name: d.name, ok: d.ok, reason: d.reason ?? '', at })
      break
  }
}

export function foldQuestion({ s, step, put }: About, e: Envelope) {
  const { type, data: d, at } = e
  switch (type) {
    case 'approval.requested':
      s.questions[d.approval_id] = {
        id: d.approval_id, at, session: e.session_id ?? '', project: e.project_id ?? '', step: e.step_id ?? '', kind: d.kind, title: d.title, digest: d.digest,
        free: !!d.free_text, expires: d.expires_at, detail: d.detail ?? [], choices: d.choices ?? [],
      }
      s.open.add(d.approval_id)
      if (step) put.step({ asks: step.asks + 1, ...(d.kind === 'step' ? { state: 'asking' as const } : {}) })
      put.item({ kind: 'ask', question: d.approval_id })
      break
    case 'approval.answered': {
      const q = s.questions[d.approval_id]
      const c = q?.choices.find((x) => x.id === d.choice)
      if (q) s.questions[q.id] = { ...q, answer: { choice: d.choice, label: c?.label ?? d.choice, refused: d.choice === 'deny' || c?.grant?.decision === 'deny', by: d.by, text: d.text ?? '', at } }
      settle(s, q)
      break
    }
    case 'approval.closed': {
      const q = s.questions[d.approval_id]
      if (q) s.questions[q.id] = { ...q, closed: d.why }
      settle(s, q)
      break
    }
  }
}

/** A question was open until now; its step waits for one less. */
function settle(s: State, q: Question | undefined) {
  if (q) s.open.delete(q.id)
  const step = q && open(q) ? s.steps[q.step] : undefined
  if (step) s.steps[step.id] = { ...step, asks: step.asks - 1 }
}
