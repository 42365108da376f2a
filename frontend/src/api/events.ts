import { lines } from './transport'
import type { Envelope } from './types'

export type Link = 'connecting' | 'live' | 'cut'

/**
 * Follows the core's events from the first one, for ever: a cut stream is taken
 * up after the last event seen, so nothing is missed and nothing comes twice.
 */
export async function follow(onEvent: (e: Envelope[]) => void, onLink: (l: Link) => void, signal: AbortSignal): Promise<void> {
  let after = 0
  let wait = 250
  while (!signal.aborted) {
    onLink(after === 0 ? 'connecting' : 'cut')
    try {
      let batch: Envelope[] = []
      let timer: ReturnType<typeof setTimeout> | undefined
      const flush = () => {
        timer = undefined
        const b = batch
        batch = []
        if (b.length) onEvent(b)
      }
      for await (const line of lines(`/v1/events?format=ndjson&transient=true&after=${after}`, signal)) {
        onLink('live')
        wait = 250
        const e = JSON.parse(line) as Envelope
        if (e.id > 0) after = e.id
        batch.push(e)
        // One update a frame, however fast events come.
        timer ??= setTimeout(flush, 16)
      }
      clearTimeout(timer)
      flush()
    } catch {
      if (signal.aborted) return
    }
    onLink('cut')
    await new Promise((r) => setTimeout(r, wait))
    wait = Math.min(wait * 2, 4000)
  }
}
