import type { ReviewFile } from '../../api/types'
import type { ProjectState, SessionState, State, Step } from '../../lib/state'

// What the project's sessions did, as far as a review asks: which steps touched a
// file, and what the checks said last.

/** The steps before a moment that changed something, oldest first. */
export function changingSteps(s: State, project: ProjectState, before: number): Step[] {
  return Object.values(s.sessions)
    .filter((x) => x.project === project.id)
    .flatMap((x) => x.steps.map((id) => s.steps[id]))
    .filter((st): st is Step => !!st?.changes?.length && st.at <= before)
    .sort((a, b) => a.at - b.at)
}

/** The steps by the path they touched. */
export function byPath(steps: Step[]): Map<string, Step[]> {
  const out = new Map<string, Step[]>()
  for (const st of steps) {
    for (const c of st.changes ?? []) {
      for (const p of new Set([c.path, c.old_path ?? c.path])) {
        const at = out.get(p)
        if (at) at.push(st)
        else out.set(p, [st])
      }
    }
  }
  return out
}

export function stepsOf(touched: Map<string, Step[]>, f: ReviewFile): Step[] {
  const now = touched.get(f.path) ?? []
  if (!f.old_path) return now
  return [...new Set([...(touched.get(f.old_path) ?? []), ...now])].sort((a, b) => a.at - b.at)
}

/** "from steps 13, 17": where a file's change comes from. */
export function fromSteps(steps: Step[]): string {
  if (!steps.length) return ''
  const ns = [...new Set(steps.map((st) => st.number))]
  const shown = ns.length > 4 ? [...ns.slice(0, 2), '…', ns.at(-1)] : ns
  return `from ${ns.length === 1 ? 'step' : 'steps'} ${shown.join(', ')}`
}

/** ok is undefined for a check that was declared and has not run. */
export interface Check { name: string; ok: boolean | undefined; reason: string; at: number; step: number; session: string }

/** The last verdict of every check of the project, at which step it was given. */
export function lastChecks(s: State, project: ProjectState, before: number): Check[] {
  const out = new Map<string, Check>()
  const sessions = Object.values(s.sessions).filter((x) => x.project === project.id)
  for (const x of sessions) {
    let step = 0
    for (const i of x.items) {
      if (i.kind === 'step') step = s.steps[i.step]?.number ?? step
      if (i.kind !== 'check' || i.at > before) continue
      const had = out.get(i.name)
      if (!had || had.at <= i.at) out.set(i.name, { name: i.name, ok: i.ok, reason: i.reason, at: i.at, step, session: x.id })
    }
  }
  for (const x of sessions) {
    if (x.at > before || x.state === 'ended') continue
    for (const name of x.checks) if (!out.has(name)) out.set(name, { name, ok: undefined, reason: '', at: x.at, step: 0, session: x.id })
  }
  return [...out.values()].sort((a, b) => a.at - b.at)
}

/** Sessions of the project that take words, the newest last. */
export const listening = (s: State, project: ProjectState): SessionState[] => Object.values(s.sessions).filter((x) => x.project === project.id && x.state !== 'ended').sort((a, b) => a.at - b.at)
