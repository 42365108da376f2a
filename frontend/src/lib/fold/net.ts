import type { Envelope } from '../../api/types'
import type { Conn, Net, NetLog } from '../state'
import type { About } from './fold'

/** How many connections a project remembers, and a step. */
export const CONNS = 2000
const OF_STEP = 1000

// A connection's row in its step, so that its end finds it at once.
const rows = new WeakMap<Conn, Net>()

export function foldNet({ s, step, project, put }: About, e: Envelope) {
  const { type, data: d } = e
  switch (type) {
    case 'egress.opened':
    case 'egress.blocked': {
      const passed = type === 'egress.opened'
      const host = `${d.host}:${d.port}`
      const why = passed ? d.rule : d.reason
      const net: Net = {
        mark: passed ? '→' : '⊘', text: d.method ? `${d.method} ${host}` : host, why,
        claim: d.claim ?? '', conn: passed ? d.conn_id : '',
      }
      const conn: Conn = {
        id: passed ? d.conn_id : `#${e.id}`, at: e.at, state: passed ? 'open' : 'blocked', host: d.host, port: d.port, method: d.method ?? '',
        addr: passed ? d.addr : '', why, claim: d.claim ?? '', session: e.session_id ?? '', step: e.step_id ?? '',
        out: 0, in: 0, ms: 0, error: '', approval: passed ? '' : (d.approval_id ?? ''),
      }
      rows.set(conn, net)
      if (step) {
        // In place: a step may make thousands of connections.
        step.net.push(net)
        if (step.net.length > OF_STEP) step.net.shift()
        put.step({})
      } else put.item({ kind: 'net', net })
      if (project) {
        put.project({
          net: add(project.net, conn),
          ...(passed ? (project.hosts.includes(host) ? {} : { hosts: [...project.hosts, host] }) : { blocked: project.blocked + 1 }),
        })
      }
      break
    }
    case 'rule.added':
    case 'rule.removed':
      if (project) put.project({ ruled: project.ruled + 1 })
      break
    case 'egress.closed': {
      const log = project?.net
      const was = log?.all.get(d.conn_id)
      const sum = `${d.bytes_out} B out, ${d.bytes_in} B in${d.error ? `: ${d.error}` : ''}`
      if (log && was && was.state === 'open') {
        const now: Conn = { ...was, state: 'closed', out: d.bytes_out, in: d.bytes_in, ms: d.duration_ms, error: d.error ?? '' }
        log.all.set(was.id, now) // keeps its place
        put.project({ net: { ...log, open: log.open - 1, out: log.out + now.out, in: log.in + now.in } })
      }
      const row = was && rows.get(was)
      const of = was ? s.steps[was.step] : step
      // From the end: what closes was most often opened not long ago.
      const i = of ? (row ? of.net.lastIndexOf(row) : of.net.findLastIndex((n) => n.conn === d.conn_id)) : -1
      if (of && i >= 0) {
        of.net[i] = { ...(of.net[i] as Net), sum }
        s.steps[of.id] = { ...of }
      }
      break
    }
  }
}

function add(log: NetLog, c: Conn): NetLog {
  const out = { ...log, blocked: log.blocked + (c.state === 'blocked' ? 1 : 0), open: log.open + (c.state === 'open' ? 1 : 0) }
  log.all.set(c.id, c)
  if (log.all.size > CONNS) {
    const [id, old] = log.all.entries().next().value as [string, Conn]
    log.all.delete(id)
    out.dropped++
    if (old.state === 'open') out.open--
  }
  return out
}
