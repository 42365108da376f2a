// What only the window can do. In a browser there is nothing of it.
export interface Native {
  /** Lets the person choose a folder; empty when they chose none. */
  PickFolder: () => Promise<string>
}

export function native(): Native | undefined {
  const w = window as { go?: { desktop?: { Native?: Native } } }
  return w.go?.desktop?.Native
}
