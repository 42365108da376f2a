import type { ModelView } from '../../api/types'
import type { SessionState, State, Turn } from '../../lib/state'

// What can be chosen for an agent, and what a session's log says about it.

export interface Mode { id: string; name: string; hint: string; /** Something a person should know before choosing it. */ mark?: string }
export const MODES: Mode[] = [
  { id: 'plan', name: 'Plan', hint: 'It reads and plans. Nothing may change.' },
  { id: 'ask', name: 'Ask', hint: 'All that changes something asks first.' },
  { id: 'auto', name: 'Auto', hint: 'Works freely in the machine. What leaves it asks first.' },
  { id: 'full', name: 'Full', hint: 'As auto, and hosts are connected to without a question.', mark: 'no question about hosts' },
]
/** The next mode by key. Full is never come to by the way: it is chosen. */
export const nextMode = (now: string): string => ({ plan: 'ask', ask: 'auto', auto: 'plan' })[now] ?? 'plan'
export const modeOf = (id: string): Mode | undefined => MODES.find((m) => m.id === id)

/** A session's title: the first line of what was asked. */
export function titleOf(prompt: string): string {
  const first = prompt.split('\n').map((l) => l.trim()).find(Boolean) ?? ''
  const t = first.replace(/\s+/g, ' ')
  if (t.length <= 80) return t
  const cut = t.slice(0, 80)
  return `${cut.slice(0, cut.lastIndexOf(' ') > 40 ? cut.lastIndexOf(' ') : 79)}…`
}

/** Text of a limit field in billionths of a dollar or in tokens: undefined = it is none. An empty one is no limit. */
export function limitOf(text: string, priced: boolean): number | undefined {
  const t = text.trim().replace(/^\$\s*/, '').replaceAll(/[ _]/g, '')
  if (!t) return 0
  if (priced) {
    const d = /^\d*[.,]?\d*$/.test(t) ? Number(t.replace(',', '.')) : NaN
    return Number.isFinite(d) && d > 0 && d <= 1e6 ? Math.max(1, Math.round(d * 1e9)) : undefined
  }
  const m = /^(\d+(?:\.\d+)?)([kKmM]?)$/.exec(t.replaceAll(',', ''))
  const n = m ? Math.round(Number(m[1]) * ({ k: 1e3, m: 1e6 }[m[2]?.toLowerCase() ?? ''] ?? 1)) : 0
  return n > 0 && n <= 1e12 ? n : undefined
}
/** A limit in dollars as a field shows it. */
export const dollars = (nanos: number): string => {
  const d = nanos / 1e9
  return Number.isInteger(d) ? String(d) : d.toFixed(Math.max(2, Math.min(9, (String(d).split('.')[1] ?? '').length)))
}

/** Whether a turn was stopped by a limit that still holds as it was. */
export function heldBy(reason: string, nanos: number, toks: number): boolean {
  const exact = `$${(nanos / 1e9).toFixed(9).replace(/0{1,7}$/, '')}`
  return (nanos > 0 && mentions(reason, exact)) || (toks > 0 && mentions(reason, `${toks.toLocaleString('en-US')} tokens`))
}
const mentions = (text: string, sum: string): boolean => {
  for (let at = text.indexOf(sum); at >= 0; at = text.indexOf(sum, at + 1)) if (!/[\d,.]/.test(text[at - 1] ?? '') && !/^(\d|[.,]\d)/.test(text.slice(at + sum.length))) return true
  return false
}

/** Whether a model can be held to dollars: without a price only tokens are known. */
export const priced = (m: ModelView | undefined): boolean => !m || !!m.price

/** A model works in the session now. */
export const working = (x: SessionState | undefined): boolean => !!x && x.state !== 'ended' && !!x.turn && !x.turn.result && x.turn.agent === 'model'
/** Something runs in it: a turn or a step. */
export const busy = (x: SessionState | undefined): boolean => !!x && (x.state === 'running' || x.busy.size > 0)

/** The last turn of a model that has ended, if nothing runs since. */
export function lastTurn(x: SessionState | undefined): Turn | undefined {
  const t = x?.turn
  return t?.agent === 'model' && t.result ? t : undefined
}

/**
 * What the person wrote that no answer of the model was begun after: it is read before
 * the next one. Newest first in the walk, oldest first in the answer.
 */
export function unread(s: State, x: SessionState): { text: string; at: number }[] {
  if (x.agent !== 'model' && x.turn?.agent !== 'model') return []
  const out: { text: string; at: number }[] = []
  const seen = new Set<string>()
  let begun = 0
  for (let i = x.items.length - 1; i >= 0 && seen.size < 3; i--) {
    const item = x.items[i]
    if (item?.kind === 'turn') {
      // Its beginning reads all that was written before it.
      if (!item.result || item.steps || item.spent) break
      continue
    }
    const id = item?.kind === 'answer' ? item.answer : item?.kind === 'step' ? s.steps[item.step]?.answer : undefined
    const a = id === undefined ? undefined : s.answers[id]
    if (a) {
      seen.add(a.id)
      begun = Math.max(begun, a.at - a.took)
    }
    if (item?.kind === 'say' && item.role === 'person' && item.at > begun) out.unshift({ text: item.text, at: item.at })
  }
  return out
}

/** What the person sent in a session, newest first, each once: prompts and messages. */
export function history(x: SessionState | undefined): string[] {
  const out: string[] = []
  for (const item of x?.items.toReversed() ?? []) {
    const t = item.kind === 'turn' && item.agent === 'model' ? item.text : item.kind === 'say' && item.role === 'person' ? item.text : ''
    if (t.trim() && !out.includes(t)) out.push(t)
    if (out.length >= 50) break
  }
  return out
}
