import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, HARMFUL, HOSTILE, project, question, session, shown, step, world } from '../../test/world'

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const second = (name: string) => ev('project.created', { project: { id: 'p2', name, source: '/src/two', machine_kind: 'lima' } }, { project_id: 'p2', session_id: undefined })
const ready = (id = 'p1') => ev('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' }, { project_id: id, session_id: undefined })
const stats = (cpu: number, disk: number) => ev('machine.stats', { cpu_percent: cpu, mem_used_kib: 1024 * 1024, mem_total_kib: 2 * 1024 * 1024, disk_used_kib: disk, disk_total_kib: 1000 }, { id: 0, session_id: undefined })
function open(...events: Parameters<typeof world>) {
  core({})
  const w = world(...events)
  return { ...w, ...render(App, { store: w.store, live: false }) }
}
const rows = () => screen.getAllByRole('treeitem')
const row = (name: RegExp) => screen.getByRole('treeitem', { name })
const key = (k: string, more: KeyboardEventInit = {}) => fireEvent.keyDown(document.activeElement ?? document.body, { key: k, ...more })

describe('the list of projects', () => {
  it('is walked by arrows, folded and unfolded, and has one place where Tab stops', async () => {
    open(project('one'), second('two'), session('work'))
    expect(rows().filter((r) => r.tabIndex === 0)).toHaveLength(1)
    row(/one/).focus()
    await key('ArrowDown')
    expect(document.activeElement).toBe(row(/\bwork/))
    await key('ArrowLeft')
    expect(document.activeElement).toBe(row(/one/))
    await key('ArrowLeft')
    expect(screen.queryByRole('treeitem', { name: /\bwork/ })).toBeNull()
    expect(row(/one/).getAttribute('aria-expanded')).toBe('false')
    await key('ArrowRight')
    expect(row(/\bwork/)).toBeTruthy()
    await key('End')
    expect(document.activeElement).toBe(row(/two/))
    await key('Home')
    expect(document.activeElement).toBe(row(/one/))
  })

  it('says how each machine is in words, not by colour alone', async () => {
    const { store } = open(project('one'), second('two'))
    store.take([ready(), ev('machine.state', { machine_id: 'm', kind: 'lima', state: 'trouble', problem: 'no answer' }, { project_id: 'p2', session_id: undefined })])
    await tick()
    expect(row(/one/).textContent).toContain('machine ready')
    expect(row(/two/).textContent).toContain('machine in trouble')
    expect(row(/two/).textContent).toContain('▲')
  })

  it('collects the questions of all projects, and a folded project still says that it waits', async () => {
    const { store } = open(project('one'), session('work'), second('two'))
    store.take([ev('session.created', { session: { id: 's2', project_id: 'p2', title: 'other', agent: 'playbook' } }, { project_id: 'p2', session_id: 's2' })])
    store.take([question({ approval_id: 'a1', title: 'First' }), { ...question({ approval_id: 'a2', title: 'Second' }), project_id: 'p2', session_id: 's2' } as never])
    await tick()
    const nav = screen.getByRole('navigation')
    expect(within(nav).getByRole('button', { name: /First/ })).toBeTruthy()
    await fireEvent.click(within(nav).getByRole('button', { name: /Second/ }))
    expect(row(/other/).getAttribute('aria-selected')).toBe('true')
    row(/two/).focus()
    await key('ArrowLeft')
    expect(within(row(/two/)).getByLabelText('1 waiting')).toBeTruthy()
  })

  it('is put away and comes back by a key, also after a reload', async () => {
    const a = open(project(), session())
    await fireEvent.keyDown(document.body, { key: 'b', ctrlKey: true })
    expect(screen.queryByRole('navigation')).toBeNull()
    a.unmount()
    render(App, { store: a.store, live: false })
    expect(screen.queryByRole('navigation')).toBeNull()
    await fireEvent.keyDown(document.body, { key: 'l' })
    expect(screen.getByRole('navigation')).toBeTruthy()
  })

  it('draws hostile names as text', () => {
    const { container } = open(project(HOSTILE), session(HOSTILE))
    expect(shown(container)).not.toMatch(HARMFUL)
    expect(container.querySelector('script')).toBeNull()
  })
})

describe('the lines between the parts', () => {
  it('are moved by keys, within their range, and put back', async () => {
    open(project(), session())
    const line = screen.getByRole('separator', { name: 'Width of the projects' })
    const at = () => Number(screen.getByRole('separator', { name: 'Width of the projects' }).getAttribute('aria-valuenow'))
    const first = at()
    line.focus()
    await key('ArrowRight')
    expect(at()).toBe(first + 16)
    await key('Home')
    expect(at()).toBe(Number(line.getAttribute('aria-valuemin')))
    await key('ArrowLeft')
    expect(at()).toBe(Number(line.getAttribute('aria-valuemin')))
    await key('Enter')
    expect(at()).toBe(first)
  })
})

