import { follow, type Link } from '../api/events'
import type { Envelope } from '../api/types'
import { apply, empty, waiting, type State } from './state'

/** What the core told, folded, and the state of the link to it. */
export class Store {
  #state = empty()
  #tick = $state(0)
  link = $state<Link>('connecting')
  why = $state('')

  /** The state now; reading it makes a view follow it. */
  get s(): State {
    void this.#tick
    return this.#state
  }

  /** The questions that wait, oldest first. */
  waiting = $derived.by(() => waiting(this.s))

  take(events: Envelope[]) {
    for (const e of events) {
      try {
        apply(this.#state, e)
      } catch (err) {
        // One event that cannot be folded must not hide the others.
        console.error(`event ${e.id} (${e.type})`, err)
      }
    }
    this.#tick++
  }

  reset() {
    this.#state = empty()
    this.#tick++
  }

  follow(signal: AbortSignal) {
    return follow({
      onEvents: (e) => this.take(e),
      onLink: (l, why) => {
        this.link = l
        this.why = why
      },
      onReset: () => this.reset(),
    }, signal)
  }
}
