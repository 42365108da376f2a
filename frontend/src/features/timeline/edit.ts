import type { DiffLine, Hunk } from '../../api/types'
import type { Step } from '../../lib/state'

/** Lines of a claimed change at most. */
const MOST = 2000

/** What an edit or a write says it will do, as lines; the agent's words, not what happened. */
export function claimed(step: Pick<Step, 'tool' | 'args'>): { path: string; hunks: Hunk[] } | undefined {
  const a = step.args as { path?: unknown; old?: unknown; new?: unknown; content?: unknown } | null | undefined
  const path = typeof a?.path === 'string' ? a.path : ''
  let old: string[] = []
  let now: string[] = []
  if (step.tool === 'edit' && typeof a?.old === 'string' && typeof a.new === 'string') [old, now] = [lines(a.old), lines(a.new)]
  else if (step.tool === 'write' && typeof a?.content === 'string') now = lines(a.content)
  else return undefined
  const out: DiffLine[] = [...old.map((text) => ({ op: '-', text })), ...now.map((text) => ({ op: '+', text }))]
  return { path, hunks: [{ id: '', old_start: 0, old_lines: 0, new_start: 0, new_lines: 0, lines: out.slice(0, MOST) }] }
}

const lines = (s: string): string[] => (s === '' ? [] : s.replace(/\n$/, '').split('\n'))
