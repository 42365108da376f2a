import type { Answer } from '../../lib/state'

/** The parts of an answer as its blob holds them: whatever else is in there is left out. */
export function partsOf(json: string): Answer['parts'] {
  const all: unknown = JSON.parse(json)
  if (!Array.isArray(all)) return []
  return all.flatMap((p: { kind?: unknown; text?: unknown } | null) =>
    p && (p.kind === 'text' || p.kind === 'thought') && typeof p.text === 'string' && p.text ? [{ kind: p.kind, text: p.text }] : [])
}

/** What an answer says, without what the model said to itself. */
export const textOf = (parts: Answer['parts']): string => parts.filter((p) => p.kind === 'text').map((p) => p.text).join('\n\n')

/** Why an attempt failed, in a word or two. */
export function tryWords(kind: string, status: number): string {
  const words = Object.hasOwn(KINDS, kind) ? (KINDS[kind] as string) : 'the model did not answer'
  return status ? `${words} (${status})` : words
}
const KINDS: Record<string, string> = {
  rate: 'too many requests', busy: 'busy', server: 'the server failed', network: 'the connection broke', timeout: 'no answer in time', protocol: 'the answer could not be read',
  auth: 'the key is not taken', quota: 'nothing is left on the account', too_long: 'too much for the model’s context', invalid: 'the request is not taken', not_found: 'no such model',
}

/** Why no step came of a call, as the model was told: what was wrong first, then what to do. */
export function misfitWords(text: string): { first: string; all: string } {
  const plain = { first: text.split('\n', 1)[0] ?? '', all: text }
  if (!text.startsWith('{') || text.length > 64 * 1024) return plain
  let v: { error?: unknown; problems?: unknown; hint?: unknown }
  try {
    v = JSON.parse(text) as typeof v
  } catch {
    return plain
  }
  if (typeof v.error !== 'string') return plain
  const said = (x: unknown) => (typeof x === 'string' ? x : '')
  const problems = (Array.isArray(v.problems) ? v.problems : []).flatMap((p: { pointer?: unknown; expected?: unknown; got?: unknown } | null) =>
    p && (said(p.expected) || said(p.got)) ? [`${said(p.pointer) ? `${said(p.pointer)} ` : ''}expected ${said(p.expected)}, got ${said(p.got)}`] : [])
  const more = problems.length > 1 ? `, and ${problems.length - 1} more` : ''
  return { first: problems.length ? `arguments did not fit: ${problems[0]}${more}` : v.error, all: [v.error, ...problems, said(v.hint)].filter(Boolean).join('\n') }
}
