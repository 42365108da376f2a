import { describe, expect, it } from 'vitest'
import { beginning, blocks, fileOf, Growing, inline, objectOf } from './format'

const kinds = (t: string) => blocks(t).map((b) => b.kind)

describe('blocks of a text', () => {
  it('are paragraphs, heads, lists, quotes, rules, tables and code', () => {
    const t = '# Head #\n\nOne\ntwo\n\n- a\n  more of a\n- b\n\n  - deep\n1. c\n\n> said\n> so\n\n---\n\n| a | b |\n| --- | :-: |\n| 1 | 2 |\n\n```ts\nconst a = 1\n```\nend'
    expect(blocks(t).map(({ from: _, ...b }) => b)).toEqual([
      { kind: 'h', text: 'Head' },
      { kind: 'p', text: 'One\ntwo' },
      { kind: 'list', items: [{ depth: 0, mark: '•', text: 'a\nmore of a' }, { depth: 0, mark: '•', text: 'b' }, { depth: 1, mark: '•', text: 'deep' }, { depth: 0, mark: '1.', text: 'c' }] },
      { kind: 'quote', text: 'said\nso' },
      { kind: 'rule' },
      { kind: 'table', head: true, rows: [['a', 'b'], ['1', '2']] },
      { kind: 'code', lang: 'ts', text: 'const a = 1', open: false },
      { kind: 'p', text: 'end' },
    ])
  })
  it('end code only where its own fence ends, or never', () => {
    expect(blocks('````md\n```\nx\n```\n````\ny').map((b) => [b.kind, 'text' in b && b.text])).toEqual([['code', '```\nx\n```'], ['p', 'y']])
    expect(blocks('~~~\n```\n~~~')).toMatchObject([{ kind: 'code', text: '```', open: false }])
    expect(blocks('a\n```js\nlet x')).toMatchObject([{ kind: 'p' }, { kind: 'code', lang: 'js', text: 'let x', open: true }])
    expect(blocks('```')).toMatchObject([{ kind: 'code', text: '', open: true }])
    expect(blocks('```\n```')).toMatchObject([{ kind: 'code', text: '', open: false }])
  })
  it('lose no word of the text', () => {
    const t = 'para *x*\n\n- one\n- two\n\n```\ncode\n```\n> q\n| a |\nlast [link](javascript:alert(1)) <b>no</b> ![i](http://x/y.png)'
    const all = JSON.stringify(blocks(t))
    for (const w of ['para', '*x*', 'one', 'two', 'code', 'q', 'a', '[link](javascript:alert(1))', '<b>no</b>', '![i](http://x/y.png)']) expect(all).toContain(w)
  })
  it('know nothing that is no block', () => {
    expect(kinds('')).toEqual([])
    expect(kinds('\n\n  \n')).toEqual([])
    expect(kinds('#no head\n-no item\n1.no\n** no rule')).toEqual(['p'])
    expect(kinds('-----\n* * *\n_ _ _')).toEqual(['rule', 'rule', 'rule'])
  })
  it('are found in time that grows with the text alone', () => {
    const bad = ['`'.repeat(200_000), '*'.repeat(200_000), '- '.repeat(100_000), `${'- x\n'.repeat(50_000)}`, '```\n'.repeat(40_000), '|'.repeat(200_000), '# '.repeat(100_000), `#${' '.repeat(100_000)}x`, '> '.repeat(100_000), `${'a'.repeat(500)}\n`.repeat(400), `${' '.repeat(200_000)}\`x`, '**a '.repeat(50_000)]
    // The work of this process, for the computer may have much else to do.
    const { cpuUsage } = (globalThis as unknown as { process: { cpuUsage: (since?: object) => { user: number; system: number } } }).process
    const began = cpuUsage()
    for (const t of bad) for (const b of blocks(t)) if ('text' in b) inline(b.text)
    const { user, system } = cpuUsage(began)
    expect((user + system) / 1000).toBeLessThan(20_000)
    expect(blocks(`${'a'.repeat(500)}\n`.repeat(400)).length).toBeGreaterThan(10)
  })
})

