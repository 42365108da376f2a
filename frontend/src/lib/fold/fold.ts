import type { Envelope } from '../../api/types'
import type { Item, ProjectState, SessionState, State, Step } from '../state'

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
  }
}

export function about(s: State, e: Envelope): About {
  const project = e.project_id ? s.projects[e.project_id] : undefined
  const session = e.session_id ? s.sessions[e.session_id] : undefined
  const step = e.step_id ? s.steps[e.step_id] : undefined
  return {
    s, project, session, step,
    put: {
      project: (p) => { if (project) s.projects[project.id] = { ...project, ...p } },
      session: (p) => { if (session) s.sessions[session.id] = { ...session, ...p } },
      step: (p) => { if (step) s.steps[step.id] = { ...step, ...p } },
      item: (i) => {
        if (!session) return
        session.items.push(i)
        s.sessions[session.id] = { ...session }
      },
    },
  }
}
