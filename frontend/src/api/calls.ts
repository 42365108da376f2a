// Everything the page asks of the core, by name.
import { call } from './transport'
import type { Doctor, Info, NewProject, Plan, Project, Push, Review, Rule } from './types'

const id = encodeURIComponent
export interface Target { remote: string; ref: string; message?: string; history?: boolean; digest?: string }
export interface CheckLine { name: string; code: string }

export const calls = {
  info: () => call<Info>('GET', '/v1/info'),
  doctor: () => call<Doctor>('GET', '/v1/doctor'),
  projects: async () => (await call<Project[] | null>('GET', '/v1/projects')) ?? [],
  rules: async (project: string) => (await call<Rule[] | null>('GET', `/v1/projects/${id(project)}/rules`)) ?? [],
  dropRule: (project: string, rule: string) => call<unknown>('DELETE', `/v1/projects/${id(project)}/rules/${id(rule)}`),
  cancelProject: (project: string) => call<unknown>('POST', `/v1/projects/${id(project)}/cancel`, {}),
  createProject: (p: NewProject, signal: AbortSignal) => call<Project>('POST', '/v1/projects', p, signal),
  deleteProject: (project: string) => call<unknown>('DELETE', `/v1/projects/${id(project)}`),
  machine: (project: string, to: 'start' | 'stop') => call<unknown>('POST', `/v1/projects/${id(project)}/machine/${to}`, {}),
  createSession: (b: { project_id: string; title?: string; agent: string; mode?: string; checks?: CheckLine[] }) => call<{ id: string }>('POST', '/v1/sessions', b),
  startTurn: (session: string, input: string) => call<{ turn_id: string }>('POST', `/v1/sessions/${id(session)}/turns`, { agent: 'playbook', input }),
  endSession: (session: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/end`, {}),
  cancel: (session: string, step?: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/cancel`, step ? { step_id: step } : {}),
  say: (session: string, text: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/messages`, { text }),
  answer: (question: string, b: { digest: string; choice: string; text?: string }) => call<unknown>('POST', `/v1/approvals/${id(question)}/answer`, b),
  openReview: (project: string, b: { remote?: string; ref?: string }) => call<Review>('POST', `/v1/projects/${id(project)}/reviews`, b),
  review: (review: string) => call<Review>('GET', `/v1/reviews/${id(review)}`),
  decide: (review: string, b: { file?: string; unit?: string; decision: 'accept' | 'reject' | 'undecided' }) => call<Review>('POST', `/v1/reviews/${id(review)}/decisions`, b),
  plan: (review: string, t: Target) => call<Plan>('POST', `/v1/reviews/${id(review)}/plan`, t),
  push: (review: string, t: Target) => call<Push>('POST', `/v1/reviews/${id(review)}/push`, t),
}
