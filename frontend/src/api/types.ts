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
export type Push = S['PushView']
export type Plan = S['Plan']
export type Info = S['Info']
export type ApiError = S['ApiError']
export type NewProject = S['NewProject']

/** An event as /v1/events sends it; `data` is typed by `type` where it is used. */
export interface Envelope {
  id: number
  stream: string
  seq: number
  at: number
  type: string
  origin: 'host' | 'guest' | 'agent'
  actor?: string
  project_id?: string
  session_id?: string
  step_id?: string
  // Narrowed by the reducer, which alone reads it.
  data: any
}
