import type { Action } from '../../lib/actions.svelte'

/** How well words are found in a name: higher is better, 0 is not at all; and which letters matched. */
export interface Hit { score: number; at: number[] }

/** Finds the letters of the query in their order: whole words first, then beginnings of words, then anywhere. */
export function match(query: string, name: string): Hit {
  const text = name.toLowerCase()
  const words = query.toLowerCase().split(/\s+/).filter(Boolean)
  if (!words.length) return { score: 1, at: [] }
  const at: number[] = []
  let score = 0
  for (const w of words) {
    const i = text.indexOf(w)
    if (i >= 0) {
      score += 100 + (i === 0 ? 40 : boundary(text, i) ? 20 : 0) - Math.min(i, 15)
      for (let k = 0; k < w.length; k++) at.push(i + k)
      continue
    }
    const letters = scattered(w, text)
    if (!letters) return { score: 0, at: [] }
    score += 30 + letters.filter((k) => boundary(text, k)).length * 8 - Math.min(20, (letters.at(-1) ?? 0) - (letters[0] ?? 0) - w.length)
    at.push(...letters)
  }
  return { score: Math.max(1, score), at: [...new Set(at)].sort((a, b) => a - b) }
}

const boundary = (text: string, i: number): boolean => i === 0 || /[^\p{L}\p{N}]/u.test(text[i - 1] ?? '')

/** The letters one after the other, each where a word begins if it can be. */
function scattered(word: string, text: string): number[] | undefined {
  const out: number[] = []
  let from = 0
  for (const c of word) {
    let i = text.indexOf(c, from)
    if (i < 0) return undefined
    for (let k = i; k >= 0; k = text.indexOf(c, k + 1)) {
      if (!boundary(text, k)) continue
      if (scatteredRest(word.slice(out.length + 1), text, k + 1)) i = k
      break
    }
    out.push(i)
    from = i + 1
  }
  return out
}
const scatteredRest = (rest: string, text: string, from: number): boolean => {
  for (const c of rest) {
    const i = text.indexOf(c, from)
    if (i < 0) return false
    from = i + 1
  }
  return true
}

export interface Row { action: Action; at: number[] }
export interface Group { name: string; rows: Row[] }

const SCOPES: Record<string, string> = { timeline: 'Timeline', review: 'Review', terminal: 'Terminal', browser: 'Browser', files: 'Files', changes: 'Changes', network: 'Network', side: 'Projects', settings: 'Settings', doctor: 'Doctor', question: 'The question' }
export const scopeName = (scope: string): string => SCOPES[scope] ?? scope.charAt(0).toUpperCase() + scope.slice(1)
export const groupOf = (a: Action): string => a.group ?? (a.scope ? scopeName(a.scope) : 'Window')

/** What a palette shows: the recent ones first while nothing is typed, else the best ones of each group. */
export function arrange(actions: Action[], query: string, recent: string[]): Group[] {
  const rows = actions.map((action) => ({ action, ...match(query, action.name) })).filter((r) => r.score > 0)
  if (query.trim()) {
    rows.sort((a, b) => Number(!!a.action.off) - Number(!!b.action.off) || b.score - a.score || rank(recent, a.action.id) - rank(recent, b.action.id))
    return rows.length ? [{ name: '', rows }] : []
  }
  const late = recent.map((id) => rows.find((r) => r.action.id === id)).filter((r) => r !== undefined && !r.action.off).slice(0, 5) as (typeof rows)[number][]
  const out: Group[] = late.length ? [{ name: 'Recent', rows: late }] : []
  for (const r of rows) {
    if (late.includes(r)) continue
    const name = groupOf(r.action)
    let g = out.find((x) => x.name === name)
    if (!g) out.push((g = { name, rows: [] }))
    g.rows.push(r)
  }
  out.sort((a, b) => place(a.name) - place(b.name))
  for (const g of out) if (g.name !== 'Recent') g.rows.sort((a, b) => Number(!!a.action.off) - Number(!!b.action.off))
  return out
}
/** The order of groups: what was used last, where to go, what is at hand, and the window last. */
const ORDER = ['Recent', 'Go to', 'Agent', 'Session', 'Project']
const LAST = ['Panes', 'Window']
const place = (name: string): number => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length + 1 + LAST.indexOf(name))
const rank = (recent: string[], id: string): number => (recent.includes(id) ? recent.indexOf(id) : recent.length)

const KEEP = 'glasshouse.recent'
export function recent(): string[] {
  try {
    const v = JSON.parse(localStorage.getItem(KEEP) ?? '[]') as unknown
    return Array.isArray(v) ? v.filter((x): x is string => typeof x === 'string') : []
  } catch {
    return []
  }
}
export function used(id: string) {
  try {
    localStorage.setItem(KEEP, JSON.stringify([id, ...recent().filter((x) => x !== id)].slice(0, 12)))
  } catch {
    // It is forgotten, then.
  }
}
