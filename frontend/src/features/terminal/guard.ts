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
}
