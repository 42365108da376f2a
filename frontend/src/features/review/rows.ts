import type { DiffLine, Hunk, ReviewComment, ReviewFile } from '../../api/types'
import { compare, type Marks } from '../../lib/marks'
import { unitOfHunk, unitsOf, type Unit } from './units'

// A file of a review as rows of the screen. Which rows there are depends on the
// view; what can be decided does not: that is the units'.

export type Side = 'old' | 'new'
/** Where a comment stands: a line of one side, or the file (line 0). */
export interface Spot { side: Side; line: number }
export const spotKey = (s: Spot): string => (s.line ? `${s.side}:${s.line}` : 'file')

interface Of { key: string; unit: string }
export type Row = Of & (
  | { kind: 'unit'; of: Unit }
  | { kind: 'line'; line: DiffLine; same: boolean }
  | { kind: 'pair'; old?: DiffLine; new?: DiffLine; same: boolean }
  /** Lines that are left out, old ones from `old` and new ones from `new` on; n < 0: up to the end, how many is not known yet. */
  | { kind: 'gap'; old: number; new: number; n: number; section: string }
  | { kind: 'note'; comment: ReviewComment }
  | { kind: 'edit'; spot: Spot; draft: string }
  | { kind: 'fact'; text: string }
  | { kind: 'lost' }
)

/** Lines between hunks that the person asked for, by the new line they begin at. */
export type Opened = Record<number, string[]>

export interface View {
  split: boolean
  /** Changes of blanks alone are drawn as lines that stayed. */
  quietSpace: boolean
  comments: ReviewComment[]
  /** Editors that are open, by where; the value is the draft's key. */
  editors: { spot: Spot; draft: string }[]
  opened: Opened
  /** Lines of the new side, once known. */
  total?: number
}

const bare = (s: string): string => s.replace(/\s+/g, '')

/** What is drawn of a hunk: its lines, with those that differ in blanks alone taken together. */
function* blocks(h: Hunk, quiet: boolean): Generator<{ same?: DiffLine; was: DiffLine[]; now: DiffLine[]; quiet?: boolean }> {
  const lines = h.lines ?? []
  for (let i = 0; i < lines.length; ) {
    const l = lines[i] as DiffLine
    if (l.op === ' ') {
      yield { same: l, was: [], now: [] }
      i++
      continue
    }
    let d = i
    while (lines[d]?.op === '-') d++
    let a = d
    while (lines[a]?.op === '+') a++
    if (a === i) a++ // nothing that is known; it is passed over
    const was = lines.slice(i, d)
    const now = lines.slice(d, a)
    if (quiet && bare(was.map((x) => x.text).join('')) === bare(now.map((x) => x.text).join(''))) yield { was, now, quiet: true }
    else yield { was, now }
    i = a
  }
}

/** Whether a hunk changes nothing but blanks. */
export function onlySpace(h: Hunk): boolean {
  for (const b of blocks(h, true)) if (!b.same && !b.quiet) return false
  return true
}

