import { CallError, lines } from '../../api/transport'
import type { TerminalLine } from '../../api/types'
import { unbase64 } from './input'

export type Exit = NonNullable<TerminalLine['exit']>

export interface Reader {
  /** The link is there; what comes before end was said earlier. */
  onHead: (epoch: string, end: number) => void
  /** Waits until the screen took it: what is not taken is not read. fresh: something in front of it is missing. */
  onData: (b: Uint8Array, offset: number, lost: number) => Promise<void>
  onNote: (text: string) => void
  onCut: (why: string) => void
}

/** The core sends something every 15 seconds. */
const QUIET = 45_000

/**
 * Follows a terminal from an offset on until it ends or the signal aborts; a cut
 * stream goes on where it was cut. The answer is how the terminal ended, 'gone' when the
 * core has it no more, undefined when it was aborted.
 */
export async function follow(id: string, from: number, r: Reader, signal: AbortSignal): Promise<{ exit?: Exit; gone?: boolean; at: number }> {
  let at = from
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 5000)) {
    const one = new AbortController()
    const stop = () => one.abort()
    signal.addEventListener('abort', stop)
    let last = Date.now()
    let reading = true
    const quiet = setInterval(() => reading && Date.now() - last > QUIET && stop(), QUIET / 9)
    let why = 'the core ended the stream'
    try {
      for await (const text of lines(`/v1/terminals/${encodeURIComponent(id)}/output?from=${at}`, one.signal)) {
        last = Date.now()
        wait = 250
        if (!text) continue
        const l = JSON.parse(text) as TerminalLine
        if (l.epoch) r.onHead(l.epoch, l.end ?? 0)
        if (l.note) r.onNote(l.note)
        if (l.data) {
          const b = unbase64(l.data)
          reading = false // a screen that is slow is no quiet core
          await r.onData(b, l.offset, l.lost ?? 0)
          reading = true
          last = Date.now()
          at = l.offset + b.length
        }
        if (l.exit) return { exit: l.exit, at }
        if (signal.aborted) break
      }
    } catch (err) {
      if (err instanceof CallError && err.status === 404) return { gone: true, at }
      why = err instanceof Error ? err.message : String(err)
    } finally {
      clearInterval(quiet)
      signal.removeEventListener('abort', stop)
    }
    if (signal.aborted) break
    r.onCut(why)
    await new Promise((done) => setTimeout(done, wait))
  }
  return { at }
}

/** How a terminal ended, in words. */
export function ending(x: Exit | undefined): string {
  if (!x) return 'Ended'
  if (x.error) return `Could not be started: ${x.error}`
  const why = x.reason ? `: ${x.reason}` : ''
  if (x.unknown) return `Ended${why}; how is not known`
  if (x.signal) return `Ended by ${x.signal}${why}`
  return `Exited ${x.code}${why}`
}
