import type { Data, Envelope } from '../../api/types'
import type { Answer, Live, PlanItem, SessionState, Spent, Turn } from '../state'
import type { About } from './fold'

// What a model says, and what it took. model.answered is the truth; message.delta is
// what an answer looks like until then.

export const nothing = (): Spent => ({ answers: 0, input: 0, cached: 0, wrote: 0, output: 0, reasoning: 0, uncounted: 0, nanos: 0, unpriced: 0 })
export const plus = (a: Spent, b: Spent): Spent => ({
  answers: a.answers + b.answers, input: a.input + b.input, cached: a.cached + b.cached, wrote: a.wrote + b.wrote, output: a.output + b.output,
  reasoning: a.reasoning + b.reasoning, uncounted: a.uncounted + b.uncounted, nanos: a.nanos + b.nanos, unpriced: a.unpriced + b.unpriced,
})
/** All tokens that were sent. */
export const sent = (s: Spent): number => s.input + s.cached + s.wrote

export function foldModel(about: About, e: Envelope) {
  const { s, session, put } = about
  switch (e.type) {
    case 'model.answered':
      answered(about, e.data, e.at)
      break
    case 'model.told': {
      if (!session) break
      for (const r of e.data.results ?? []) {
        if (r.step_id || !r.failed) continue
        const call = s.answers[e.data.answer_id]?.calls.find((c) => c.key === r.key)
        put.item({ kind: 'misfit', tool: r.tool, args: call?.args ?? '', text: r.text, at: e.at })
      }
      break
    }
    case 'model.retried': {
      const d = e.data
      if (!session) break
      const now = s.live[session.id]
      if (now && (now.answer !== d.answer_id || now.attempt <= d.attempt)) delete s.live[session.id]
      const one = { attempt: d.attempt, kind: d.kind, status: d.status ?? 0, reason: d.reason, wait: d.wait_ms }
      const at = session.retries.get(d.answer_id)
      const was = at === undefined ? undefined : session.items[at]
      if (at !== undefined && was?.kind === 'retry') {
        session.items[at] = { ...was, tries: [...was.tries, one] }
        put.session({})
        break
      }
      session.retries.set(d.answer_id, session.items.length)
      put.item({ kind: 'retry', answer: d.answer_id, tries: [one], at: e.at })
      break
    }
    case 'message.delta':
      if (session) written(about, session.id, e.data, e.at)
      break
    case 'message.so_far':
      if (session) soFar(about, session.id, e.data, e.at)
      break
    case 'plan.updated':
      put.session({ plan: { turn: e.data.turn_id, items: (e.data.items ?? []).map((i) => ({ text: i.text, state: STATES.has(i.state) ? (i.state as PlanItem['state']) : 'open' })), at: e.at } })
      break
    case 'context.compacted': {
      const d = e.data
      put.item({ kind: 'compact', before: d.before_tokens, after: d.after_tokens, kept: d.kept, summary: d.summary ?? '', reason: d.reason ?? '', at: e.at })
      if (session?.context) put.session({ context: { ...session.context, used: d.after_tokens } })
      break
    }
    case 'turn.resumed':
      if (session) delete s.live[session.id] // An earlier core wrote it.
      put.item({ kind: 'resume', at: e.at })
      break
    case 'turn.ended':
      if (session && s.live[session.id]?.turn === e.data.turn_id) delete s.live[session.id]
      if (session && turnOf(session, e.data.turn_id)?.agent === 'model') put.item({ kind: 'end', turn: e.data.turn_id, at: e.at })
      break
    case 'session.state':
      if (session && e.data.state === 'ended') delete s.live[session.id]
      break
    case 'core.started':
      for (const id of Object.keys(s.live)) delete s.live[id]
      break
  }
}

const STATES = new Set(['open', 'doing', 'done', 'dropped'])

