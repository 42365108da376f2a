import type { ReviewFile } from '../../api/types'
import { table } from '../../lib/table'

/** A line of the file tree: a folder, or a file in one. */
export type Leaf =
  | { kind: 'folder'; path: string; name: string; depth: number; files: number; viewed: number }
  | { kind: 'file'; file: ReviewFile; name: string; depth: number }

interface Node { name: string; path: string; folders: Map<string, Node>; files: ReviewFile[]; all: number; viewed: number }

/**
 * The files as a tree that is walked line by line. Folders with nothing but one
 * folder in them stand on one line; closed ones show what they hold as a count.
 */
export function treeOf(files: ReviewFile[], closed: Record<string, boolean>): Leaf[] {
  const make = (name: string, path: string): Node => ({ name, path, folders: new Map(), files: [], all: 0, viewed: 0 })
  const root = make('', '')
  for (const f of files) {
    let at = root
    const parts = f.display.split('/')
    for (const part of parts.slice(0, -1)) {
      const path = at.path ? `${at.path}/${part}` : part
      let next = at.folders.get(part)
      if (!next) at.folders.set(part, (next = make(part, path)))
      next.all++
      if (f.viewed) next.viewed++
      at = next
    }
    at.files.push(f)
  }
  const out: Leaf[] = []
  const walk = (n: Node, depth: number) => {
    for (const first of [...n.folders.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      let f = first
      let name = f.name
      while (!f.files.length && f.folders.size === 1) {
        f = [...f.folders.values()][0] as Node
        name += `/${f.name}`
      }
      out.push({ kind: 'folder', path: f.path, name, depth, files: f.all, viewed: f.viewed })
      if (!closed[f.path]) walk(f, depth + 1)
    }
    for (const f of n.files) out.push({ kind: 'file', file: f, name: f.display.slice(f.display.lastIndexOf('/') + 1), depth })
  }
  walk(root, 0)
  return out
}

/** The files in the order of the tree: the order in which they are gone through. */
export const inOrder = (files: ReviewFile[]): ReviewFile[] => treeOf(files, table()).flatMap((l) => (l.kind === 'file' ? [l.file] : []))