describe('the palette', () => {
  it('finds by letters, walks by arrows, says why something is off, and runs', async () => {
    open(project(), session())
    await fireEvent.keyDown(document.body, { key: 'k', ctrlKey: true })
    const field = screen.getByRole('combobox', { name: 'Find a command' })
    await fireEvent.input(field, { target: { value: 'set' } })
    await fireEvent.keyDown(field, { key: 'Enter' })
    expect(screen.getByRole('main', { name: 'Settings' })).toBeTruthy()
    await fireEvent.keyDown(document.body, { key: 'k', ctrlKey: true })
    const list = screen.getByRole('listbox')
    expect(within(list).getAllByRole('group')[0]?.getAttribute('aria-label')).toBe('Recent')
    expect(within(list).getByRole('option', { name: /Cancel all steps/ }).getAttribute('aria-disabled')).toBe('true')
    expect(within(within(list).getByRole('option', { name: /Cancel all steps/ })).getByText('Nothing runs.')).toBeTruthy()
    await fireEvent.click(within(list).getByRole('option', { name: /Cancel all steps/ }))
    expect(screen.getByRole('listbox')).toBeTruthy()
  })
})

describe('the keys', () => {
  it('are those of the part that had the focus, first', async () => {
    open(project(), session())
    row(/shop/).focus()
    await key('?')
    expect(within(screen.getByRole('dialog')).getAllByRole('heading', { level: 3 })[0]?.textContent).toMatch(/^Projects/)
  })
})

describe('the link', () => {
  it('is said in words, with how long and a way to try again', async () => {
    const { store } = open(project(), session())
    store.link = 'cut'
    store.lost = Date.now() - 12_000
    const again = vi.spyOn(store, 'retry')
    await tick()
    expect(document.querySelector('footer')?.textContent).toMatch(/Reconnecting…\s*for \d+ s/)
    await fireEvent.click(screen.getByRole('button', { name: 'Retry now' }))
    expect(again).toHaveBeenCalledTimes(1)
    store.link = 'live'
    store.lost = 0
    store.slow = Date.now() - 4000
    await tick()
    expect(document.querySelector('footer')?.textContent).toMatch(/no answer for \d+ s/)
  })

  it('is told to who cannot see it, as is a new question, once', async () => {
    const { store } = open(project(), session(), step(1))
    const said = () => [...document.querySelectorAll('[role=status]')].map((e) => e.textContent).join()
    store.take([question()])
    await waitFor(() => expect(said()).toContain('Question waits: Run curl'))
    store.link = 'cut'
    await waitFor(() => expect(said()).toContain('The link to the core is cut'))
    store.link = 'live'
    await waitFor(() => expect(said()).toContain('Connected again'))
  })

  it('shows the shape of the page, not an empty one, until the log is read', async () => {
    core({})
    const w = world()
    w.store.settled = false
    render(App, { store: w.store, live: false })
    expect(screen.getByRole('main', { name: 'Loading' })).toBeTruthy()
    expect(screen.queryByText(/No project yet/)).toBeNull()
    w.store.settled = true
    await tick()
    expect(screen.getByRole('main', { name: 'Begin' })).toBeTruthy()
    expect(screen.getByText(/No project yet/)).toBeTruthy()
  })
})

describe('the machine', () => {
  it('is measured in the bar below, and a full disk is amber', async () => {
    const { store } = open(project(), session())
    store.take([ready(), stats(30, 500)])
    await tick()
    const bar = () => document.querySelector('footer')
    expect(bar()?.textContent).toContain('Memory 1.0 / 2.0 GB')
    expect(bar()?.querySelectorAll('.meter i.w')).toHaveLength(0)
    store.take([stats(70, 900)])
    await tick()
    expect(bar()?.querySelectorAll('.meter i.w')).toHaveLength(1)
    expect(bar()?.querySelector('polyline')?.getAttribute('points')?.split(' ')).toHaveLength(2)
    store.take([ev('machine.state', { machine_id: 'm', kind: 'local', state: 'off' }, { session_id: undefined })])
    await tick()
    expect(bar()?.textContent).not.toContain('Memory')
  })
})

describe('Escape', () => {
  it('closes the newest message, then the screen', async () => {
    core({ 'POST /v1/sessions/s1/end': () => ({ status: 409, error: { code: 'conflict', what: 'a step runs' } }) })
    const w = world(project(), session())
    render(App, { store: w.store, live: false })
    await fireEvent.click(screen.getByRole('button', { name: 'End session' }))
    await screen.findByText('a step runs')
    await fireEvent.keyDown(document.body, { key: ',', ctrlKey: true })
    await fireEvent.keyDown(document.body, { key: 'Escape' })
    expect(screen.queryByText('a step runs')).toBeNull()
    expect(screen.getByRole('main', { name: 'Settings' })).toBeTruthy()
    await fireEvent.keyDown(document.body, { key: 'Escape' })
    expect(screen.queryByRole('main', { name: 'Settings' })).toBeNull()
  })
})
