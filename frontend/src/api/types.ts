// Shapes of /v1 that the page uses. The names and fields are the core's; the
// generated description in openapi.gen.ts is checked against the core by a test.
import type { components } from './openapi.gen'

type S = components['schemas']
export type Project = S['ProjectView']
export type Session = S['Session']
export type Approval = S['Approval']
export type Review = S['ReviewView']
export type ReviewFile = S['FileView']
export type Hunk = S['Hunk']
export type DiffLine = S['Line']
export type ReviewComment = S['CommentView']
export type FileLines = S['FileLines']
export type Push = S['PushView']
export type Plan = S['Plan']
export type FileEntry = S['FileEntry']
export type FileContent = S['FileContent']
export type StepDiff = S['StepDiff']
/** Where a restore became a step. */
export type Restored = S['RestoreAnswer']
/** What a restore would change. */
export type RestoreView = S['RestoreView']
export type Info = S['Info']
export type ApiError = S['ApiError']
export type NewProject = S['NewProject']
/** What was given up. */
export type Cancelled = S['Cancelled']
export type SettingsView = S['SettingsView']
export type PolicyView = S['PolicyView']
export type PolicyRule = S['PolicyRule']
export type RulesFile = S['RulesFile']
export type Terminal = S['TerminalView']
export type TerminalLine = S['TerminalLine']
/** What deleted projects left. */
export type Trash = S['Trash']
export type Doctor = S['Doctor']
export type BrowserView = S['BrowserView']
/** An egress rule or a remembered answer of a project. */
export type Rule = S['Grant']

/** What each type of event carries. */
export type Payloads = S['EventPayloads']
export type EventType = keyof Payloads
interface Head {
  /** The global row id; 0: a transient event, which is never stored. */
  id: number
  stream: string
  seq: number
  at: number
  origin: 'host' | 'guest' | 'agent'
  actor?: string
  project_id?: string
  session_id?: string
  step_id?: string
}
/** An event as /v1/events sends it: its type says what `data` is. */
export type Envelope = { [T in EventType]: Head & { type: T; data: Payloads[T] } }[EventType]
export type Data<T extends EventType> = Payloads[T]

/** What a project made from a folder would begin with. */
export type SourceView = S['SourceView']
/** What a person can set; an empty text or 0 is the usual. */
export type Settings = S['Settings']

/** A model a person set up, and where its key is. The key is never part of it. */
export type ModelView = S['ModelView']
export type ModelConfig = Omit<ModelView, 'key' | 'problem'>
export type ModelList = S['ModelsView']
export type ModelTry = S['ModelTry']
/** Settings of a session that can be changed while it lasts. */
export interface SessionChange { mode?: string; model?: string; limit_nanos?: number; limit_tokens?: number }
