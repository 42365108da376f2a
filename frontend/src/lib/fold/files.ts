import type { Envelope } from '../../api/types'
import { table } from '../table'
import type { About } from './fold'

/** The watcher's live view of a workspace: what was touched since the page is open. */
export function foldFiles({ project, put }: About, { type, data: d, at, step_id }: Envelope) {
  if (type !== 'files.touched' || !project) return
  const touched = table(project.touched)
  for (const c of d.changes ?? []) {
    const before = touched[c.path]
    delete touched[c.path] // the newest last
    // What was added since the last checkpoint and then changed is still an addition.
    const op = before && !before.sealed && before.op === 'add' && c.op === 'modify' ? 'add' : c.op
    // The watcher speaks a moment after the fact: the checkpoint may have been quicker.
    const { seal } = project.watch
    const sealed = at - seal.at < LATE && (seal.paths.has(c.path) || (!!seal.filled && !step_id))
    touched[c.path] = { op, at, step: step_id ?? '', sealed }
  }
  const paths = Object.keys(touched)
  for (const p of paths.slice(0, Math.max(0, paths.length - TOUCHED))) delete touched[p]
  const w = project.watch
  put.project({ touched, watch: { ...w, degraded: !!d.degraded, resyncs: w.resyncs + (d.resync ? 1 : 0), dropped: w.dropped + (d.dropped ?? 0), n: w.n + 1 } })
}

/** A checkpoint was taken: what was touched before it is in it, or was undone. */
export function sealTouched({ project, put }: About, at: number, paths: string[]) {
  if (!project) return
  const touched = table(project.touched)
  // What the watcher says may overtake the record of the checkpoint that holds it.
  const held = new Set(paths)
  for (const [p, t] of Object.entries(touched)) if (!t.sealed && (t.at <= at || (t.at - at < LATE && held.has(p)))) touched[p] = { ...t, sealed: true }
  // Two sessions seal within a moment: what the first one holds is still what the watcher is late with.
  const before = project.watch.seal
  put.project({ touched, watch: { ...project.watch, seal: { at, paths: new Set(at - before.at < LATE ? [...before.paths, ...paths] : paths) } } })
}

/** The workspace was filled: what filled it is what it begins with, not a change. */
export function fillTouched({ project, put }: About, at: number) {
  if (!project) return
  const touched = table(project.touched)
  for (const [p, t] of Object.entries(touched)) touched[p] = { ...t, sealed: true }
  put.project({ touched, watch: { ...project.watch, seal: { at, paths: new Set<string>(), filled: true } } })
}

/** How many touched paths a project remembers. */
const TOUCHED = 500
/** How far the watcher is behind a checkpoint at most, in milliseconds. */
const LATE = 2000
