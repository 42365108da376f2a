import type { DiffLine } from '../api/types'

// What differs inside lines that were replaced by others: a run of deleted lines
// followed by added ones, the first by the first and so on, word by word.
export type Marks = [number, number][]

/** Lines longer than this are not looked into. */
const LONG = 2000
/** Words a line at most that are compared each with each. */
const WORDS = 160

/** The marks of the lines that have some, by their index in the hunk. Offsets are into the raw text. */
export function wordMarks(lines: DiffLine[]): Map<number, Marks> {
  const out = new Map<number, Marks>()
  for (let i = 0; i < lines.length; ) {
    if (lines[i]?.op !== '-') {
      i++
      continue
    }
    let d = i
    while (lines[d]?.op === '-') d++
    let a = d
    while (lines[a]?.op === '+') a++
    // Where more or fewer lines came, which replaced which is a guess: they must share more.
    const enough = d - i === a - d ? 0.3 : 0.5
    for (let k = 0; k < Math.min(d - i, a - d); k++) {
      const two = compare(lines[i + k]?.text ?? '', lines[d + k]?.text ?? '', enough)
      if (two?.[0].length) out.set(i + k, two[0])
      if (two?.[1].length) out.set(d + k, two[1])
    }
    i = a
  }
  return out
}

/** The parts of two lines that differ; undefined when they share less than that part of the shorter one: marks would say nothing. */
export function compare(x: string, y: string, enough = 0.3): [Marks, Marks] | undefined {
  if (x === y || x.length > LONG || y.length > LONG) return undefined
  const xs = words(x)
  const ys = words(y)
  let pre = 0
  while (pre < xs.length && pre < ys.length && xs[pre] === ys[pre]) pre++
  let suf = 0
  while (suf < xs.length - pre && suf < ys.length - pre && xs[xs.length - 1 - suf] === ys[ys.length - 1 - suf]) suf++
  const mx = xs.slice(pre, xs.length - suf)
  const my = ys.slice(pre, ys.length - suf)
  const keepX = new Uint8Array(mx.length)
  const keepY = new Uint8Array(my.length)
  if (mx.length * my.length <= WORDS * WORDS) common(mx, my, keepX, keepY)
  const len = (ws: string[], keep?: Uint8Array) => ws.reduce((n, w, i) => n + (!keep || keep[i] ? w.trim().length : 0), 0)
  const shared = len(xs.slice(0, pre)) + len(xs.slice(xs.length - suf)) + len(mx, keepX)
  if (shared < enough * Math.min(len(xs), len(ys))) return undefined
  return [ranges(xs, pre, keepX), ranges(ys, pre, keepY)]
}

const words = (s: string): string[] => s.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? []

function common(x: string[], y: string[], keepX: Uint8Array, keepY: Uint8Array) {
  const w = y.length + 1
  const t = new Uint16Array((x.length + 1) * w)
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) t[i * w + j] = x[i] === y[j] ? (t[(i + 1) * w + j + 1] ?? 0) + 1 : Math.max(t[(i + 1) * w + j] ?? 0, t[i * w + j + 1] ?? 0)
  }
  for (let i = 0, j = 0; i < x.length && j < y.length; ) {
    if (x[i] === y[j]) {
      keepX[i++] = 1
      keepY[j++] = 1
    } else if ((t[(i + 1) * w + j] ?? 0) >= (t[i * w + j + 1] ?? 0)) i++
    else j++
  }
}

/** Runs of words that are not kept, as offsets; a blank between two of them belongs to the run. */
function ranges(all: string[], pre: number, keep: Uint8Array): Marks {
  const out: Marks = []
  let at = 0
  all.forEach((w, i) => {
    const k = i - pre
    if (k >= 0 && k < keep.length && !keep[k]) {
      const last = out.at(-1)
      if (last && last[1] === at) last[1] = at + w.length
      else out.push([at, at + w.length])
    } else if (k > 0 && k + 1 < keep.length && !keep[k - 1] && !keep[k + 1] && !w.trim()) {
      const last = out.at(-1)
      if (last && last[1] === at) last[1] = at + w.length
    }
    at += w.length
  })
  return out
}
