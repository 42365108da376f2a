import type { Envelope } from '../../api/types'
import type { Item, ProjectState, SessionState, State, Step, StepPhase, Turn } from '../state'

/** What an event is about, and how a fold changes it: each put replaces the record. */
export interface About {
  s: State
  project: ProjectState | undefined
  session: SessionState | undefined
  step: Step | undefined
  put: {
    project: (p: Partial<ProjectState>) => void
    session: (p: Partial<SessionState>) => void
    step: (p: Partial<Step>) => void
    item: (i: Item) => void
    /** Changes a turn of the event's session, in its place among the items. */
    turn: (id: string | undefined, p: Partial<Turn>) => void
  }
}

const BUSY: Record<string, boolean> = { requested: true, asking: true, running: true } satisfies Partial<Record<StepPhase, boolean>>

export function about(s: State, e: Envelope): About {
  const project = e.project_id ? s.projects[e.project_id] : undefined
  const session = e.session_id ? s.sessions[e.session_id] : undefined
  const step = e.step_id ? s.steps[e.step_id] : undefined
  // One event may put twice: each put begins from the record as it is then.
  const put: About['put'] = {
    project: (p) => { if (project) s.projects[project.id] = { ...(s.projects[project.id] ?? project), ...p } },
    session: (p) => { if (session) s.sessions[session.id] = { ...(s.sessions[session.id] ?? session), ...p } },
    step: (p) => {
      if (!step) return
      s.steps[step.id] = { ...(s.steps[step.id] ?? step), ...p }
      if (p.state && !BUSY[p.state] && s.sessions[step.session]?.busy.delete(step.id)) touch(s, step.session)
    },
    item: (i) => {
      session?.items.push(i)
      put.session(i.kind === 'turn' ? { turn: i } : {})
    },
    turn: (id, p) => {
      const at = session && id !== undefined ? session.turns.get(id) : undefined
      const was = at === undefined ? undefined : session?.items[at]
      if (!session || at === undefined || was?.kind !== 'turn') return
      const now: Turn = { ...was, ...p }
      session.items[at] = now
      put.session(s.sessions[session.id]?.turn?.turn === id ? { turn: now } : {})
    },
  }
  return { s, project, session, step, put }
}

/** A session changed in place: it becomes a new record. */
function touch(s: State, id: string) {
  const x = s.sessions[id]
  if (x) s.sessions[id] = { ...x }
}
