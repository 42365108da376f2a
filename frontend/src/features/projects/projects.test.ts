import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, project, session, world } from '../../test/world'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

/** A core whose making of a project ends when the test says so. */
function slowCore(routes: Parameters<typeof core>[0] = {}) {
  let end: (status: number, v: unknown) => void = () => {}
  const seen = core({ 'GET /v1/info': info, ...routes })
  const plain = globalThis.fetch
  vi.stubGlobal('fetch', (path: string, init: RequestInit = {}) => {
    if (path !== '/v1/projects' || init.method !== 'POST') return plain(path, init)
    seen.push({ method: 'POST', path, body: JSON.parse(String(init.body)) })
    return new Promise((done, fail) => {
      end = (status, v) => done(new Response(JSON.stringify(v), { status }))
      init.signal?.addEventListener('abort', () => fail(new DOMException('aborted', 'AbortError')))
    })
  })
  return { seen, end: (status: number, v: unknown) => end(status, v) }
}
const now = (e: ReturnType<typeof project>) => ({ ...e, at: Date.now() })
async function ask(source: string) {
  await fireEvent.keyDown(document.body, { key: 'n' })
  await fireEvent.input(screen.getByLabelText(/^Folder or repository/), { target: { value: source } })
}
const make = () => fireEvent.click(screen.getByRole('button', { name: 'Make project' }))
const progress = (d: object) => ev('machine.progress', { phase: 'boot', text: 'booting', ...d }, { id: 0, session_id: undefined })

const info = () => ({ version: '1', latest_event_id: 0, machine_kinds: { lima: { vm: true, limits: 'cpu' }, local: { vm: false, limits: 'cgroup', missing: ['a kernel of its own'] } } })

it('always says that local is not a VM', async () => {
  core({ 'GET /v1/info': info })
  const { store } = world(project('shop', 'local'), ev('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' }))
  sessionStorage.setItem('glasshouse.desk', JSON.stringify({ drafts: { 'new.kind': 'local' } }))
  const { container } = render(App, { store, live: false })
  for (const tag of [...container.querySelectorAll('.tag')].filter((t) => t.textContent === 'local')) expect(tag.getAttribute('title')).toContain('not a VM')
  expect(container.querySelector('footer')?.textContent).toContain('machine local (not a VM) · ready')
  await fireEvent.keyDown(document.body, { key: 'n' })
  await screen.findByText('local: not a VM')
  expect(screen.getByRole('dialog').textContent).toContain('This is not a VM')
  expect(screen.getByRole('dialog').textContent).toContain('a kernel of its own')
})

it('makes a project, shows its progress, and keeps what was typed when it fails', async () => {
  let answer: (v: unknown) => void = () => {}
  const seen = core({ 'GET /v1/info': info })
  const plain = globalThis.fetch
  vi.stubGlobal('fetch', (path: string, init: RequestInit = {}) => {
    if (path !== '/v1/projects') return plain(path, init)
    seen.push({ method: 'POST', path, body: JSON.parse(String(init.body)) })
    return new Promise((done) => (answer = (v) => done(new Response(JSON.stringify(v), { status: 422 }))))
  })
  const { store } = world()
  render(App, { store, live: false })
  await fireEvent.click(screen.getAllByRole('button', { name: /New project/ })[0]!)
  await fireEvent.input(screen.getByLabelText(/^Folder or repository/), { target: { value: '/src/shop' } })
  await fireEvent.click(screen.getByRole('button', { name: 'Make project' }))
  store.take([{ ...project(), at: Date.now() }, ev('machine.progress', { phase: 'boot', text: 'booting the machine' }, { id: 0 })])
  await waitFor(() => expect(screen.getByRole('dialog').textContent).toContain('booting the machine'))
  expect(seen.at(-1)?.body).toEqual({ source: '/src/shop', stay: true })
  answer({ code: 'invalid', what: 'the folder is not there', hint: 'give the whole path', details: ['/source: no such folder'] })
  const alert = await screen.findByRole('alert')
  expect(alert.textContent).toContain('the folder is not there')
  expect(alert.textContent).toContain('give the whole path')
  expect((screen.getByLabelText(/^Folder or repository/) as HTMLInputElement).value).toBe('/src/shop')
})

