import type { Span } from './highlight'
import { visible } from './text'

// Colours of a terminal, drawn safely. Of all a program can say to a terminal
// only the colour of letters, bold and underline are followed; what else styles
// is passed over, and everything that moves, erases, hides or names is drawn as
// text. The answer is text in which nothing hides and where its classes are.

/** How letters look from here on. */
export interface Ink { fg: number; bold: boolean; dim: boolean; under: boolean }
export const PLAIN: Ink = Object.freeze({ fg: -1, bold: false, dim: false, under: false })

export interface Painted {
  /** What is drawn: nothing in it hides. */
  text: string
  spans: Span[]
  /** How it goes on in the next line. */
  ink: Ink
  /** How often the line was written over by itself, as progress is. */
  over: number
}

const SGR = /\u001b\[([0-9;:]{0,64})m/y
const ERASE = /\u001b\[[0-2]?K/g

/** Draws one line, without its line break. raw: every escape is drawn, none followed. */
export function paint(line: string, from: Ink = PLAIN, raw = false): Painted {
  if (raw) return { text: visible(line), spans: [], ink: from, over: 0 }
  if (!line.includes('\u001b') && !line.includes('\r')) {
    const text = visible(line)
    return { text, spans: spanOf(text.length, from), ink: from, over: 0 }
  }
  const parts = line.split('\r')
  if (parts.length > 1 && parts.at(-1) === '') parts.pop()
  let ink = from
  let last: Painted | undefined
  let over = -1
  for (const part of parts) {
    const p = one(parts.length > 1 ? part.replace(ERASE, '') : part, ink)
    ink = p.ink
    // What is written over is counted, and the newest that says something is shown.
    if (p.text !== '' || !last) last = p
    if (p.text !== '') over++
  }
  return { text: last?.text ?? '', spans: last?.spans ?? [], ink, over: Math.max(0, over) }
}

function one(s: string, from: Ink): Painted {
  let text = ''
  let ink = from
  const spans: Span[] = []
  const say = (t: string) => {
    const v = visible(t)
    const cls = classOf(ink)
    if (cls && v) {
      const last = spans.at(-1)
      if (last && last.to === text.length && last.cls === cls) last.to += v.length
      else spans.push({ from: text.length, to: text.length + v.length, cls })
    }
    text += v
  }
  for (let i = 0; i < s.length; ) {
    const e = s.indexOf('\u001b', i)
    if (e < 0) {
      say(s.slice(i))
      break
    }
    if (e > i) say(s.slice(i, e))
    SGR.lastIndex = e
    const m = SGR.exec(s)
    const next = m && style(m[1] ?? '', ink)
    if (m && next) {
      ink = next
      i = e + m[0].length
    } else {
      say('\u001b')
      i = e + 1
    }
  }
  return { text, spans, ink, over: 0 }
}

/** What a run of codes makes of the ink; undefined when one of them is none that styles, or hides. */
function style(codes: string, from: Ink): Ink | undefined {
  const c = codes.split(/[;:]/).map((x) => (x === '' ? 0 : Number(x)))
  let ink = { ...from }
  for (let i = 0; i < c.length; i++) {
    const n = c[i] ?? 0
    if (n === 0) ink = { ...PLAIN }
    else if (n === 1) ink.bold = true
    else if (n === 2) ink.dim = true
    else if (n === 4 || n === 21) ink.under = true
    else if (n === 22) ink.bold = ink.dim = false
    else if (n === 24) ink.under = false
    else if (n >= 30 && n <= 37) ink.fg = n - 30
    else if (n >= 90 && n <= 97) ink.fg = n - 90
    else if (n === 39) ink.fg = -1
    else if (n === 38 || n === 48 || n === 58) {
      const [kind, a = 0, b = 0, d = 0] = c.slice(i + 1)
      if (kind === 5) i += 2
      else if (kind === 2) i += 4
      else return undefined
      if (n === 38) ink.fg = kind === 5 ? ofTable(a) : ofRgb(a, b, d)
    } else if (n === 3 || n === 7 || n === 9 || n === 23 || n === 27 || n === 29 || (n >= 40 && n <= 49) || (n >= 100 && n <= 107) || n === 53 || n === 55 || n === 59) continue
    else return undefined
  }
  return ink
}

/** The nearest of the eight colours that are readable here. */
function ofTable(n: number): number {
  if (n < 16) return n % 8
  if (n >= 232) return n < 244 ? 0 : 7
  const v = n - 16
  return ofRgb(51 * Math.floor(v / 36), 51 * (Math.floor(v / 6) % 6), 51 * (v % 6))
}
function ofRgb(r: number, g: number, b: number): number {
  const high = Math.max(r, g, b)
  if (high - Math.min(r, g, b) < 40) return high < 90 ? 0 : 7
  const half = high * 0.6
  return (r > half ? 1 : 0) + (g > half ? 2 : 0) + (b > half ? 4 : 0)
}

function classOf(ink: Ink): string {
  return [ink.fg >= 0 && `an-${ink.fg}`, ink.bold && 'an-b', ink.dim && ink.fg < 0 && 'an-d', ink.under && 'an-u'].filter(Boolean).join(' ')
}
const spanOf = (length: number, ink: Ink): Span[] => {
  const cls = length ? classOf(ink) : ''
  return cls ? [{ from: 0, to: length, cls }] : []
}
