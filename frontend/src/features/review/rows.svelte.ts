import { elementScroll, measureElement, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from '@tanstack/virtual-core'
import { untrack } from 'svelte'

/**
 * Rows of which only those in sight are in the page, so that a file of any length
 * is as quick as a short one. Heights are guessed at first and measured when drawn.
 */
export class Rows {
  #v: Virtualizer<HTMLElement, HTMLElement>
  #n = $state(0)
  #guess: (i: number) => number = () => 20
  #key: (i: number) => string = String

  constructor(box: HTMLElement) {
    this.#v = new Virtualizer<HTMLElement, HTMLElement>({
      count: 0, getScrollElement: () => box, estimateSize: (i) => this.#guess(i), getItemKey: (i) => this.#key(i), overscan: 16,
      scrollToFn: elementScroll, observeElementOffset, measureElement,
      // A page without a layout, such as a hidden one, shows a screenful.
      observeElementRect: (v, cb) => observeElementRect(v, (r) => cb(r.height > 0 ? r : { width: 800, height: 800 })),
      onChange: () => this.#again(),
    })
  }

  /** Begins to follow the box; the answer ends it. */
  follow(): () => void {
    const stop = this.#v._didMount()
    this.#v._willUpdate()
    return stop
  }

  set(count: number, guess: (i: number) => number, key: (i: number) => string) {
    this.#guess = guess
    this.#key = key
    this.#v.setOptions({ ...this.#v.options, count, getItemKey: (i) => this.#key(i) })
    this.#v._willUpdate()
    this.#again()
  }

  /** What reads the rows reads them anew; an effect that changes them does not follow them. */
  #again() {
    untrack(() => this.#n++)
  }

  get items(): VirtualItem[] {
    void this.#n
    return this.#v.getVirtualItems()
  }

  get height(): number {
    void this.#n
    return this.#v.getTotalSize()
  }

  /** An attachment of a row: its height is measured, now and whenever it changes. */
  measure = (el: HTMLElement) => {
    this.#v.measureElement(el)
    return () => this.#v.measureElement(null)
  }

  show(i: number, align: 'auto' | 'start' | 'center' = 'auto') {
    untrack(() => this.#v.scrollToIndex(i, { align }))
  }
}
