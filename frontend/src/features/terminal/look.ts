import type { ITheme } from '@xterm/xterm'

/** The page's tokens as a terminal's colours, read where they are in force now. */
export function colours(at: Element): ITheme {
  const style = getComputedStyle(at)
  const of = (name: string) => style.getPropertyValue(name).trim()
  const dark = lightness(of('--panel')) < 0.5
  const text = of('--text')
  return {
    background: of('--panel'), foreground: text, cursor: of('--accent'), cursorAccent: of('--panel'),
    selectionBackground: dark ? '#2f4f46' : '#cfe6dd', selectionInactiveBackground: dark ? '#2a332f' : '#e3e3de',
    black: dark ? '#34403b' : text, red: of('--harm'), green: of('--good'), yellow: of('--wait'), blue: of('--person'), magenta: of('--agent'), cyan: of('--accent'), white: dark ? '#c6cfca' : of('--soft'),
    brightBlack: of('--faint'), brightRed: of('--harm'), brightGreen: of('--good'), brightYellow: of('--wait'), brightBlue: of('--person'), brightMagenta: of('--agent'), brightCyan: of('--accent'), brightWhite: dark ? '#ffffff' : text,
    scrollbarSliderBackground: of('--line-2'), scrollbarSliderHoverBackground: of('--faint'), scrollbarSliderActiveBackground: of('--faint'),
  }
}

/** 0 black … 1 white, of a #rrggbb. */
function lightness(hex: string): number {
  const n = Number.parseInt(hex.slice(1, 7), 16)
  return Number.isNaN(n) ? 1 : ((n >> 16) + ((n >> 8) & 255) + (n & 255)) / 765
}

/** Calls back whenever the page's colours change; the answer ends that. */
export function onTheme(f: () => void): () => void {
  const seen = new MutationObserver(f)
  seen.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme', 'class', 'style'] })
  const queries = ['(prefers-color-scheme: dark)', '(prefers-contrast: more)'].map((q) => matchMedia(q))
  for (const q of queries) q.addEventListener('change', f)
  return () => {
    seen.disconnect()
    for (const q of queries) q.removeEventListener('change', f)
  }
}
