/** A text on its way from the clipboard into a terminal. */
export interface Paste {
  /** Without anything that is a command to the terminal; lines end as Enter does. */
  text: string
  lines: number
  /** How many control characters were left out. */
  left: number
}

/** The most that is pasted at once; more comes as a file. */
export const MOST_PASTED = 96 << 10

/**
 * Control characters are keys: an escape could end a bracketed paste early and
 * run what follows. Only tabs and line ends stay.
 */
export function clean(raw: string): Paste {
  const unified = raw.replace(/\r\n?/g, '\n')
  const text = unified.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/g, '')
  return { text: text.replace(/\n/g, '\r'), lines: text === '' ? 0 : text.replace(/\n$/, '').split('\n').length, left: unified.length - text.length }
}

/** Whether it would run something by itself: the program takes each line end as Enter. */
export const runs = (p: Paste, bracketed: boolean): boolean => !bracketed && p.text.includes('\r')

/** What is sent for it. */
export const keysOf = (p: Paste, bracketed: boolean): string => (bracketed ? `\u001b[200~${p.text}\u001b[201~` : p.text)

/** The same on one line, which nothing runs before the person says so. */
export const oneLine = (p: Paste): Paste => ({ ...p, text: p.text.replace(/\r+$/, '').replace(/\s*\r\s*/g, ' '), lines: 1 })
