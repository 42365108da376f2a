import { calls } from '../api/calls'
import { asError } from '../api/transport'
import type { ApiError, NewProject } from '../api/types'
import type { Desk } from './desk.svelte'
import type { ProjectState } from './state'

/**
 * A project that is being made from this page. It goes on while its form is
 * closed; what was typed stays in the drafts until the project is there.
 */
export class Making {
  /** What was asked for; undefined: nothing is being made. */
  asked = $state<NewProject>()
  since = $state(0)
  /** Why the last try failed. */
  error = $state<ApiError>()
  cancelling = $state(false)
  #stop: AbortController | undefined

  constructor(readonly desk: Desk) {}

  get busy(): boolean {
    return this.asked !== undefined
  }

  /** The project itself, once the core has told of it. */
  get project(): ProjectState | undefined {
    const a = this.asked
    if (!a) return undefined
    return Object.values(this.desk.store.s.projects).findLast((p) => !p.deleted && (p.source === a.source || isUrl(a.source ?? '')) && p.at >= this.since - 5000)
  }

  async start(wish: NewProject) {
    if (this.busy) return
    // It goes on when this page is loaded again or closed; cancelling is a call of its own.
    const p: NewProject = { ...wish, stay: true }
    this.error = undefined
    this.asked = p
    this.since = Date.now()
    this.cancelling = false
    this.#stop = new AbortController()
    const desk = this.desk
    try {
      const made = await calls.createProject(p, this.#stop.signal)
      for (const k of Object.keys(desk.drafts)) if (k.startsWith('new.')) delete desk.drafts[k]
      const here = desk.panel === 'project'
      if (here) {
        desk.panel = ''
        desk.openProject(made.id)
      } else desk.notes.tell(`The project ${made.name} is ready.`, { name: 'Open', run: () => desk.openProject(made.id) })
      desk.keep()
    } catch (err) {
      this.error = this.cancelling ? { code: 'cancelled', what: 'You cancelled the making of the project.', hint: 'Nothing of it is left; what you typed is kept.' } : asError(err)
      if (desk.panel !== 'project' && this.cancelling) desk.notes.tell('The making of the project is cancelled; nothing of it is left.')
      else if (desk.panel !== 'project') desk.notes.fail(err, { name: 'Open the form', run: () => (desk.panel = 'project') })
    } finally {
      this.asked = undefined
      this.#stop = undefined
      this.cancelling = false
    }
  }

  /** Asks the core to give the project up, as soon as the core has told of it. */
  async cancel() {
    if (!this.busy || this.cancelling) return
    this.cancelling = true
    for (let i = 0; this.busy && !this.project && i < PATIENCE; i++) await new Promise((r) => setTimeout(r, 100))
    const p = this.project
    if (!this.busy) return
    try {
      if (p) await calls.cancelProject(p.id)
      else this.#stop?.abort()
    } catch (err) {
      this.cancelling = false
      this.desk.notes.fail(err)
    }
  }
}

/** How many tenths of a second a project may take to be told of before the call itself is given up. */
const PATIENCE = 50

/** Whether a source is an address to fetch from, not a folder of this computer. */
export const isUrl = (s: string): boolean => /^([a-z][a-z0-9+.-]*:\/\/|[^/\s:]+@[^/\s:]+:)/i.test(s.trim())
