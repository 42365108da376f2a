import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { ended, ev, HARMFUL, HOSTILE, project, session, shown, step, world } from '../../test/world'
import { readPage } from './live.svelte'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
})
beforeEach(() => localStorage.clear())

const told = (d: object = {}) => ev('browser.changed', { open: true, tabs: 1, url: 'http://127.0.0.1:5173/', title: 'Checkout', ...d }, { id: 0, at: Date.now() })
const view = (d: object = {}) => ({ open: true, width: 1280, height: 800, tabs: [{ id: 't1', url: 'http://127.0.0.1:5173/', title: 'Checkout', active: true }], ...d })
const coded = (d: object) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(d)))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')

/** A made-up core with a browser: questions for a frame wait until one is painted. */
function glass(first: { view?: object; blobs?: Record<string, BodyInit> } = {}) {
  const g = {
    view: first.view ?? view(), seq: 0, type: 'image/jpeg', status: 200, page: {} as object,
    asked: [] as string[], waiting: 0, drawn: 0, reads: 0,
    wake: [] as (() => void)[],
    paint() { g.seq++; g.stir() },
    stir() { for (const w of g.wake.splice(0)) w() },
    get frames() { return g.asked.length },
  }
  vi.stubGlobal('createImageBitmap', async (b: Blob) => {
    if (b.size === 0) throw new Error('no picture')
    g.drawn++
    return { width: 1280, height: 800, close: () => {} }
  })
  vi.stubGlobal('fetch', async (path: string, init: RequestInit = {}) => {
    if (path === '/v1/sessions/s1/browser') {
      g.reads++
      return new Response(JSON.stringify(g.view))
    }
    const m = /^\/v1\/sessions\/s1\/browser\/frame\?after=(\d+)&wait_ms=\d+$/.exec(path)
    if (m) {
      g.asked.push(m[1] ?? '')
      for (;;) {
        if (g.status !== 200) await new Promise((r) => setTimeout(r, 5))
        if (g.status !== 200) return new Response(g.status === 204 ? null : JSON.stringify({ code: 'not_found', what: 'none' }), { status: g.status })
        if (g.seq > 0 && String(g.seq) !== m[1]) return new Response(`picture ${g.seq}`, { headers: { 'Content-Type': g.type, 'X-Glasshouse-Frame': String(g.seq), 'X-Glasshouse-Page': coded(g.page) } })
        g.waiting++
        await new Promise<void>((done, fail) => {
          g.wake.push(done)
          init.signal?.addEventListener('abort', () => fail(new DOMException('given up', 'AbortError')))
        }).finally(() => g.waiting--)
      }
    }
    const blob = /^\/v1\/blobs\/(\w+)$/.exec(path)?.[1]
    if (blob && first.blobs?.[blob]) return new Response(first.blobs[blob])
    return new Response(JSON.stringify({ code: 'not_found', what: `nothing at ${path}` }), { status: 404 })
  })
  return g
}

async function show(...events: Parameters<typeof world>) {
  const w = world(project(), session(), ...events)
  localStorage.setItem('glasshouse.panes', JSON.stringify({ p1: { top: 'browser', below: '' } }))
  const r = render(App, { store: w.store, live: false })
  await tick()
  const pane = () => screen.getByRole('region', { name: 'Browser', hidden: true })
  return { ...w, ...r, pane, state: () => pane().querySelector('.state')?.textContent }
}

function hide(hidden: boolean) {
  vi.spyOn(document, 'hidden', 'get').mockReturnValue(hidden)
  document.dispatchEvent(new Event('visibilitychange'))
}

it('teaches what comes here while there is no page, and asks for no picture', async () => {
  const g = glass({ view: view({ open: false, tabs: [] }) })
  const { pane } = await show()
  expect(pane().textContent).toContain('The page appears here as soon as a step opens one.')
  await waitFor(() => expect(g.reads).toBe(1))
  expect(g.frames).toBe(0)
})

