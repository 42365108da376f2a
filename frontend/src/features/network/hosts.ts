import type { Conn } from '../../lib/state'

export type Show = 'all' | 'open' | 'blocked'
/** All connections to one host and port. */
export interface Host { name: string; host: string; port: number; conns: number; open: number; blocked: number; out: number; in: number; last: number }

export const nameOf = (c: Pick<Conn, 'host' | 'port'>): string => `${c.host.includes(':') ? `[${c.host}]` : c.host}:${c.port}`

/** The connections that are wanted, newest first. */
export function pick(all: Iterable<Conn>, show: Show, words: string): Conn[] {
  const want = words.toLowerCase().split(/\s+/).filter(Boolean)
  const out: Conn[] = []
  for (const c of all) {
    if (show !== 'all' && c.state !== show) continue
    const text = want.length ? `${nameOf(c)} ${c.method} ${c.why} ${c.claim}`.toLowerCase() : ''
    if (want.every((w) => text.includes(w))) out.push(c)
  }
  return out.reverse()
}

/** Totals by host, the one that was used last first. */
export function byHost(conns: Conn[]): Host[] {
  const out = new Map<string, Host>()
  for (const c of conns) {
    const name = nameOf(c)
    const h = out.get(name) ?? { name, host: c.host, port: c.port, conns: 0, open: 0, blocked: 0, out: 0, in: 0, last: 0 }
    h.conns++
    if (c.state === 'open') h.open++
    if (c.state === 'blocked') h.blocked++
    h.out += c.out
    h.in += c.in
    h.last = Math.max(h.last, c.at)
    out.set(name, h)
  }
  return [...out.values()].sort((a, b) => b.last - a.last)
}

/** What is wrong with a host as typed; empty: nothing that can be seen here. The core has the last word. */
export function wrongHost(typed: string): string {
  const t = typed.trim()
  if (!t) return 'Give a name, like example.org.'
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(t)) return 'Leave the http:// out: a rule is about a host, not a page.'
  if (/[/?#]/.test(t)) return 'Leave the path out: a rule is about a host, not a page.'
  if (/\s/.test(t)) return 'A host has no spaces in it.'
  if (t.includes('*')) return 'A rule names one host; there are no wildcards.'
  return ''
}
