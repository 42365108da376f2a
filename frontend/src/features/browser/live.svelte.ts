import { answer, asError, CallError } from '../../api/transport'

// The live view of a page: the newest picture, asked for again and again. Nothing is
// asked while nobody looks; then the core has none taken either.

/** What a picture shows, as the page says. */
export interface FramePage { tab: string; url: string; title: string; scrollX: number; scrollY: number }
export interface Frame { seq: number; picture: Blob; page: FramePage }
/** A picture that was drawn, and when. */
export interface Shot { seq: number; at: number; page: FramePage }
/** off: nobody looks. waiting: no answer yet. cut: the core does not answer. closed: there is no browser. */
export type Watch = 'off' | 'waiting' | 'live' | 'cut' | 'closed'

/** How long the core may keep a question for a picture. */
const WAIT = 20_000
const FIRST_PAUSE = 250
const MOST_PAUSE = 4000

export class Live {
  status = $state<Watch>('off')
  shot = $state.raw<Shot>()
  /** Why it is cut. */
  why = $state('')

  /** draw shows a picture; it throws when it cannot be shown. */
  constructor(private readonly draw: (picture: Blob, signal: AbortSignal) => Promise<void>) {}

  /** Watches a session's browser until signal or until there is none. */
  async watch(session: string, signal: AbortSignal): Promise<void> {
    // Whoever comes back is shown what there is at once, known or not.
    let seq = 0
    let pause = FIRST_PAUSE
    let drawing: Promise<void> = Promise.resolve()
    this.status = 'waiting'
    while (!signal.aborted) {
      try {
        const f = await frame(session, seq, signal)
        if (signal.aborted) break
        pause = FIRST_PAUSE
        this.why = ''
        if (!f) {
          // The same picture still: it is how the page looks now.
          if (this.shot) this.status = 'live'
          continue
        }
        seq = f.seq
        // One picture is drawn while the next is asked for; no more than one.
        await drawing
        drawing = this.#draw(f, signal)
      } catch (err) {
        if (signal.aborted) break
        if (err instanceof CallError && err.status === 404) {
          this.status = 'closed'
          return
        }
        this.status = 'cut'
        this.why = asError(err).what
        seq = 0
        await sleep(pause, signal)
        pause = Math.min(2 * pause, MOST_PAUSE)
      }
    }
    this.status = 'off'
  }

  async #draw(f: Frame, signal: AbortSignal): Promise<void> {
    try {
      await this.draw(f.picture, signal)
    } catch {
      return // a picture that cannot be shown; the next one may
    }
    if (signal.aborted) return
    this.shot = { seq: f.seq, at: Date.now(), page: f.page }
    this.status = 'live'
  }
}

/** The newest picture other than after; nothing when there was none in time. */
export async function frame(session: string, after: number, signal: AbortSignal): Promise<Frame | undefined> {
  const res = await answer(`/v1/sessions/${encodeURIComponent(session)}/browser/frame?after=${after}&wait_ms=${WAIT}`, signal)
  if (res.status === 204) return undefined
  const seq = Number(res.headers.get('X-Glasshouse-Frame'))
  if (res.headers.get('Content-Type') !== 'image/jpeg' || !Number.isSafeInteger(seq) || seq <= 0) {
    throw new CallError(502, { code: 'internal', what: 'what came is no picture of the browser' })
  }
  return { seq, picture: await res.blob(), page: readPage(res.headers.get('X-Glasshouse-Page') ?? '') }
}

/** Reads what a picture shows; whatever is not what it should be is left out. */
export function readPage(coded: string): FramePage {
  let v: Record<string, unknown> = {}
  try {
    const raw = atob(coded.replace(/-/g, '+').replace(/_/g, '/'))
    const parsed: unknown = JSON.parse(new TextDecoder().decode(Uint8Array.from(raw, (c) => c.charCodeAt(0))))
    if (typeof parsed === 'object' && parsed) v = parsed as Record<string, unknown>
  } catch {
    // A picture without words is a picture still.
  }
  const text = (x: unknown) => (typeof x === 'string' ? x : '')
  const number = (x: unknown) => (typeof x === 'number' && Number.isFinite(x) ? x : 0)
  const view = (typeof v.view === 'object' && v.view ? v.view : {}) as Record<string, unknown>
  return { tab: text(v.tab), url: text(v.url), title: text(v.title), scrollX: number(view.scroll_x), scrollY: number(view.scroll_y) }
}

/** Draws a picture on a canvas without a moment of nothing between two. */
export function painter(canvas: () => HTMLCanvasElement | undefined) {
  return async (picture: Blob, signal: AbortSignal): Promise<void> => {
    const bitmap = await createImageBitmap(picture)
    try {
      const to = canvas()
      if (!to || signal.aborted) return
      // Setting a size wipes the canvas, even to what it was.
      if (to.width !== bitmap.width) to.width = bitmap.width
      if (to.height !== bitmap.height) to.height = bitmap.height
      to.getContext('2d', { alpha: false })?.drawImage(bitmap, 0, 0)
    } finally {
      bitmap.close()
    }
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const t = setTimeout(end, ms)
    function end() {
      clearTimeout(t)
      signal.removeEventListener('abort', end)
      done()
    }
    signal.addEventListener('abort', end)
  })
}
