// Keys, as actions spell them and as they are shown.
const SHOWN: Record<string, string> = { Enter: '⏎', Escape: 'Esc', ' ': 'Space', Backspace: '⌫', ArrowDown: '↓', ArrowUp: '↑', ArrowLeft: '←', ArrowRight: '→' }
export const keyName = (k: string): string => k.split('+').map((p) => (p === 'Mod' ? (/Mac/.test(navigator.platform) ? '⌘' : 'Ctrl') : (SHOWN[p] ?? (/^\p{Lu}$/u.test(p) ? `⇧${p}` : p.toUpperCase())))).join(' ')

/** A key press as actions spell it: "j", "J", "Mod+k", "Mod+Enter". */
export function pressed(e: KeyboardEvent): string {
  return e.ctrlKey || e.metaKey ? `Mod+${e.key}` : e.key
}

/** Whether a key press belongs to the text field it goes to, not to the page. */
export function typing(e: KeyboardEvent): boolean {
  const t = e.target
  return t instanceof HTMLElement && (t.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(t.tagName))
}
