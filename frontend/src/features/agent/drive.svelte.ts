import { calls } from '../../api/calls'
import { asError, CallError } from '../../api/transport'
import type { ApiError, SessionChange } from '../../api/types'
import type { Desk } from '../../lib/desk.svelte'
import { record } from '../../lib/kept'
import type { ProjectState, SessionState, Turn } from '../../lib/state'
import { openModels, unusable } from './models'
import { busy, lastTurn, titleOf, working } from './pick'

/** The most characters of a prompt or a message. */
const LONGEST = 32_768

/** What went wrong, with what can be done about it at once. */
export interface Trouble { error: ApiError; act?: { name: string; run: () => void }; /** It is about a stop: when nothing runs any more it is over. */ stops?: boolean }
export interface Choice { mode: string; model: string; limitNanos: number; limitTokens: number; /** Commands that say whether the work is right. */ checks: string[] }
/** What can be chosen for a session that is not made yet; a made one keeps its checks. */
export type Wish = SessionChange & { checks?: string[] }
/** Who gets what is written: a model, or nobody but the log. */
export type Who = 'model' | 'note'

/** How a person drives the agent of a place: a session, or a project where none is open. */
export class Drive {
  /** What went wrong, by place. */
  troubles = $state<Record<string, Trouble>>({})
  /** The place something is sent from now. */
  sending = $state('')
  /** The session that is being stopped. */
  stopping = $state('')
  /** What is begun: "continue" or "retry". */
  beginning = $state('')
  /** Changes of sessions that are on their way. */
  #changing = $state<Record<string, SessionChange>>({})
  /** The last of them, by session: whether the core took it. */
  #changed = new Map<string, Promise<boolean>>()
  /** Messages that were sent and are not in the log yet. */
  queued = $state<{ place: string; text: string; n: number }[]>([])
  #n = 0
  #sends = 0

  constructor(readonly desk: Desk) {}

  place = (p: ProjectState, x: SessionState | undefined): string => x?.id ?? `new.${p.id}`
  draft = (p: ProjectState, x: SessionState | undefined): string => `say.${this.place(p, x)}`

  who(x: SessionState | undefined): Who {
    if (!x) return 'model'
    const chosen = this.desk.drafts[`who.${x.id}`]
    if (chosen === 'model' || chosen === 'note') return chosen
    return x.agent === 'model' || x.turn?.agent === 'model' ? 'model' : 'note'
  }
  setWho(x: SessionState, who: Who) {
    this.desk.drafts[`who.${x.id}`] = who
    this.desk.keep()
  }

  /** What holds for a session, with what was just chosen; for none, what its first one will begin with. */
  choice(p: ProjectState, x: SessionState | undefined): Choice {
    if (x) {
      const c = this.#changing[x.id]
      return { mode: c?.mode ?? x.mode, model: c?.model ?? x.model, limitNanos: c?.limit_nanos ?? x.limitNanos, limitTokens: c?.limit_tokens ?? x.limitTokens, checks: x.checks }
    }
    let kept: Record<string, unknown> = {}
    try {
      kept = record(JSON.parse(this.desk.drafts[`pick.${p.id}`] ?? '{}'))
    } catch {
      // Broken: the usual.
    }
    const n = (v: unknown): number => (typeof v === 'number' && v > 0 && Number.isSafeInteger(v) ? v : 0)
    return { mode: typeof kept.mode === 'string' ? kept.mode : 'auto', model: typeof kept.model === 'string' ? kept.model : '', limitNanos: n(kept.limitNanos), limitTokens: n(kept.limitTokens), checks: Array.isArray(kept.checks) ? kept.checks.filter((c): c is string => typeof c === 'string' && c !== '') : [] }
  }