function answered({ s, session, put }: About, d: Data<'model.answered'>, at: number) {
  if (!session || s.answers[d.answer_id]) return
  const u: Partial<Data<'model.answered'>['usage']> = d.usage ?? {}
  const spent: Spent = {
    answers: 1, input: u.input ?? 0, cached: u.cache_read ?? 0, wrote: u.cache_write ?? 0, output: u.output ?? 0, reasoning: u.reasoning ?? 0,
    uncounted: (d.lost_tokens ?? 0) + (Object.values(u).some((n) => n) ? 0 : d.context_used), nanos: d.priced ? (d.cost_nanos ?? 0) : 0, unpriced: d.priced ? 0 : 1,
  }
  const all = d.parts ?? []
  const live = s.live[session.id]
  const thought = live?.answer === d.answer_id ? (live.thinksFor ?? (live.thinks === undefined ? undefined : at - live.thinks)) : undefined
  const a: Answer = {
    id: d.answer_id, session: session.id, turn: d.turn_id, n: d.number, model: d.model, served: d.served ?? '', purpose: d.purpose ?? '', at,
    parts: all.flatMap((p) => (p.kind !== 'call' && p.text ? [{ kind: p.kind === 'thought' ? ('thought' as const) : ('text' as const), text: p.text }] : [])),
    calls: all.flatMap((p) => (p.kind === 'call' ? [{ key: p.key ?? '', tool: p.tool ?? '', args: p.args ?? '' }] : [])),
    stop: d.stop, spent, used: d.context_used, size: d.context_size, attempts: d.attempts, first: d.first_ms, took: d.took_ms,
    ...(d.parts_blob ? { blob: d.parts_blob } : {}), ...(thought === undefined ? {} : { thought }),
  }
  for (const c of a.calls) {
    if (!c.key) continue
    const known = session.calls.get(c.key)
    session.calls.set(c.key, { ...known, answer: a.id })
    if (known?.step) {
      Object.assign(c, { step: known.step, args: '' })
      const step = s.steps[known.step]
      if (step) s.steps[step.id] = { ...step, answer: a.id }
    }
  }
  s.answers[a.id] = a
  if (live?.answer === a.id) delete s.live[session.id]
  // What has nothing to read has no line of its own: its calls are lines.
  if ((!a.purpose && (a.parts.length || a.blob || a.stop === 'length' || a.stop === 'refused')) || (a.purpose === 'broken' && a.parts.length)) put.item({ kind: 'answer', answer: a.id, high: high(a) })
  put.session({ spent: plus(session.spent, spent), ...(a.purpose ? {} : { context: { used: a.used, size: a.size } }) })
  const turn = turnOf(session, a.turn)
  if (turn) put.turn(a.turn, { spent: plus(turn.spent ?? nothing(), spent) })
}

function turnOf(x: SessionState, id: string): Turn | undefined {
  const i = x.items[x.turns.get(id) ?? -1]
  return i?.kind === 'turn' ? i : undefined
}

/** A step was begun for a call, by its key. */
export function calledAs({ s, session }: About, key: string, id: string) {
  if (!session) return
  const part = key.indexOf('/')
  if (part > 0) { // One of several steps of a call.
    const answer = session.calls.get(key.slice(0, part))?.answer
    const step = s.steps[id]
    if (answer !== undefined && step) s.steps[id] = { ...step, answer }
    return
  }
  const known = session.calls.get(key)
  if (known?.step) return
  session.calls.set(key, { ...known, step: id })
  const a = known?.answer === undefined ? undefined : s.answers[known.answer]
  const step = s.steps[id]
  if (!a || !step) return
  s.steps[id] = { ...step, answer: a.id }
  s.answers[a.id] = { ...a, calls: a.calls.map((c) => (c.key === key ? { ...c, step: id, args: '' } : c)) }
}

/** How much of what is being written is kept: at least this, at most twice it. */
const LIVE = 32 * 1024
/** Calls of one answer that are shown while they are written, and how much of each one's arguments. */
const CALLS = 64
const ARGS = 4096
/** What stands for a piece that did not come. */
export const GAP = '\n[…]\n'

