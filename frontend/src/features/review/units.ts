import type { Hunk, Review, ReviewFile } from '../../api/types'

// A review's units: what is decided apart. The core names them; here they are put in the order of the screen.
export interface Unit { file: string; unit: string; hunk?: Hunk }
export type Decision = 'accept' | 'reject' | 'undecided'

export function unitsOf(f: ReviewFile): Unit[] {
  const hunks = new Map((f.hunks ?? []).map((h) => [h.id, h]))
  return (f.units ?? []).map((unit) => ({ file: f.id, unit, hunk: hunks.get(unit) }))
}

export const allUnits = (r: Review): Unit[] => (r.files ?? []).flatMap(unitsOf)

export const decisionOf = (f: ReviewFile, unit: string): Decision => (f.decisions[unit] as Decision | undefined) ?? 'undecided'

/** The unit that decides about a hunk's lines: the hunk itself, or the whole that it is part of. */
export const unitOfHunk = (f: ReviewFile, h: Hunk): string => {
  const units = f.units ?? []
  return units.includes(h.id) ? h.id : (units.find((u) => u === 'content' || u === 'file') ?? units[0] ?? '')
}

export type FileMark = Decision | 'mixed'

export function markOf(f: ReviewFile): FileMark {
  const ds = new Set((f.units ?? []).map((u) => decisionOf(f, u)))
  return ds.size === 1 ? ([...ds][0] as FileMark) : ds.has('undecided') ? 'undecided' : 'mixed'
}

const LINK = 0o120000
const SUBMODULE = 0o160000
/** What a mode says, in words. */
export function modeWords(m: number | undefined): string {
  switch (m) {
    case undefined:
    case 0:
      return 'nothing'
    case LINK:
      return 'a link'
    case SUBMODULE:
      return 'a submodule'
    case 0o100755:
      return 'an executable file'
  }
  return 'a file'
}
export const isLink = (f: ReviewFile): boolean => f.new_mode === LINK || (f.op === 'delete' && f.old_mode === LINK)
export const isSubmodule = (f: ReviewFile): boolean => f.new_mode === SUBMODULE || f.old_mode === SUBMODULE

export function unitTitle(f: ReviewFile, u: Unit): string {
  switch (u.unit) {
    case 'file':
      if (f.op === 'add') return isSubmodule(f) ? 'The new submodule' : isLink(f) ? 'The new link' : 'The whole new file'
      if (f.op === 'delete') return isSubmodule(f) ? 'The deletion of the submodule' : isLink(f) ? 'The deletion of the link' : 'The deletion of the file'
      if (f.op === 'type') return `It was ${modeWords(f.old_mode)} and becomes ${modeWords(f.new_mode)}`
      return isSubmodule(f) ? 'The submodule’s commit' : 'The whole file'
    case 'content':
      return `The content as a whole${f.whole ? `: ${f.whole}` : ''}`
    case 'rename':
      return `Renamed from ${f.old_path ?? ''}`
    case 'mode':
      return `Mode ${octal(f.old_mode)} → ${octal(f.new_mode)}: becomes ${modeWords(f.new_mode)}`
  }
  return u.hunk ? hunkTitle(u.hunk) : u.unit
}

export const hunkTitle = (h: Hunk): string => `@@ ${h.old_start},${h.old_lines} → ${h.new_start},${h.new_lines}`

const octal = (n: number | undefined): string => (n ? n.toString(8) : '–')
