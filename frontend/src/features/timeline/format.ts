// A model's text as blocks: paragraphs, lists, code. It is a help for the eye, for
// text that nobody has to trust: nothing in it becomes a link, a picture or markup,
// and every letter goes to the screen through visible(). One pass, no look-back.

export type Block =
  | { kind: 'p' | 'h' | 'quote'; text: string; from: number }
  | { kind: 'list'; items: { depth: number; mark: string; text: string }[]; from: number }
  /** open: its end is not written yet. */
  | { kind: 'code'; lang: string; text: string; open: boolean; from: number }
  | { kind: 'table'; rows: string[][]; head: boolean; from: number }
  | { kind: 'rule'; from: number }
export interface Inline { text: string; kind: '' | 'code' | 'strong' }

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/
const HEAD = /^ {0,3}#{1,6}[ \t]+(.*)$/
const ITEM = /^([ \t]*)([-*+•]|\d{1,4}[.)])[ \t]+(.*)$/
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/
/** No line longer than this is looked at for more than its beginning. */
const LONG = 2000

/** The blocks of a text, from an offset that begins one. */
export function blocks(text: string, from = 0): Block[] {
  const out: Block[] = []
  let at = from
  while (at < text.length) {
    const begin = at
    const to = text.indexOf('\n', at)
    const end = to < 0 ? text.length : to
    const l = text.slice(at, end)
    at = end + 1
    const head = l.length > LONG ? '' : l
    const fence = FENCE.exec(head)
    if (fence) {
      const ticks = fence[1] as string
      const body = at
      let stop = -1
      while (at <= text.length && stop < 0) {
        const n = text.indexOf('\n', at)
        const e = n < 0 ? text.length : n
        const c = text.slice(at, Math.min(e, at + 80)).trim()
        if (c.length >= ticks.length && c === (ticks[0] as string).repeat(c.length)) stop = at
        at = e + 1
        if (n < 0) break
      }
      const code = stop < 0 ? text.slice(Math.min(body, text.length)) : text.slice(body, stop)
      out.push({ kind: 'code', lang: (fence[2] ?? '').trim().slice(0, 40), text: stop < 0 ? code : code.replace(/\n$/, ''), open: stop < 0, from: begin })
      continue
    }
    if (!l.trim()) continue
    const last = out.at(-1)
    // What follows at once on a paragraph, list or quote belongs to it.
    const joined = last && ends.get(last) === begin
    const add = (b: Block) => {
      out.push(b)
      ends.set(b, at)
    }
    const h = HEAD.exec(head)
    const item = ITEM.exec(head)
    if (RULE.test(head)) add({ kind: 'rule', from: begin })
    else if (h) add({ kind: 'h', text: (h[1] ?? '').replace(/[ \t]+#+[ \t]*$/, ''), from: begin })
    else if (item) {
      const one = { depth: Math.min(4, Math.floor((item[1] ?? '').replaceAll('\t', '    ').length / 2)), mark: /\d/.test(item[2] ?? '') ? (item[2] ?? '') : '•', text: item[3] ?? '' }
      // A blank line between its items does not end a list.
      if (last?.kind === 'list') {
        last.items.push(one)
        ends.set(last, at)
      } else add({ kind: 'list', items: [one], from: begin })
    } else if (joined && last.kind === 'list') {
      const i = last.items.at(-1)
      if (i) i.text += `\n${l.trim()}`
      ends.set(last, at)
    } else if (/^[ \t]*\|.*\|[ \t]*$/.test(head)) {
      const cells = cellsOf(l.trim())
      if (joined && last.kind === 'table') {
        if (last.rows.length === 1 && !last.head && cells.every((c) => /^:?-+:?$/.test(c))) last.head = true
        else last.rows.push(cells)
        ends.set(last, at)
      } else add({ kind: 'table', rows: [cells], head: false, from: begin })
    } else if (head.startsWith('>')) {
      const t = l.replace(/^> ?/, '')
      if (joined && last.kind === 'quote') {
        last.text += `\n${t}`
        ends.set(last, at)
      } else add({ kind: 'quote', text: t, from: begin })
    } else if (joined && last.kind === 'p' && last.text.length < PART) {
      last.text += `\n${l}`
      ends.set(last, at)
    } else add({ kind: 'p', text: l, from: begin })
  }
  return out
}

/** The cells of a line of a table; what is beyond a dozen stays in the last. */
function cellsOf(l: string): string[] {
  const all = l.slice(1, -1).split('|')
  return [...all.slice(0, 11), ...(all.length > 11 ? [all.slice(11).join('|')] : [])].map((c) => c.trim())
}

/** Where each block ends so far, so that the next line knows whether it belongs to it. */
const ends = new WeakMap<Block, number>()
/** A paragraph longer than this goes on as the next: a part that changes is drawn anew. */
const PART = 4000

/** Code and strong words of a paragraph; one walk, however its marks are nested or left open. */
export function inline(text: string): Inline[] {
  if (text.length > 20_000 || !/[`*]/.test(text)) return text ? [{ text, kind: '' }] : []
  const out: Inline[] = []
  let plain = ''
  const put = (t: string, kind: Inline['kind']) => {
    if (plain) out.push({ text: plain, kind: '' })
    plain = ''
    out.push({ text: t, kind })
  }
  /** Runs that have no partner any more. */
  const alone = new Set<number>()
  for (let i = 0; i < text.length; ) {
    const c = text[i] as string
    if (c === '`') {
      let n = i
      while (text[n] === '`') n++
      const run = n - i
      let close = -1
      if (!alone.has(run)) {
        for (let k = text.indexOf('`', n); k >= 0; ) {
          let m = k
          while (text[m] === '`') m++
          if (m - k === run) {
            close = k
            break
          }
          k = text.indexOf('`', m)
        }
        if (close < 0) alone.add(run)
      }
      if (close < 0) plain += text.slice(i, n)
      else put(bare(text.slice(n, close)), 'code')
      i = close < 0 ? n : close + run
      continue
    }
    if (c === '*' && text[i + 1] === '*' && !alone.has(-1) && /\S/.test(text[i + 2] ?? ' ') && text[i + 2] !== '*') {
      const close = text.indexOf('**', i + 3)
      if (close < 0) alone.add(-1)
      else if (close - i < 400 && /\S/.test(text[close - 1] ?? ' ') && !text.slice(i + 2, close).includes('`')) {
        put(text.slice(i + 2, close), 'strong')
        i = close + 2
        continue
      }
    }
    const next = /[`*]/g
    next.lastIndex = i + 1
    const k = next.exec(text)?.index ?? text.length
    plain += text.slice(i, k)
    i = k
  }
  if (plain) out.push({ text: plain, kind: '' })
  return out
}

/** Code that begins or ends with a tick has a blank around it. */
const bare = (s: string): string => (s.length > 2 && s.startsWith(' ') && s.endsWith(' ') && s.trim() ? s.slice(1, -1) : s)

/** A text that grows at its end: what is finished in it is not read again, and stays the same blocks. */
export class Growing {
  #text = ''
  #blocks: Block[] = []

  take(text: string): Block[] {
    if (text === this.#text) return this.#blocks
    if (!text.startsWith(this.#text)) this.#blocks = []
    this.#text = text
    // The last two may go on: a list does so after a blank line.
    const keep = this.#blocks.slice(0, -2)
    const from = this.#blocks[keep.length]?.from ?? 0
    const old = this.#blocks.slice(keep.length)
    this.#blocks = [...keep, ...blocks(text, from).map((b) => old.find((o) => same(o, b)) ?? b)]
    return this.#blocks
  }
}

const same = (a: Block, b: Block): boolean => a.kind === b.kind && a.from === b.from && JSON.stringify(a) === JSON.stringify(b)

/** The beginning of a text, up to about so many drawn lines, cut at the end of one. */
export function beginning(text: string, most: number, wide: number): string {
  let n = 0
  for (let at = 0; at < text.length; ) {
    const to = text.indexOf('\n', at)
    const end = to < 0 ? text.length : to
    const high = Math.max(1, Math.ceil((end - at) / wide))
    if (n + high > most) return n ? text.slice(0, at - 1) : cutAt(text, most * wide)
    n += high
    at = end + 1
  }
  return text
}

/** Never between the two halves of a letter. */
const cutAt = (s: string, n: number): string => s.slice(0, n > 0 && (s.charCodeAt(n - 1) & 0xfc00) === 0xd800 ? n - 1 : n)

const LANGS: Record<string, string> = {
  javascript: 'js', node: 'js', typescript: 'ts', python: 'py', python3: 'py', golang: 'go', rust: 'rs', 'c++': 'cpp', 'c#': '', kotlin: 'kt', yml: 'yaml', markdown: 'md',
}
/** A file name of the kind a fence says, for the colours. */
export function fileOf(lang: string): string {
  const l = (lang.toLowerCase().split(/[\s,{:]/)[0] ?? '').replace(/^\./, '')
  return `x.${Object.hasOwn(LANGS, l) ? (LANGS[l] ?? '') : l}`
}

/** What a call that is still being written is about, as far as its arguments say. */
export function objectOf(args: string): string {
  const m = /"(?:path|url|pattern|query|question|title|name|code|command)"\s*:\s*"((?:[^"\\]|\\.)*)/.exec(args)
  const argv = /"argv"\s*:\s*\[([^\]]*)/.exec(args)
  if (argv && (!m || argv.index < m.index)) return [...(argv[1] ?? '').matchAll(/"((?:[^"\\]|\\.)*)"?/g)].map((x) => unquote(x[1] ?? '')).join(' ')
  return m ? unquote(m[1] ?? '') : ''
}

function unquote(s: string): string {
  try {
    return JSON.parse(`"${s.replace(/\\$/, '').replaceAll('\n', '\\n')}"`) as string
  } catch {
    return s
  }
}
