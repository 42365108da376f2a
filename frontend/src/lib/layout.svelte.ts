const KEEP = 'glasshouse.layout'

/** The parts a person can resize, each with what it may be. */
const RANGE = { side: [160, 420], middle: [0.25, 0.7], lower: [0.15, 0.75] } as const
export type Part = keyof typeof RANGE
const FIRST: Record<Part, number> = { side: Math.min(264, Math.max(224, Math.round(innerWidth * 0.14))), middle: 0.416, lower: 0.29 }

/** How wide the columns are, kept over sessions: `side` in pixels, the others as a share. */
export class Layout {
  #at = $state<Record<Part, number>>({ ...FIRST })
  /** The list of projects is put away. */
  sideOff = $state(false)

  constructor() {
    try {
      const v = JSON.parse(localStorage.getItem(KEEP) ?? '{}') as Partial<Record<Part, unknown>> & { sideOff?: unknown }
      for (const part of Object.keys(RANGE) as Part[]) if (typeof v[part] === 'number') this.#at[part] = fit(part, v[part])
      this.sideOff = v.sideOff === true
    } catch {
      // Without a memory the columns begin as they are made.
    }
  }

  get(part: Part): number {
    return this.#at[part]
  }

  range(part: Part): readonly [number, number] {
    return RANGE[part]
  }

  set(part: Part, v: number) {
    if (!Number.isFinite(v)) return
    this.#at[part] = fit(part, v)
    this.#keep()
  }

  /** As it was before anybody moved it. */
  reset(part: Part) {
    this.set(part, FIRST[part])
  }

  toggleSide() {
    this.sideOff = !this.sideOff
    this.#keep()
  }

  #keep() {
    try {
      localStorage.setItem(KEEP, JSON.stringify({ ...this.#at, sideOff: this.sideOff }))
    } catch {
      // It lasts as long as the page, then.
    }
  }
}

const fit = (part: Part, v: number): number => Math.min(RANGE[part][1], Math.max(RANGE[part][0], v))
