import type { Data, Envelope } from '../api/types'
import { foldBrowser } from './fold/browser'
import { foldFiles } from './fold/files'
import { about, type About } from './fold/fold'
import { foldModel } from './fold/model'
import { foldNet } from './fold/net'
import { foldProject } from './fold/project'
import { foldReview } from './fold/review'
import { foldQuestion, foldSession } from './fold/session'
import { foldStep } from './fold/step'
import { foldTerminal } from './fold/terminal'
import { table } from './table'

// The page is a fold over events: apply() takes the state and one event; nothing
// else changes it. The tables are changed in place, but every project, session,
// step and question in them is replaced when it changes, so that a view can tell
// by identity what it has to draw again.

export type Change = NonNullable<Data<'step.sealed'>['changes']>[number]
export type Blob = NonNullable<Data<'step.ended'>['artefacts']>[number]
export type Stream = NonNullable<Data<'step.ended'>['stdout']>
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
  /** A rule or mode refused it, and nobody was asked. */
  barred?: boolean
  allowed?: string
  live?: string
  /** How much of the output came before what `live` holds, in bytes. */
  before?: number
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
  /** The checkpoint before it, where that is another one. */
  base?: string
  failed?: string
  /** The turn it belongs to, if it belongs to one. */
  turn?: string
  /** The answer of a model that asked for it. */
  answer?: string
  cpu?: number
  rss?: number
  /** Paths the checkpoint could not hold. */
  missed?: string[]
  /** It puts back what was there before an earlier restore of its session: the number of that. */
  undoes?: number
  /** The checkpoint is the same as the one before. */
  same?: boolean
  /** There are more changes than the list holds. */
  more?: boolean
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
/**
 * n counts the turns of the session from 1; files are the paths its steps changed.
 * goOn: it goes on where the last one ended, without a new prompt.
 */
export interface Turn { kind: 'turn'; turn: string; n: number; by: string; text: string; at: number; until?: number; result?: string; reason?: string; steps: number; files: Set<string>; agent?: string; goOn?: boolean; spent?: Spent }
/** What answers of a model took: tokens as the server counted them, and money in billionths of a US dollar. */
export interface Spent {
  answers: number
  /** Tokens read anew, from the server's cache, and anew and put into it; together they are what was sent. */
  input: number
  cached: number
  wrote: number
  output: number
  /** Of output: what the model said to itself, where the server tells. */
  reasoning: number
  /** More tokens, by the core's guess: no server counted them. Limits and cost hold them. */
  uncounted: number
  nanos: number
  /** Answers whose cost nobody knows. */
  unpriced: number
}
export type ModelPart = NonNullable<Data<'model.answered'>['parts']>[number]
/** A call that an answer asked for; one that came to nothing has no step. What is a step has its arguments there. */
export interface ModelCall { key: string; tool: string; args: string; step?: string }
/** An answer of a model, whole. */
export interface Answer {
  id: string
  session: string
  turn: string
  n: number
  model: string
  served: string
  /** Empty: of the conversation; "summary": about it. */
  purpose: string
  at: number
  /** Text and thoughts, in their order, without what only the server reads. */
  parts: { kind: 'text' | 'thought'; text: string }[]
  calls: ModelCall[]
  /** All parts, where they were too large to be told. */
  blob?: Blob
  stop: string
  spent: Spent
  used: number
  size: number
  attempts: number
  first: number
  took: number
  /** How long it thought, where the page looked on. */
  thought?: number
}
/** An answer that is being written: what came of it so far. It is for eyes only. */
export interface Live {
  answer: string
  turn: string
  attempt: number
  at: number
  /** The end of each that is kept; more says whether something before it or between is missing. */
  text: string
  thought: string
  more: { text: boolean; thought: boolean }
  /** Calls as far as they are written: the beginning of the arguments, and how many bytes they are. */
  calls: { tool: string; args: string; size: number }[]
  /** Bytes that came by now, by kind. */
  came: { text: number; thought: number; call: number }
  /** When the thought began, and how long it took once something else came. */
  thinks?: number
  thinksFor?: number
}
export interface Try { attempt: number; kind: string; status: number; reason: string; wait: number }
export type PlanItem = { text: string; state: 'open' | 'doing' | 'done' | 'dropped' }
export type Item =
  | { kind: 'step'; step: string }
  | { kind: 'ask'; question: string }
  | { kind: 'say'; role: string; by: string; text: string; at: number }
  | Turn
  | { kind: 'check'; name: string; ok: boolean; reason: string; at: number }
  | { kind: 'net'; net: Net }
  /** high: about how many lines it is drawn as. */
  | { kind: 'answer'; answer: string; high: number }
  | { kind: 'retry'; answer: string; tries: Try[]; at: number }
  /** A call that no step came of. */
  | { kind: 'misfit'; tool: string; args: string; text: string; at: number }
  | { kind: 'compact'; before: number; after: number; kept: string; summary: string; reason: string; at: number }
  | { kind: 'resume'; at: number }
  /** Settings of the session were changed: what it is now, and what it was. */
  | { kind: 'set'; by: string; changes: { what: 'mode' | 'model' | 'cost' | 'tokens'; from: string | number; to: string | number }[]; at: number }
  /** A model's turn ended here. */
  | { kind: 'end'; turn: string; at: number }
