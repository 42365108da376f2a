import type { Blob, SessionState, Step } from '../../lib/state'
import type { Store } from '../../lib/store.svelte'

/** The newest screenshot that a step of a session took. */
export interface Kept { step: Step; picture: Blob }

export function lastShot(store: Store, session: SessionState): Kept | undefined {
  for (let i = session.steps.length - 1; i >= 0; i--) {
    const step = store.s.steps[session.steps[i] ?? '']
    if (step?.tool !== 'browser_screenshot') continue
    const picture = step.artefacts?.find((a) => a.mime === 'image/png' || a.mime === 'image/jpeg')
    if (picture) return { step, picture }
  }
  return undefined
}

/** Why there is no page, and what would bring one. */
export const closedWords = (session: SessionState): string =>
  session.state === 'ended' ? 'The session has ended, and its browser with it.' : 'The browser is closed; the next step that opens a page starts it.'
