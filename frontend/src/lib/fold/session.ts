import type { Envelope } from '../../api/types'
import type { Item, Question, State } from '../state'
import { open } from '../state'
import type { About } from './fold'

export function foldSession({ s, session, put }: About, { type, data: d, at, actor }: Envelope) {
  switch (type) {
    case 'session.created':
      s.sessions[d.session.id] = { id: d.session.id, project: d.session.project_id, title: d.session.title || d.session.agent, agent: d.session.agent, state: 'idle', reason: '', items: [], steps: [], at }
      break
    case 'session.state':
      put.session({ state: d.state, reason: d.reason ?? '' })
      break
    case 'turn.started':
      put.item({ kind: 'turn', turn: d.turn_id, by: actor ?? '', text: d.prompt ?? '' })
      break
    case 'turn.ended': {
      if (!session) break
      const i = session.items.findLastIndex((x) => x.kind === 'turn' && x.turn === d.turn_id)
      const turn = session.items[i]
      if (turn) session.items[i] = { ...turn, result: d.result, reason: d.reason } as Item
      put.session({})
      break
    }
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
  const step = q && open(q) ? s.steps[q.step] : undefined
  if (step) s.steps[step.id] = { ...step, asks: step.asks - 1 }
}
