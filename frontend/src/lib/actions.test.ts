import { afterEach, describe, expect, it, vi } from 'vitest'
import { Actions, type Action } from './actions.svelte'

const act = (id: string, more: Partial<Action> = {}): Action => ({ id, name: id, run: vi.fn(), ...more })
function press(actions: Actions, key: string, on: Element = document.body, more: KeyboardEventInit = {}, fallback = 'timeline'): KeyboardEvent {
  const e = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })
  on.addEventListener('keydown', (x) => actions.press(x as KeyboardEvent, fallback), { once: true })
  on.dispatchEvent(e)
  return e
}
function put(html: string): Element {
  document.body.innerHTML = html
  const el = document.querySelector('[data-here]')
  if (!el) throw new Error('nothing is marked data-here')
  return el
}
afterEach(() => {
  document.body.innerHTML = ''
})

describe('what a key does', () => {
  it('is the action of the part that has the focus, before one that answers everywhere', () => {
    const a = new Actions()
    const here = act('here', { key: 'x', scope: 'review' })
    const everywhere = act('everywhere', { key: 'x' })
    a.add(() => [everywhere, here])
    press(a, 'x', put('<div data-scope="review"><button data-here></button></div>'))
    expect(here.run).toHaveBeenCalledTimes(1)
    expect(everywhere.run).not.toHaveBeenCalled()
    press(a, 'x', put('<div data-scope="files"><button data-here></button></div>'))
    expect(everywhere.run).toHaveBeenCalledTimes(1)
  })

  it('is that of the screen while nothing has the focus', () => {
    const a = new Actions()
    const j = act('down', { key: 'j', scope: 'timeline' })
    a.add(() => [j])
    expect(press(a, 'j').defaultPrevented).toBe(true)
    expect(j.run).toHaveBeenCalledTimes(1)
    press(a, 'j', document.body, {}, 'review')
    expect(j.run).toHaveBeenCalledTimes(1)
  })

  it('is nothing when the action is off, was taken already, or the key comes with Alt', () => {
    const a = new Actions()
    const off = act('off', { key: 'x', off: 'Not now.' })
    a.add(() => [off])
    expect(press(a, 'x').defaultPrevented).toBe(false)
    const on = act('on', { key: 'y' })
    a.add(() => [on])
    press(a, 'y', document.body, { altKey: true })
    const e = new KeyboardEvent('keydown', { key: 'y', cancelable: true })
    e.preventDefault()
    a.press(e, '')
    expect(off.run).not.toHaveBeenCalled()
    expect(on.run).not.toHaveBeenCalled()
  })

  it('belongs to a text field while one is typed in, but for those of the window', () => {
    const a = new Actions()
    const n = act('new', { key: 'n' })
    const k = act('palette', { key: 'Mod+k' })
    a.add(() => [n, k])
    const field = put('<textarea data-here></textarea>') as HTMLTextAreaElement
    press(a, 'n', field)
    expect(n.run).not.toHaveBeenCalled()
    press(a, 'k', field, { ctrlKey: true })
    expect(k.run).toHaveBeenCalledTimes(1)
    field.focus()
    press(a, 'Escape', field)
    expect(document.activeElement).not.toBe(field)
  })

  it('belongs to a terminal, but for the palette', () => {
    const a = new Actions()
    const back = act('back', { key: 'Escape' })
    const k = act('palette', { key: 'Mod+k' })
    a.add(() => [back, k])
    const term = put('<div data-keeps-keys><button data-here></button></div>')
    press(a, 'Escape', term)
    press(a, 'k', term, { ctrlKey: true })
    expect(back.run).not.toHaveBeenCalled()
    expect(k.run).toHaveBeenCalledTimes(1)
  })

  it('leaves Enter to a button that has the focus', () => {
    const a = new Actions()
    const open = act('open', { key: 'Enter', scope: 'timeline' })
    a.add(() => [open])
    press(a, 'Enter', put('<div data-scope="timeline"><button data-here></button></div>'))
    press(a, 'Enter', put('<div role="treeitem" data-here></div>'))
    expect(open.run).not.toHaveBeenCalled()
    press(a, 'Enter', put('<div data-scope="timeline"><p data-here></p></div>'))
    expect(open.run).toHaveBeenCalledTimes(1)
  })
})

describe('what can be done', () => {
  it('is there as long as it is offered', () => {
    const a = new Actions()
    const x = act('x')
    const stop = a.add(() => [x])
    expect(a.run('x')).toBe(true)
    stop()
    expect(a.find('x')).toBeUndefined()
    expect(a.run('x')).toBe(false)
    expect(x.run).toHaveBeenCalledTimes(1)
  })

  it('is not done when it is off', () => {
    const a = new Actions()
    const x = act('x', { off: 'Nothing runs.' })
    a.add(() => [x])
    expect(a.run('x')).toBe(false)
    expect(x.run).not.toHaveBeenCalled()
  })

  it('is reached from a part of the window: its own first, then those of everywhere, none of another part', () => {
    const a = new Actions()
    a.add(() => [act('all'), act('mine', { scope: 'files' }), act('other', { scope: 'review' })])
    expect(a.reach('files').map((x) => x.id)).toEqual(['mine', 'all'])
    expect(a.reach('').map((x) => x.id)).toEqual(['all'])
  })
})
