import type { Blob as Artefact } from '../../lib/state'

/** The kinds of pictures that are shown, by the bytes each begins with. */
const KINDS: Record<string, (b: Uint8Array) => boolean> = {
  'image/png': (b) => begins(b, 0, [0x89, 0x50, 0x4e, 0x47]),
  'image/jpeg': (b) => begins(b, 0, [0xff, 0xd8, 0xff]),
  'image/webp': (b) => begins(b, 0, [0x52, 0x49, 0x46, 0x46]) && begins(b, 8, [0x57, 0x45, 0x42, 0x50]),
}
const begins = (b: Uint8Array, at: number, with_: number[]): boolean => with_.every((x, i) => b[at + i] === x)

export const isPicture = (a: Artefact): boolean => Object.hasOwn(KINDS, a.mime ?? '')

/** Whether bytes are a picture of the kind they are said to be. */
export const looksLike = (mime: string, b: Uint8Array): boolean => Object.hasOwn(KINDS, mime) && !!KINDS[mime]?.(b)
