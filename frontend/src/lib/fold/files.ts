import type { Envelope } from '../../api/types'
import type { About } from './fold'

/** The watcher's live view of a workspace: what was touched since the page is open. */
export function foldFiles({ project, put }: About, { type, data: d, at }: Envelope) {
  if (type !== 'files.touched' || !project) return
  const touched = { ...project.touched }
  for (const c of d.changes ?? []) {
    delete touched[c.path] // the newest last
    touched[c.path] = { op: c.op, at }
  }
  const paths = Object.keys(touched)
  for (const p of paths.slice(0, Math.max(0, paths.length - TOUCHED))) delete touched[p]
  put.project({ touched })
}

/** How many touched paths a project remembers. */
const TOUCHED = 500
