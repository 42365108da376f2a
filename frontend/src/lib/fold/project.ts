import type { Envelope } from '../../api/types'
import { table } from '../table'
import { fillTouched } from './files'
import type { About } from './fold'

/** How many measurements of a machine are kept to be drawn. */
const HISTORY = 60

export function foldProject(about: About, { type, data: d, at }: Envelope) {
  const { s, project, put } = about
  switch (type) {
    case 'core.started':
      Object.assign(s, { version: d.version, progress: undefined })
      break
    case 'project.created':
      s.projects[d.project.id] = {
        id: d.project.id, name: d.project.name, source: d.project.source ?? '', kind: d.project.machine_kind, machine: 'absent', problem: '',
        deleted: false, reviews: [], reviewed: 0, hosts: [], blocked: 0, touched: table(), watch: { degraded: false, resyncs: 0, dropped: 0, n: 0, seal: { at: 0, paths: new Set() } }, net: { all: new Map(), dropped: 0, blocked: 0, open: 0, out: 0, in: 0 }, ruled: 0, seals: [], at,
      }
      break
    case 'project.deleted':
      put.project({ deleted: true, progress: undefined })
      break
    case 'project.imported':
      put.project({ imported: d, progress: undefined })
      fillTouched(about, at)
      break
    case 'machine.state':
      put.project({ machine: d.state, problem: d.problem ?? '', progress: undefined, ...(d.state === 'ready' ? {} : { stats: undefined, history: undefined }) })
      break
    case 'machine.progress': {
      const since = d.since ?? (project ? project.progress : s.progress)?.since ?? at
      const progress = { phase: d.phase, text: d.text, done: d.done ?? 0, total: d.total ?? 0, at, since, work: d.work }
      if (project) put.project({ progress })
      else s.progress = d.phase === 'done' ? undefined : progress
      break
    }
    case 'machine.stats':
      put.project({ stats: d, history: [...(project?.history ?? []), d].slice(-HISTORY) })
      break
  }
}
