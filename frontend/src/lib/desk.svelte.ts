import type { Store } from './store.svelte'
import type { ProjectState, SessionState } from './state'

export type Panel = '' | 'project' | 'work' | 'keys' | 'palette'
export type Pane = 'changes' | 'review'

const KEEP = 'glasshouse.desk'

/** What the person looks at: the selection, open panels and half-typed texts. None of it is the core's. */
export class Desk {
  project = $state('')
  session = $state('')
  panel = $state<Panel>('')
  pane = $state<Pane>('changes')
  review = $state('')
  /** The review takes the place of the timeline as well. */
  wide = $state(false)
  /** The step or question that a view asked the timeline to show; n makes a repeated wish a new one. */
  goal = $state({ id: '', n: 0 })
  /** Half-typed texts by what they are for. */
  drafts = $state<Record<string, string>>({})

  constructor(readonly store: Store) {
    try {
      const v = JSON.parse(sessionStorage.getItem(KEEP) ?? '{}') as { project?: string; session?: string; drafts?: Record<string, string> }
      this.project = v.project ?? ''
      this.session = v.session ?? ''
      this.drafts = v.drafts ?? {}
    } catch {
      // Without a memory the page starts at the newest session.
    }
  }

  keep() {
    try {
      sessionStorage.setItem(KEEP, JSON.stringify({ project: this.project, session: this.session, drafts: this.drafts }))
    } catch {
      // The same.
    }
  }

  /** Living projects, oldest first. */
  get projects(): ProjectState[] {
    return Object.values(this.store.s.projects).filter((p) => !p.deleted)
  }

  /** The project looked at: the chosen one, else that of the newest session, else the newest. */
  get current(): ProjectState | undefined {
    const all = this.store.s.projects
    const chosen = all[this.project]
    if (chosen && !chosen.deleted) return chosen
    const newest = Object.values(this.store.s.sessions).findLast((x) => all[x.project] && !all[x.project]?.deleted)
    return (newest && all[newest.project]) ?? this.projects.at(-1)
  }

  get currentSession(): SessionState | undefined {
    const p = this.current
    if (!p) return undefined
    const chosen = this.store.s.sessions[this.session]
    if (chosen?.project === p.id) return chosen
    return this.session === '' ? this.sessions(p.id).at(-1) : undefined
  }

  sessions(project: string): SessionState[] {
    return Object.values(this.store.s.sessions).filter((x) => x.project === project)
  }

  /** How many questions of a session or project wait. */
  asks(of: { session?: string; project?: string }): number {
    return this.store.waiting.filter((q) => (of.session === undefined || q.session === of.session) && (of.project === undefined || q.project === of.project)).length
  }

  openProject(id: string) {
    this.project = id
    this.session = '-'
    this.#leave()
  }

  openSession(id: string) {
    const x = this.store.s.sessions[id]
    if (x) this.project = x.project
    this.session = id
    this.#leave()
  }

  openReview(id: string) {
    this.review = id
    this.pane = 'review'
    this.wide = true
  }

  /** Brings a step or question into view. */
  show(id: string) {
    const at = this.store.s.steps[id] ?? this.store.s.questions[id]
    if (at?.session) this.openSession(at.session)
    else if (at && 'project' in at && at.project) this.openProject(at.project)
    this.goal = { id, n: this.goal.n + 1 }
  }

  #leave() {
    this.wide = false
    if (this.review && !this.current?.reviews.some((r) => r.id === this.review)) this.review = ''
    this.keep()
  }
}