export function rowsOf(f: ReviewFile, v: View): Row[] {
  const out: Row[] = []
  const units = unitsOf(f)
  const whole = units.find((u) => !u.hunk)?.unit ?? ''
  for (const e of v.editors) if (!e.spot.line) out.push({ kind: 'edit', key: `e${spotKey(e.spot)}`, unit: whole, spot: e.spot, draft: e.draft })
  const notes = new Map<string, ReviewComment[]>()
  const lost: ReviewComment[] = []
  for (const c of v.comments) {
    if (c.outdated) lost.push(c)
    else if (!c.line) out.push({ kind: 'note', key: `c${c.id}`, unit: whole, comment: c })
    else {
      const k = `${c.side}:${c.line}`
      const at = notes.get(k)
      if (at) at.push(c)
      else notes.set(k, [c])
    }
  }
  const editors = new Map(v.editors.filter((e) => e.spot.line).map((e) => [spotKey(e.spot), e]))
  const after = (unit: string, ...at: (string | false)[]) => {
    if (!notes.size && !editors.size) return
    for (const k of at) {
      if (!k) continue
      for (const c of notes.get(k) ?? []) out.push({ kind: 'note', key: `c${c.id}`, unit, comment: c })
      notes.delete(k)
      const e = editors.get(k)
      if (e) out.push({ kind: 'edit', key: `e${k}`, unit, spot: e.spot, draft: e.draft })
      editors.delete(k)
    }
  }
  const one = (unit: string, line: DiffLine, same: boolean) => {
    if (v.split) out.push({ kind: 'pair', key: `l${line.old ?? 0}:${line.new ?? 0}`, unit, old: line.op === '+' ? undefined : line, new: line.op === '-' ? undefined : line, same })
    else out.push({ kind: 'line', key: `l${line.old ?? 0}:${line.new ?? 0}`, unit, line, same })
    after(unit, line.op !== '+' && `old:${line.old ?? 0}`, line.op !== '-' && `new:${line.new ?? 0}`)
  }
  for (const u of units) if (!u.hunk) out.push({ kind: 'unit', key: `u${u.unit}`, unit: u.unit, of: u })
  const hunks = f.hunks ?? []
  // Lines around hunks can be asked for where the file stays a text on both sides.
  const wide = f.op !== 'add' && f.op !== 'delete' && f.op !== 'type'
  let old = 1
  let now = 1
  const gap = (oldTo: number, n: number, section: string) => {
    const got = v.opened[now] ?? []
    const unit = ''
    for (let i = 0; i < got.length && (n < 0 || i < n); i++) one(unit, { op: ' ', text: got[i] ?? '', old: old + i, new: now + i }, false)
    const left = n < 0 ? (v.total === undefined ? -1 : v.total - (now + got.length) + 1) : n - got.length
    if (left !== 0) out.push({ kind: 'gap', key: `g${now}`, unit, old: old + got.length, new: now + got.length, n: left, section })
    void oldTo
  }
  for (const h of hunks) {
    const unit = unitOfHunk(f, h)
    const oldAt = h.old_lines ? h.old_start : h.old_start + 1
    const nowAt = h.new_lines ? h.new_start : h.new_start + 1
    if (wide && nowAt > now) gap(oldAt, nowAt - now, '')
    if (unit === h.id) out.push({ kind: 'unit', key: `u${h.id}`, unit, of: { file: f.id, unit, hunk: h } })
    for (const b of blocks(h, v.quietSpace)) {
      if (b.same) one(unit, b.same, false)
      else if (b.quiet && !v.split) for (const l of b.now.length ? b.now : b.was) one(unit, l, true)
      else if (!v.split) for (const l of [...b.was, ...b.now]) one(unit, l, false)
      else {
        for (let i = 0; i < Math.max(b.was.length, b.now.length); i++) {
          const was = b.was[i]
          const is = b.now[i]
          out.push({ kind: 'pair', key: `l${was?.old ?? 0}:${is?.new ?? 0}`, unit, old: was, new: is, same: !!b.quiet })
          after(unit, !!was && `old:${was.old ?? 0}`, !!is && `new:${is.new ?? 0}`)
        }
      }
    }
    old = oldAt + h.old_lines
    now = nowAt + h.new_lines
  }
  if (wide && hunks.length && !(hunks.at(-1)?.lines ?? []).at(-1)?.no_eol) gap(0, v.total === undefined ? -1 : v.total - now + 1, '')
  // What stands on lines that are not drawn, and what lost its line, is never hidden.
  const rest = [...notes.values()].flat()
  if (rest.length || lost.length || editors.size) {
    out.push({ kind: 'lost', key: 'lost', unit: '' })
    for (const c of [...rest, ...lost]) out.push({ kind: 'note', key: `c${c.id}`, unit: '', comment: c })
    for (const [k, e] of editors) out.push({ kind: 'edit', key: `e${k}`, unit: '', spot: e.spot, draft: e.draft })
  }
  return out
}

/** The spot that a row stands for, on the side that is asked for where it has it. */
export function spotOf(r: Row | undefined, side: Side): Spot | undefined {
  if (r?.kind === 'line') {
    if (r.line.op === '-') return { side: 'old', line: r.line.old ?? 0 }
    if (r.line.op === '+') return { side: 'new', line: r.line.new ?? 0 }
    return side === 'old' ? { side, line: r.line.old ?? 0 } : { side: 'new', line: r.line.new ?? 0 }
  }
  if (r?.kind === 'pair') {
    if (side === 'old' ? r.old : !r.new) return { side: 'old', line: r.old?.old ?? 0 }
    return { side: 'new', line: r.new?.new ?? 0 }
  }
  return undefined
}

/** Whether a row changes something, so that a comment on its hunk belongs there. */
export const changes = (r: Row): boolean => (r.kind === 'line' && r.line.op !== ' ' && !r.same) || (r.kind === 'pair' && !r.same && (r.old?.op === '-' || r.new?.op === '+'))

/** Blocks larger than this say nothing by marks. */
const MARKED = 400

/** The word marks of a hunk's lines, block by block and only for what is drawn. */
export class WordMarks {
  #at = new WeakMap<DiffLine, Marks>()
  #mate = new Map<DiffLine, DiffLine>()
  #done = new WeakSet<DiffLine>()

  constructor(f: ReviewFile) {
    for (const h of f.hunks ?? []) {
      for (const b of blocks(h, false)) {
        if (Math.max(b.was.length, b.now.length) > MARKED) continue
        for (const [i, l] of b.was.entries()) {
          const now = b.now[i]
          if (!now) break
          this.#mate.set(l, now)
          this.#mate.set(now, l)
        }
      }
    }
  }

  of(l: DiffLine | undefined): Marks | undefined {
    const mate = l && this.#mate.get(l)
    if (!l || !mate) return undefined
    if (!this.#done.has(l)) {
      const [was, now] = l.op === '-' ? [l, mate] : [mate, l]
      const two = compare(was.text, now.text)
      if (two) {
        this.#at.set(was, two[0])
        this.#at.set(now, two[1])
      }
      this.#done.add(was)
      this.#done.add(now)
    }
    return this.#at.get(l)
  }
}
