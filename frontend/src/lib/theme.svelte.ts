export type Theme = 'system' | 'light' | 'dark'
const KEEP = 'glasshouse.theme'

function kept(): Theme {
  try {
    const t = localStorage.getItem(KEEP)
    return t === 'light' || t === 'dark' ? t : 'system'
  } catch {
    return 'system'
  }
}

let now = $state<Theme>(kept())

/** How the window looks; 'system' follows the desktop. */
export const theme = {
  get now(): Theme {
    return now
  },
  set(t: Theme) {
    now = t
    if (t === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = t
    try {
      localStorage.setItem(KEEP, t)
    } catch {
      // It lasts as long as the page, then.
    }
  },
  start() {
    this.set(now)
  },
}
