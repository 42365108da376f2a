import { CallError, lines } from './transport'
import type { Envelope } from './types'

export type Link = 'connecting' | 'live' | 'cut'

export interface Follower {
  onEvents: (e: Envelope[]) => void
  onLink: (l: Link, why: string) => void
  /** The core has another log than the one that was followed: all that was folded is void. */
  onReset: () => void
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
  while (!signal.aborted) {
    let why = ''
    const one = new AbortController()
    const stop = () => one.abort()
    signal.addEventListener('abort', stop)
    let quiet: ReturnType<typeof setTimeout> | undefined
    const heard = () => {
      clearTimeout(quiet)
      quiet = setTimeout(stop, QUIET)
    }
    let batch: Envelope[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    // One update a frame, however fast events come; fewer when drawing takes long,
    // so that a long log is read in at once and not drawn line by line.
    let pause = 16
    const flush = () => {
      clearTimeout(timer)
      timer = undefined
      const b = batch
      batch = []
      if (!b.length) return
      const began = performance.now()
      f.onEvents(b)
      setTimeout(() => (pause = Math.min(1000, Math.max(16, 3 * (performance.now() - began)))), 0)
    }
    try {
      heard()
      if (first) f.onLink('connecting', '')
      for await (const line of lines(`/v1/events?format=ndjson&transient=true&after=${after}`, one.signal, () => f.onLink('live', ''))) {
        heard()
        first = false
        wait = 250
        if (!line) continue
        const e = JSON.parse(line) as Envelope
        if (e.id > 0) after = e.id
        batch.push(e)
        timer ??= setTimeout(flush, pause)
      }
    } catch (err) {
      if (err instanceof CallError) {
        why = err.message
        if (err.status === 409 && after > 0) {
          after = 0
          batch = []
          f.onReset()
        }
      }
    }
    flush()
    clearTimeout(quiet)
    signal.removeEventListener('abort', stop)
    if (signal.aborted) return
    f.onLink('cut', why)
    await new Promise((r) => setTimeout(r, wait))
    wait = Math.min(wait * 2, 4000)
  }
}
