import type { Question } from '../../lib/state'
import { table } from '../../lib/table'

type Choice = Question['choices'][number]

/** A key pressed within so many milliseconds after the card got the focus was meant for something else. */
export const TOO_SOON = 350

export const refuses = (c: Choice): boolean => c.id === 'deny' || c.id === 'stop' || c.grant?.decision === 'deny'

/** Questions of the agent's loop itself: near a limit, and the same call over and over. They belong to no step. */
export const ofLoop = (q: Question): boolean => q.kind === 'limit' || q.kind === 'loop'

/** An answer that saves a rule for a whole project is asked about once more. */
export const wide = (c: Choice): boolean => c.id === 'project' && !refuses(c) && !!c.covers

const KEYS = table<string[]>({ once: ['Enter'], session: ['s'], project: ['p'], deny: ['Backspace', 'd'], go_on: ['Enter'], stop: ['Backspace', 'd'] })

/** The keys that give an answer while the card has the focus, the shown one first. */
export function keyOf(c: Choice, at: number, q: Question): string[] {
  const own = KEYS[c.id]
  if (own) return own
  if (c.id === 'reply') return ['Mod+Enter']
  // The options of a question by their number, as long as a key can say it.
  return q.kind === 'question' && at < 9 ? [String(at + 1)] : []
}

const SHORT = table<string>({ 'Allow in this session': 'This session', 'Allow in this project': 'This project' })
/** An answer's label as it is drawn beside the others. */
export const shortly = (c: Choice): string => SHORT[c.label] ?? c.label

/** What the rules of several answers have in common, when only their reach differs; empty: nothing. */
export function common(saves: Choice[]): string {
  const bare = saves.map((c) => (c.covers ?? '').replace(/, in this (session|project)$/, ''))
  return saves.length > 1 && bare.every((b) => b === bare[0]) ? (bare[0] ?? '') : ''
}
