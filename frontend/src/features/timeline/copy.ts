import type { Step, Stream } from '../../lib/state'
import { fieldsOf } from '../../lib/result'
import { bytes, stepObject, stepTime, stepWords } from '../../lib/words'

// What of a step goes into the clipboard. It is the raw text: it goes where the
// person puts it, and there it is theirs to read.

/** What a step called, as one would type it. */
export function commandOf(step: Step): string {
  const a = step.args as { argv?: unknown; code?: unknown; path?: unknown; url?: unknown } | null | undefined
  if (Array.isArray(a?.argv)) return a.argv.map((x) => quote(typeof x === 'string' ? x : (JSON.stringify(x) ?? ''))).join(' ')
  if (typeof a?.code === 'string') return a.code
  if (typeof a?.path === 'string') return a.path
  if (typeof a?.url === 'string') return a.url
  return stepObject(step)
}

const quote = (s: string): string => (/^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`)

/** What is known of a stream without fetching more: its ends, with what lies between them counted. */
export function ends(s: Stream): string {
  const head = s.head ?? ''
  if (!s.tail) return head
  return `${head}\n[… ${bytes(Math.max(0, s.total - head.length - s.tail.length))} between …]\n${s.tail}`
}

/** What a step said. */
export function outputOf(step: Step): string {
  if (step.live !== undefined) return step.live
  const said = [step.stdout, step.stderr].filter((x): x is Stream => !!x && x.total > 0).map(ends)
  if (said.length) return said.join('\n')
  return fieldsOf(step.result).map(([k, v]) => (v.includes('\n') ? `${k}:\n${v}` : `${k}: ${v}`)).join('\n')
}

export function stepText(step: Step): string {
  const out = outputOf(step)
  return [`${step.number}  ${step.tool}  ${stepObject(step)}  ${stepWords(step).text}  ${stepTime(step)}`.trimEnd(), ...(step.error ? [step.error] : []), ...(out ? [out] : [])].join('\n')
}
