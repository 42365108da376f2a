// What only the window can do. In a browser there is nothing of it.
export interface Native {
  /** Lets the person choose a folder; empty when they chose none. */
  PickFolder: () => Promise<string>
  /** Closes the window; the core goes on. */
  CloseWindow: () => Promise<void>
  /** Whether the person is told outside the window of what waits. */
  Notices: () => Promise<boolean>
  SetNotices: (on: boolean) => Promise<void>
}

interface Runtime {
  WindowSetTitle?: (t: string) => void
  EventsOn?: (name: string, f: (id: unknown) => void) => () => void
}

const runtime = (): Runtime | undefined => (window as { runtime?: Runtime }).runtime

/** Names the window, where there is one: its bar and the task list show what waits. */
export function nameWindow(title: string) {
  runtime()?.WindowSetTitle?.(title)
}

/**
 * Hears the window's menus and notices: 'action' brings the id of an action,
 * 'show' that of a question or session. The answer ends it.
 */
export function onNative(name: 'action' | 'show', f: (id: string) => void): () => void {
  return runtime()?.EventsOn?.(name, (id) => { if (typeof id === 'string') f(id) }) ?? (() => undefined)
}

export function native(): Native | undefined {
  const w = window as { go?: { desktop?: { Native?: Native } } }
  return w.go?.desktop?.Native
}
