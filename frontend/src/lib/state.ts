import type { Envelope } from '../api/types'

// The page is a fold over events: apply() takes the state and one event; nothing
// else changes it. The tables are changed in place, but every project, session,
// step and question in them is replaced when it changes, so that a view can tell
// by identity what it has to draw again.

export interface Change { path: string; old_path?: string; op: string; added: number; deleted: number; binary?: boolean }
export interface Blob { sha256: string; size: number; mime?: string; name?: string }
export interface Stream { total: number; dropped?: number; head?: string; tail?: string; binary?: boolean; blob?: Blob }
export interface Net { mark: '→' | '⊘'; text: string; why: string; claim: string; conn: string; sum?: string }
export type StepPhase = 'requested' | 'asking' | 'running' | 'ended' | 'sealed' | 'denied' | 'cancelled' | 'expired'
export interface Step {
  id: string
  session: string
  number: number
  tool: string
  title: string
  args: unknown
  at: number
  state: StepPhase
  /** Questions about it that wait. */
  asks: number
  reason?: string
  rule?: string
  allowed?: string
  live?: string
  outcome?: string
  error?: string
  exit?: number
  signal?: string
  ms?: number
  stdout?: Stream
  stderr?: Stream
  background?: string[]
  result?: unknown
  artefacts?: Blob[]
  changes?: Change[]
  ignored?: number
  commit?: string
  failed?: string
  net: Net[]
}
export interface Question {
  id: string
  at: number
  session: string
  project: string
  step: string
  kind: string
  title: string
  digest: string
  free: boolean
  expires?: number
  detail: { name: string; value: string; origin?: string }[]
  choices: { id: string; label: string; covers?: string; grant?: { decision: string } }[]
  /** Set once somebody answered, here or in another client. */
  answer?: { choice: string; label: string; refused: boolean; by: string; text: string; at: number }
  /** Set when it ended without an answer: expired, cancelled or superseded. */
  closed?: string
}
export type Item =
  | { kind: 'step'; step: string }
  | { kind: 'ask'; question: string }
  | { kind: 'say'; role: string; by: string; text: string; at: number }
  | { kind: 'turn'; turn: string; by: string; text: string; result?: string; reason?: string }
  | { kind: 'check'; name: string; ok: boolean; reason: string }
  | { kind: 'net'; net: Net }
export interface SessionState { id: string; project: string; title: string; agent: string; state: string; reason: string; items: Item[]; steps: string[]; at: number }
export interface Imported { branch?: string; commit?: string; files: number; dirty?: string[]; overlaid?: string[]; ignored_out?: number; may_differ?: string[] }
export interface Stats { cpu_percent: number; mem_used_kib: number; mem_total_kib: number; disk_used_kib: number; disk_total_kib: number }
export interface ReviewRow { id: string; at: number; base: string; candidate: string; files: number; units: number; remote: string; ref: string; pushed?: 'running' | 'ok' | 'failed' }
export interface ProjectState {
  id: string
  name: string
  source: string
  kind: string
  machine: string
  problem: string
  progress: string
  imported?: Imported
  stats?: Stats
  deleted: boolean
  /** Newest first. */
  reviews: ReviewRow[]
  /** Counts what happened to reviews, so that an open one is read again. */
  reviewed: number
  hosts: string[]
  blocked: number
  at: number
}
export interface State {
  last: number
  version: string
  /** Progress of work that belongs to no project, such as building the image. */
  progress: string
  projects: Record<string, ProjectState>
  sessions: Record<string, SessionState>
  steps: Record<string, Step>
  questions: Record<string, Question>
}

export const empty = (): State => ({ last: 0, version: '', progress: '', projects: {}, sessions: {}, steps: {}, questions: {} })

/** The questions that wait, oldest first. */
export const waiting = (s: State): Question[] => Object.values(s.questions).filter(open)
export const open = (q: Question | undefined): boolean => !!q && !q.answer && !q.closed

/** How much of a running step's output is kept to be looked at. */
const LIVE = 64 * 1024

