import { paint, PLAIN, type Ink, type Painted } from './ansi'
import type { Span } from './highlight'

/** One row as it is drawn: at most `cols` characters of a line. */
export interface Row {
  text: string
  spans: Span[]
  /** The line it is of, from 0, and whether it is that line's first row. */
  line: number
  first: boolean
  /** How often the line was written over; said at its last row. */
  over: number
  /** Set in a row that stands for the rest of a very long line: how many characters that is. */
  more?: number
}

/** Characters of a line that are drawn before somebody asks for all of it. */
export const LONG = 4000

/** Text of any length as rows of a fixed height: what is not looked at costs a few bytes a line. */
export class Lines {
  #lines: string[] = []
  #ink: Ink[] = []
  #length: number[] = []
  /** The first row of each line, and one more: the number of rows. */
  #first: number[] = [0]
  /** Very long lines that are drawn whole. */
  #open = new Set<number>()
  #last: { at: number; p: Painted } | undefined
  /** Characters of it in all. */
  size = 0

  constructor(
    readonly cols: number,
    readonly raw = false,
  ) {}

  /** The same text in rows of another width. */
  static of(was: Lines, cols: number, raw = was.raw): Lines {
    const now = new Lines(cols, raw)
    if (raw !== was.raw) {
      now.add(was.#lines.join('\n'))
      return now
    }
    now.#lines = was.#lines
    now.#ink = was.#ink
    now.#length = was.#length
    now.size = was.size
    now.#open = was.#open
    now.#count(0)
    return now
  }

  /** Puts more text at the end; it may begin within a line. */
  add(text: string): this {
    if (!text) return this
    this.size += text.length
    const parts = text.split('\n')
    const from = Math.max(0, this.#lines.length - 1)
    const rest = this.#lines.pop() ?? ''
    // The line goes on from how it began, not from how it looked at the end so far.
    let ink = this.#ink[from] ?? PLAIN
    this.#ink.length = this.#length.length = from
    this.#last = undefined
    parts[0] = rest + parts[0]
    for (const l of parts) {
      this.#lines.push(l)
      this.#ink.push(ink)
      const p = this.#read(l, ink)
      this.#length.push(p.length)
      ink = p.ink
    }
    this.#count(from)
    return this
  }

  /** How long a line is when drawn, and how it goes on: without drawing it where it is plain. */
  #read(l: string, ink: Ink): { length: number; ink: Ink } {
    if (/^[\t\x20-\x7e]*$/.test(l)) return { length: l.length, ink }
    const p = paint(l, ink, this.raw)
    return { length: p.text.length, ink: p.ink }
  }

  #count(from: number) {
    this.#first.length = from + 1
    for (let i = from; i < this.#lines.length; i++) this.#first.push((this.#first[i] ?? 0) + this.#high(i))
  }

  #cut(i: number): boolean {
    return (this.#length[i] ?? 0) > LONG && !this.#open.has(i)
  }
  #high(i: number): number {
    return this.#cut(i) ? Math.ceil(LONG / this.cols) + 1 : Math.max(1, Math.ceil((this.#length[i] ?? 0) / this.cols))
  }

  /** Draws a very long line whole. */
  expand(line: number) {
    this.#open.add(line)
    this.#count(line)
  }

  /** The number of lines: what ends with a line break has no empty one after it. */
  get lines(): number {
    const n = this.#lines.length
    return n > 0 && this.#lines[n - 1] === '' ? n - 1 : n
  }

  get rows(): number {
    return this.#first[this.lines] ?? 0
  }

  /** The first row of a line. */
  rowOf(line: number): number {
    return this.#first[Math.max(0, Math.min(line, this.lines - 1))] ?? 0
  }

  row(i: number): Row | undefined {
    if (i < 0 || i >= this.rows) return undefined
    let a = 0
    let b = this.lines
    while (b - a > 1) {
      const m = (a + b) >> 1
      if ((this.#first[m] ?? 0) <= i) a = m
      else b = m
    }
    if (this.#last?.at !== a) this.#last = { at: a, p: paint(this.#lines[a] ?? '', this.#ink[a], this.raw) }
    const { p } = this.#last
    const k = i - (this.#first[a] ?? 0)
    const cut = this.#cut(a)
    if (cut && k === this.#high(a) - 1) return { text: '', spans: [], line: a, first: false, over: 0, more: p.text.length - LONG }
    const [from, to] = [k * this.cols, Math.min((k + 1) * this.cols, cut ? LONG : Infinity)]
    return {
      text: p.text.slice(from, to), line: a, first: k === 0, over: to >= p.text.length ? p.over : 0,
      spans: p.spans.filter((s) => s.to > from && s.from < to).map((s) => ({ from: Math.max(0, s.from - from), to: Math.min(to, s.to) - from, cls: s.cls })),
    }
  }

  /** Where some words are, whatever their case: the row of each, up to max of them. */
  find(words: string, max: number): number[] {
    const out: number[] = []
    const w = words.toLowerCase()
    if (!w) return out
    for (let i = 0; i < this.lines && out.length < max; i++) {
      const l = this.#lines[i] ?? ''
      if (l.length < w.length) continue
      let low = l.toLowerCase()
      if (!low.includes(w)) continue
      low = paint(l, this.#ink[i], this.raw).text.toLowerCase()
      for (let at = low.indexOf(w); at >= 0 && out.length < max; at = low.indexOf(w, at + w.length)) out.push((this.#first[i] ?? 0) + Math.min(this.#high(i) - 1, Math.floor(at / this.cols)))
    }
    return out
  }

  /** All of it, as it came. */
  text(): string {
    return this.#lines.join('\n')
  }
}
