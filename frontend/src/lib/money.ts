import { sent } from './fold/model'
import type { Spent } from './state'

// Tokens and money, as a person reads them.

/** A count of tokens where there is little room: "812", "18.2k", "1.3M". */
export function tok(n: number): string {
  if (n < 1000) return String(Math.round(n))
  if (n < 999_950) return `${(n / 1000).toFixed(n < 99_950 ? 1 : 0)}k`
  return `${(n / 1e6).toFixed(1)}M`
}

/** Money in billionths of a US dollar: "$0.04", and a small sum as exactly as it takes. */
export function money(nanos: number, exact = false): string {
  const d = nanos / 1e9
  if (d === 0) return '$0.00'
  if (exact) return `$${d.toFixed(d < 1 ? 4 : 2)}`
  return d < 0.0005 ? '< $0.001' : `$${d.toFixed(d < 0.01 ? 3 : 2)}`
}

/** What answers cost, where that is known. */
export function cost(s: Spent, exact = false): string {
  if (s.unpriced >= s.answers) return s.answers ? 'cost not known' : money(0)
  return s.unpriced ? `${money(s.nanos, exact)} and more` : money(s.nanos, exact)
}

/** As a limit counts them. */
export const tokens = (s: Spent): number => sent(s) + s.output + s.uncounted

/** All figures, a line each. */
export function figures(s: Spent): string {
  const n = (x: number) => x.toLocaleString('en-US')
  return [
    `${n(s.answers)} ${s.answers === 1 ? 'answer' : 'answers'} of the model`,
    `${n(sent(s))} tokens in${s.cached ? `, ${n(s.cached)} of them from the server’s cache` : ''}${s.wrote ? `, ${n(s.wrote)} put into it` : ''}`,
    `${n(s.output)} tokens out${s.reasoning ? `, ${n(s.reasoning)} of them thoughts` : ''}`,
    ...(s.uncounted ? [`about ${n(s.uncounted)} tokens that no server counted`] : []),
    s.unpriced ? (s.unpriced >= s.answers ? 'cost not known: no price is set for the model' : `${money(s.nanos, true)}, and ${n(s.unpriced)} ${s.unpriced === 1 ? 'answer' : 'answers'} without a price`) : money(s.nanos, true),
  ].join('\n')
}

/** The same of one answer, in a line: "1,204 in, 80 out, $0.0041". */
export function short(s: Spent): string {
  const n = (x: number) => x.toLocaleString('en-US')
  return `${n(sent(s))} in${s.cached ? ` (${n(s.cached)} cached)` : ''}, ${n(s.output)} out${s.uncounted ? `, about ${n(s.uncounted)} not counted` : ''}, ${cost(s, true)}`
}