  async change(p: ProjectState, x: SessionState | undefined, { checks, ...c }: Wish) {
    if (!x) {
      const now = this.choice(p, undefined)
      this.desk.drafts[`pick.${p.id}`] = JSON.stringify({ mode: c.mode ?? now.mode, model: c.model ?? now.model, limitNanos: c.limit_nanos ?? now.limitNanos, limitTokens: c.limit_tokens ?? now.limitTokens, checks: checks ?? now.checks })
      this.desk.keep()
      return
    }
    const id = x.id
    this.clear(id)
    this.#changing[id] = { ...this.#changing[id], ...c }
    // One after the other: the last wish is the one that holds.
    const turn = (this.#changed.get(id) ?? Promise.resolve(true)).then(() => calls.changeSession(id, c))
    const taken = turn.then(() => true, () => false)
    this.#changed.set(id, taken)
    void taken.then(() => this.#changed.get(id) === taken && this.#changed.delete(id))
    try {
      await turn
      // The log tells it a moment later.
      await this.#until(() => {
        const s = this.desk.store.s.sessions[id]
        return !s || ((c.mode ?? s.mode) === s.mode && (c.model ?? s.model) === s.model && (c.limit_nanos ?? s.limitNanos) === s.limitNanos && (c.limit_tokens ?? s.limitTokens) === s.limitTokens)
      })
    } catch (err) {
      const error = asError(err)
      this.#fail(id, { error, ...(c.model !== undefined ? { act: { name: 'Open the models…', run: () => openModels(this.desk) } } : {}) })
    } finally {
      const now = { ...this.#changing[id] }
      for (const k of Object.keys(c) as (keyof SessionChange)[]) if (now[k] === c[k]) delete now[k]
      this.#changing[id] = now
    }
  }

  /** Whether what was chosen for a session holds: nothing begins in the mode, or under the limit, of before. */
  #holds = async (id: string): Promise<boolean> => (await this.#changed.get(id)) ?? true

  /** Waits until something shows in the log, for a moment. */
  async #until(seen: () => boolean) {
    for (let i = 0; i < 20 && !seen(); i++) await new Promise((done) => setTimeout(done, 50))
  }
  #fail(place: string, t: Trouble) {
    this.troubles[place] = t
  }
  clear(place: string) {
    delete this.troubles[place]
  }

  /** What keeps the model of a place from being asked; undefined: nothing that is known here. */
  #obstacle(name: string): Trouble | undefined {
    const m = this.desk.models
    if (!m.list) return undefined // The core will say.
    if (!m.list.length) return { error: { code: 'invalid', what: 'There is no model to ask yet.', hint: 'Add one: a provider’s, with a key, or one that runs on this computer, without. What you wrote is kept.' }, act: { name: 'Add a model…', run: () => openModels(this.desk, '') } }
    const one = m.find(name)
    if (!one) return { error: { code: 'not_found', what: name ? `There is no model called ${name} any more.` : 'No model is the default.', hint: 'Choose another one below, or make one the default in the settings.' }, act: { name: 'Open the models…', run: () => openModels(this.desk) } }
    const why = unusable(one)
    return why ? { error: { code: 'unavailable', what: `${one.name} cannot be asked. ${why}`, hint: 'What you wrote is kept.' }, act: { name: one.key === 'missing' ? 'Set the key…' : 'Edit the model…', run: () => openModels(this.desk, one.name) } } : undefined
  }

  /** Sends what is written in a place; the text stays until it is taken. */
  async send(p: ProjectState, x: SessionState | undefined, opt: { note?: boolean } = {}) {
    const key = this.draft(p, x)
    const place = this.place(p, x)
    const desk = this.desk
    const text = (desk.drafts[key] ?? '').trim()
    if (!text || this.sending || x?.state === 'ended') return
    this.clear(place)
    // Nothing is cut off behind the person's back.
    if (text.length > LONGEST) return this.#fail(place, { error: { code: 'too_large', what: `The message has ${text.length.toLocaleString('en-US')} characters; there may be ${LONGEST.toLocaleString('en-US')}.`, hint: 'Put long text into a file of the workspace and name it here, or send it in parts. What you wrote is kept.' } })
    this.sending = place
    const mine = ++this.#sends
    const taken = (k = key) => {
      // What was typed meanwhile is another text.
      if ((desk.drafts[k] ?? '').trim() === text) delete desk.drafts[k]
      desk.keep()
    }
    try {
      if (x && (opt.note || this.who(x) === 'note' || busy(x))) {
        await this.#say(x.id, text, taken)
        return
      }
      const c = this.choice(p, x)
      await desk.models.read()
      const o = this.#obstacle(c.model)
      if (o) return this.#fail(place, o)
      if (x) {
        if (!(await this.#holds(x.id))) return
        await calls.startModel(x.id, { prompt: text })
        taken()
        return
      }
      const s = await calls.createSession({ project_id: p.id, agent: 'model', title: titleOf(text), mode: c.mode, ...(c.model ? { model: c.model } : {}), ...(c.limitNanos ? { limit_nanos: c.limitNanos } : {}), ...(c.limitTokens ? { limit_tokens: c.limitTokens } : {}), ...(c.checks.length ? { checks: c.checks.map((code) => ({ name: code, code })) } : {}) })
      // From here on the text belongs to the session.
      desk.drafts[`say.${s.id}`] = desk.drafts[key] ?? text
      delete desk.drafts[key]
      desk.openSession(s.id)
      this.sending = s.id
      try {
        await calls.startModel(s.id, { prompt: text })
        taken(`say.${s.id}`)
      } catch (err) {
        this.#fail(s.id, this.#trouble(p, undefined, err))
      }
    } catch (err) {
      this.#fail(place, this.#trouble(p, x, err))
    } finally {
      // The next one may be under way while this one still waits for the log.
      if (this.#sends === mine) this.sending = ''
    }
  }

  /** What a refused call means, and what can be done about it. */
  #trouble(p: ProjectState, x: SessionState | undefined, err: unknown): Trouble {
    const error = asError(err)
    if (err instanceof CallError && err.status === 409 && x) {
      if (x.state === 'ended' || /has ended/.test(error.what)) return { error, act: { name: 'New session', run: () => this.anew(p, x) } }
      if (/is running/.test(error.what)) return { error, act: { name: 'Leave it as a message', run: () => void this.send(p, x, { note: true }) } }
    }
    if (/model|key/.test(`${error.pointer ?? ''} ${error.what}`) && error.code !== 'conflict' && !(err instanceof CallError && err.status === 0)) return { error, act: { name: 'Open the models…', run: () => openModels(this.desk) } }
    return { error }
  }

  async #say(id: string, text: string, taken: () => void) {
    const one = { place: id, text, n: ++this.#n }
    this.queued = [...this.queued, one]
    const from = this.desk.store.s.sessions[id]?.items.length ?? 0
    try {
      await calls.say(id, text)
      taken()
      this.sending = ''
      // It shows here until the log has it.
      await this.#until(() => !!this.desk.store.s.sessions[id]?.items.slice(from).some((i) => i.kind === 'say' && i.text.trim() === text))
    } finally {
      this.queued = this.queued.filter((q) => q.n !== one.n)
    }
  }

  /** A new session in the project, with what is written here. */
  anew(p: ProjectState, x: SessionState | undefined) {
    const desk = this.desk
    const text = x && desk.drafts[this.draft(p, x)]
    if (x && text) {
      desk.drafts[this.draft(p, undefined)] ||= text
      delete desk.drafts[this.draft(p, x)]
    }
    desk.openProject(p.id)
    desk.panel = ''
    focusBox()
  }

  async stop(x: SessionState) {
    if (this.stopping === x.id) return
    this.clear(x.id)
    this.stopping = x.id
    try {
      await calls.cancel(x.id)
    } catch (err) {
      this.#fail(x.id, { error: asError(err), act: { name: 'Stop again', run: () => void this.stop(x) }, stops: true })
    } finally {
      if (this.stopping === x.id) this.stopping = ''
    }
  }

  whyNotStop(x: SessionState | undefined): string {
    if (!x) return 'Choose a session.'
    return busy(x) ? (this.stopping === x.id ? 'It is being stopped.' : '') : 'Nothing runs.'
  }
  whyNotGoOn(x: SessionState | undefined, waits = false): string {
    if (!x) return 'Choose a session.'
    if (x.state === 'ended') return 'The session has ended.'
    if (busy(x)) return 'It works.'
    const t = lastTurn(x)
    if (!t) return 'No model worked here yet.'
    return waits || !done(t.result) ? '' : 'The last turn is done. Write what comes next.'
  }
  whyNotRetry(x: SessionState | undefined): string {
    if (!x) return 'Choose a session.'
    if (x.state === 'ended') return 'The session has ended.'
    if (busy(x)) return 'It works.'
    const t = lastTurn(x)
    if (!t) return 'No model worked here yet.'
    return done(t.result) ? 'The last turn did not fail.' : this.prompt(x) ? '' : 'There is no prompt to send again.'
  }
  /** The newest prompt of a model's turn. */
  prompt(x: SessionState): string {
    const t = x.items.findLast((i): i is Turn => i.kind === 'turn' && i.agent === 'model' && !!i.text)
    return t?.text ?? ''
  }

  goOn = (p: ProjectState, x: SessionState) => this.#begin(p, x, 'continue', { go_on: true })
  retry = (p: ProjectState, x: SessionState) => this.#begin(p, x, 'retry', { prompt: this.prompt(x) })

  async #begin(p: ProjectState, x: SessionState, what: string, b: { prompt: string } | { go_on: true }) {
    if (this.beginning) return
    this.clear(x.id)
    this.beginning = what
    try {
      await this.desk.models.read()
      const o = this.#obstacle(this.choice(p, x).model)
      if (o) return this.#fail(x.id, o)
      if (!(await this.#holds(x.id))) return
      await calls.startModel(x.id, b)
      await this.#until(() => working(this.desk.store.s.sessions[x.id]))
    } catch (err) {
      const t = this.#trouble(p, x, err)
      // What is typed is not what was to begin here.
      if (t.act?.name === 'Leave it as a message') delete t.act
      this.#fail(x.id, t)
    } finally {
      this.beginning = ''
    }
  }
}

const done = (result: string | undefined): boolean => result === 'ok' || result === 'unchecked'

/** Gives the message box the focus, once it is drawn. */
export const focusBox = () => void setTimeout(() => document.getElementById('say')?.focus())
