import type { Parser, Tree } from '@lezer/common'
import type { DiffLine, Hunk } from '../api/types'

// Syntax colours for text that a guest wrote. The answer is only where in a line
// which class begins and ends: the text itself goes to the screen through
// visible(), as everywhere. A grammar is loaded when a file of its kind is first
// looked at.

/** A coloured part of one line, in offsets of the raw text. Parts are in order and never overlap. */
export interface Span { from: number; to: number; cls: string }

/** Above this the colours are left out: they are a help, and must not cost a frame. */
export const MAX_LINES = 3000
const MAX_CHARS = 400_000
/** Work in all, and at one stretch, in milliseconds. */
const DEADLINE = 200
const SLICE = 8

const grammars: Record<string, () => Promise<Parser>> = {
  js: async () => (await import('@lezer/javascript')).parser.configure({ dialect: 'jsx' }),
  ts: async () => (await import('@lezer/javascript')).parser.configure({ dialect: 'ts' }),
  tsx: async () => (await import('@lezer/javascript')).parser.configure({ dialect: 'ts jsx' }),
  py: async () => (await import('@lezer/python')).parser,
  json: async () => (await import('@lezer/json')).parser,
  css: async () => (await import('@lezer/css')).parser,
  html: async () => {
    const [html, js, css] = await Promise.all([import('@lezer/html'), import('@lezer/javascript'), import('@lezer/css')])
    return html.parser.configure({ wrap: html.configureNesting([{ tag: 'script', parser: js.parser }, { tag: 'style', parser: css.parser }]) })
  },
  md: async () => {
    const md = await import('@lezer/markdown')
    return md.parser.configure(md.GFM)
  },
  rs: async () => (await import('@lezer/rust')).parser,
  cpp: async () => (await import('@lezer/cpp')).parser,
  java: async () => (await import('@lezer/java')).parser,
  go: async () => (await import('@lezer/go')).parser,
  yaml: async () => (await import('@lezer/yaml')).parser,
  php: async () => (await import('@lezer/php')).parser,
  xml: async () => (await import('@lezer/xml')).parser,
}

const ENDINGS: Record<string, string> = {
  js: 'js', mjs: 'js', cjs: 'js', jsx: 'js', ts: 'ts', mts: 'ts', cts: 'ts', tsx: 'tsx', py: 'py', pyi: 'py', json: 'json', jsonc: 'json', webmanifest: 'json', map: 'json',
  css: 'css', scss: 'css', less: 'css', html: 'html', htm: 'html', svelte: 'html', vue: 'html', md: 'md', markdown: 'md', rs: 'rs',
  c: 'cpp', h: 'cpp', cc: 'cpp', cpp: 'cpp', cxx: 'cpp', hh: 'cpp', hpp: 'cpp', ino: 'cpp', java: 'java', kt: 'java', go: 'go', yaml: 'yaml', yml: 'yaml',
  php: 'php', xml: 'xml', svg: 'xml', xsd: 'xml', plist: 'xml', csproj: 'xml',
}

/** The kind of a file by its name; empty: none that is known. */
export function kindOf(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1).toLowerCase()
  const dot = name.lastIndexOf('.')
  return dot < 0 ? '' : (Object.hasOwn(ENDINGS, name.slice(dot + 1)) ? (ENDINGS[name.slice(dot + 1)] ?? '') : '')
}

/**
 * The coloured parts of each line; undefined where there is no grammar, the text
 * is too long, or it took too long. It works in short slices and lets frames be
 * drawn between them.
 */
export async function highlight(path: string, lines: string[], signal?: AbortSignal): Promise<Span[][] | undefined> {
  const kind = kindOf(path)
  const load = grammars[kind]
  if (!load || lines.length > MAX_LINES) return undefined
  const text = lines.join('\n')
  if (text.length > MAX_CHARS) return undefined
  const [parser, { highlightTree }, style] = await Promise.all([load(), import('@lezer/highlight'), theStyle()])
  const tree = await parse(parser, text, signal)
  if (!tree) return undefined
  const out: Span[][] = lines.map(() => [])
  // Lines and parts both come in order: one walk over each.
  let at = 0
  let begin = 0
  highlightTree(tree, style, (from, to, cls) => {
    while (at < lines.length && from > begin + (lines[at]?.length ?? 0)) begin += (lines[at++]?.length ?? 0) + 1
    for (let i = at, b = begin; i < lines.length && b < to; b += (lines[i++]?.length ?? 0) + 1) {
      const len = lines[i]?.length ?? 0
      const x = Math.max(0, from - b)
      const y = Math.min(len, to - b)
      if (y > x) out[i]?.push({ from: x, to: y, cls })
    }
  })
  return out
}