/** Applies one event. Stored events that came already are passed over. */
export function apply(s: State, e: Envelope): State {
  if (e.id > 0) {
    if (e.id <= s.last) return s
    s.last = e.id
  }
  const project = e.project_id ? s.projects[e.project_id] : undefined
  const session = e.session_id ? s.sessions[e.session_id] : undefined
  const step = e.step_id ? s.steps[e.step_id] : undefined
  const put = {
    project: (p: Partial<ProjectState>) => project && (s.projects[project.id] = { ...project, ...p }),
    session: (p: Partial<SessionState>) => session && (s.sessions[session.id] = { ...session, ...p }),
    step: (p: Partial<Step>) => step && (s.steps[step.id] = { ...step, ...p }),
    item: (i: Item) => {
      if (!session) return
      session.items.push(i)
      s.sessions[session.id] = { ...session }
    },
  }
  if (e.type.startsWith('step.')) foldStep(s, e, step, put)
  else if (e.type.startsWith('review.') || e.type.startsWith('push.')) foldReview(e, project, put)
  else foldRest(s, e, project, session, step, put)
  return s
}

interface Put {
  project: (p: Partial<ProjectState>) => unknown
  session: (p: Partial<SessionState>) => unknown
  step: (p: Partial<Step>) => unknown
  item: (i: Item) => void
}

function foldRest(s: State, e: Envelope, project: ProjectState | undefined, session: SessionState | undefined, step: Step | undefined, put: Put) {
  const d = e.data
  switch (e.type) {
    case 'core.started':
      Object.assign(s, { version: d.version, progress: '' })
      break
    case 'project.created':
      s.projects[d.project.id] = {
        id: d.project.id, name: d.project.name, source: d.project.source ?? '', kind: d.project.machine_kind, machine: 'absent', problem: '', progress: '',
        deleted: false, reviews: [], reviewed: 0, hosts: [], blocked: 0, at: e.at,
      }
      break
    case 'project.deleted':
      put.project({ deleted: true, progress: '' })
      break
    case 'project.imported':
      put.project({ imported: d, progress: '' })
      break
    case 'machine.state':
      put.project({ machine: d.state, problem: d.problem ?? '', progress: '', ...(d.state === 'ready' ? {} : { stats: undefined }) })
      break
    case 'machine.progress': {
      const text = d.total > 0 ? `${d.text} (${Math.floor((100 * d.done) / d.total)} %)` : d.text
      if (project) put.project({ progress: text })
      else s.progress = text
      break
    }
    case 'machine.stats':
      put.project({ stats: d })
      break
    case 'session.created':
      s.sessions[d.session.id] = { id: d.session.id, project: d.session.project_id, title: d.session.title || d.session.agent, agent: d.session.agent, state: 'idle', reason: '', items: [], steps: [], at: e.at }
      break
    case 'session.state':
      put.session({ state: d.state, reason: d.reason ?? '' })
      break
    case 'turn.started':
      put.item({ kind: 'turn', turn: d.turn_id, by: e.actor ?? '', text: d.prompt ?? '' })
      break
    case 'turn.ended': {
      if (!session) break
      const at = session.items.findLastIndex((i) => i.kind === 'turn' && i.turn === d.turn_id)
      const turn = session.items[at]
      if (turn) session.items[at] = { ...turn, result: d.result, reason: d.reason } as Item
      put.session({})
      break
    }
    case 'message':
      put.item({ kind: 'say', role: d.role, by: e.actor ?? '', text: d.text, at: e.at })
      break
    case 'check.ran':
      put.item({ kind: 'check', name: d.name, ok: d.ok, reason: d.reason ?? '' })
      break
    case 'approval.requested':
      s.questions[d.approval_id] = {
        id: d.approval_id, at: e.at, session: e.session_id ?? '', project: e.project_id ?? '', step: e.step_id ?? '', kind: d.kind, title: d.title, digest: d.digest,
        free: !!d.free_text, expires: d.expires_at, detail: d.detail ?? [], choices: d.choices ?? [],
      }
      if (step) put.step({ asks: step.asks + 1, ...(d.kind === 'step' ? { state: 'asking' as const } : {}) })
      put.item({ kind: 'ask', question: d.approval_id })
      break
    case 'approval.answered': {
      const q = s.questions[d.approval_id]
      const c = q?.choices.find((x) => x.id === d.choice)
      if (q) s.questions[q.id] = { ...q, answer: { choice: d.choice, label: c?.label ?? d.choice, refused: d.choice === 'deny' || c?.grant?.decision === 'deny', by: d.by, text: d.text ?? '', at: e.at } }
      settle(s, q)
      break
    }
    case 'approval.closed': {
      const q = s.questions[d.approval_id]
      if (q) s.questions[q.id] = { ...q, closed: d.why }
      settle(s, q)
      break
    }
    case 'egress.opened':
    case 'egress.blocked': {
      const passed = e.type === 'egress.opened'
      const host = `${d.host}:${d.port}`
      const net: Net = { mark: passed ? '→' : '⊘', text: d.method ? `${d.method} ${host}` : host, why: passed ? d.rule : d.reason, claim: d.claim ?? '', conn: d.conn_id ?? '' }
      if (step) put.step({ net: [...step.net, net] })
      else put.item({ kind: 'net', net })
      if (project) put.project(passed ? (project.hosts.includes(host) ? {} : { hosts: [...project.hosts, host] }) : { blocked: project.blocked + 1 })
      break
    }
    case 'egress.closed': {
      const sum = `${d.bytes_out} B out, ${d.bytes_in} B in${d.error ? `: ${d.error}` : ''}`
      if (step) put.step({ net: step.net.map((n) => (n.conn === d.conn_id ? { ...n, sum } : n)) })
      break
    }
  }
}

