import type { ReviewComment } from '../../api/types'
import { spotKey, type Spot } from './rows'

/** What became of a comment, in a word. */
export function stateOf(c: ReviewComment): { text: string; tone: '' | 'good' | 'wait' | 'person' } {
  const state = c.state === 'answered' ? 'answered' : c.state === 'sent' ? 'sent' : 'draft'
  if (c.outdated) return { text: `${state}, outdated`, tone: '' }
  return { text: state, tone: state === 'answered' ? 'good' : state === 'draft' ? 'wait' : 'person' }
}

// Half-written comments are drafts of the desk, by where they stand.
const begin = (review: string, file: string) => `comment.${review}.${file}.`
export const draftKey = (review: string, file: string, s: Spot): string => begin(review, file) + spotKey(s)
export const editKey = (review: string, comment: string): string => `comment.${review}.edit.${comment}`

/** The editors that are open in a file: one for every draft that is there, empty or not. */
export function editorsOf(drafts: Record<string, string>, review: string, file: string): { spot: Spot; draft: string }[] {
  const head = begin(review, file)
  return Object.keys(drafts).filter((k) => k.startsWith(head)).flatMap((k) => {
    const rest = k.slice(head.length)
    if (rest === 'file') return [{ spot: { side: 'new' as const, line: 0 }, draft: k }]
    const m = /^(old|new):(\d+)$/.exec(rest)
    return m ? [{ spot: { side: m[1] as 'old' | 'new', line: Number(m[2]) }, draft: k }] : []
  })
}
