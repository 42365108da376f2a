import { calls, type Target } from '../../api/calls'
import { asError } from '../../api/transport'
import type { ApiError, Plan, Push, Review } from '../../api/types'
import type { Desk } from '../../lib/desk.svelte'
import type { ProjectState } from '../../lib/state'

/**
 * The way to the remote: first the plan, which says exactly what would be sent;
 * then the push, bound to the plan by its digest.
 */
export class PushModel {
  history = $state(false)
  error = $state<ApiError>()
  busy = $state<'' | 'plan' | 'push'>('')
  last = $state<Push>()
  #planned = $state<{ plan: Plan; of: string }>()

  constructor(
    readonly desk: Desk,
    readonly review: () => Review | undefined,
    /** What the project suggests where the review names no end. */
    readonly suggest: () => { remote: string; ref: string },
    readonly onpushed: () => void,
    /** Resolves once the core holds every decision that is shown. */
    readonly settled: () => Promise<void>,
  ) {}

  #key = (name: string) => `push.${name}.${this.review()?.id ?? ''}`
  get remote(): string {
    return this.desk.drafts[this.#key('remote')] ?? (this.review()?.remote || this.suggest().remote)
  }
  set remote(v: string) {
    this.desk.drafts[this.#key('remote')] = v
  }
  get ref(): string {
    return this.desk.drafts[this.#key('ref')] ?? ((this.review()?.ref ?? '').replace(/^refs\/heads\//, '') || this.suggest().ref)
  }
  set ref(v: string) {
    this.desk.drafts[this.#key('ref')] = v
  }
  get message(): string {
    return this.desk.drafts[this.#key('message')] ?? ''
  }
  set message(v: string) {
    this.desk.drafts[this.#key('message')] = v
  }

  /** All that a plan depends on; when it changes, a plan that was shown is void. */
  #now = $derived.by(() => JSON.stringify([this.remote.trim(), this.ref.trim(), this.message, this.history, (this.review()?.files ?? []).map((f) => f.decisions)]))
  plan = $derived(this.#planned?.of === this.#now ? this.#planned.plan : undefined)
  off = $derived.by(() => {
    const r = this.review()
    if (!r) return 'Reading the review.'
    if (r.undecided > 0) return `${r.undecided} left to decide.`
    if (r.accepted === 0) return 'Everything is rejected.'
    if (!this.remote.trim() || !this.ref.trim()) return 'Give a remote and a branch.'
    return ''
  })

  #target(): Target {
    const message = this.message.trim() ? { message: this.message } : {}
    return { remote: this.remote.trim(), ref: this.ref.trim(), ...message, ...(this.history ? { history: true } : {}) }
  }

  async see() {
    const r = this.review()
    if (!r || this.busy || this.off) return
    this.error = this.last = undefined
    this.busy = 'plan'
    try {
      // A plan that overtook a decision would be about another tree than the one that is seen.
      await this.settled()
      if (this.off) return
      const of = this.#now
      this.#planned = { plan: await calls.plan(r.id, this.#target()), of }
    } catch (err) {
      this.error = asError(err)
    } finally {
      this.busy = ''
    }
  }

  async push() {
    const r = this.review()
    const plan = this.plan
    if (!r || !plan || this.busy) return
    this.error = this.last = undefined
    this.busy = 'push'
    try {
      await this.settled()
      // Decided meanwhile: what was planned is void.
      if (this.plan !== plan) return
      this.last = await calls.push(r.id, { ...this.#target(), digest: plan.digest })
    } catch (err) {
      // Planned on what no longer holds: the plan is asked for again.
      this.error = asError(err)
    } finally {
      this.#planned = undefined
      this.busy = ''
      this.onpushed()
    }
  }

  /** The next thing on the way to the remote. */
  next() {
    if (this.plan) void this.push()
    else void this.see()
  }
}

/** Where a project's changes go when nobody said otherwise: where its source comes from, else the source itself. */
export function remoteOf(p: Pick<ProjectState, 'source' | 'imported'>): string {
  return p.imported?.remote || p.source
}

/** How a remote is reached, in a word. */
export function protocol(remote: string): string {
  const r = remote.trim()
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(r)?.[1]?.toLowerCase()
  if (scheme) return scheme === 'file' ? 'this computer' : scheme
  if (r.startsWith('/') || r.startsWith('.') || r.startsWith('~')) return 'this computer'
  return /^[^/\s]+:/.test(r) ? 'ssh' : ''
}

/** A branch name made of a session's title. */
export function branchFor(title: string): string {
  const s = title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 40).replace(/-+$/, '')
  return s || 'changes'
}
