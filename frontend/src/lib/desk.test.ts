import { cleanup, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import App from '../App.svelte'
import { core, project, session, world } from '../test/world'
import { Desk } from './desk.svelte'
import { Store } from './store.svelte'

beforeEach(() => {
  localStorage.clear()
  sessionStorage.clear()
})
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
})

const ODD = ['null', '5', '"x"', '[]', '[null]', '{"p1":null}', '{"p1":5}', '{"p1":{"top":"nowhere","below":7}}', '{"p1":{"top":{},"below":"nowhere"}}', '{', '', '{"__proto__":{"top":"files"}}']

it('shows the panes that are first when what was kept of them is broken', () => {
  for (const kept of ODD) {
    localStorage.setItem('glasshouse.panes', kept)
    const { store } = world(project(), session())
    const desk = new Desk(store)
    expect(desk.panes, kept).toEqual({ top: 'changes', below: '' })
    desk.showPane('files')
    expect(desk.panes, kept).toEqual({ top: 'files', below: '' })
    expect(new Desk(store).panes, kept).toEqual({ top: 'files', below: '' })
  }
})

it('begins without a memory when what was kept of the desk is broken', () => {
  const odd = [...ODD, '{"drafts":"x","folded":7,"project":5,"session":{},"review":[],"screen":"nowhere"}', '{"drafts":{"a":5,"b":null,"c":"words"},"folded":{"p1":"yes"}}']
  for (const kept of odd) {
    sessionStorage.setItem('glasshouse.desk', kept)
    const desk = new Desk(new Store())
    for (const v of Object.values(desk.drafts)) expect(typeof v, kept).toBe('string')
    for (const v of [desk.project, desk.session, desk.review]) expect(typeof v, kept).toBe('string')
    expect(desk.screen, kept).toBe('session')
    desk.drafts['new'] = 'typed'
    desk.folded['p1'] = true
    desk.keep()
    expect(new Desk(new Store()).drafts['new'], kept).toBe('typed')
  }
  sessionStorage.setItem('glasshouse.desk', odd.at(-1) ?? '')
  expect(new Desk(new Store()).drafts).toEqual({ c: 'words' })
})

it('draws the window over any kept values, and over a store that is full or shut', async () => {
  const keys = ['glasshouse.panes', 'glasshouse.layout', 'glasshouse.terminals', 'glasshouse.review', 'glasshouse.recent', 'glasshouse.theme', 'glasshouse.size', 'glasshouse.reader', 'glasshouse.changes', 'glasshouse.notify']
  const show = async () => {
    core({ 'GET /v1/projects/p1/terminals': () => [{ id: 'term_1', title: 'bash', exit: { code: 0 } }] })
    const w = world(project(), session('the work'))
    w.desk.showPane('terminal')
    render(App, { store: w.store, live: false })
    expect((await screen.findAllByText('the work')).length).toBeGreaterThan(0)
    screen.getByRole('button', { name: 'New terminal' })
    await waitFor(() => expect([...document.querySelectorAll('.pane [role=tab]')].map((e) => e.textContent?.trim())).toEqual(['bash, ended']))
    cleanup()
  }
  for (const kept of ['null', '5', '{"term_1":5}', '{']) {
    for (const k of keys) localStorage.setItem(k, kept)
    localStorage.setItem('glasshouse.panes', '{"":{"top":"terminal","below":""},"p1":{"top":"terminal","below":""}}')
    await show()
  }
  const shut = () => { throw new DOMException('shut', 'SecurityError') }
  vi.spyOn(Storage.prototype, 'setItem').mockImplementation(shut)
  await show()
})
