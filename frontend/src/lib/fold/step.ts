import type { Envelope } from '../../api/types'
import type { About } from './fold'

/** How much of a running step's output is kept to be looked at. */
const LIVE = 64 * 1024

export function foldStep({ s, session, step, put }: About, e: Envelope) {
  const { type, data: d } = e
  switch (type) {
    case 'step.requested':
      if (!session || !e.step_id) break
      s.steps[e.step_id] = { id: e.step_id, session: session.id, number: d.number, tool: d.tool, title: d.title, args: d.args, at: e.at, state: 'requested', asks: 0, net: [] }
      session.steps.push(e.step_id)
      put.item({ kind: 'step', step: e.step_id })
      break
    case 'step.decided':
      put.step({ rule: d.rule, ...(d.decision === 'allow' ? {} : { reason: d.reason }) })
      break
    case 'step.started':
      put.step({ state: 'running', at: e.at, reason: undefined })
      break
    case 'step.output':
      if (step?.state === 'running') put.step({ live: ((step.live ?? '') + d.text).slice(-LIVE) })
      break
    case 'step.ended':
      put.step({
        state: 'ended', live: undefined, outcome: d.outcome, error: d.error, exit: d.exit_code, signal: d.signal, ms: d.duration_ms, stdout: d.stdout, stderr: d.stderr,
        background: d.background ?? undefined, result: d.result, artefacts: d.artefacts ?? undefined,
      })
      break
    case 'step.sealed':
      put.step({ state: 'sealed', changes: d.changes ?? [], ignored: d.ignored, commit: d.commit, failed: d.failed })
      break
    case 'step.refused':
      put.step({ state: d.state as 'denied' | 'cancelled' | 'expired', reason: d.reason, allowed: d.allowed })
      break
  }
}
