import type { Envelope } from '../../api/types'
import { sealTouched } from './files'
import { calledAs } from './model'
import type { SessionState, Step } from '../state'
import type { About } from './fold'

/** How much of a running step's output is kept to be looked at: at least this, at most twice it. */
const LIVE = 64 * 1024

export function foldStep(about: About, e: Envelope) {
  const { s, session, step, put } = about
  const { type, data: d } = e
  switch (type) {
    case 'step.requested': {
      if (!session || !e.step_id) break
      s.steps[e.step_id] = { id: e.step_id, session: session.id, number: d.number, tool: d.tool, title: d.title, args: d.args, at: e.at, state: 'requested', asks: 0, net: [], turn: d.turn_id, ...undoing(about, d.tool, d.args) }
      if (d.key) calledAs(about, d.key, e.step_id)
      session.steps.push(e.step_id)
      session.busy.add(e.step_id)
      put.item({ kind: 'step', step: e.step_id })
      const at = d.turn_id === undefined ? undefined : session.turns.get(d.turn_id)
      const turn = at === undefined ? undefined : session.items[at]
      // The session is a new record already; its turn is counted up in place.
      if (turn?.kind === 'turn') turn.steps++
      break
    }
    case 'step.decided':
      put.step({ rule: d.rule, barred: d.decision === 'deny', ...(d.decision === 'allow' ? {} : { reason: d.reason }) })
      break
    case 'step.started':
      put.step({ state: 'running', at: e.at, reason: undefined })
      break
    case 'step.output': {
      if (step?.state !== 'running') break
      // Cut now and then, not at each piece.
      const live = (step.live ?? '') + d.text
      put.step({ live: live.length > 2 * LIVE ? live.slice(-LIVE) : live, ...(live.length > 2 * LIVE || (step.live === undefined && d.offset > 0) ? { before: step.live === undefined ? d.offset : (step.before ?? 0) + live.length - LIVE } : {}) })
      break
    }
    case 'step.ended':
      put.step({
        state: 'ended', live: undefined, outcome: d.outcome, error: d.error, exit: d.exit_code, signal: d.signal, ms: d.duration_ms, stdout: d.stdout, stderr: d.stderr,
        background: d.background ?? undefined, result: d.result, artefacts: d.artefacts ?? undefined, cpu: d.cpu_ms, rss: d.max_rss_kib,
      })
      break
    case 'step.sealed': {
      const changes = d.changes ?? []
      if (d.commit) sealTouched(about, e.at, changes.flatMap((c) => (c.old_path ? [c.path, c.old_path] : [c.path])))
      if (d.commit && e.step_id) about.project?.seals.push(e.step_id)
      put.step({ state: 'sealed', base: d.base, changes, ignored: d.ignored, commit: d.commit, failed: d.failed, missed: d.not_captured ?? undefined, same: d.same, more: d.more })
      const x = step && s.sessions[step.session]
      if (!step || !x) break
      const back = d.commit ? stand(x, step, d.base, d.commit, changes.length > 0) : false
      if (changes.length || d.ignored) x.changing.push(step.id)
      else if (!back) break
      const turn = x.items[x.turns.get(step.turn ?? '') ?? -1]
      let { added, deleted } = back ? { added: 0, deleted: 0 } : x.lines
      if (back) x.files.clear()
      for (const c of back ? standing(x).flatMap((id) => s.steps[id]?.changes ?? []) : changes) {
        x.files.add(c.path)
        added += c.added
        deleted += c.deleted
      }
      if (turn?.kind === 'turn') for (const c of changes) turn.files.add(c.path)
      put.session({ lines: { added, deleted } })
      if (turn?.kind === 'turn') put.turn(turn.turn, {})
      break
    }
    case 'step.refused':
      put.step({ state: d.state as 'denied' | 'cancelled' | 'expired', reason: d.reason, allowed: d.allowed })
      break
  }
}

/** Which restore of its session one undoes: the newest that was begun on what it puts back. */
function undoing({ s, session }: About, tool: string, args: unknown): Pick<Step, 'undoes'> {
  const { checkpoint, label } = (args ?? {}) as { checkpoint?: unknown; label?: unknown }
  // One that was asked for by a step is named after that.
  if (tool !== 'restore' || !session || typeof checkpoint !== 'string' || !checkpoint || (typeof label === 'string' && !label.startsWith('checkpoint '))) return {}
  for (let i = session.steps.length - 1; i >= 0; i--) {
    const x = s.steps[session.steps[i] ?? '']
    if (x?.tool === 'restore' && x.outcome === 'ok' && (x.result as { before?: unknown } | null | undefined)?.before === checkpoint) return { undoes: x.number }
  }
  return {}
}

/** The steps whose changes stand, oldest first. */
export function standing(x: SessionState): string[] {
  const out: string[] = []
  for (let at = x.standing; at; at = at.before) out.push(at.step)
  return out.reverse()
}

/** Notes what stands now that a step has its checkpoint; says whether it took back to something known. */
function stand(x: SessionState, step: Step, base: string | undefined, commit: string, changed: boolean): boolean {
  const r = step.tool === 'restore' && step.outcome === 'ok' ? (step.result as { checkpoint?: unknown; before?: unknown } | null | undefined) : undefined
  for (const c of [base, r?.before]) if (typeof c === 'string' && c && !x.stood.has(c)) x.stood.set(c, x.standing)
  const back = typeof r?.checkpoint === 'string' && x.stood.has(r.checkpoint)
  if (back) x.standing = x.stood.get(r.checkpoint as string)
  else if (changed) x.standing = { step: step.id, before: x.standing }
  x.stood.set(commit, x.standing)
  return back
}
