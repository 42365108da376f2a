import type { Envelope } from '../api/types'

// The page is a fold over events: apply() takes the state and one event and
// returns the next state; nothing else changes it.

export interface Change { path: string; old_path?: string; op: string; added: number; deleted: number; binary?: boolean }
export interface Stream { total: number; dropped?: number; head?: string; tail?: string }
export interface Step {
  id: string
  session: string
  number: number
  tool: string
  title: string
  state: 'requested' | 'asking' | 'running' | 'ended' | 'sealed' | 'denied' | 'cancelled' | 'expired'
  reason?: string
  live?: string
  outcome?: string
  error?: string
  exit?: number
  ms?: number
  stdout?: Stream
  stderr?: Stream
  result?: unknown
  artefacts?: { sha256: string; mime?: string }[]
  changes?: Change[]
  net: { mark: string; text: string }[]
}
export interface Question {
  id: string
  session: string
  project: string
  step: string
  kind: string
  title: string
  digest: string
  free: boolean
  detail: { name: string; value: string; origin?: string }[]
  choices: { id: string; label: string; covers?: string }[]
}
export type Item = { kind: 'step'; step: string } | { kind: 'say'; role: string; text: string } | { kind: 'turn'; text: string; result?: string; reason?: string } | { kind: 'check'; name: string; ok: boolean; reason: string }
export interface SessionState { id: string; project: string; title: string; agent: string; state: string; items: Item[]; at: number }
export interface ProjectState { id: string; name: string; kind: string; machine: string; problem: string; progress: string; deleted: boolean; reviews: number; at: number }
export interface State {
  last: number
  projects: Record<string, ProjectState>
  sessions: Record<string, SessionState>
  steps: Record<string, Step>
  questions: Record<string, Question>
}

export const empty = (): State => ({ last: 0, projects: {}, sessions: {}, steps: {}, questions: {} })

const LIVE = 64 * 1024

/** Applies one event in place; State objects are owned by the caller. */
export function apply(s: State, e: Envelope): State {
  if (e.id > 0) {
    if (e.id <= s.last) return s
    s.last = e.id
  }
  const d = e.data
  const project = e.project_id ? s.projects[e.project_id] : undefined
  const session = e.session_id ? s.sessions[e.session_id] : undefined
  const step = e.step_id ? s.steps[e.step_id] : undefined
  switch (e.type) {
    case 'project.created':
      s.projects[d.project.id] = { id: d.project.id, name: d.project.name, kind: d.project.machine_kind, machine: 'absent', problem: '', progress: '', deleted: false, reviews: 0, at: e.at }
      break
    case 'project.deleted':
      if (project) project.deleted = true
      break
    case 'machine.state':
      if (project) Object.assign(project, { machine: d.state, problem: d.problem ?? '', progress: '' })
      break
    case 'machine.progress':
      if (project) project.progress = d.text
      break
    case 'project.imported':
      if (project) project.progress = ''
      break
    case 'session.created':
      s.sessions[d.session.id] = { id: d.session.id, project: d.session.project_id, title: d.session.title || d.session.agent, agent: d.session.agent, state: 'idle', items: [], at: e.at }
      break
    case 'session.state':
      if (session) session.state = d.state
      break
    case 'turn.started':
      session?.items.push({ kind: 'turn', text: d.prompt || `turn by ${e.actor ?? 'someone'}` })
      break
    case 'turn.ended': {
      const turn = session?.items.findLast((i) => i.kind === 'turn')
      if (turn?.kind === 'turn') Object.assign(turn, { result: d.result, reason: d.reason })
      break
    }
    case 'message':
      session?.items.push({ kind: 'say', role: d.role, text: d.text })
      break
    case 'check.ran':
      session?.items.push({ kind: 'check', name: d.name, ok: d.ok, reason: d.reason ?? '' })
      break
    case 'step.requested':
      if (session && e.step_id) {
        s.steps[e.step_id] = { id: e.step_id, session: session.id, number: d.number, tool: d.tool, title: d.title, state: 'requested', net: [] }
        session.items.push({ kind: 'step', step: e.step_id })
      }
      break
    case 'step.decided':
      if (step && d.decision !== 'allow') step.reason = d.reason
      break
    case 'step.started':
      if (step) step.state = 'running'
      break
    case 'step.output':
      if (step) step.live = ((step.live ?? '') + d.text).slice(-LIVE)
      break
    case 'step.ended':
      if (step) {
        delete step.live
        Object.assign(step, { state: 'ended', outcome: d.outcome, error: d.error, exit: d.exit_code, ms: d.duration_ms, stdout: d.stdout, stderr: d.stderr, result: d.result, artefacts: d.artefacts })
      }
      break
    case 'step.sealed':
      if (step) Object.assign(step, { state: 'sealed', changes: d.changes ?? [] })
      break
    case 'step.refused':
      if (step) Object.assign(step, { state: d.state, reason: d.reason })
      break
    case 'approval.requested':
      s.questions[d.approval_id] = { id: d.approval_id, session: e.session_id ?? '', project: e.project_id ?? '', step: e.step_id ?? '', kind: d.kind, title: d.title, digest: d.digest, free: !!d.free_text, detail: d.detail ?? [], choices: d.choices ?? [] }
      if (step && d.kind === 'step') step.state = 'asking'
      break
    case 'approval.answered':
    case 'approval.closed':
      delete s.questions[d.approval_id]
      break
    case 'egress.opened':
      step?.net.push({ mark: '→', text: `${d.host}:${d.port} (${d.rule})` })
      break
    case 'egress.blocked':
      step?.net.push({ mark: '⊘', text: `${d.host}:${d.port}: ${d.reason}` })
      break
    case 'review.opened':
    case 'review.decided':
    case 'push.ended':
      if (project) project.reviews++
      break
  }
  return s
}
