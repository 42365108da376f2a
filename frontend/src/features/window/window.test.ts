import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, describe, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, of, project, question, session, step, world } from '../../test/world'

type Heard = Record<string, (id: unknown) => void>

/** A window around the page, as the program gives it. */
function aWindow(on = true) {
  const heard: Heard = {}
  const native = { PickFolder: vi.fn(async () => ''), CloseWindow: vi.fn(async () => undefined), Notices: vi.fn(async () => on), SetNotices: vi.fn(async () => undefined) }
  vi.stubGlobal('go', { desktop: { Native: native } })
  vi.stubGlobal('runtime', { WindowSetTitle: vi.fn(), EventsOn: (name: string, f: (id: unknown) => void) => { heard[name] = f; return () => { delete heard[name] } } })
  return { heard, native }
}

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

describe('the window around the page', () => {
  it('does what its menus say, and says why not', async () => {
    const { heard } = aWindow()
    core({ 'GET /v1/info': () => ({ version: 'v9', machine_kinds: { local: { vm: false } } }) })
    const { store, desk } = world(project(), session())
    const { unmount } = render(App, { store, live: false })
    await waitFor(() => expect(heard.action).toBeDefined())
    heard.action!('about')
    await screen.findByText('v9')
    // Another entry takes the place of the panel that is open.
    heard.action!('keys')
    await screen.findByRole('dialog', { name: 'Keys' })
    expect(screen.queryByRole('dialog', { name: 'About Glasshouse' })).toBeNull()
    heard.action!('cancel')
    expect((await screen.findAllByText('Nothing runs.')).length).toBeGreaterThan(0)
    heard.action!('no-such-action')
    heard.action!({ not: 'an id' })
    unmount()
    expect(heard).toEqual({})
    expect(desk).toBeDefined()
  })

  it('says that the core is of another program until that is closed, and in About', async () => {
    aWindow()
    core({ 'GET /v1/info': () => ({ version: 'v1', machine_kinds: {}, page: { version: 'v2', api: 1 }, differs: 'the core that runs is Glasshouse v1 and this is v2' }) })
    const { store } = world(project(), session())
    render(App, { store, live: false })
    store.onDiffers('the core that runs is Glasshouse v1 and this is v2')
    const said = () => document.querySelector('.notes')?.textContent
    await waitFor(() => expect(said()).toContain('The core that runs is Glasshouse v1 and this is v2.'))
    await fireEvent.click(screen.getByRole('button', { name: 'About' }))
    const about = await screen.findByRole('dialog', { name: 'About Glasshouse' })
    await waitFor(() => expect(about.textContent).toContain('This window'))
    expect(about.textContent).toContain('The core that runs is Glasshouse v1 and this is v2')
    store.onDiffers('the core that runs is something else')
    await waitFor(() => expect(said()).toContain('The core that runs is something else.'))
    store.onDiffers('')
    await waitFor(() => expect(said()).toBe(''))
  })

  it('opens what a notice told of', async () => {
    const { heard } = aWindow()
    core({})
    const { store } = world(project(), session(), step(1), question())
    render(App, { store, live: false })
    await waitFor(() => expect(heard.show).toBeDefined())
    heard.show!('a1')
    await waitFor(() => expect(document.activeElement?.closest('[data-question="a1"]') ?? document.querySelector('[data-question="a1"]')).not.toBeNull())
  })

  it('turns notices off', async () => {
    const { heard, native } = aWindow()
    core({})
    const { store } = world(project(), session())
    render(App, { store, live: false })
    await waitFor(() => expect(native.Notices).toHaveBeenCalled())
    await Promise.resolve()
    heard.action!('notices')
    await waitFor(() => expect(native.SetNotices).toHaveBeenCalledWith(false))
    await screen.findAllByText(/no longer told/)
    heard.action!('notices')
    await waitFor(() => expect(native.SetNotices).toHaveBeenLastCalledWith(true))
  })
})

describe('quitting', () => {
  it('asks in place about what runs, and cancels nothing that was not shown', async () => {
    const { heard, native } = aWindow()
    let refused = true
    const seen = core({
      'POST /v1/quit': () => (refused ? { status: 409, error: { code: 'conflict', what: '1 steps are running or waiting in 1 sessions' } } : {}),
    })
    const { store } = world(project(), session())
    render(App, { store, live: false })
    await waitFor(() => expect(heard.action).toBeDefined())
    heard.action!('quit')
    await screen.findByText('Nothing runs.')
    await fireEvent.click(screen.getByRole('button', { name: 'Quit' }))
    await screen.findByText(/are running or waiting/)
    expect(seen.filter((c) => c.path === '/v1/quit').map((c) => c.body)).toEqual([{ now: false }])
    expect(native.CloseWindow).not.toHaveBeenCalled()
    // The step is told of by now.
    store.take([step(1, 'sleep 99'), ev('step.started', {}, of(1))])
    refused = false
    await fireEvent.click(await screen.findByRole('button', { name: 'Cancel 1 step and quit' }))
    await waitFor(() => expect(native.CloseWindow).toHaveBeenCalled())
    expect(seen.at(-1)?.body).toEqual({ now: true })
    expect(screen.getByText(/All machines are off/)).toBeDefined()
  })

  it('keeps everything running when that is chosen', async () => {
    const { heard, native } = aWindow()
    const seen = core({})
    const { store } = world(project(), session(), step(1), ev('step.started', {}, of(1)))
    render(App, { store, live: false })
    await waitFor(() => expect(heard.action).toBeDefined())
    heard.action!('quit')
    await fireEvent.click(await screen.findByRole('button', { name: 'Keep it running' }))
    expect(screen.queryByRole('dialog', { name: 'Quit Glasshouse' })).toBeNull()
    expect(seen.filter((c) => c.method === 'POST')).toEqual([])
    expect(native.CloseWindow).not.toHaveBeenCalled()
  })
})
