import { CallError } from '../../api/transport'
import type { ApiError } from '../../api/types'

/** Keys are gathered for so long before they are sent. */
const GATHER = 8
/** The most bytes of one call; the core takes 64 KiB. */
const PIECE = 32 << 10
/** What waits at most while it cannot be sent: more is refused, so that a person sees it. */
export const MOST = 128 << 10

export interface Typed { data: string; epoch: string; writer: string; seq: number }

export interface InputOptions {
  send: (t: Typed) => Promise<unknown>
  /** How many bytes wait and why; 0: all is handed over. */
  onWaiting: (bytes: number, why: string) => void
  /** Something typed was given up: what happened, and that it may have arrived. */
  onLost: (e: ApiError) => void
}

/**
 * What a person types, on its way to the core: gathered, in order, one call at a
 * time. A call that got no answer is repeated with its number, so that it arrives
 * once. Only an answer that says it cannot be known gives something up, aloud.
 */
export class Input {
  #queue: Uint8Array[] = []
  #bytes = 0
  #busy = false
  #over = false
  #timer: ReturnType<typeof setTimeout> | undefined
  #wake: (() => void) | undefined
  #up = true
  #drops = 0
  #seq = 0
  #writer = newWriter()
  /** The run of the core that the output comes from. */
  epoch = ''

  constructor(readonly opt: InputOptions) {}

  /** Takes bytes; false: too much waits already, and nothing of them was taken. */
  type(b: Uint8Array): boolean {
    if (this.#over || b.length === 0) return !this.#over
    if (this.#bytes + b.length > MOST) return false
    this.#queue.push(b)
    this.#bytes += b.length
    if (!this.#busy && this.#timer === undefined) this.#timer = setTimeout(() => void this.#run(), GATHER)
    return true
  }

  get waiting(): number {
    return this.#bytes
  }

  /**
   * The link is there, or not. While it is known to be cut nothing is sent: what is
   * typed then has surely not arrived, and can go to whichever core comes next.
   */
  link(up: boolean) {
    this.#up = up
    if (up) this.#wake?.()
  }

  /** Drops what waits; nothing is sent any more. */
  end() {
    this.#over = true
    this.#drops++
    this.#queue = []
    this.#bytes = 0
    clearTimeout(this.#timer)
    this.#wake?.()
  }

  /** Drops what waits and says how much it was. */
  drop(): number {
    const n = this.#bytes
    this.#drops++
    this.#queue = []
    this.#bytes = 0
    this.#wake?.()
    return n
  }

  /** Waits so long, or until something happened. */
  async #sleep(ms: number) {
    await new Promise<void>((done) => {
      const timer = setTimeout(done, ms)
      this.#wake = () => {
        clearTimeout(timer)
        done()
      }
    })
    this.#wake = undefined
  }

  #next(): Uint8Array | undefined {
    const parts: Uint8Array[] = []
    let n = 0
    while (this.#queue[0] && n < PIECE) {
      const b = this.#queue[0]
      const take = b.subarray(0, PIECE - n)
      parts.push(take)
      n += take.length
      if (take.length < b.length) this.#queue[0] = b.subarray(take.length)
      else this.#queue.shift()
    }
    if (n === 0) return undefined
    const all = new Uint8Array(n)
    let at = 0
    for (const p of parts) {
      all.set(p, at)
      at += p.length
    }
    return all
  }

  async #run() {
    this.#timer = undefined
    this.#busy = true
    for (let b = this.#next(); b && !this.#over; b = this.#next()) {
      const drops = this.#drops
      await this.#send(b, () => this.#drops !== drops)
      if (this.#drops === drops) this.#bytes -= b.length
    }
    this.#busy = false
    this.opt.onWaiting(this.#bytes, '')
  }

  /** The numbers begin anew, for the core may never have had the last one. */
  #anew() {
    this.#writer = newWriter()
    this.#seq = 0
  }

  async #send(b: Uint8Array, dropped: () => boolean) {
    while (!this.#up && !this.#over) {
      this.opt.onWaiting(this.#bytes, 'the core does not answer')
      await this.#sleep(60_000)
      if (dropped()) return
    }
    if (this.#over) return
    const t: Typed = { data: base64(b), epoch: this.epoch, writer: this.#writer, seq: ++this.#seq }
    let tries = 0
    for (let wait = 200; !this.#over; wait = Math.min(wait * 2, 3000)) {
      try {
        await this.opt.send(t)
        return
      } catch (err) {
        const status = err instanceof CallError ? err.status : -1
        const api = err instanceof CallError ? err.api : { code: 'internal' as const, what: String(err) }
        // 503 is also a program that does not read; it may yet.
        if (status !== 0 && status !== 502 && status !== 503) {
          this.#anew()
          this.opt.onLost(api)
          return
        }
        if (dropped()) return this.#anew()
        if (tries++ > 0) this.opt.onWaiting(this.#bytes, api.what) // one that works at once is not worth a word
      }
      await this.#sleep(wait)
      if (dropped()) return this.#anew()
    }
  }
}

function newWriter(): string {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((x) => x.toString(16).padStart(2, '0')).join('')
}

/** The bytes of what xterm gives for keys. */
export const utf8 = (s: string): Uint8Array => new TextEncoder().encode(s)
/** The bytes of what xterm gives for mouse reports: one a character. */
export const latin1 = (s: string): Uint8Array => Uint8Array.from(s, (c) => c.charCodeAt(0) & 0xff)

export function base64(b: Uint8Array): string {
  let s = ''
  for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode(...b.subarray(i, i + 8192))
  return btoa(s)
}

export function unbase64(s: string): Uint8Array {
  const raw = atob(s)
  const b = new Uint8Array(raw.length)
  for (let i = 0; i < raw.length; i++) b[i] = raw.charCodeAt(i)
  return b
}
