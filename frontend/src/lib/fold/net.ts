import type { Envelope } from '../../api/types'
import type { Net } from '../state'
import type { About } from './fold'

export function foldNet({ step, project, put }: About, { type, data: d }: Envelope) {
  switch (type) {
    case 'egress.opened':
    case 'egress.blocked': {
      const passed = type === 'egress.opened'
      const host = `${d.host}:${d.port}`
      const net: Net = {
        mark: passed ? '→' : '⊘', text: d.method ? `${d.method} ${host}` : host, why: 'rule' in d && passed ? d.rule : 'reason' in d ? d.reason : '',
        claim: d.claim ?? '', conn: 'conn_id' in d ? (d.conn_id ?? '') : '',
      }
      if (step) put.step({ net: [...step.net, net] })
      else put.item({ kind: 'net', net })
      if (project) put.project(passed ? (project.hosts.includes(host) ? {} : { hosts: [...project.hosts, host] }) : { blocked: project.blocked + 1 })
      break
    }
    case 'egress.closed': {
      const sum = `${d.bytes_out} B out, ${d.bytes_in} B in${d.error ? `: ${d.error}` : ''}`
      if (step) put.step({ net: step.net.map((n) => (n.conn === d.conn_id ? { ...n, sum } : n)) })
      break
    }
  }
}
