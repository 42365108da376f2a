import { calls } from '../../api/calls'
import { asError } from '../../api/transport'
import type { ApiError, FileEntry } from '../../api/types'
import { table } from '../../lib/table'

/** What is known of a folder of the workspace. */
export interface Folder { entries: FileEntry[]; more: boolean; error?: ApiError; loading: boolean }
/** A line of the tree. gone: it is no longer there, but a step of the session deleted it. */
export interface Node { path: string; name: string; depth: number; type: string; entry?: FileEntry; open: boolean; gone: boolean; loading: boolean; error?: ApiError | undefined; note?: string }

export const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')))
export const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1)

/** All folders a path is in, the nearest first; the workspace itself is ''. */
export function above(path: string): string[] {
  const out: string[] = []
  for (let p = path; p; ) out.push((p = parentOf(p)))
  return out
}

/** The folders of a workspace that were looked at, and which of them are open. */
export class Tree {
  folders = $state.raw(table<Folder>())
  opened = $state.raw<ReadonlySet<string>>(new Set(['']))
  #running = new Map<string, AbortController>()

  constructor(readonly project: string) {}

  /** Reads a folder anew; what is known of it stays until the answer is there. */
  async read(path: string, start = false): Promise<void> {
    this.#running.get(path)?.abort()
    const one = new AbortController()
    this.#running.set(path, one)
    const was = this.folders[path]
    this.#put(path, { entries: was?.entries ?? [], more: was?.more ?? false, loading: true, ...(was?.error ? { error: was.error } : {}) })
    try {
      const r = await calls.files(this.project, path, start, one.signal)
      if (one.signal.aborted) return
      this.#put(path, { ...r, loading: false })
    } catch (err) {
      if (one.signal.aborted) return
      const error = asError(err)
      // A folder that is gone closes; its parent's list says the rest.
      if (error.code === 'not_found' && path) this.#drop(path)
      else this.#put(path, { entries: was?.entries ?? [], more: false, loading: false, error })
    } finally {
      if (this.#running.get(path) === one) this.#running.delete(path)
    }
  }

  /** Reads all open folders anew. */
  refresh(start = false) {
    for (const p of [...this.opened]) if (p === '' || this.folders[p]) void this.read(p, start)
  }

  open(path: string, on = true) {
    if (this.opened.has(path) === on) return
    const next = new Set(this.opened)
    if (on) next.add(path)
    else next.delete(path)
    this.opened = next
    if (on) void this.read(path)
  }

  /** Opens what a path is in. */
  unfold(path: string) {
    for (const p of above(path)) this.open(p)
  }

  stop() {
    for (const c of this.#running.values()) c.abort()
    this.#running.clear()
  }

  #put(path: string, f: Folder) {
    this.folders = table({ ...this.folders, [path]: f })
  }

  #drop(path: string) {
    const folders = table(this.folders)
    const opened = new Set(this.opened)
    for (const p of Object.keys(folders)) if (p === path || p.startsWith(`${path}/`)) delete folders[p]
    for (const p of opened) if (p === path || p.startsWith(`${path}/`)) opened.delete(p)
    this.folders = folders
    this.opened = opened
  }

  /** The lines to draw: folders first, by name; deleted files where they were. */
  rows(gone: Iterable<string>): Node[] {
    const missing = new Map<string, string[]>()
    for (const p of gone) missing.set(parentOf(p), [...(missing.get(parentOf(p)) ?? []), p])
    const out: Node[] = []
    const walk = (path: string, depth: number) => {
      const f = this.folders[path]
      if (!f) return
      const there = new Set(f.entries.map((e) => e.path))
      const all: Node[] = f.entries.map((entry) => ({ path: entry.path, name: nameOf(entry.path), depth, type: entry.type, entry, open: entry.type === 'dir' && this.opened.has(entry.path), gone: false, loading: !!this.folders[entry.path]?.loading, error: this.folders[entry.path]?.error }))
      for (const p of missing.get(path) ?? []) if (!there.has(p)) all.push({ path: p, name: nameOf(p), depth, type: 'file', open: false, gone: true, loading: false })
      all.sort((a, b) => Number(b.type === 'dir') - Number(a.type === 'dir') || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
      for (const n of all) {
        out.push(n)
        if (n.open) {
          const below = out.length
          walk(n.path, depth + 1)
          const g = this.folders[n.path]
          if (out.length === below && g && !g.loading) out.push(note(n.path, depth + 1, g.error ? g.error.what : 'empty'))
        }
      }
      if (f.more) out.push(note(path, depth, `only the first ${f.entries.length.toLocaleString('en')} are listed: find the others by name`))
    }
    walk('', 0)
    return out
  }
}

const note = (path: string, depth: number, text: string): Node => ({ path: `${path}/\0${text}`, name: text, depth, type: 'note', open: false, gone: false, loading: false, note: text })

/** A pattern for what a person typed: words are looked for anywhere in the path. */
export function patternOf(typed: string): string {
  const t = typed.trim()
  if (!t) return ''
  if (/[*?{[]/.test(t)) return t.includes('/') ? t : `**/${t}`
  const plain = t.replace(/[\\]/g, '\\$&')
  return plain.includes('/') ? `**/${plain.replace(/^\/+/, '')}*` : `**/*${plain}*`
}