it('starts a playbook in a new session with its checks', async () => {
  const seen = core({ 'POST /v1/sessions': () => ({ id: 's9' }), 'POST /v1/sessions/s9/turns': () => ({ turn_id: 't' }) })
  const { store } = world(project())
  render(App, { store, live: false })
  await fireEvent.click(screen.getByRole('button', { name: /^Run a playbook…/ }))
  await fireEvent.input(screen.getByLabelText(/^Playbook/), { target: { value: 'name: mend it\nsteps: []\n' } })
  await fireEvent.input(screen.getByLabelText(/^Checks/), { target: { value: 'npm test\n\n lint \n' } })
  await fireEvent.click(screen.getByRole('button', { name: 'Start' }))
  await waitFor(() => expect(seen).toHaveLength(2))
  expect(seen[0]?.body).toEqual({ project_id: 'p1', agent: 'playbook', input: 'name: mend it\nsteps: []\n', title: 'mend it', checks: [{ name: 'npm test', code: 'npm test' }, { name: 'lint', code: 'lint' }] })
  expect(seen[1]).toMatchObject({ path: '/v1/sessions/s9/turns', body: { agent: 'playbook', input: 'name: mend it\nsteps: []\n' } })
})

it('starts and stops the machine, and shows why it would not', async () => {
  const seen = core({ 'POST /v1/projects/p1/machine/stop': () => ({ status: 409, error: { code: 'conflict', what: 'a step runs', hint: 'cancel it first' } }) })
  const { store } = world(project(), ev('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' }))
  render(App, { store, live: false })
  const foot = within(screen.getByRole('contentinfo'))
  await fireEvent.click(foot.getByRole('button', { name: 'Stop machine' }))
  await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('cancel it first'))
  store.take([ev('machine.state', { machine_id: 'm', kind: 'local', state: 'off' })])
  await tick()
  await fireEvent.click(foot.getByRole('button', { name: 'Start machine' }))
  await waitFor(() => expect(seen.at(-1)?.path).toBe('/v1/projects/p1/machine/start'))
})

it('keeps half-typed words over a lost link, a change of session and a reload', async () => {
  core({})
  const w = world(project(), session(), ev('session.created', { session: { id: 's2', project_id: 'p1', title: 'other', agent: 'playbook' } }, { session_id: 's2' }))
  const one = render(App, { store: w.store, live: false })
  await fireEvent.input(screen.getByLabelText('Message'), { target: { value: 'half a sen' } })
  w.store.link = 'cut'
  await tick()
  expect(screen.getByText('Reconnecting…')).toBeTruthy()
  expect((screen.getByLabelText('Message') as HTMLTextAreaElement).value).toBe('half a sen')
  await fireEvent.click(screen.getByRole('navigation').querySelector('button[title^="work"]')!)
  expect((screen.getByLabelText('Message') as HTMLTextAreaElement).value).toBe('')
  await fireEvent.click(screen.getByRole('navigation').querySelector('button[title^="other"]')!)
  expect((screen.getByLabelText('Message') as HTMLTextAreaElement).value).toBe('half a sen')
  one.unmount()
  render(App, { store: w.store, live: false })
  expect((screen.getByLabelText('Message') as HTMLTextAreaElement).value).toBe('half a sen')
})

it('deletes a project only when asked twice', async () => {
  const seen = core({ 'DELETE /v1/projects/p1': () => ({}) })
  const { store } = world(project())
  render(App, { store, live: false })
  await fireEvent.click(screen.getByRole('button', { name: 'Delete project…' }))
  expect(seen).toEqual([])
  await fireEvent.click(screen.getByRole('button', { name: 'Delete' }))
  await waitFor(() => expect(seen).toMatchObject([{ method: 'DELETE', path: '/v1/projects/p1' }]))
  store.take([ev('project.deleted', {}, { session_id: undefined })])
  await tick()
  expect(screen.getByRole('navigation').textContent).toContain('No project yet')
})

it('takes an address with a branch, and leaves the branch of a folder alone', async () => {
  const c = slowCore()
  const { store } = world()
  render(App, { store, live: false })
  await ask('/src/shop')
  expect((screen.getByLabelText('Branch') as HTMLInputElement).disabled).toBe(true)
  await fireEvent.input(screen.getByLabelText(/^Folder or repository/), { target: { value: 'https://example.org/shop.git' } })
  await fireEvent.input(screen.getByLabelText('Branch'), { target: { value: 'fix' } })
  await fireEvent.click(await screen.findByRole('radio', { name: /^lima/ }))
  await make()
  expect(c.seen.at(-1)?.body).toEqual({ source: 'https://example.org/shop.git', branch: 'fix', machine_kind: 'lima', stay: true })
})

