import type { Store } from './store.svelte'
import type { ProjectState, SessionState } from './state'

import type { PaneId } from '../features/panes'
import { Actions } from './actions.svelte'
import { isText, keptRecord, only, record } from './kept'
import { Layout } from './layout.svelte'
import { Making } from './making.svelte'
import { Models } from './models.svelte'
import { Notes } from './notes.svelte'

export type Panel = '' | 'project' | 'work' | 'keys' | 'palette' | 'quit' | 'about'
export type Screen = 'session' | 'review' | 'settings' | 'doctor'
/** The panes at the right: one above, and perhaps one below it. */
export interface Panes { top: PaneId; below: PaneId | '' }

const KEEP = 'glasshouse.desk'
const PANES = 'glasshouse.panes'
const IDS: Record<PaneId, true> = { changes: true, browser: true, terminal: true, files: true, network: true }
const isPane = (v: unknown): v is PaneId => isText(v) && Object.hasOwn(IDS, v)
const isPanes = (v: unknown): v is Panes => isPane(record(v).top) && (record(v).below === '' || isPane(record(v).below))

/** What the person looks at: the selection, open panels and half-typed texts. None of it is the core's. */
export class Desk {
  project = $state('')
  session = $state('')
  panel = $state<Panel>('')
  screen = $state<Screen>('session')
  /** The review that is open; empty: the list of them. */
  review = $state('')
  readonly actions = new Actions()
  readonly layout = new Layout()
  readonly notes = new Notes()
  /** The project that is being made from here, if one is. */
  readonly making = new Making(this)
  readonly models = new Models()
  /** Projects whose sessions are folded away in the list. */
  folded = $state<Record<string, boolean>>({})
  /** The panes by project; '' is what a new project begins with. */
  #panes = $state<Record<string, Panes>>({})
  /** The step or question that a view asked the timeline to show; n makes a repeated wish a new one. */
  goal = $state<{ id: string; n: number; /** It is brought into view as it is, not opened. */ shut?: boolean }>({ id: '', n: 0 })
  /** The restore that is thought about: the step, and which side of it. */
  restore = $state<{ step: string; side: 'before' | 'after' }>()
  /** Half-typed texts by what they are for. */
  drafts = $state<Record<string, string>>({})

  constructor(readonly store: Store) {
    // Without a memory the page starts at the newest session.
    const v = keptRecord('sessionStorage', KEEP)
    if (isText(v.project)) this.project = v.project
    if (isText(v.session)) this.session = v.session
    if (isText(v.review)) this.review = v.review
    if (v.screen === 'settings' || v.screen === 'doctor' || v.screen === 'review') this.screen = v.screen
    this.drafts = only(v.drafts, isText)
    this.folded = only(v.folded, (x): x is boolean => typeof x === 'boolean')
    this.#panes = only(keptRecord('localStorage', PANES), isPanes)
  }

  get panes(): Panes {
    return this.#panes[this.current?.id ?? ''] ?? { top: 'changes', below: '' }
  }

  /** Shows a pane above, or below the one that is there. */
  showPane(id: PaneId, where: 'top' | 'below' = 'top') {
    const now = this.panes
    this.screen = 'session'
    if (where === 'top') this.#setPanes({ top: id, below: now.below === id ? '' : now.below })
    else this.#setPanes({ top: now.top === id ? (now.below || 'changes') : now.top, below: id })
  }

  /** Takes the lower pane away. */
  unsplit() {
    this.#setPanes({ ...this.panes, below: '' })
  }

  #setPanes(p: Panes) {
    this.#panes[this.current?.id ?? ''] = p
    try {
      localStorage.setItem(PANES, JSON.stringify(this.#panes))
    } catch {
      // They last as long as the page, then.
    }
  }

  keep() {
    try {
      sessionStorage.setItem(KEEP, JSON.stringify({ project: this.project, session: this.session, screen: this.screen, review: this.review, folded: this.folded, drafts: this.drafts }))
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

  /** What is looked at stays, whatever others begin: called when the person does anything. */
  pin() {
    const p = this.current
    const x = this.currentSession
    if (p && this.project !== p.id) this.project = p.id
    if (x && this.session === '') this.session = x.id
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
    this.screen = 'review'
  }

  /** Brings a step or question into view. */
  show(id: string) {
    const at = this.store.s.steps[id] ?? this.store.s.questions[id]
    if (at?.session) this.openSession(at.session)
    else if (at && 'project' in at && at.project) this.openProject(at.project)
    this.goal = { id, n: this.goal.n + 1 }
  }

  /** Goes to a step that was just begun, as soon as the log tells of it. */
  follow(session: string, step: string) {
    this.openSession(session)
    this.goal = { id: step, n: this.goal.n + 1, shut: true }
  }

  #leave() {
    this.screen = 'session'
    if (this.review && !this.current?.reviews.some((r) => r.id === this.review)) this.review = ''
    this.keep()
  }
}
