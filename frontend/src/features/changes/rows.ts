import { standing } from '../../lib/fold/step'
import type { Change, ProjectState, SessionState, Step, Touch } from '../../lib/state'

/** A line of the pane. Its key stays the same while it is about the same thing. */
export type Row =
  | { kind: 'live'; key: string; path: string; touch: Touch; step: Step | undefined }
  | { kind: 'change'; key: string; step: Step; change: Change; first: boolean }
  | { kind: 'file'; key: string; path: string; old: string; op: string; added: number; deleted: number; binary: boolean; steps: Step[] }
  | { kind: 'note'; key: string; step: Step; text: string; first: boolean }

/** Touched paths that no checkpoint holds yet, newest first. */
export function liveRows(project: ProjectState, steps: Record<string, Step>): Row[] {
  return Object.entries(project.touched).filter(([, t]) => !t.sealed).map(([path, touch]): Row => ({ kind: 'live', key: `l${path}`, path, touch, step: steps[touch.step] })).reverse()
}

const many = (n: number, how = ''): string => `${n.toLocaleString('en')} ${how}${n === 1 ? 'ignored file' : 'ignored files'}`

/** What the steps of a session changed, newest first. */
export function stepRows(session: SessionState | undefined, steps: Record<string, Step>): Row[] {
  const out: Row[][] = []
  let ignored: number | undefined
  for (const id of session?.changing ?? []) {
    const step = steps[id]
    if (!step) continue
    const rows: Row[] = (step.changes ?? []).map((change, i) => ({ kind: 'change', key: `c${id}/${change.path}`, step, change, first: i === 0 }))
    const note = (text: string) => rows.push({ kind: 'note', key: `n${id}/${rows.length}`, step, text, first: rows.length === 0 })
    if (step.more) note('and more files: the list was cut')
    // How many ignored files there are is known, not which changed.
    const now = step.ignored ?? 0
    if (ignored === undefined ? now > 0 : now !== ignored) {
      note(ignored === undefined ? `${many(now)}: no checkpoint holds them` : now > ignored ? `${many(now - ignored, 'more ')}, ${now.toLocaleString('en')} in all: no checkpoint holds them` : many(ignored - now, 'fewer '))
    }
    ignored = now
    out.push(rows)
  }
  return out.reverse().flat()
}

/** What stands of it by file, the one that changed last first: what a restore took back is not among it. */
export function fileRows(session: SessionState | undefined, steps: Record<string, Step>): Row[] {
  const files = new Map<string, Extract<Row, { kind: 'file' }>>()
  for (const id of session ? standing(session) : []) {
    const step = steps[id]
    for (const c of step?.changes ?? []) {
      if (!step) continue
      const was = files.get(c.path) ?? (c.old_path ? files.get(c.old_path) : undefined)
      if (c.old_path && c.old_path !== c.path) files.delete(c.old_path)
      files.delete(c.path) // the newest last
      files.set(c.path, {
        kind: 'file', key: `f${c.path}`, path: c.path, old: c.old_path ?? '', op: over(was?.op, c.op), added: (was?.added ?? 0) + c.added, deleted: (was?.deleted ?? 0) + c.deleted,
        binary: !!c.binary || !!was?.binary, steps: [step, ...(was?.steps ?? [])],
      })
    }
  }
  return [...files.values()].reverse()
}

/** What became of a file, seen from before the first step: added and then changed is added. */
export function over(was: string | undefined, now: string): string {
  if (was === 'add' && now !== 'delete') return 'add'
  if (was === 'delete' && now === 'add') return 'modify'
  return now
}
