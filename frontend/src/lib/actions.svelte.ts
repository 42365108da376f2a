import { onMount } from 'svelte'
import { pressed, typing } from './keys'

/** Something a person can do: it has a name, perhaps a key, and a reason when it cannot be done now. */
export interface Action {
  id: string
  name: string
  key?: string
  /** More keys for the same, which are not shown. */
  also?: string[]
  /**
   * The part of the window whose key it is: it answers only while that part
   * (an element with data-scope) has the focus or is the screen's own. Without
   * one it answers everywhere.
   */
  scope?: string
  /** What it belongs to, where actions are listed; without one: its scope. */
  group?: string
  /** Why it cannot be done now; empty: it can. */
  off?: string
  run: () => void
}

/** Called while a component is made: what it offers is there as long as the component. */
export function offer(to: () => { actions: Actions }, f: () => Action[]) {
  onMount(() => to().actions.add(f))
}

/** All that can be done now, for buttons, keys, menus and the palette. */
export class Actions {
  #offers = $state.raw<(() => Action[])[]>([])
  all = $derived(this.#offers.flatMap((f) => f()))

  /** Puts more actions in; the answer takes them out again. */
  add(f: () => Action[]): () => void {
    this.#offers = [...this.#offers, f]
    return () => (this.#offers = this.#offers.filter((x) => x !== f))
  }

  find = (id: string): Action | undefined => this.all.find((a) => a.id === id)

  /** Does what a name stands for, if it can be done now; says whether it did. */
  run(id: string): boolean {
    const a = this.find(id)
    if (!a || a.off) return false
    a.run()
    return true
  }

  /** The actions a person can reach by key from where the focus is, the nearest first. */
  reach(scope: string): Action[] {
    return [...this.all.filter((a) => a.scope === scope && scope), ...this.all.filter((a) => !a.scope)]
  }

  /** Does what a pressed key means where the focus is. fallback: the screen's own scope. */
  press(e: KeyboardEvent, fallback: string) {
    if (e.defaultPrevented || e.altKey) return
    const key = pressed(e)
    const at = e.target instanceof HTMLElement ? e.target : null
    if (typing(e) && !key.startsWith('Mod+')) {
      if (key === 'Escape' && !at?.closest('[data-keeps-escape]')) at?.blur()
      return
    }
    // A terminal has all keys but those of the window.
    if (at?.closest('[data-keeps-keys]') && key !== 'Mod+k') return
    // Buttons and lines open by themselves on Enter.
    if (key === 'Enter' && at?.closest('button, summary, a, [role=option], [role=treeitem]')) return
    const scope = at?.closest<HTMLElement>('[data-scope]')?.dataset.scope ?? fallback
    const a = this.reach(scope).find((x) => x.key === key || x.also?.includes(key))
    if (!a || a.off) return
    e.preventDefault()
    a.run()
  }
}