it('goes on while the form is closed, shows how far it is in the list, and says when it is there', async () => {
  const c = slowCore()
  const { store } = world()
  render(App, { store, live: false })
  await ask('/src/shop')
  await make()
  await fireEvent.click(screen.getByText('Close', { selector: 'button' }))
  expect(screen.queryByRole('dialog')).toBeNull()
  expect(screen.getByRole('navigation').textContent).toContain('/src/shop')
  store.take([now(project()), progress({ phase: 'image', text: 'guest image, part 2 of 5: unpacking', done: 41, total: 100 })])
  await tick()
  const bar = within(screen.getByRole('navigation')).getByRole('progressbar')
  expect(bar.getAttribute('aria-valuenow')).toBe('41')
  expect(bar.getAttribute('aria-label')).toBe('Building the guest image, part 2 of 5')
  c.end(200, { id: 'p1', name: 'shop' })
  expect((await screen.findAllByText('The project shop is ready.')).length).toBeGreaterThan(0)
})

it('is cancelled by a call of its own, and what was typed is kept', async () => {
  const c = slowCore({ 'POST /v1/projects/p1/cancel': () => ({}) })
  const { store } = world()
  render(App, { store, live: false })
  await ask('/src/shop')
  await make()
  store.take([now(project()), progress({})])
  await tick()
  await fireEvent.click(within(screen.getByRole('dialog')).getByRole('button', { name: 'Cancel' }))
  await waitFor(() => expect(c.seen.at(-1)).toMatchObject({ method: 'POST', path: '/v1/projects/p1/cancel' }))
  c.end(409, { code: 'conflict', what: 'the making of project shop was given up by person' })
  await screen.findByText('You cancelled the making of the project.')
  expect((screen.getByLabelText(/^Folder or repository/) as HTMLInputElement).value).toBe('/src/shop')
})

it('can be cancelled from the page of the project by who did not begin it', async () => {
  const seen = core({ 'POST /v1/projects/p1/cancel': () => ({}) })
  const { store } = world(project(), progress({ done: 1, total: 4 }))
  render(App, { store, live: false })
  const card = screen.getByRole('region', { name: 'Machine' })
  expect(within(card).getByRole('progressbar').getAttribute('aria-valuenow')).toBe('25')
  await fireEvent.click(within(card).getByRole('button', { name: 'Cancel' }))
  await waitFor(() => expect(seen.at(-1)?.path).toBe('/v1/projects/p1/cancel'))
})

it('says why a project that nobody here waits for was not made', async () => {
  core({})
  const { store } = world(ev('core.started', { version: '1' }, { session_id: undefined, project_id: undefined }), project())
  render(App, { store, live: false })
  store.take([ev('project.deleted', { reason: 'the disk is full' }, { session_id: undefined, actor: 'host' })])
  expect((await screen.findByRole('alert')).textContent).toContain('The project shop was not made: the disk is full')
})

it('takes back its word before a project is deleted', async () => {
  const seen = core({ 'DELETE /v1/projects/p1': () => ({}) })
  const { store } = world(project())
  render(App, { store, live: false })
  await fireEvent.click(screen.getByRole('button', { name: 'Delete project…' }))
  const keep = await screen.findByRole('button', { name: 'Keep' })
  await waitFor(() => expect(document.activeElement).toBe(keep))
  await fireEvent.click(keep)
  expect(screen.getByRole('button', { name: 'Delete project…' })).toBeTruthy()
  expect(seen).toEqual([])
})

it('looks at a folder that is typed, and brings along the uncommitted files that are picked', async () => {
  const look = { kind: 'repository', path: '/src/shop', branch: 'fix', commit: 'c', files: 12, ignored: 2, dirty: [{ path: 'a.ts', op: 'modify', size: 10 }, { path: '.env', op: 'add', size: 9, withheld: 'it may hold secrets' }, { path: 'b.ts', op: 'add', size: 5 }] }
  const c = slowCore({ [`GET /v1/source?path=${encodeURIComponent('/src/shop')}`]: () => look })
  const { store } = world()
  render(App, { store, live: false })
  await ask('/src/shop')
  const box = await screen.findByRole('group', { name: /uncommitted files/ })
  expect(screen.getByRole('dialog').textContent).toContain('on fix, 12 files')
  expect(box.textContent).toContain('all stay outside')
  expect((within(box).getByRole('checkbox', { name: /\.env/ }) as HTMLInputElement).disabled).toBe(true)
  await fireEvent.click(within(box).getByRole('button', { name: 'Take all' }))
  await fireEvent.click(within(box).getByRole('checkbox', { name: /a\.ts/ }))
  expect(box.textContent).toContain('1 comes along')
  await make()
  expect(c.seen.at(-1)?.body).toEqual({ source: '/src/shop', with: ['b.ts'], stay: true })
})