/**
 * A session. Its lists only grow, in place; its sums are kept while events come, so
 * that no view has to go through all steps to know them.
 */
export interface SessionState {
  /** What its browser showed when it was told last; a page that was just loaded does not know. */
  browser?: BrowserNow
  id: string
  project: string
  title: string
  agent: string
  /** ephemeral: it was made for one command and ended with it. */
  class: string
  /** What asks first in it: auto, ask or plan. */
  mode: string
  /** Names of the checks that were declared for it. */
  checks: string[]
  state: string
  reason: string
  items: Item[]
  steps: string[]
  at: number
  /** Steps that are queued, asking or running. */
  busy: Set<string>
  /** Paths its steps changed. */
  files: Set<string>
  /** Lines its steps added and deleted, in all. */
  lines: { added: number; deleted: number }
  /** Steps that changed something, oldest first. */
  changing: string[]
  /** The newest step whose changes stand, and before it the others: a restore takes some of them back. */
  standing: Standing | undefined
  /** What stood at each checkpoint the session knows. */
  stood: Map<string, Standing | undefined>
  /** Where in the items each turn is. */
  turns: Map<string, number>
  /** The newest turn. */
  turn?: Turn
  /** The model's name as the person gave it; empty: the usual one. */
  model: string
  /** The most it may cost, in billionths of a US dollar, and the most tokens it may use; 0: no limit. */
  limitNanos: number
  limitTokens: number
  /** What its answers took in all. */
  spent: Spent
  /** How much of the model's context the newest answer took. */
  context?: { used: number; size: number }
  /** What the agent means to do. */
  plan?: { turn: string; items: PlanItem[]; at: number }
  /** What a model called, by the key of the call: the answer that asked, and the step that came of it. */
  calls: Map<string, { answer?: string; step?: string }>
  /** Where in the items the attempts that failed are, by answer. */
  retries: Map<string, number>
}
export interface Standing { step: string; before: Standing | undefined }
export interface BrowserNow extends Data<'browser.changed'> { at: number }
export type Imported = Data<'project.imported'>
export type Stats = Data<'machine.stats'>
export interface Progress { phase: string; text: string; done: number; total: number; at: number; /** When the first of it was told. */ since?: number; /** What it is a part of: create, start or image. */ work?: string }
export interface ReviewRow { id: string; at: number; base: string; candidate: string; files: number; units: number; remote: string; ref: string; pushed?: 'running' | 'ok' | 'failed' }
/** A path the watcher saw change. sealed: a checkpoint holds the change. */
export interface Touch { op: string; at: number; step: string; sealed: boolean }
/** One connection of a machine, or one that was not let through. */
export interface Conn {
  id: string
  at: number
  state: 'open' | 'closed' | 'blocked'
  host: string
  port: number
  method: string
  addr: string
  /** The rule that let it through or stopped it, or why it was stopped. */
  why: string
  /** Who asked for it, as the guest says. */
  claim: string
  session: string
  step: string
  out: number
  in: number
  ms: number
  error: string
  /** The question about it that was asked. */
  approval: string
}
/**
 * The connections of a project, oldest first, the newest so many. The table is
 * changed in place; the record around it is new with each change.
 */
