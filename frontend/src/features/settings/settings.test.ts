import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, project, world, type Call } from '../../test/world'

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
  delete document.documentElement.dataset.theme
})

const settings = { machine: '', cpus: 0, memory_mib: 0, disk_gib: 0, resolver: '', question_minutes: 0, hold_seconds: 0, limactl: '' }
const view = (s: object = {}, more: object = {}) => ({ settings: { ...settings, ...s }, usual: { ...settings, machine: 'local', hold_seconds: 300 }, applies: {}, waiting: [], paths: { data: '/data', config: '/c', settings: '/c/config.toml', policy: '/c/policy.toml', logs: '/l', core_log: '/l/core.log', cache: '/cache', images: '/i', trash: '/t', socket: '/s' }, ...more })
const policy = (more: object = {}) => ({ version: '1', rules: [{ id: 'builtin:host', tier: 'builtin', decision: 'ask', text: 'ask: reach host', reason: 'It leaves the machine.' }], files: [{ tier: 'user', path: '/c/policy.toml', there: false, text: '' }], ...more })
const rule = (id: string, text: string) => ({ id, project_id: 'p1', session_id: '', created_at: 1, hits: 3, last_hit: 2, rule: { id, kind: 'egress', scope: 'project', decision: 'allow', text, by: 'person', from_approval: 'a1' } })

async function open(routes: Record<string, (body: unknown) => unknown>, screenKey = ','): Promise<Call[]> {
  const seen = core({ 'GET /v1/settings': () => view(), 'GET /v1/policy?project_id=p1': () => policy(), 'GET /v1/projects/p1/rules': () => [], 'GET /v1/models': () => ({ default: '', models: [], file: '/c/models.toml' }), 'GET /v1/doctor': () => ({ version: 'v1', data: '/data', ok: true, lines: [] }), ...routes })
  const w = world(project())
  render(App, { store: w.store, live: false })
  if (screenKey) await fireEvent.keyDown(document.body, { key: screenKey, ctrlKey: true })
  return seen
}

it('saves a field by itself, with all others as they were', async () => {
  const seen = await open({ 'PUT /v1/settings': (b) => view(b as object), 'GET /v1/settings': () => view({ cpus: 4 }) })
  const field = await screen.findByLabelText('Memory, MiB')
  await waitFor(() => expect((field as HTMLInputElement).disabled).toBe(false))
  await fireEvent.change(field, { target: { value: '4096' } })
  await waitFor(() => expect(seen.find((c) => c.method === 'PUT')?.body).toEqual({ ...settings, cpus: 4, memory_mib: 4096 }))
  await fireEvent.change(field, { target: { value: '4096' } })
  expect(seen.filter((c) => c.method === 'PUT')).toHaveLength(1)
})

it('says beside the field why it was not saved, and keeps what was typed', async () => {
  await open({ 'PUT /v1/settings': () => ({ status: 422, error: { code: 'invalid', what: 'cpus is 1000', hint: 'give 1 to 256 processors', pointer: '/cpus' } }) })
  const field = (await screen.findByLabelText('Processors')) as HTMLInputElement
  await waitFor(() => expect(field.disabled).toBe(false))
  await fireEvent.input(field, { target: { value: '1000' } })
  await fireEvent.change(field)
  const alert = await screen.findByRole('alert')
  expect(alert.textContent).toContain('give 1 to 256 processors')
  expect(field.getAttribute('aria-describedby')).toBe(alert.parentElement?.id)
  expect(field.getAttribute('aria-invalid')).toBe('true')
  expect(field.value).toBe('1000')
})

it('takes a limactl away, and sets none: that is for the file', async () => {
  const seen = await open({ 'GET /v1/settings': () => view({ limactl: '/opt/limactl' }), 'PUT /v1/settings': (b) => view(b as object) })
  const field = (await screen.findByLabelText('limactl')) as HTMLInputElement
  await waitFor(() => expect(field.value).toBe('/opt/limactl'))
  expect(field.readOnly).toBe(true)
  await fireEvent.click(screen.getByRole('button', { name: 'Use the bundled one' }))
  await waitFor(() => expect(seen.find((c) => c.method === 'PUT')?.body).toEqual(settings))
  await waitFor(() => expect(screen.queryByRole('button', { name: 'Use the bundled one' })).toBeNull())
})

it('says what a file that cannot be read means, what waits for a restart, and what the rules are at fault with', async () => {
  await open({ 'GET /v1/settings': () => view({}, { problem: 'config.toml: line 3', waiting: ['limactl'] }), 'GET /v1/policy?project_id=p1': () => policy({ fault: 'policy.toml: unknown key' }) })
  expect(await screen.findByText('config.toml: line 3')).toBeTruthy()
  expect(screen.getByText(/not in force yet/).parentElement?.textContent).toContain('limactl')
  expect(await screen.findByText('policy.toml: unknown key')).toBeTruthy()
})

it('changes how the window looks, and keeps it', async () => {
  await open({})
  await fireEvent.click(screen.getByRole('radio', { name: 'Dark' }))
  expect(document.documentElement.dataset.theme).toBe('dark')
  expect(localStorage.getItem('glasshouse.theme')).toBe('dark')
  await fireEvent.click(screen.getByRole('radio', { name: 'Larger' }))
  expect(document.documentElement.style.getPropertyValue('--zoom')).toBe('1.25')
  await fireEvent.click(screen.getByRole('radio', { name: 'Usual' }))
  await fireEvent.click(screen.getByRole('radio', { name: 'As the system' }))
  expect(document.documentElement.dataset.theme).toBeUndefined()
})

it('lists what a project remembers, and removes one', async () => {
  let rules = [rule('r1', 'allow connections to a.example:443'), rule('r2', 'allow connections to b.example:443')]
  const seen = await open({ 'GET /v1/projects/p1/rules': () => rules, 'DELETE /v1/projects/p1/rules/r1': () => { rules = rules.slice(1); return {} } })
  await fireEvent.click(await screen.findByRole('button', { name: /Remove the rule allow connections to a\.example/ }))
  await waitFor(() => expect(screen.queryByText(/a\.example/)).toBeNull())
  expect(screen.getByText(/b\.example/)).toBeTruthy()
  expect(seen.some((c) => c.method === 'DELETE' && c.path === '/v1/projects/p1/rules/r1')).toBe(true)
})

it('shows what is in trouble first, with how to mend it, and looks again', async () => {
  let ok = false
  const lines = () => [{ name: 'guestd', ok: true, text: 'found' }, { name: 'policy', ok, text: ok ? 'rules loaded' : 'line 3 is wrong', ...(ok ? {} : { fix: 'mend policy.toml' }) }]
  const seen = await open({ 'GET /v1/doctor': () => ({ version: 'v1', data: '/data', ok, lines: lines() }) }, 'k')
  await fireEvent.input(screen.getByRole('combobox', { name: 'Find a command' }), { target: { value: 'doctor' } })
  await fireEvent.keyDown(screen.getByRole('combobox', { name: 'Find a command' }), { key: 'Enter' })
  const main = screen.getByRole('main', { name: 'Doctor' })
  const items = await within(main).findAllByRole('listitem')
  expect(items[0]?.textContent).toContain('policy')
  expect(items[0]?.textContent).toContain('mend policy.toml')
  expect(within(items[0]!).getByRole('img', { name: 'trouble' })).toBeTruthy()
  ok = true
  await fireEvent.click(within(main).getByRole('button', { name: 'Run again' }))
  await within(main).findByText('All is well')
  expect(seen.filter((c) => c.path === '/v1/doctor')).toHaveLength(2)
})