it('shows the newest picture, says that it is live, and asks for the one after it', async () => {
  const g = glass()
  const { store, pane, state } = await show()
  store.take([told()])
  await waitFor(() => expect(g.waiting).toBe(1))
  expect(state()).toBe('Connecting')
  expect(pane().textContent).toContain('The first picture is on its way')
  g.seq = 6 // others came before anybody looked
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  expect(g.asked).toEqual(['0', '7'])
  expect(pane().querySelector('.address')?.textContent).toBe('http://127.0.0.1:5173/')
  expect(screen.getByRole('img', { name: 'The page as it looks now' })).toBeTruthy()
  expect(pane().querySelector('.note')).toBeNull()
  g.paint()
  await waitFor(() => expect(g.drawn).toBe(2))
  expect(screen.getByRole('tab', { name: /Browser/ }).textContent).toContain('1')
})

it('finds a page that was open before this page was loaded', async () => {
  const g = glass()
  const { state } = await show()
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
})

it('asks for nothing while nobody looks: another pane, another screen, a hidden window', async () => {
  const g = glass()
  const { state, pane } = await show(told())
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  const press = (key: string) => void fireEvent.keyDown(window, { key })
  const away: [string, () => void, () => void][] = [
    ['pane', () => press('1'), () => press('2')],
    ['screen', () => press('v'), () => press('Escape')],
    ['window', () => hide(true), () => hide(false)],
  ]
  for (const [what, leave, back] of away) {
    await waitFor(() => expect(g.waiting).toBe(1))
    leave()
    await waitFor(() => expect(g.waiting, what).toBe(0))
    await waitFor(() => expect(state(), what).toBe('Paused'))
    expect(pane().querySelector('.note')?.textContent).toMatch(/^Paused\. This is the last picture, \d+ s ago\.$/)
    expect(pane().querySelector('canvas')?.className).toContain('old')
    const [frames, reads] = [g.frames, g.reads]
    g.paint()
    await new Promise((r) => setTimeout(r, 60))
    expect([g.frames, g.reads, g.waiting], what).toEqual([frames, reads, 0])
    back()
    await waitFor(() => expect(state(), what).toBe('Live'))
    // Whoever comes back is shown what there is, known or not.
    expect(g.asked[frames], what).toBe('0')
  }
})

it('keeps the last picture, dimmed and in words, when the link is cut, and goes on by itself', async () => {
  const g = glass()
  const { store, pane, state } = await show(told())
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  store.link = 'cut'
  await waitFor(() => expect(state()).toBe('Cut off'))
  expect(pane().querySelector('.note')?.textContent).toContain('The core does not answer.')
  expect(pane().querySelector('canvas')?.className).toContain('old')
  expect(g.waiting).toBe(0)
  store.link = 'live'
  await waitFor(() => expect(state()).toBe('Live'))
  // Answers that are none: the same, and it is asked again.
  g.status = 500
  g.stir()
  await waitFor(() => expect(state()).toBe('Cut off'))
  g.status = 200
  await waitFor(() => expect(state()).toBe('Live'))
})

it('is live while nothing changes, and passes a picture over that is none', async () => {
  const g = glass()
  const { state } = await show(told())
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  g.status = 204
  g.stir()
  await waitFor(() => expect(g.frames).toBeGreaterThan(3))
  expect(state()).toBe('Live')
  g.status = 200
  g.type = 'text/html'
  g.paint()
  await waitFor(() => expect(state()).toBe('Cut off'))
  expect(g.drawn).toBe(1)
  g.type = 'image/jpeg'
  await waitFor(() => expect(state()).toBe('Live'))
})

it('says that the browser is closed, and asks no more', async () => {
  const g = glass()
  const { store, pane, state } = await show(told())
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  await waitFor(() => expect(g.waiting).toBe(1))
  g.view = view({ open: false, tabs: [] })
  g.status = 404
  g.stir()
  await waitFor(() => expect(state()).toBe('Closed'))
  expect(pane().querySelector('.note')?.textContent).toMatch(/^The browser is closed; the next step that opens a page starts it\. This is the last picture/)
  const frames = g.frames
  await new Promise((r) => setTimeout(r, 60))
  expect(g.frames).toBe(frames)
  g.status = 200
  g.view = view()
  store.take([told({ starting: true, open: false, tabs: 0 })])
  await waitFor(() => expect(g.reads).toBeGreaterThan(1))
  store.take([told()])
  await waitFor(() => expect(state()).toBe('Live'))
  // A core that starts anew has no browsers.
  g.view = view({ open: false, tabs: [] })
  store.take([ev('core.started', { version: '1', pid: 1, clean: false }, { session_id: undefined, project_id: undefined })])
  await waitFor(() => expect(state()).toBe('Closed'))
})

