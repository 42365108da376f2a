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
    textSize.set(textSize.now)
  },
}

const SIZE = 'glasshouse.size'
const sizes = [1, 1.1, 1.25]
function keptSize(): number {
  try {
    const n = Number(localStorage.getItem(SIZE))
    return sizes.includes(n) ? n : 1
  } catch {
    return 1
  }
}

let size = $state(keptSize())

/** How large all is drawn, where 1 is the usual. */
export const textSize = {
  get now(): number {
    return size
  },
  set(n: number) {
    size = n
    document.documentElement.style.setProperty('--zoom', String(n))
    try {
      localStorage.setItem(SIZE, String(n))
    } catch {
      // It lasts as long as the page, then.
    }
  },
}
