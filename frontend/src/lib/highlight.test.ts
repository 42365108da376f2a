import { expect, it } from 'vitest'
import type { DiffLine, Hunk } from '../api/types'
import { highlight, highlightHunks, kindOf, MAX_LINES, pieces } from './highlight'
import { compare, wordMarks } from './marks'

const said = (text: string, spans: { from: number; to: number; cls: string }[] = []) => spans.map((s) => [text.slice(s.from, s.to), s.cls])

it('colours each kind of file by its own grammar', async () => {
  const one: Record<string, [string, string, string]> = {
    'a.ts': ['const x: number = 1', 'const', 'tk-k'], 'a.py': ['def f(): pass', 'def', 'tk-k'], 'a.json': ['{"a": true}', 'true', 'tk-n'], 'a.css': ['a { color: red }', 'color', 'tk-p'],
    'a.html': ['<p>x</p>', 'p', 'tk-t'], 'a.md': ['# Head', 'Head', 'tk-t'], 'a.rs': ['fn f() {}', 'fn', 'tk-k'], 'a.c': ['int f(void) { return 0; }', 'return', 'tk-k'],
    'A.java': ['class A {}', 'class', 'tk-k'], 'a.go': ['func f() {}', 'func', 'tk-k'], 'a.yaml': ['a: "b"', '"b"', 'tk-s'], 'a.php': ['<?php echo "x";', '"x"', 'tk-s'], 'a.xml': ['<a b="c"/>', 'a', 'tk-t'],
  }
  for (const [path, [text, word, cls]] of Object.entries(one)) {
    const spans = await highlight(path, [text])
    expect(said(text, spans?.[0]).some(([w, c]) => w?.includes(word) && c === cls), `${path}: ${JSON.stringify(said(text, spans?.[0]))}`).toBe(true)
  }
})

it('keeps a colour that goes over lines on each of them', async () => {
  const lines = ['x = """one', '', 'two"""', 'y = 1']
  const spans = await highlight('m.py', lines)
  expect(lines.map((l, i) => said(l, spans?.[i]).filter(([, c]) => c === 'tk-s').map(([w]) => w).join(''))).toEqual(['"""one', '', 'two"""', ''])
})

it('leaves out what it does not know or what is too long, whatever the name', async () => {
  for (const p of ['Makefile', 'a.constructor', 'a.__proto__', 'x/.ts/y', '', 'a.']) expect(await highlight(p, ['const x = 1'])).toBeUndefined()
  expect(kindOf('dir.ts/A.TSX')).toBe('tsx')
  expect(await highlight('a.ts', Array(MAX_LINES + 1).fill('x'))).toBeUndefined()
  expect(await highlight('a.ts', ['x'.repeat(500_000)])).toBeUndefined()
})

it('reads what was and what is apart', async () => {
  const l = (op: string, text: string): DiffLine => ({ op, text })
  const lines = [l(' ', 'f('), l('-', '`open'), l('+', '1)'), l(' ', 'const y = 2')]
  const spans = await highlightHunks('a.ts', [{ id: 'h', lines } as Hunk])
  // The unclosed text of the deleted line does not reach into the line after it.
  expect(said('const y = 2', spans?.get(lines[3]!))).toContainEqual(['const', 'tk-k'])
})

it('cuts a line at colours and marks and loses nothing of it', () => {
  const text = 'a😀bc\u202ed'
  const cut = pieces(text, [{ from: 0, to: 2, cls: 'tk-k' }, { from: 4, to: 5, cls: 'tk-s' }], [[2, 5]])
  expect(cut.map((p) => p.text).join('')).toBe(text)
  expect(cut).toEqual([{ text: 'a', cls: 'tk-k', mark: false }, { text: '😀b', cls: '', mark: true }, { text: 'c', cls: 'tk-s', mark: true }, { text: '\u202ed', cls: '', mark: false }])
  expect(pieces('', [], [])).toEqual([])
})

it('marks the words that differ, more than one in a line', () => {
  const x = 'sum + l.price * l.qty, 0);'
  const y = 'sum + Math.round(l.price * 100) * l.qty, 1);'
  const two = compare(x, y)
  expect(two?.[0].map(([a, b]) => x.slice(a, b))).toEqual(['0'])

  expect(two?.[1].map(([a, b]) => y.slice(a, b)).join('')).toContain('Math.round(')
  expect(compare('abc def', 'xyz 123')).toBeUndefined()
  const l = (op: string, text: string): DiffLine => ({ op, text })
  expect([...wordMarks([l('-', 'a b c'), l('-', 'x'), l('+', 'q r s')]).keys()]).toEqual([])
  expect([...wordMarks([l('-', 'a b c'), l('-', 'x'), l('+', 'a b d')]).keys()]).toEqual([0, 2])
  expect([...wordMarks([l(' ', 'q'), l('-', 'a b c'), l('+', 'a b d')]).entries()]).toEqual([[1, [[4, 5]]], [2, [[4, 5]]]])
})
