import { calls } from '../api/calls'
import { follow, type Link } from '../api/events'
import { CallError } from '../api/transport'
import type { Envelope, Project } from '../api/types'
import { apply, empty, waiting, type ProjectState, type State } from './state'

/** How often the core is asked whether it answers, and when a missing answer is called slow. */
const ASK = 15_000
const SLOW = 2_500

/** What the core told, folded, and the state of the link to it. */
export class Store {
  #state = empty()
  #tick = $state(0)
  link = $state<Link>('connecting')
  why = $state('')
  /** Since when the link is not there; 0: it is. */
  lost = $state(0)
  /** Since when the core owes an answer for too long; 0: it answers. */
  slow = $state(0)
  /** Whether all that was in the log at first is folded: before that nothing is known to be absent. */
  settled = $state(true)
  /** The newest event the log had when the page began to read it. */
  latest = $state(0)
  /** What a person should hear about the core itself. */
  onNews: (text: string) => void = () => {}
  /** The models that are set up are others now: no event holds them. */
  onModels: () => void = () => {}
  /** A project that was being made is gone: why, and whether somebody wanted it so. */
  onFailed: (project: ProjectState, why: string, wanted: boolean) => void = () => {}
  /** The disk of this computer came into another range: ok, low or full. */
  onDisk: (state: string, text: string) => void = () => {}
  /** How the program that holds the page differs from the core's, and what to do; '' when it does not any more. */
  onDiffers: (text: string) => void = () => {}
  #disk = 'ok'
  #differs = ''
  #retry: () => void = () => {}
  #cut: () => void = () => {}
  /** Why the stream was cut from here. */
  #reason = ''

  /** The state now; reading it makes a view follow it. */
  get s(): State {
    void this.#tick
    return this.#state
  }

  /** The questions that wait, oldest first. */
  waiting = $derived.by(() => waiting(this.s))

  /** How much of the log is read, from 0 to 1. */
  get read(): number {
    return this.latest > 0 ? Math.min(1, this.s.last / this.latest) : 0
  }

  take(events: Envelope[]) {
    const before = this.settled && this.#state.version !== ''
    for (const e of events) {
      const was = e.type === 'project.deleted' && e.project_id ? this.#state.projects[e.project_id] : undefined
      try {
        apply(this.#state, e)
      } catch (err) {
        // One event that cannot be folded must not hide the others.
        console.error(`event ${e.id} (${e.type})`, err)
      }
      if (before && e.type === 'project.deleted' && was && !was.imported && !was.deleted && e.data.reason) this.onFailed(was, e.data.reason, e.actor !== undefined && e.actor !== '' && e.actor !== 'host')
      if (before && e.type === 'models.changed') this.onModels()
      if (before && e.type === 'disk.space') this.#tellDisk(e.data)
      if (before && e.id > 0 && e.type === 'core.stopped') this.#lose('The core has stopped.')
      if (before && e.id > 0 && e.type === 'core.started') this.onNews('The core started again. Each step says what became of it.')
    }
    this.#tick++
    this.#settle()
  }

  /** Takes over what a call said about projects that events do not tell again: how far their making is. */
  merge(projects: Project[]) {
    for (const p of projects) {
      const known = this.#state.projects[p.id]
      const progress = p.progress
      // An answer may be older than what events told meanwhile: a work that is over is not begun again.
      const over = known && (known.deleted || (progress?.work === 'create' ? !!known.imported : progress?.work === 'start' && known.machine !== p.machine_state))
      if (known && progress && !known.progress && !over) this.#state.projects[p.id] = { ...known, progress: { phase: progress.phase, text: progress.text, done: progress.done ?? 0, total: progress.total ?? 0, at: Date.now(), since: progress.since ?? Date.now(), ...(progress.work ? { work: progress.work } : {}) } }
    }
    this.#tick++
  }

  #tellDisk(d: { state: string; text?: string }) {
    if (d.state === this.#disk) return
    this.#disk = d.state
    this.onDisk(d.state, d.text ?? '')
  }

  reset() {
    this.#state = empty()
    this.#tick++
  }

  /** Tries to reach the core now, not when the next try is due. */
  retry() {
    this.#retry()
  }

  follow(signal: AbortSignal) {
    this.settled = false
    const ask = setInterval(() => void this.#ask(), ASK)
    signal.addEventListener('abort', () => clearInterval(ask))
    return follow({
      onEvents: (e) => this.take(e),
      onOpen: (cut) => (this.#cut = cut),
      onLink: (l, why) => {
        this.link = l
        this.why = why || (l === 'cut' ? this.#reason : '')
        if (l === 'live') this.#reason = ''
        if (l === 'live') {
          this.lost = 0
          void this.#catchUp()
        } else {
          this.lost ||= Date.now()
          this.slow = 0
        }
      },
      onReset: () => {
        this.reset()
        this.settled = false
        this.latest = 0
        this.onNews('The core has another log than before, so all is read anew. What you typed is kept.')
      },
      onWait: (_, now) => (this.#retry = now),
    }, signal)
  }

  /** Learns how much there is to read, and what events do not tell again. */
  async #catchUp() {
    try {
      const info = await this.#ask()
      this.latest = info?.latest_event_id ?? 0
      this.#settle(true)
      const host = info?.progress
      if (host && !this.#state.progress) this.#state.progress = { phase: host.phase, text: host.text, done: host.done ?? 0, total: host.total ?? 0, at: Date.now(), since: host.since ?? Date.now() }
      // Told once, maybe long ago: a page that is opened later must say it too.
      if (info?.disk) this.#tellDisk(info.disk)
      if (info && (info.differs ?? '') !== this.#differs) {
        this.#differs = info.differs ?? ''
        this.onDiffers(this.#differs)
      }
      this.merge(await calls.projects())
    } catch {
      // The stream tells what is wrong with the core.
      this.settled = true
    }
  }

  #settle(known = this.latest > 0) {
    if (!this.settled && known && this.#state.last >= this.latest) this.settled = true
  }

  /** The core is gone, whatever the stream looks like: it is made anew. */
  #lose(why: string) {
    this.#reason = why
    this.#cut()
  }

  /** Asks the core for something small, to see whether it answers. */
  async #ask() {
    if (this.link !== 'live' || this.slow) return undefined
    const began = Date.now()
    const late = setTimeout(() => {
      if (this.link !== 'live') return
      this.slow = began
      // What came so far is better than nothing.
      if (this.#state.last > 0) this.settled = true
    }, SLOW)
    try {
      return await calls.info()
    } catch (err) {
      // A stream may look alive while nobody is behind it.
      if (err instanceof CallError && (err.status === 0 || err.status >= 502)) this.#lose(err.message)
      return undefined
    } finally {
      clearTimeout(late)
      this.slow = 0
    }
  }
}