/** A question was open until now; its step waits for one less. */
function settle(s: State, q: Question | undefined) {
  const step = q && open(q) ? s.steps[q.step] : undefined
  if (step) s.steps[step.id] = { ...step, asks: step.asks - 1 }
}

function foldStep(s: State, e: Envelope, step: Step | undefined, put: Put) {
  const d = e.data
  switch (e.type) {
    case 'step.requested': {
      const session = e.session_id ? s.sessions[e.session_id] : undefined
      if (!session || !e.step_id) break
      s.steps[e.step_id] = { id: e.step_id, session: session.id, number: d.number, tool: d.tool, title: d.title, args: d.args, at: e.at, state: 'requested', asks: 0, net: [] }
      session.steps.push(e.step_id)
      put.item({ kind: 'step', step: e.step_id })
      break
    }
    case 'step.decided':
      put.step({ rule: d.rule, ...(d.decision === 'allow' ? {} : { reason: d.reason }) })
      break
    case 'step.started':
      put.step({ state: 'running', at: e.at, reason: undefined })
      break
    case 'step.output':
      if (step?.state === 'running') put.step({ live: ((step.live ?? '') + d.text).slice(-LIVE) })
      break
    case 'step.ended':
      put.step({
        state: 'ended', live: undefined, outcome: d.outcome, error: d.error, exit: d.exit_code, signal: d.signal, ms: d.duration_ms, stdout: d.stdout, stderr: d.stderr,
        background: d.background, result: d.result, artefacts: d.artefacts,
      })
      break
    case 'step.sealed':
      put.step({ state: 'sealed', changes: d.changes ?? [], ignored: d.ignored, commit: d.commit, failed: d.failed })
      break
    case 'step.refused':
      put.step({ state: d.state, reason: d.reason, allowed: d.allowed })
      break
  }
}

function foldReview(e: Envelope, project: ProjectState | undefined, put: Put) {
  if (!project) return
  const d = e.data
  const mark = (pushed: ReviewRow['pushed']) => project.reviews.map((r) => (r.id === d.review_id ? { ...r, pushed } : r))
  const reviewed = project.reviewed + 1
  switch (e.type) {
    case 'review.opened': {
      const row: ReviewRow = { id: d.review_id, at: e.at, base: d.base, candidate: d.candidate, files: d.files, units: d.units, remote: d.remote ?? '', ref: d.ref ?? '' }
      put.project({ reviewed, reviews: [row, ...project.reviews] })
      break
    }
    case 'review.decided':
      put.project({ reviewed })
      break
    case 'push.started':
      put.project({ reviewed, reviews: mark('running') })
      break
    case 'push.ended':
      put.project({ reviewed, reviews: mark(d.ok ? 'ok' : 'failed') })
      break
  }
}
