import type { DiffLine, Hunk, Review, ReviewFile } from '../../api/types'

// A review's units: what is decided apart. The core names them; here they are put in the order of the screen.
export interface Unit { file: string; unit: string; hunk?: Hunk }

export function unitsOf(f: ReviewFile): Unit[] {
  const hunks = new Map((f.hunks ?? []).map((h) => [h.id, h]))
  return (f.units ?? []).map((unit) => ({ file: f.id, unit, hunk: hunks.get(unit) }))
}

export const allUnits = (r: Review): Unit[] => (r.files ?? []).flatMap(unitsOf)

export type FileMark = 'accept' | 'reject' | 'undecided' | 'mixed'

export function markOf(f: ReviewFile): FileMark {
  const ds = new Set((f.units ?? []).map((u) => f.decisions[u] || 'undecided'))
  return ds.size === 1 ? ([...ds][0] as FileMark) : ds.has('undecided') ? 'undecided' : 'mixed'
}

export function unitTitle(f: ReviewFile, u: Unit): string {
  switch (u.unit) {
    case 'file':
      return f.op === 'add' ? 'The whole new file' : f.op === 'delete' ? 'The deletion of the file' : 'The whole file'
    case 'content':
      return `The content as a whole${f.whole ? `: ${f.whole}` : ''}`
    case 'rename':
      return `Renamed from ${f.old_path ?? ''}`
    case 'mode':
      return `Mode ${octal(f.old_mode)} → ${octal(f.new_mode)}`
  }
  return u.hunk ? `@@ ${u.hunk.old_start},${u.hunk.old_lines} → ${u.hunk.new_start},${u.hunk.new_lines}` : u.unit
}

const octal = (n: number | undefined): string => (n ? n.toString(8) : '–')

/** A line of a hunk with the part that differs from its counterpart. */
export interface Marked { line: DiffLine; from: number; to: number }

/**
 * Marks what differs inside lines that were replaced one by one: a run of n
 * deleted lines followed by n added ones. Offsets are into the raw text; equal
 * offsets mark nothing.
 */
export function marked(lines: DiffLine[]): Marked[] {
  const out: Marked[] = lines.map((line) => ({ line, from: 0, to: 0 }))
  for (let i = 0; i < lines.length; ) {
    if (lines[i]?.op !== '-') {
      i++
      continue
    }
    let d = i
    while (lines[d]?.op === '-') d++
    let a = d
    while (lines[a]?.op === '+') a++
    if (d - i === a - d) {
      for (let k = 0; k < d - i; k++) {
        const x = lines[i + k]?.text ?? ''
        const y = lines[d + k]?.text ?? ''
        let pre = 0
        while (pre < x.length && pre < y.length && x[pre] === y[pre]) pre++
        let suf = 0
        while (suf < x.length - pre && suf < y.length - pre && x[x.length - 1 - suf] === y[y.length - 1 - suf]) suf++
        // Lines that share little say nothing by being marked.
        if (pre + suf < Math.min(x.length, y.length) * 0.3) continue
        Object.assign(out[i + k] as Marked, { from: pre, to: x.length - suf })
        Object.assign(out[d + k] as Marked, { from: pre, to: y.length - suf })
      }
    }
    i = a
  }
  return out
}
