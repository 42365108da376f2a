import { calls } from '../../api/calls'
import { asError } from '../../api/transport'
import type { ApiError, Review, ReviewComment, ReviewFile } from '../../api/types'
import type { Decision } from './units'

/**
 * An open review: what the core says of it, and what the person just did. Wishes
 * show at once and go to the core one after the other; the lines of the files are
 * read once, for they never change.
 */
export class ReviewModel {
  review = $state.raw<Review>()
  error = $state<ApiError>()
  /** Wishes on their way to the core. */
  pending = $state(0)
  #last: Promise<unknown> = Promise.resolve()
  #gone = false
  /** Questions for the review, the newest that was answered, and wishes: newer answers hold, in whatever order they come. */
  #reads = 0
  #taken = 0
  #asks = 0
  /** An answer was passed over for a wish that was under way: what others did is read once more. */
  #missed = false

  constructor(readonly id: string) {}

  get files(): ReviewFile[] {
    return this.review?.files ?? []
  }

  get comments(): ReviewComment[] {
    return this.review?.comments ?? []
  }

  /** What is asked for after this is answered to nobody. */
  leave() {
    this.#gone = true
  }

  /** Reads the review, its lines only the first time. */
  async load() {
    const read = ++this.#reads
    const asks = this.#asks
    try {
      const brief = !!this.review
      const r = await calls.review(this.id, brief)
      // What the person did meanwhile is newer than this answer, and so is one to a later question.
      if (this.#gone || read < this.#taken) return
      if (this.pending) this.#missed = true
      else if (asks !== this.#asks) await this.load()
      else {
        this.#taken = read
        this.#take(r)
      }
    } catch (err) {
      if (!this.#gone) this.error = asError(err)
    }
  }

  /** Waits until the core has answered every wish: what is planned or pushed is about what is seen. */
  async settled() {
    for (let last: Promise<unknown> | undefined; last !== this.#last; ) {
      last = this.#last
      await last
    }
  }

  #take(r: Review) {
    const had = new Map(this.files.map((f) => [f.id, f]))
    this.review = had.size ? { ...r, files: (r.files ?? []).map((f) => ({ ...f, hunks: f.hunks ?? had.get(f.id)?.hunks ?? null })) } : r
  }

  /** Shows a wish and sends it; what the core answers is what holds. Says whether it held. */
  async #ask(show: (r: Review) => Review, send: () => Promise<Review>): Promise<boolean> {
    if (!this.review) return false
    this.error = undefined
    this.review = show(this.review)
    this.pending++
    this.#asks++
    // Answered is a wish when its answer is on the screen.
    const turn = this.#last.then(send).then((r) => {
      if (--this.pending === 0 && !this.#gone) this.#take(r)
      return true
    }, async (err: unknown) => {
      this.pending--
      this.error = asError(err)
      await this.load()
      this.error ??= asError(err)
      return false
    }).finally(() => {
      if (this.pending || !this.#missed) return
      this.#missed = false
      void this.load()
    })
    this.#last = turn
    return turn
  }

  /** Decides a unit, a file (no unit) or everything (no file). */
  decide(file: string, unit: string, d: Decision): Promise<boolean> {
    return this.#ask((r) => counted(r, (f) => {
      if (file && f.id !== file) return f
      const decisions = { ...f.decisions }
      for (const u of f.units ?? []) if (!unit || u === unit) decisions[u] = d
      return { ...f, decisions }
    }), () => calls.decide(this.id, { ...(file ? { file } : {}), ...(unit ? { unit } : {}), decision: d }))
  }

  mark(file: string, viewed: boolean): Promise<boolean> {
    return this.#ask((r) => ({ ...r, files: (r.files ?? []).map((f) => (f.id === file ? { ...f, viewed } : f)) }), () => calls.viewed(this.id, file, viewed))
  }

  comment(b: Parameters<typeof calls.comment>[1]): Promise<boolean> {
    return this.#ask((r) => r, () => calls.comment(this.id, b))
  }

  edit(comment: string, text: string): Promise<boolean> {
    return this.#ask((r) => ({ ...r, comments: (r.comments ?? []).map((c) => (c.id === comment ? { ...c, text } : c)) }), () => calls.editComment(this.id, comment, text))
  }

  remove(comment: string): Promise<boolean> {
    return this.#ask((r) => ({ ...r, comments: (r.comments ?? []).filter((c) => c.id !== comment) }), () => calls.removeComment(this.id, comment))
  }

  send(session: string, rejected: boolean): Promise<boolean> {
    return this.#ask((r) => r, () => calls.sendComments(this.id, { session_id: session, ...(rejected ? { rejected } : {}) }))
  }
}

function counted(r: Review, each: (f: ReviewFile) => ReviewFile): Review {
  const files = (r.files ?? []).map(each)
  const n = { accept: 0, reject: 0, undecided: 0 } as Record<string, number>
  for (const f of files) for (const u of f.units ?? []) n[f.decisions[u] ?? 'undecided'] = (n[f.decisions[u] ?? 'undecided'] ?? 0) + 1
  return { ...r, files, accepted: n.accept ?? 0, rejected: n.reject ?? 0, undecided: n.undecided ?? 0 }
}
