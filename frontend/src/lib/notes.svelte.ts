import { asError } from '../api/transport'
import type { ApiError } from '../api/types'

/** Something that is said over the page: a problem, or news. */
export interface Note {
  id: number
  error?: ApiError
  text?: string
  /** What can be done about it at once. */
  act?: { name: string; run: () => void }
}

/** How many are shown at once; an older one makes room. */
const MOST = 4

/** What is said over the page, newest last, and what a screen reader is told. */
export class Notes {
  #n = 0
  list = $state<Note[]>([])
  /** The newest words for a screen reader. */
  spoken = $state('')

  fail(err: unknown, act?: Note['act']) {
    const error = asError(err)
    // The same trouble twice is one trouble.
    this.list = this.list.filter((x) => x.error?.what !== error.what)
    this.#add({ error, ...(act ? { act } : {}) })
  }

  tell(text: string, act?: Note['act']) {
    this.list = this.list.filter((x) => x.text !== text)
    this.#add({ text, ...(act ? { act } : {}) })
    this.speak(text)
  }

  /** Only for a screen reader: what the eye sees anyway. */
  speak(text: string) {
    this.spoken = text
  }

  /** Takes back what was said and is no longer so. */
  drop(words: string) {
    this.list = this.list.filter((x) => (x.error?.what ?? x.text) !== words)
  }

  close(id: number) {
    this.list = this.list.filter((x) => x.id !== id)
  }

  #add(n: Omit<Note, 'id'>) {
    this.list = [...this.list, { id: ++this.#n, ...n }].slice(-MOST)
  }
}