/** What was written before this page looked on: taken where something is missing. */
function soFar({ s }: About, id: string, d: Data<'message.so_far'>, at: number) {
  if (s.answers[d.answer_id]) return
  const was = s.live[id]
  if (was?.answer === d.answer_id && d.attempt < was.attempt) return
  const same = was?.answer === d.answer_id && was.attempt === d.attempt ? was : undefined
  const take = (kind: 'text' | 'thought', text: string, end: number) => {
    if (same && (same.came[kind] > end || (same.came[kind] === end && !same.more[kind]))) return { text: same[kind], more: same.more[kind], came: same.came[kind] }
    return { text, more: bytesOf(text) < end, came: end }
  }
  const text = take('text', d.text, d.text_end)
  const thought = take('thought', d.thought, d.thought_end)
  s.live[id] = {
    answer: d.answer_id, turn: d.turn_id, attempt: d.attempt, at, calls: [], ...same,
    text: text.text, thought: thought.text, more: { text: text.more, thought: thought.more }, came: { text: text.came, thought: thought.came, call: same?.came.call ?? 0 },
  }
}

function written({ s }: About, id: string, d: Data<'message.delta'>, at: number) {
  if (s.answers[d.answer_id]) return // It came late: the answer itself is there.
  const was = s.live[id]
  if (was?.answer === d.answer_id && d.attempt < was.attempt) return
  const now: Live = was?.answer === d.answer_id && was.attempt === d.attempt
    ? { ...was }
    : { answer: d.answer_id, turn: d.turn_id, attempt: d.attempt, at, text: '', thought: '', more: { text: false, thought: false }, calls: [], came: { text: 0, thought: 0, call: 0 } }
  const kind = d.kind === 'call' ? 'call' : d.kind === 'thought' ? 'thought' : 'text'
  const had = now.came[kind]
  const end = d.offset + bytesOf(d.text)
  if (d.text && d.offset < had && end <= had) return // It came already.
  // What was no text is told as a longer sign than it was: a few bytes back are no gap.
  const gap = d.offset > had
  now.came = { ...now.came, [kind]: end }
  if (kind === 'thought') now.thinks ??= at
  else if (now.thinks !== undefined) now.thinksFor ??= at - now.thinks
  if (kind === 'call') {
    const last = now.calls.at(-1)
    if (d.tool || !last || gap) {
      const one = { tool: d.tool ?? '', args: d.text.slice(0, ARGS), size: bytesOf(d.text) }
      now.calls = now.calls.length < CALLS ? [...now.calls, one] : [...now.calls.slice(0, -1), one]
    } else now.calls = [...now.calls.slice(0, -1), { ...last, args: last.args.length < ARGS ? (last.args + d.text).slice(0, ARGS) : last.args, size: last.size + bytesOf(d.text) }]
  } else {
    const before = now[kind]
    const text = before + (gap && before ? GAP : '') + d.text
    // Cut now and then, not at each piece; at the beginning of a line where there is one.
    const cut = text.length > 2 * LIVE
    const rest = cut ? text.slice(-LIVE) : text
    now[kind] = cut ? rest.slice(rest.slice(0, 2000).indexOf('\n') + 1) : rest
    if (cut || gap) now.more = { ...now.more, [kind]: true }
  }
  s.live[id] = now
}

/** Bytes of a text in UTF-8, as offsets count them. */
export function bytesOf(s: string): number {
  let n = s.length
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i)
    if (c < 0x80) continue
    n += c < 0x800 ? 1 : 2
    // The two halves of one letter are four bytes.
    if (c >= 0xd800 && c < 0xdc00 && (s.charCodeAt(i + 1) & 0xfc00) === 0xdc00) i++
  }
  return n
}

/** A text of more lines than FOLD is drawn as its first FIRST; WIDE letters are a line of a narrow view. */
export const FOLD = 36
export const FIRST = 28
export const WIDE = 62

/** About how many lines an answer is drawn as, folded. */
export function high(a: Pick<Answer, 'parts'>): number {
  let n = 0
  for (const p of a.parts) {
    if (p.kind === 'thought') n++
    else {
      const all = lines(p.text, FOLD + 1)
      n += all > FOLD ? FIRST + 1 : all
    }
  }
  return n
}

/** How many lines a text takes up when it is drawn; it counts no further than most. */
export function lines(text: string, most: number): number {
  let n = 0
  for (let at = 0; at <= text.length && n < most; ) {
    const to = text.indexOf('\n', at)
    const end = to < 0 ? text.length : to
    n += Math.max(1, Math.ceil((end - at) / WIDE))
    at = end + 1
  }
  return Math.min(n, most)
}
