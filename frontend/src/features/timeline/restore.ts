import type { ProjectState, SessionState, State, Step } from '../../lib/state'

// Going back to a checkpoint: what can be gone back to, and what that would change.

export type Side = 'before' | 'after'

/** What a restore came to: the checkpoint it put in place, and the one that was taken of what was there. */
export function resultOf(step: Step): { checkpoint: string; before: string } | undefined {
  const r = step.result as { checkpoint?: unknown; before?: unknown } | null | undefined
  return step.tool === 'restore' && step.outcome === 'ok' && typeof r?.before === 'string' && r.before !== '' ? { checkpoint: typeof r.checkpoint === 'string' ? r.checkpoint : '', before: r.before } : undefined
}

/** What a restore came to say of the repository, where .git was destroyed; undefined: nothing. */
export function repositoryOf(step: Step): { text: string; word: string; whole: boolean } | undefined {
  const said = (step.result as { repository?: unknown } | null | undefined)?.repository
  if (step.tool !== 'restore' || typeof said !== 'string' || !said) return undefined
  if (said === 'made anew') return { whole: true, word: 'new repository', text: 'Its repository had been destroyed and was made anew, without the commits and branches made inside. What was left of the old one, if anything, is in .git/glasshouse-before.' }
  return { whole: false, word: 'no repository', text: `The files are back, but the repository is not known to be whole: ${said.replace(/[.\s]+$/, '')}. Restoring again tries once more.` }
}

/** What is asked of the core for a side of a step; undefined: there is no checkpoint of it. */
export function wanted(step: Step, side: Side): { checkpoint: string } | { step: string; side: Side } | undefined {
  if (!step.commit) return undefined
  if (side === 'after') return { step: step.id, side }
  const undo = resultOf(step)
  if (undo) return { checkpoint: undo.before }
  // Where it changed nothing, before is after.
  return step.base && !step.same ? { step: step.id, side } : undefined
}

/** The name of what is gone back to. */
export const placeOf = (step: Step, side: Side): string => (side === 'before' && resultOf(step) ? `before the restore of step ${step.number}` : `${side} step ${step.number}`)

const READS = new Set(['read', 'list', 'glob', 'search', 'ask_user'])
const sessionsOf = (s: State, project: string): SessionState[] => Object.values(s.sessions).filter((x) => x.project === project)

/** Why nothing can be restored in a project now; empty: it can. */
export function whyNot(s: State, step: Step): string {
  const here = s.sessions[step.session]
  if (!here) return 'Its session is gone.'
  for (const x of sessionsOf(s, here.project)) {
    const at = x.id === here.id ? '' : ` in the session “${x.title}”`
    if (x.turn && !x.turn.result && x.state === 'running') return `A turn runs${at}.`
    for (const id of x.busy) {
      const st = s.steps[id]
      // One that waits for an answer, or only reads, is in nobody's way.
      if (st && st.state !== 'asking' && !READS.has(st.tool)) return `Step ${st.number} runs${at}.`
    }
  }
  return ''
}

/** What stands between the workspace as it is and a checkpoint, as far as the log tells. */
export interface Reckoned {
  /** Whether the log tells it at all. */
  known: boolean
  /** Paths that steps since then changed, and those touched since the newest checkpoint. */
  paths: string[]
  /** How many steps since then changed something. */
  steps: number
  /** There are more paths than steps told. */
  more: boolean
  /** Of the paths, those that were touched since the newest checkpoint and are in none. */
  loose: number
}

/** Reads what steps since a side of a step changed: a file that went there and back counts too. */
export function reckon(s: State, step: Step, side: Side): Reckoned {
  const project: ProjectState | undefined = s.projects[s.sessions[step.session]?.project ?? '']
  const at = project?.seals.lastIndexOf(step.id) ?? -1
  if (!project || at < 0) return { known: false, paths: [], steps: 0, more: false, loose: 0 }
  const paths = new Set<string>()
  let steps = 0
  let more = false
  for (let i = at + (side === 'after' ? 1 : 0); i < project.seals.length; i++) {
    const st = s.steps[project.seals[i] ?? '']
    if (!st) continue
    if (st.changes?.length) steps++
    more ||= !!st.more
    for (const c of st.changes ?? []) {
      paths.add(c.path)
      if (c.old_path) paths.add(c.old_path)
    }
  }
  let loose = 0
  for (const [p, t] of Object.entries(project.touched)) {
    if (t.sealed) continue
    loose++
    paths.add(p)
  }
  return { known: true, paths: [...paths].sort(), steps, more, loose }
}

/** Whether a step is what the newest checkpoint of its project came of. */
export const isNewest = (s: State, step: Step): boolean => s.projects[s.sessions[step.session]?.project ?? '']?.seals.at(-1) === step.id

/** The restore that was done last in a project, while nothing was changed since. */
export function lastRestore(s: State, project: string): Step | undefined {
  const st = s.steps[s.projects[project]?.seals.at(-1) ?? '']
  return st && resultOf(st) ? st : undefined
}
