// What only the window can do. In a browser there is nothing of it.
export interface Native {
  /** Lets the person choose a folder; empty when they chose none. */
  PickFolder: () => Promise<string>
}

/** Names the window, where there is one: its bar and the task list show what waits. */
export function nameWindow(title: string) {
  const w = window as { runtime?: { WindowSetTitle?: (t: string) => void } }
  w.runtime?.WindowSetTitle?.(title)
}

export function native(): Native | undefined {
  const w = window as { go?: { desktop?: { Native?: Native } } }
  return w.go?.desktop?.Native
}