export interface NetLog { all: Map<string, Conn>; dropped: number; blocked: number; open: number; out: number; in: number }
export interface ProjectState {
  id: string
  name: string
  source: string
  kind: string
  machine: string
  problem: string
  progress?: Progress
  imported?: Imported
  stats?: Stats
  /** The newest measurements, newest last. */
  history?: Stats[]
  deleted: boolean
  /** Newest first. */
  reviews: ReviewRow[]
  /** Counts what happened to reviews, so that an open one is read again. */
  reviewed: number
  /** Comments that wait to be sent, each with the review it was made in. */
  drafts?: Record<string, string>
  hosts: string[]
  blocked: number
  /** Paths the watcher saw change since the page is open, newest last. */
  touched: Record<string, Touch>
  /** What is known of the watcher itself: resyncs counts how often changes may have been missed. */
  watch: { degraded: boolean; resyncs: number; dropped: number; n: number; seal: { at: number; paths: Set<string>; /** It was the filling of the workspace. */ filled?: boolean } }
  net: NetLog
  /** Counts what happened to rules, so that a list of them is read again. */
  ruled: number
  /** Steps with a checkpoint, in the order those were taken: the list grows in place. */
  seals: string[]
  /** Terminals a person opened, by id: those that run, and the last that ended while the page is open. */
  terminals?: Record<string, TerminalRow>
  at: number
}
export interface TerminalRow { id: string; title: string; at: number; exit?: Data<'terminal.closed'>['exit'] }
export interface State {
  last: number
  version: string
  /** Progress of work that belongs to no project, such as building the image. */
  progress?: Progress
  projects: Record<string, ProjectState>
  sessions: Record<string, SessionState>
  steps: Record<string, Step>
  questions: Record<string, Question>
  /** The questions that wait, oldest first. */
  open: Set<string>
  answers: Record<string, Answer>
  /** What is being written now, by session: it changes often, and nothing else with it. */
  live: Record<string, Live>
}

export const empty = (): State => ({ last: 0, version: '', projects: table(), sessions: table(), steps: table(), questions: table(), open: new Set(), answers: table(), live: table() })

/** The questions that wait, oldest first. */
export const waiting = (s: State): Question[] => [...s.open].map((id) => s.questions[id]).filter((q): q is Question => open(q))
export const open = (q: Question | undefined): boolean => !!q && !q.answer && !q.closed

/** Applies one event. Stored events that came already are passed over. */
export function apply(s: State, e: Envelope): State {
  if (e.id > 0) {
    if (e.id <= s.last) return s
    s.last = e.id
  }
  const fold = folds[e.type.split('.')[0] ?? '']
  fold?.(about(s, e), e)
  return s
}

const folds: Record<string, (a: About, e: Envelope) => void> = {
  core: (a, e) => { foldProject(a, e); foldBrowser(a, e); foldModel(a, e) }, browser: foldBrowser, project: foldProject, machine: foldProject,
  session: (a, e) => { foldSession(a, e); foldModel(a, e) }, turn: (a, e) => { foldSession(a, e); foldModel(a, e) }, message: (a, e) => { foldSession(a, e); foldReview(a, e); foldModel(a, e) },
  model: foldModel, plan: foldModel, context: foldModel, check: foldSession,
  terminal: foldTerminal, approval: foldQuestion, step: foldStep, egress: foldNet, rule: foldNet, files: foldFiles, review: foldReview, push: foldReview,
}
