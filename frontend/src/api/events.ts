import { CallError, lines } from './transport'
import type { Envelope } from './types'

export type Link = 'connecting' | 'live' | 'cut'

export interface Follower {
  onEvents: (e: Envelope[]) => void
  onLink: (l: Link, why: string) => void
  /** The core has another log than the one that was followed: all that was folded is void. */
  onReset: () => void
  /** The stream is there; cut() ends it, so that it is made anew. */
  onOpen?: (cut: () => void) => void
  /** The next try comes after so many milliseconds, or when now() is called. */
  onWait?: (ms: number, now: () => void) => void
}

/** The core sends something every 15 seconds; a stream that is quiet for longer is dead. */
const QUIET = 45_000

/**
 * Follows the core's events from the first one, for ever: a cut stream is taken
 * up after the last event seen, so nothing is missed and nothing comes twice.
 */
export async function follow(f: Follower, signal: AbortSignal): Promise<void> {
  let after = 0
  let wait = 250
  let first = true
  const batch = new Batch(f.onEvents)
  while (!signal.aborted) {
    let why = ''
    const one = new AbortController()
    const stop = () => one.abort()
    signal.addEventListener('abort', stop)
    let last = Date.now()
    const heard = () => (last = Date.now())
    const quiet = setInterval(() => Date.now() - last > QUIET && stop(), QUIET / 9)
    try {
      heard()
      if (first) f.onLink('connecting', '')
      for await (const line of lines(`/v1/events?format=ndjson&transient=true&after=${after}`, one.signal, () => { f.onLink('live', ''); f.onOpen?.(stop) })) {
        heard()
        first = false
        wait = 250
        if (!line) continue
        const e = envelope(line)
        if (!e) continue
        if (e.id > 0) after = e.id
        batch.push(e)
      }
    } catch (err) {
      if (err instanceof CallError) {
        why = err.message
        if (err.status === 409 && after > 0) {
          after = 0
          batch.drop()
          f.onReset()
        }
      }
    }
    batch.flush()
    clearInterval(quiet)
    signal.removeEventListener('abort', stop)
    if (signal.aborted) return
    f.onLink('cut', why)
    await new Promise<void>((next) => {
      const t = setTimeout(next, wait)
      f.onWait?.(wait, () => {
        clearTimeout(t)
        next()
      })
    })
    wait = Math.min(wait * 2, 4000)
  }
}

/** A line that is no event would come again after each cut: it is passed over, aloud. */
function envelope(line: string): Envelope | undefined {
  try {
    const e = JSON.parse(line) as Partial<Envelope> | null
    if (e && typeof e === 'object' && typeof e.id === 'number' && typeof e.type === 'string' && e.data !== undefined && e.data !== null) return e as Envelope
  } catch {
    // No JSON.
  }
  console.error('a line of the stream is no event', line.slice(0, 200))
  return undefined
}

/** Time a frame may be held up by events, in milliseconds, and how many are handed over at once. */
const BUDGET = 8
const CHUNK = 256
/** A page that nobody sees gets no frames: it is told this often. */
const UNSEEN = 250

/** A frame that took longer than this was late. */
const FRAME = 20

/**
 * Hands events over once a frame, however fast they come, and never so many at
 * once that the frame is late: a long log goes in over some frames, in order.
 * Where drawing is slow it gets half of the time, so that hands and scrolling
 * find frames between.
 */
export class Batch {
  #all: Envelope[] = []
  #at = 0
  #frame = 0
  #timer: ReturnType<typeof setTimeout> | undefined
  /** Not before this time. */
  #rest = 0

  constructor(readonly take: (e: Envelope[]) => void) {}

  push(e: Envelope) {
    this.#all.push(e)
    if (!this.#timer) this.#wait()
  }

  /** Hands over all that is left, now. */
  flush() {
    this.#run(Infinity)
  }

  /** Forgets what was not handed over. */
  drop() {
    this.#stop()
    this.#all = []
    this.#at = 0
  }

  #wait() {
    const run = () => this.#run(BUDGET)
    this.#timer = setTimeout(run, UNSEEN)
    if (typeof requestAnimationFrame !== 'function') return
    const frame = () => {
      if (performance.now() < this.#rest) this.#frame = requestAnimationFrame(frame)
      else run()
    }
    this.#frame = requestAnimationFrame(frame)
  }

  #stop() {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#frame) cancelAnimationFrame(this.#frame)
    this.#frame = 0
  }

  #run(budget: number) {
    this.#stop()
    const began = performance.now()
    while (this.#at < this.#all.length) {
      const some = this.#all.slice(this.#at, this.#at + CHUNK)
      this.#at += some.length
      this.take(some)
      if (performance.now() - began >= budget) break
    }
    // The next frame comes when this one is drawn.
    if (typeof requestAnimationFrame === 'function') {
      requestAnimationFrame(() => {
        const now = performance.now()
        if (now - began > FRAME) this.#rest = now + (now - began) / 2
      })
    }
    if (this.#at >= this.#all.length) {
      this.#all = []
      this.#at = 0
    } else this.#wait()
  }
}
