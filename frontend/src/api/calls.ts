// Everything the page asks of the core, by name.
import { call } from './transport'
import type { Cancelled, Restored, RestoreView, ModelConfig, ModelList, ModelTry, PolicyView, SessionChange, SettingsView, SourceView } from './types'
import type { BrowserView, Doctor, FileContent, FileEntry, FileLines, Info, NewProject, Plan, Project, Push, Review, Rule, Settings, StepDiff, Terminal, Trash } from './types'

const id = encodeURIComponent
export interface Target { remote: string; ref: string; message?: string; history?: boolean; digest?: string }
export interface CheckLine { name: string; code: string }

export const calls = {
  info: () => call<Info>('GET', '/v1/info'),
  quit: (now: boolean) => call<unknown>('POST', '/v1/quit', { now }),
  source: (path: string, signal: AbortSignal) => call<SourceView>('GET', `/v1/source?path=${id(path)}`, undefined, signal),
  trash: () => call<Trash>('GET', '/v1/trash'),
  emptyTrash: () => call<Trash>('DELETE', '/v1/trash'),
  doctor: () => call<Doctor>('GET', '/v1/doctor'),
  projects: async () => (await call<Project[] | null>('GET', '/v1/projects')) ?? [],
  rules: async (project: string) => (await call<Rule[] | null>('GET', `/v1/projects/${id(project)}/rules`)) ?? [],
  dropRule: (project: string, rule: string) => call<unknown>('DELETE', `/v1/projects/${id(project)}/rules/${id(rule)}`),
  cancelProject: (project: string) => call<Cancelled>('POST', `/v1/projects/${id(project)}/cancel`, {}),
  createProject: (p: NewProject, signal: AbortSignal) => call<Project>('POST', '/v1/projects', p, signal),
  deleteProject: (project: string) => call<unknown>('DELETE', `/v1/projects/${id(project)}`),
  machine: (project: string, to: 'start' | 'stop') => call<unknown>('POST', `/v1/projects/${id(project)}/machine/${to}`, {}),
  createSession: (b: { project_id: string; title?: string; agent: string; /** What the agent will be given: when it is refused, no session is made. */ input?: string; mode?: string; model?: string; limit_nanos?: number; limit_tokens?: number; checks?: CheckLine[] }) => call<{ id: string }>('POST', '/v1/sessions', b),
  startTurn: (session: string, input: string) => call<{ turn_id: string }>('POST', `/v1/sessions/${id(session)}/turns`, { agent: 'playbook', input }),
  /** Lets a model work: on a prompt, or on where the last turn ended. */
  startModel: (session: string, b: { prompt: string } | { go_on: true }) => call<{ turn_id: string }>('POST', `/v1/sessions/${id(session)}/turns`, { agent: 'model', ...b }),
  changeSession: (session: string, b: SessionChange) => call<unknown>('PATCH', `/v1/sessions/${id(session)}`, b),
  endSession: (session: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/end`, {}),
  cancel: (session: string, step?: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/cancel`, step ? { step_id: step } : {}),
  say: (session: string, text: string) => call<unknown>('POST', `/v1/sessions/${id(session)}/messages`, { text }),
  answer: (question: string, b: { digest: string; choice: string; text?: string }) => call<unknown>('POST', `/v1/approvals/${id(question)}/answer`, b),
  files: async (project: string, path: string, start = false, signal?: AbortSignal) => {
    const r = await call<{ entries: FileEntry[] | null; more?: boolean }>('GET', `/v1/projects/${id(project)}/files?path=${id(path || '/workspace')}${start ? '&start=true' : ''}`, undefined, signal)
    return { entries: r.entries ?? [], more: !!r.more }
  },
  file: (project: string, path: string, offset: number, limit: number, signal?: AbortSignal) =>
    call<FileContent>('GET', `/v1/projects/${id(project)}/file?path=${id(path)}&offset=${offset}&limit=${limit}`, undefined, signal),
  findFiles: async (project: string, pattern: string, signal?: AbortSignal) => {
    const r = await call<{ paths: string[] | null; more?: boolean }>('GET', `/v1/projects/${id(project)}/find?pattern=${id(pattern)}`, undefined, signal)
    return { paths: r.paths ?? [], more: !!r.more }
  },
  /** Puts the workspace back to a checkpoint; answers once the step of it has begun. */
  restore: (project: string, b: ({ checkpoint: string } | { step: string; side: 'before' | 'after' }) & { session_id?: string }) => call<Restored>('POST', `/v1/projects/${id(project)}/restore?wait=started`, b),
  /** What it would change, from the newest checkpoint on. */
  viewRestore: (project: string, b: { checkpoint: string } | { step: string; side: 'before' | 'after' }, signal?: AbortSignal) => call<RestoreView>('GET', `/v1/projects/${id(project)}/restore?${new URLSearchParams(b as Record<string, string>).toString()}`, undefined, signal),
  stepDiff: (session: string, step: string, path: string, signal?: AbortSignal) =>
    call<StepDiff>('GET', `/v1/sessions/${id(session)}/steps/${id(step)}/diff?path=${id(path)}`, undefined, signal),
  addRule: (project: string, b: { host: string; port?: number; decision: 'allow' | 'deny' }) => call<Rule>('POST', `/v1/projects/${id(project)}/rules`, b),
  browser: (session: string, signal: AbortSignal) => call<BrowserView>('GET', `/v1/sessions/${id(session)}/browser`, undefined, signal),
  openReview: (project: string, b: { remote?: string; ref?: string }) => call<Review>('POST', `/v1/projects/${id(project)}/reviews`, b),
  reviews: async (project: string) => (await call<Review[] | null>('GET', `/v1/reviews?project_id=${id(project)}`)) ?? [],
  // Brief answers leave the lines of the hunks out: the page has them, and they never change.
  review: (review: string, brief = false) => call<Review>('GET', `/v1/reviews/${id(review)}${brief ? '?brief=true' : ''}`),
  decide: (review: string, b: { file?: string; unit?: string; decision: 'accept' | 'reject' | 'undecided' }) => call<Review>('POST', `/v1/reviews/${id(review)}/decisions?brief=true`, b),
  viewed: (review: string, file: string, viewed: boolean) => call<Review>('POST', `/v1/reviews/${id(review)}/viewed?brief=true`, { file, viewed }),
  comment: (review: string, b: { file: string; side?: 'old' | 'new'; line?: number; unit?: string; text: string }) => call<Review>('POST', `/v1/reviews/${id(review)}/comments?brief=true`, b),
  editComment: (review: string, comment: string, text: string) => call<Review>('PUT', `/v1/reviews/${id(review)}/comments/${id(comment)}?brief=true`, { text }),
  removeComment: (review: string, comment: string) => call<Review>('DELETE', `/v1/reviews/${id(review)}/comments/${id(comment)}?brief=true`),
  sendComments: (review: string, b: { session_id: string; comments?: string[]; rejected?: boolean }) => call<Review>('POST', `/v1/reviews/${id(review)}/comments/send?brief=true`, b),
  reviewLines: (review: string, file: string, side: 'old' | 'new', from: number, to: number) => call<FileLines>('GET', `/v1/reviews/${id(review)}/files/${id(file)}/lines?side=${side}&from=${from}&to=${to}`),
  terminals: async (project: string) => (await call<Terminal[] | null>('GET', `/v1/projects/${id(project)}/terminals`)) ?? [],
  openTerminal: (project: string, b: { session_id?: string; rows: number; cols: number }) => call<Terminal>('POST', `/v1/projects/${id(project)}/terminals`, b),
  typeInto: (terminal: string, b: { data: string; epoch: string; writer: string; seq: number }) => call<unknown>('POST', `/v1/terminals/${id(terminal)}/input`, b),
  resizeTerminal: (terminal: string, rows: number, cols: number) => call<unknown>('POST', `/v1/terminals/${id(terminal)}/size`, { rows, cols }),
  closeTerminal: (terminal: string) => call<unknown>('DELETE', `/v1/terminals/${id(terminal)}`),
  buildImage: (signal?: AbortSignal) => call<{ hash: string }>('POST', '/v1/image', {}, signal),
  cancelImage: () => call<Cancelled>('POST', '/v1/image/cancel', {}),
  /** The settings with when each counts, what waits for a restart, and the places on this computer. */
  settingsView: () => call<SettingsView>('GET', '/v1/settings'),
  set: (s: Settings) => call<SettingsView>('PUT', '/v1/settings', s),
  policy: (project?: string) => call<PolicyView>('GET', `/v1/policy${project ? `?project_id=${id(project)}` : ''}`),
  reloadPolicy: (project?: string) => call<PolicyView>('POST', `/v1/policy/reload${project ? `?project_id=${id(project)}` : ''}`, {}),
  models: () => call<ModelList>('GET', '/v1/models'),
  setModel: (m: ModelConfig) => call<unknown>('PUT', `/v1/models/${id(m.name)}`, m),
  dropModel: (name: string) => call<unknown>('DELETE', `/v1/models/${id(name)}`),
  /** The one call that a key is ever part of. */
  setModelKey: (name: string, key: string) => call<unknown>('PUT', `/v1/models/${id(name)}/key`, { key }),
  dropModelKey: (name: string) => call<unknown>('DELETE', `/v1/models/${id(name)}/key`),
  defaultModel: (name: string) => call<unknown>('POST', '/v1/default-model', { name }),
  tryModel: (name: string, signal?: AbortSignal) => call<ModelTry>('POST', `/v1/models/${id(name)}/try`, {}, signal),
  plan: (review: string, t: Target) => call<Plan>('POST', `/v1/reviews/${id(review)}/plan`, t),
  push: (review: string, t: Target) => call<Push>('POST', `/v1/reviews/${id(review)}/push`, t),
}
