import type { Envelope } from '../../api/types'
import type { TerminalRow } from '../state'
import type { About } from './fold'

/** How many that ended are remembered; the core tells which of them can still be looked at. */
const ENDED = 16

export function foldTerminal({ project, put }: About, { type, data: d, at }: Envelope) {
  if (!project) return
  const all: Record<string, TerminalRow> = { ...project.terminals }
  if (type === 'terminal.opened') all[d.terminal_id] = { id: d.terminal_id, title: d.title, at }
  else if (type === 'terminal.closed') all[d.terminal_id] = { id: d.terminal_id, title: d.title, at: all[d.terminal_id]?.at ?? at, exit: d.exit }
  else return
  const ended = Object.values(all).filter((t) => t.exit)
  for (const t of ended.slice(0, Math.max(0, ended.length - ENDED))) delete all[t.id]
  put.project({ terminals: all })
}
