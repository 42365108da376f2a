import { calls } from '../api/calls'
import { asError } from '../api/transport'
import type { ApiError, ModelView } from '../api/types'

/** The models a person set up, as the core lists them. No key is ever among it. */
export class Models {
  /** Undefined until they were read once. */
  list = $state.raw<ModelView[]>()
  /** The one that is meant where none is named. */
  usual = $state('')
  error = $state<ApiError>()
  /** Why the file of them cannot be read now: those from before are listed then. */
  problem = $state('')
  file = $state('')
  reading = $state(false)
  /** The form that is open in the settings: a model's name, '' for a new one; undefined: none. */
  form = $state<string>()
  #now: Promise<void> | undefined
  #n = 0

  /** Reads them; whoever asks while they are read waits for the same answer. */
  read(): Promise<void> {
    if (this.#now) return this.#now
    const p: Promise<void> = this.#read().finally(() => {
      if (this.#now === p) this.#now = undefined
    })
    return (this.#now = p)
  }

  /** Reads them anew after something was changed: an answer that was under way may be old. */
  async again(): Promise<void> {
    this.#now = undefined
    await this.read()
  }

  async #read() {
    const n = ++this.#n
    this.reading = true
    try {
      const v = await calls.models()
      if (n !== this.#n) return
      this.list = v.models ?? []
      // Where there is one alone, it is meant.
      this.usual = v.default || (this.list.length === 1 ? (this.list[0]?.name ?? '') : '')
      this.problem = v.problem ?? ''
      this.file = v.file ?? ''
      this.error = undefined
    } catch (err) {
      if (n === this.#n) this.error = asError(err)
    } finally {
      if (n === this.#n) this.reading = false
    }
  }

  /** The model of a name; an empty one is the usual. */
  find(name: string): ModelView | undefined {
    return this.list?.find((m) => m.name === (name || this.usual))
  }
}
