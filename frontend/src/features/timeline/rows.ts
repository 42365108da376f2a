import { money } from '../../lib/money'
import { by } from '../../lib/words'
import type { Item } from '../../lib/state'

/**
 * Which items of a session are rows: all, but for those of folded turns. It reads
 * only items that came since; folding and unfolding reads them all once.
 */
export class Rows {
  /** The items that are rows, in order; undefined while no turn is folded: then every item is one. */
  #at: number[] | undefined
  #read = 0
  #hide = false
  readonly #folded = new Set<string>()

  /** Takes in the items that are new. */
  sync(items: readonly Item[]): this {
    if (items.length < this.#read) this.#again() // Another log: they are other items.
    if (this.#at) for (let i = this.#read; i < items.length; i++) this.#take(items, i)
    this.#read = items.length
    return this
  }

  folded(turn: string): boolean {
    return this.#folded.has(turn)
  }

  /** Folds or opens a turn. */
  fold(items: readonly Item[], turn: string, on: boolean) {
    if (this.#folded.has(turn) === on) return
    if (on) this.#folded.add(turn)
    else this.#folded.delete(turn)
    this.#again()
    this.sync(items)
  }

  #again() {
    this.#hide = false
    this.#at = this.#folded.size ? [] : undefined
    this.#read = 0
  }

  get length(): number {
    return this.#at?.length ?? this.#read
  }

  /** The item of a row. */
  item(row: number): number {
    return this.#at ? (this.#at[row] ?? -1) : row < this.#read ? row : -1
  }

  /** The row of an item, or of the nearest one before it that is a row. */
  row(item: number): number {
    if (!this.#at) return Math.min(item, this.#read - 1)
    let a = 0
    let b = this.#at.length
    while (a < b) {
      const m = (a + b) >> 1
      if ((this.#at[m] ?? 0) <= item) a = m + 1
      else b = m
    }
    return a - 1
  }

  #take(items: readonly Item[], i: number) {
    const item = items[i]
    if (item?.kind === 'turn') this.#hide = this.#folded.has(item.turn)
    if (!this.#hide || item?.kind === 'turn') this.#at?.push(i)
  }
}

/** What a row is about as high as, before it was drawn: a wrong guess moves the bar of the scroller, nothing else. */
export function guess(item: Item | undefined): number {
  switch (item?.kind) {
    case 'turn':
      return 36 + (item.reason ? 40 : 0) + (item.agent === 'model' ? 18 + 19 * Math.min(3, Math.floor(item.text.length / 46)) : 0)
    case 'say':
      return 28 + 18 * Math.min(22, Math.floor(item.text.length / 64) + (item.text.match(/\n/g)?.length ?? 0))
    case 'end':
      return 57
    case 'answer':
      return 13 + 20 * item.high
    case 'ask':
      return 200
    default:
      return 30
  }
}

/** Where a person was in a session, to come back to. */
export interface Place {
  rows: Rows
  opened: Set<string>
  /** Answers that are drawn whole, however long they are. */
  full: Set<string>
  /** Whether the plan is open; unset: as the turn goes. */
  plan?: boolean
  /** Sizes of rows that were drawn, by item. */
  sizes: Map<number | string | bigint, number>
  pinned: boolean
  /** Items that were there when the person left the end. */
  seen: number
  cursor: number
  /** The item at the top of the view, and how far it is scrolled over it. */
  top: number
  over: number
}

const places = new WeakMap<object, Map<string, Place>>()

/** The place in a session, as long as the page is there. */
export function placeOf(page: object, session: string): Place {
  let all = places.get(page)
  if (!all) places.set(page, (all = new Map()))
  let p = all.get(session)
  if (!p) all.set(session, (p = { rows: new Rows(), opened: new Set(), full: new Set(), sizes: new Map(), pinned: true, seen: 0, cursor: -1, top: 0, over: 0 }))
  return p
}

/** What was changed of a session's settings, in a sentence. */
export function setWords(item: Extract<Item, { kind: 'set' }>): string {
  const said = item.changes.map(({ what, from, to }) => {
    switch (what) {
      case 'mode':
        return `the mode from ${from} to ${to}`
      case 'model':
        return `the model from ${from || 'the default'} to ${to || 'the default'}`
      case 'cost':
        return `the spending limit from ${from ? money(Number(from), true) : 'none'} to ${to ? money(Number(to), true) : 'none'}`
      case 'tokens':
        return `the limit of tokens from ${from ? from.toLocaleString('en-US') : 'none'} to ${to ? to.toLocaleString('en-US') : 'none'}`
    }
  })
  const who = item.by === 'person' ? 'You' : by(item.by).replace(/^./, (c) => c.toUpperCase())
  return `${who} changed ${said.join(', and ')}`
}