describe('words in a paragraph', () => {
  it('are code, strong or plain', () => {
    expect(inline('a `b` **c** d')).toEqual([{ text: 'a ', kind: '' }, { text: 'b', kind: 'code' }, { text: ' ', kind: '' }, { text: 'c', kind: 'strong' }, { text: ' d', kind: '' }])
    expect(inline('`` a`b ``')).toEqual([{ text: 'a`b', kind: 'code' }])
    expect(inline('plain')).toEqual([{ text: 'plain', kind: '' }])
    expect(inline('')).toEqual([])
  })
  it('keep every letter of what is no mark', () => {
    for (const t of ['a ` b', 'a ** b', '2 ** 3 ** 4', '**', '****', '`', '``', '```', 'a*b*c', '**a', '** a **', '`a``b', '**a `b** c`', 'x **`y`** z']) {
      const out = inline(t)
      expect(out.map((p) => p.text).join('').replace(/[`*]/g, ''), t).toBe(t.replace(/[`*]/g, ''))
      if (!out.some((p) => p.kind)) expect(out.map((p) => p.text).join('')).toBe(t)
    }
    expect(inline('a ` b ** c').map((p) => p.text).join('')).toBe('a ` b ** c')
  })
  it('are left plain where there are too many', () => {
    expect(inline(`\`a\`${'x'.repeat(20_001)}`)).toHaveLength(1)
  })
})

it('a text that grows has the same blocks as the whole, and keeps those that are finished', () => {
  const t = 'Hello there.\n\nMore `code` here\nand here\n\n- a\n- b\n\n- c\n\n```ts\nconst a = 1\n\nconst b = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\nEnd\n\n1. x\n2. y'
  for (const size of [1, 2, 3, 7, 50]) {
    const g = new Growing()
    const seen = new Set<object>()
    let first: object | undefined
    for (let i = 0; i < t.length + size; i += size) {
      const now = g.take(t.slice(0, i))
      expect(now).toEqual(blocks(t.slice(0, i)))
      now.forEach((b) => seen.add(b))
      if (i > 60) first ??= now[0]
      if (first) expect(now[0]).toBe(first)
    }
    expect(g.take('another text')).toEqual(blocks('another text'))
    if (size === 50) expect(seen.size).toBeLessThan(20)
  }
})

it('the beginning of a text ends with a line, and never within a letter', () => {
  expect(beginning('a\nb\nc\nd', 2, 10)).toBe('a\nb')
  expect(beginning('a\nb', 2, 10)).toBe('a\nb')
  expect(beginning('x'.repeat(100), 3, 10)).toBe('x'.repeat(30))
  expect(beginning('😀'.repeat(50), 1, 5)).toBe('😀😀')
  expect(beginning(`a\n${'x'.repeat(100)}`, 3, 10)).toBe('a')
})

it('a fence says the kind of its code, whatever it says', () => {
  expect(['ts', 'TypeScript', 'python', 'c++', '', 'constructor', '__proto__', 'js {1,2}', '.go', '../../x'].map(fileOf)).toEqual(['x.ts', 'x.ts', 'x.py', 'x.cpp', 'x.', 'x.constructor', 'x.__proto__', 'x.js', 'x.go', 'x../../x'])
})

it('says what a call is about as soon as that is written', () => {
  expect(objectOf('')).toBe('')
  expect(objectOf('{"pa')).toBe('')
  expect(objectOf('{"path": "src/a')).toBe('src/a')
  expect(objectOf('{"path": "a\\"b\\u00e9","old":"x"}')).toBe('a"bé')
  expect(objectOf('{"argv":["npm","te')).toBe('npm te')
  expect(objectOf('{"argv":["npm","test"],"path":"x"}')).toBe('npm test')
  expect(objectOf('{"url":"javascript:alert(1)"}')).toBe('javascript:alert(1)')
  expect(objectOf('{"path":"\\')).toBe('')
  expect(objectOf('{"path":"a\\u00')).toBe('a\\u00')
  expect(objectOf('["path"')).toBe('')
})
