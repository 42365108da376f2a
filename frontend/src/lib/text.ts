// Everything a guest wrote is shown as text in which nothing hides: control and
// format characters, blank letters and variation selectors are spelt out.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ue000-\uf8ff]|\udb40[\udc00-\uddef]|[\udb80-\udbff][\udc00-\udfff]/g

export function visible(s: string): string {
  return s.replace(HIDDEN, (c) => {
    const n = c.codePointAt(0) ?? 0
    return n < 0x100 ? `\\x${n.toString(16).padStart(2, '0')}` : `\\u{${n.toString(16)}}`
  })
}

/** The same on one line, cut after n characters. */
export function line(s: string, n = 300): string {
  const v = visible(s.length > n ? `${s.slice(0, n)}…` : s)
  return v.replace(/\n/g, '\\n').replace(/\t/g, ' ')
}

export function duration(ms: number): string {
  if (ms < 1000) return `${ms} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  return `${Math.floor(ms / 60_000)}m${String(Math.floor((ms % 60_000) / 1000)).padStart(2, '0')}s`
}
