import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, project, session, world } from '../../test/world'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

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
  await fireEvent.input(screen.getByLabelText('Folder or repository on this computer'), { target: { value: '/src/shop' } })
  await fireEvent.click(screen.getByRole('button', { name: 'Make project' }))
  store.take([{ ...project(), at: Date.now() }, ev('machine.progress', { phase: 'boot', text: 'booting the machine' }, { id: 0 })])
  await waitFor(() => expect(screen.getByRole('dialog').textContent).toContain('booting the machine'))
  expect(seen.at(-1)?.body).toEqual({ source: '/src/shop' })
  answer({ code: 'invalid', what: 'the folder is not there', hint: 'give the whole path', details: ['/source: no such folder'] })
  const alert = await screen.findByRole('alert')
  expect(alert.textContent).toContain('the folder is not there')
  expect(alert.textContent).toContain('give the whole path')
  expect((screen.getByLabelText('Folder or repository on this computer') as HTMLInputElement).value).toBe('/src/shop')
})

it('starts a playbook in a new session with its checks', async () => {
  const seen = core({ 'POST /v1/sessions': () => ({ id: 's9' }), 'POST /v1/sessions/s9/turns': () => ({ turn_id: 't' }) })
  const { store } = world(project())
  render(App, { store, live: false })
  await fireEvent.click(screen.getByRole('button', { name: 'Start work…' }))
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
  await fireEvent.click(screen.getByRole('button', { name: 'Stop' }))
  await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('cancel it first'))
  store.take([ev('machine.state', { machine_id: 'm', kind: 'local', state: 'off' })])
  await tick()
  await fireEvent.click(screen.getByRole('button', { name: 'Start' }))
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
