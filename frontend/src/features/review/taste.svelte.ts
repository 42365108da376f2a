const KEEP = 'glasshouse.review'

/** How a person likes diffs: kept over sessions, the same for every review. */
class Taste {
  split = $state(true)
  quietSpace = $state(false)

  constructor() {
    try {
      const v = JSON.parse(localStorage.getItem(KEEP) ?? '{}') as { split?: boolean; quietSpace?: boolean }
      this.split = v.split !== false
      this.quietSpace = v.quietSpace === true
    } catch {
      // Without a memory it begins as it is.
    }
  }

  set(v: { split?: boolean; quietSpace?: boolean }) {
    this.split = v.split ?? this.split
    this.quietSpace = v.quietSpace ?? this.quietSpace
    try {
      localStorage.setItem(KEEP, JSON.stringify({ split: this.split, quietSpace: this.quietSpace }))
    } catch {
      // It lasts as long as the page, then.
    }
  }
}

export const taste = new Taste()
