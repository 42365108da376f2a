import type { Terminal } from '@xterm/xterm'

/**
 * What a program in a machine may ask of the terminal is little: no links, no
 * clipboard, no window, no colours of the page, no pictures. Questions (where the
 * cursor is, what the terminal can do) are answered as if typed, so they are only
 * answered while mayAnswer says so: not while an old output is shown again, and by
 * one window alone.
 */
export function guard(term: Terminal, mayAnswer: () => boolean) {
  const p = term.parser
  const swallow = () => true
  const unlessMine = () => !mayAnswer()
  for (const osc of [8, 9, 50, 52, 99, 777, 1337]) p.registerOscHandler(osc, swallow)
  for (const osc of [4, 10, 11, 12]) p.registerOscHandler(osc, (data) => !data.includes('?') || !mayAnswer())
  p.registerCsiHandler({ final: 't' }, swallow)
  p.registerDcsHandler({ final: 'q' }, swallow) // sixel
  for (const prefix of [undefined, '>', '=']) p.registerCsiHandler({ ...(prefix && { prefix }), final: 'c' }, unlessMine)
  for (const prefix of [undefined, '?']) {
    p.registerCsiHandler({ ...(prefix && { prefix }), final: 'n' }, unlessMine)
    p.registerCsiHandler({ ...(prefix && { prefix }), intermediates: '$', final: 'p' }, unlessMine)
  }
  p.registerCsiHandler({ prefix: '>', final: 'q' }, unlessMine)
  p.registerDcsHandler({ intermediates: '$', final: 'q' }, unlessMine)
  counted(term)
}

/** What of xterm is needed to change a sequence before it is carried out. */
interface Inside { registerCsiHandler: (id: { final: string; intermediates?: string }, f: (p: { params: Int32Array | number[]; length: number }) => boolean) => unknown }

/**
 * Sequences that do something so many times are carried out so many times, two
 * thousand million if need be: a few bytes would stop the page. More often than the
 * screen has rows or columns changes nothing, so that is the most.
 */
function counted(term: Terminal) {
  const inside = (term as unknown as { _core: Inside })._core
  const bound = (final: string, most: () => number, intermediates?: string) => {
    inside.registerCsiHandler({ final, ...(intermediates && { intermediates }) }, (p) => {
      if (p.length && (p.params[0] ?? 0) > most()) p.params[0] = most()
      return false // xterm's own handler goes on
    })
  }
  for (const final of ['L', 'M', 'S', 'T']) bound(final, () => term.rows)
  for (const final of ['@', 'P', 'X', 'I', 'Z', 'b']) bound(final, () => term.cols)
  for (const final of ['}', '~']) bound(final, () => term.cols, "'")
  for (const final of ['@', 'A']) bound(final, () => term.cols, ' ')
}