it('says what is wrong with a folder before anything is made', async () => {
  core({ 'GET /v1/info': info, [`GET /v1/source?path=${encodeURIComponent('/no/such')}`]: () => ({ status: 404, error: { code: 'not_found', what: 'the source folder cannot be opened' } }) })
  const { store } = world()
  render(App, { store, live: false })
  await ask('/no/such')
  expect(await screen.findByText('the source folder cannot be opened')).toBeTruthy()
})

const one = (n: number, title = '', cls = 'ephemeral') => [
  ev('session.created', { session: { id: `c${n}`, project_id: 'p1', title, class: cls, agent: 'manual' } }, { session_id: `c${n}` }),
  ev('step.requested', { number: 1, tool: 'exec', title: `Run echo ${n}`, args: {}, reach: 'machine', digest: 'd' }, { session_id: `c${n}`, step_id: `cs${n}` }),
  ev('session.state', { state: 'ended' }, { session_id: `c${n}` }),
]

it('folds the sessions of single commands into one row, and shows them by what they ran', async () => {
  core({})
  const { store, desk } = world(project(), session('upgrade the cart'), ...one(1), ...one(2), ...one(3, 'by hand', 'task'))
  desk.openSession('s1')
  render(App, { store, live: false })
  const rows = () => screen.getAllByRole('treeitem').map((r) => r.textContent?.trim().replace(/\s+/g, ' '))
  await tick()
  desk.openSession('s1')
  await tick()
  expect(rows().slice(1)).toEqual(['by hand', 'upgrade the cart', '▸Commands2'])
  const group = screen.getByRole('treeitem', { name: /Commands/ })
  expect(group.getAttribute('aria-expanded')).toBe('false')
  await fireEvent.click(group)
  expect(rows().slice(1)).toEqual(['by hand', 'upgrade the cart', '▾Commands2', 'echo 2', 'echo 1'])
  // It opens at the newest.
  expect(screen.getByRole('heading', { name: 'echo 2' })).toBeTruthy()
  expect(screen.getByRole('treeitem', { name: 'echo 2' }).getAttribute('aria-level')).toBe('3')
  // By keys: from a command out to the group, folded, and in again.
  const tree = (name: RegExp | string) => screen.getByRole('treeitem', { name })
  tree('echo 1').focus()
  await fireEvent.keyDown(tree('echo 1'), { key: 'ArrowLeft' })
  expect(document.activeElement).toBe(tree(/Commands/))
  await fireEvent.keyDown(tree(/Commands/), { key: 'ArrowLeft' })
  expect(screen.queryByRole('treeitem', { name: 'echo 1' })).toBeNull()
  // What is looked at is in it: the one row that Tab reaches says so.
  expect(tree(/Commands/).getAttribute('aria-selected')).toBe('true')
  expect(tree(/Commands/).tabIndex).toBe(0)
  await fireEvent.keyDown(tree(/Commands/), { key: 'ArrowLeft' })
  expect(document.activeElement?.getAttribute('aria-level')).toBe('1')
  tree(/Commands/).focus()
  await fireEvent.keyDown(tree(/Commands/), { key: 'ArrowRight' })
  await fireEvent.keyDown(tree(/Commands/), { key: 'ArrowRight' })
  expect(document.activeElement).toBe(tree('echo 2'))
})

it('says whose figures they are where the machine is no VM', async () => {
  core({})
  const stats = () => ev('machine.stats', { cpu_percent: 12, mem_used_kib: 1e6, mem_total_kib: 2e6, disk_used_kib: 1e6, disk_total_kib: 2e6 }, { id: 0 })
  for (const kind of ['local', 'lima']) {
    const { store } = world(project('shop', kind), ev('machine.state', { machine_id: 'm', kind, state: 'ready' }), stats())
    render(App, { store, live: false })
    const mine = kind === 'local' ? 1 : 0
    expect(screen.queryAllByText(/This computer’s figures/)).toHaveLength(mine)
    expect(within(screen.getByRole('contentinfo')).queryAllByText('This computer’s')).toHaveLength(mine)
    expect(within(screen.getByRole('contentinfo')).queryAllByTitle(/^Memory of this computer/)).toHaveLength(mine)
    cleanup()
  }
})
