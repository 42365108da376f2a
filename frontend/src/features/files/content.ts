import type { FileContent } from '../../api/types'

// What a file is, from its bytes and its name.

/** How much is read at once, and the largest picture that is shown. */
export const PART = 1 << 20
export const PICTURE = 8 << 20

const NAMES = /\.(png|jpe?g|gif|webp)$/i
/** Whether a name promises a picture that is worth reading whole. */
export const pictureName = (path: string): boolean => NAMES.test(path)

const starts = (b: Uint8Array, s: string, at = 0): boolean => [...s].every((c, i) => b[at + i] === c.charCodeAt(0))
/** The kind of a picture by its first bytes; only what the page draws without running anything. */
export function pictureType(b: Uint8Array): string {
  if (starts(b, '\x89PNG\r\n\x1a\n')) return 'image/png'
  if (b[0] === 0xff && b[1] === 0xd8 && b[2] === 0xff) return 'image/jpeg'
  if (starts(b, 'GIF87a') || starts(b, 'GIF89a')) return 'image/gif'
  if (starts(b, 'RIFF') && starts(b, 'WEBP', 8)) return 'image/webp'
  return ''
}

/** A plain word for what binary bytes are, where their first bytes say it. */
export function kindWord(b: Uint8Array): string {
  const known: [string, string][] = [['\x7fELF', 'a Linux program'], ['PK\x03\x04', 'a zip archive'], ['\x1f\x8b', 'gzip'], ['%PDF', 'a PDF'], ['SQLite format 3\0', 'an SQLite database'], ['\xfd7zXZ', 'xz'], ['BZh', 'bzip2'], ['\x28\xb5\x2f\xfd', 'zstd'], ['\0asm', 'WebAssembly'], ['wOF2', 'a font'], ['OggS', 'Ogg media']]
  return pictureType(b).replace('image/', '') || known.find(([s]) => starts(b, s))?.[1] || 'bytes that are no text'
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const s = atob(base64)
  const out = new Uint8Array(s.length)
  for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i)
  return out
}

/** The bytes of a piece, however it came. */
export const raw = (c: FileContent): Uint8Array<ArrayBuffer> => (c.base64 ? bytesOf(c.base64) : new TextEncoder().encode(c.text ?? ''))

/** Whether a piece is to be read as text: NUL bytes are in none. */
export const isText = (c: FileContent): boolean => !c.base64 && !(c.text ?? '').includes('\0')

/** Rows of 16 bytes: place, hex, and the letters among them. */
export function hex(b: Uint8Array, max = 512): { at: string; hex: string; text: string }[] {
  const out = []
  for (let i = 0; i < Math.min(b.length, max); i += 16) {
    const row = [...b.subarray(i, Math.min(i + 16, b.length, max))]
    out.push({ at: i.toString(16).padStart(6, '0'), hex: row.map((v, k) => (k === 8 ? ' ' : '') + v.toString(16).padStart(2, '0')).join(' '), text: row.map((v) => (v >= 32 && v < 127 ? String.fromCharCode(v) : '·')).join('') })
  }
  return out
}

/** Lines of a text, without their breaks; the last may be empty when the text ends with one. */
export function linesOf(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines.map((l) => (l.endsWith('\r') ? l.slice(0, -1) : l))
}