async function parse(parser: Parser, text: string, signal?: AbortSignal): Promise<Tree | undefined> {
  const p = parser.startParse(text)
  let spent = 0
  for (;;) {
    const began = performance.now()
    while (performance.now() - began < SLICE) {
      const tree = p.advance()
      if (tree) return tree
    }
    spent += performance.now() - began
    if (spent > DEADLINE || signal?.aborted) return undefined
    await new Promise((r) => setTimeout(r))
  }
}

let made: Promise<import('@lezer/highlight').Highlighter> | undefined
function theStyle() {
  made ??= import('@lezer/highlight').then(({ tagHighlighter, tags: t }) =>
    tagHighlighter([
      { tag: [t.keyword, t.operatorKeyword, t.modifier, t.self, t.controlKeyword, t.definitionKeyword, t.moduleKeyword], class: 'tk-k' },
      { tag: [t.string, t.special(t.string), t.regexp, t.character, t.attributeValue, t.docString, t.monospace], class: 'tk-s' },
      { tag: [t.comment, t.lineComment, t.blockComment, t.meta, t.processingInstruction, t.documentMeta], class: 'tk-c' },
      { tag: [t.number, t.bool, t.null, t.atom, t.color, t.unit, t.escape], class: 'tk-n' },
      { tag: [t.function(t.variableName), t.function(t.propertyName), t.function(t.definition(t.variableName)), t.macroName], class: 'tk-f' },
      { tag: [t.typeName, t.className, t.namespace, t.tagName, t.standard(t.tagName), t.heading], class: 'tk-t' },
      { tag: [t.propertyName, t.definition(t.propertyName), t.attributeName, t.labelName, t.link, t.url], class: 'tk-p' },
    ]))
  return made
}

/**
 * The colours of a diff's lines. What was and what is are read apart, so that a
 * deleted line does not spoil the grammar of the lines after it.
 */
export async function highlightHunks(path: string, hunks: Hunk[], signal?: AbortSignal): Promise<Map<DiffLine, Span[]> | undefined> {
  const all = hunks.flatMap((h) => h.lines ?? [])
  if (!kindOf(path) || all.length > MAX_LINES) return undefined
  const sides = [all.filter((l) => l.op !== '+'), all.filter((l) => l.op !== '-')]
  const out = new Map<DiffLine, Span[]>()
  for (const side of sides) {
    const spans = await highlight(path, side.map((l) => l.text), signal)
    if (!spans) return undefined
    side.forEach((l, i) => out.set(l, spans[i] ?? []))
  }
  return out
}

/** A part of a line as it is drawn: one class, marked or not. */
export interface Piece { text: string; cls: string; mark: boolean }

/** Cuts a line where a colour or a mark begins or ends; never inside one character. */
export function pieces(text: string, spans: Span[] = [], marks: [number, number][] = []): Piece[] {
  if (!spans.length && !marks.length) return text ? [{ text, cls: '', mark: false }] : []
  const whole = (i: number) => (i > 0 && i < text.length && /[\udc00-\udfff]/.test(text[i] ?? '') && /[\ud800-\udbff]/.test(text[i - 1] ?? '') ? i - 1 : i)
  const cuts = new Set([0, text.length])
  for (const s of spans) cuts.add(whole(s.from)).add(whole(s.to))
  for (const [a, b] of marks) cuts.add(whole(a)).add(whole(b))
  const at = [...cuts].filter((x) => x >= 0 && x <= text.length).sort((a, b) => a - b)
  const out: Piece[] = []
  let s = 0
  let m = 0
  for (let i = 0; i + 1 < at.length; i++) {
    const [a, b] = [at[i] as number, at[i + 1] as number]
    while (s < spans.length && whole((spans[s] as Span).to) <= a) s++
    while (m < marks.length && whole((marks[m] as [number, number])[1]) <= a) m++
    const span = spans[s]
    const mark = marks[m]
    out.push({ text: text.slice(a, b), cls: span && whole(span.from) <= a ? span.cls : '', mark: !!mark && whole(mark[0]) <= a })
  }
  return out
}