it('shows the last screenshot of a session whose browser is closed', async () => {
  glass({ view: view({ open: false, tabs: [] }), blobs: { feed: Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0) } })
  const { pane, store } = await show(step(1, 'Take a screenshot', 'browser_screenshot'), ended(1, { artefacts: [{ sha256: 'feed', size: 3, mime: 'image/png' }] }), step(2, 'Run ls'))
  expect(pane().textContent).toContain('The last screenshot, by step 1')
  await waitFor(() => expect(pane().querySelector('img')).toBeTruthy())
  expect(pane().textContent).toContain('the next step that opens a page starts it')
  store.take([ev('session.state', { state: 'ended' })])
  await waitFor(() => expect(pane().textContent).toContain('The session has ended, and its browser with it.'))
  await fireEvent.click(pane().querySelector('.stage p button')!)
  await waitFor(() => expect(document.activeElement?.getAttribute('data-step')).toBe('1'))
})

it('says in words what is wrong with the page', async () => {
  const g = glass()
  const { store, pane, state } = await show(told())
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  const say = async (d: object) => {
    g.view = view(d)
    store.take([told(d)])
    await tick()
    return pane().querySelector('.note')?.textContent ?? ''
  }
  expect(await say({ trouble: 'crashed' })).toContain("The page crashed. The agent's next step opens its address again.")
  expect(state()).toBe('Crashed')
  expect(await say({ trouble: 'silent' })).toContain('The page does not answer')
  expect(await say({ dialog: 'confirm "sure?"' })).toBe('The page opened a dialog, which was dismissed: confirm "sure?"')
  expect(state()).toBe('Live')
  expect(await say({})).toBe('')
})

it('lists tabs when there is more than one, and shows what pages say as text', async () => {
  const g = glass({ view: view({ tabs: [{ id: 't1', url: 'http://a/', title: HOSTILE }, { id: 't2', url: `http://b/${HOSTILE}`, title: '', active: true, error: 'the page could not be loaded' }] }) })
  const { pane } = await show(told({ tabs: 2, url: `http://b/${HOSTILE}`, title: HOSTILE, dialog: `alert "${HOSTILE}"` }))
  await waitFor(() => expect(g.waiting).toBe(1))
  g.page = { tab: 't2', url: HOSTILE, title: HOSTILE }
  g.paint()
  await waitFor(() => expect(pane().querySelectorAll('.tabs li').length).toBe(2))
  expect(pane().querySelector('[aria-current=page]')?.textContent).toContain('http://b/')
  await waitFor(() => expect(pane().querySelector('.note')?.textContent).toBe('The page could not be loaded.'))
  expect(shown(pane())).not.toMatch(HARMFUL)
  expect(pane().querySelector('script, img[src=x]')).toBeNull()
})

it('shows for a moment where the agent pressed, but not what was pressed before', async () => {
  const g = glass()
  const { store, pane, state } = await show(told({ acted: { n: 3, x: 640, y: 200 } }))
  await waitFor(() => expect(g.waiting).toBe(1))
  g.paint()
  await waitFor(() => expect(state()).toBe('Live'))
  expect(pane().querySelector('.press')).toBeNull()
  store.take([told({ acted: { n: 4, x: 320, y: 400 } })])
  const mark = await waitFor(() => {
    const m = pane().querySelector<HTMLElement>('.press')
    expect(m).toBeTruthy()
    return m
  })
  expect([mark?.style.left, mark?.style.top]).toEqual(['25%', '50%'])
  await waitFor(() => expect(pane().querySelector('.press')).toBeNull())
})

it('reads what a picture shows, whatever it is', () => {
  const none = { tab: '', url: '', title: '', scrollX: 0, scrollY: 0 }
  expect(readPage(coded({ tab: 't1', url: 'http://a/?ü', title: 'Möbel', view: { scroll_x: 1, scroll_y: 20 } }))).toEqual({ tab: 't1', url: 'http://a/?ü', title: 'Möbel', scrollX: 1, scrollY: 20 })
  for (const bad of ['', '!!', 'AAAA', coded([1]), btoa('null'), btoa('7'), coded({ tab: 7, url: {}, title: null, view: 'x' }), coded({ view: { scroll_x: '1', scroll_y: 1e999 } })]) expect(readPage(bad), bad).toEqual(none)
})
