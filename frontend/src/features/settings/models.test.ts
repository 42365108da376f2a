import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { ModelView } from '../../api/types'
import App from '../../App.svelte'
import { core, HARMFUL, HOSTILE, project, shown, world, type Call } from '../../test/world'

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const KEY = 'sk-test-0123456789"abc\\def/ghi+jkl'
const one = (name: string, more: Partial<ModelView> = {}): ModelView => ({ name, format: 'openai-chat', model: `${name}-1`, base_url: 'http://127.0.0.1:11434/v1', key: 'none', ...more })
type Routes = Record<string, (body: unknown) => unknown>

/** A core whose models are what was put into it. */
function models(start: ModelView[], routes: Routes = {}) {
  const at = { list: start, usual: start[0]?.name ?? '' }
  const view = () => ({ default: at.usual, models: at.list, file: '/c/models.toml' })
  const put = (b: unknown) => {
    const m = b as ModelView
    at.list = [...at.list.filter((x) => x.name !== m.name), { ...m, key: m.base_url ? 'none' : 'missing' }]
    return view()
  }
  const names = ['big', 'small', 'ollama', 'openai', 'home']
  const seen = core({
    'GET /v1/settings': () => ({ settings: {}, usual: {}, applies: {}, waiting: [], paths: {} }), 'GET /v1/policy?project_id=p1': () => ({ version: '1', rules: [], files: [] }), 'GET /v1/projects/p1/rules': () => [],
    'GET /v1/models': view, 'POST /v1/default-model': (b) => { at.usual = (b as { name: string }).name; return view() },
    ...Object.fromEntries(names.flatMap((n): [string, (b: unknown) => unknown][] => [
      [`PUT /v1/models/${n}`, put], [`DELETE /v1/models/${n}`, () => { at.list = at.list.filter((x) => x.name !== n); return view() }],
      [`PUT /v1/models/${n}/key`, () => { at.list = at.list.map((x) => (x.name === n ? { ...x, key: 'keychain' as const } : x)); return view() }],
      [`DELETE /v1/models/${n}/key`, () => { at.list = at.list.map((x) => (x.name === n ? { ...x, key: 'missing' as const } : x)); return view() }],
    ])),
    ...routes,
  })
  return { at, seen }
}
async function open(start: ModelView[], routes: Routes = {}) {
  const m = models(start, routes)
  const w = world(project())
  const r = render(App, { store: w.store, live: false })
  await fireEvent.keyDown(document.body, { key: ',', ctrlKey: true })
  return { ...m, ...w, ...r, part: screen.getByRole('region', { name: 'Models' }) }
}
const row = (name: string) => screen.findByRole('listitem', { name })
const fill = (label: string | RegExp, value: string) => fireEvent.input(screen.getByLabelText(label), { target: { value } })
const changing = (seen: Call[]) => seen.filter((c) => c.method !== 'GET')

it('teaches one next step where there is no model, and adds one of this computer', async () => {
  const { seen, part } = await open([])
  await within(part).findByText('No model yet.')
  await fireEvent.click(within(part).getByRole('button', { name: 'Add a model…' }))
  await fireEvent.click(screen.getByRole('radio', { name: 'Ollama' }))
  expect(screen.getByLabelText<HTMLInputElement>('Address').value).toBe('http://127.0.0.1:11434/v1')
  expect(screen.getByRole<HTMLButtonElement>('button', { name: 'Add model' }).disabled).toBe(true)
  await fill('Model', 'qwen3:8b')
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  await row('ollama')
  expect(changing(seen)).toEqual([{ method: 'PUT', path: '/v1/models/ollama', body: { name: 'ollama', format: 'openai-chat', model: 'qwen3:8b', base_url: 'http://127.0.0.1:11434/v1' } }])
  await waitFor(() => expect(screen.queryByRole('form', { name: 'Add a model' })).toBeNull())
})

it.each([['OpenAI', 'openai-responses', 'OPENAI_API_KEY', ''], ['Anthropic', 'anthropic', 'ANTHROPIC_API_KEY', ''], ['Compatible', 'openai-chat', '', ''], ['llama.cpp', 'openai-chat', '', 'http://127.0.0.1:8080/v1'], ['vLLM', 'openai-chat', '', 'http://127.0.0.1:8000/v1']])('fills the form in for %s', async (name, format, env, address) => {
  await open([])
  await fireEvent.click(await screen.findByRole('button', { name: 'Add a model…' }))
  await fireEvent.click(screen.getByRole('radio', { name }))
  expect(screen.getByLabelText<HTMLSelectElement>('Format').value).toBe(format)
  expect(screen.getByLabelText<HTMLInputElement>('Or from a variable').value).toBe(env)
  expect(screen.getByLabelText<HTMLInputElement>('Address').value).toBe(address)
})

it('sends a key once, after the model it is for, and keeps it nowhere', async () => {
  const { seen, container } = await open([])
  await fireEvent.click(await screen.findByRole('button', { name: 'Add a model…' }))
  await fireEvent.click(screen.getByRole('radio', { name: 'OpenAI' }))
  await fill('Model', 'gpt')
  await fill('Key', KEY)
  const field = screen.getByLabelText<HTMLInputElement>('Key')
  expect(field.type).toBe('password')
  expect(field.autocomplete).toBe('new-password')
  const nowhere = () => {
    // A part of it that stays as it is however often the whole is escaped.
    for (const form of ['sk-test-0123456789', KEY, JSON.stringify(KEY).slice(1, -1), btoa(KEY), encodeURIComponent(KEY)]) {
      for (const s of [localStorage, sessionStorage]) expect(JSON.stringify({ ...s })).not.toContain(JSON.stringify(form).slice(1, -1))
      expect(shown(container)).not.toContain(form)
    }
  }
  nowhere()
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  const li = await row('openai')
  expect(changing(seen).map((c) => [c.method, c.path])).toEqual([['PUT', '/v1/models/openai'], ['PUT', '/v1/models/openai/key']])
  expect(changing(seen)[1]?.body).toEqual({ key: KEY })
  expect(JSON.stringify(seen.filter((c) => !c.path.endsWith('/key')))).not.toContain('sk-test')
  expect(li.textContent).toContain('Key in the keychain')
  nowhere()
  await fireEvent.click(screen.getByRole('button', { name: 'Edit openai' }))
  expect(screen.getByLabelText<HTMLInputElement>('Key').value).toBe('')
})

it('keeps what is half typed over a reload, but for the key', async () => {
  const { store, unmount } = await open([])
  await fireEvent.click(await screen.findByRole('button', { name: 'Add a model…' }))
  await fireEvent.click(screen.getByRole('radio', { name: 'vLLM' }))
  await fill('Model', 'half-a-mod')
  await fill('Key', KEY)
  unmount()
  cleanup()
  render(App, { store, live: false })
  expect((await screen.findByLabelText<HTMLInputElement>('Model')).value).toBe('half-a-mod')
  expect(screen.getByLabelText<HTMLInputElement>('Key').value).toBe('')
})

it('says beside the field what the core does not take, and keeps what was typed', async () => {
  await open([], { 'PUT /v1/models/home': () => ({ status: 422, error: { code: 'invalid', what: 'base_url is no address', hint: 'give one such as http://127.0.0.1:11434/v1', pointer: '/base_url' } }) })
  await fireEvent.click(await screen.findByRole('button', { name: 'Add a model…' }))
  await fill('Name', 'home')
  await fill('Model', 'm')
  await fill('Address', 'nowhere')
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  const alert = await screen.findByRole('alert')
  const field = screen.getByLabelText<HTMLInputElement>('Address')
  expect(alert.textContent).toContain('no address')
  expect(field.getAttribute('aria-invalid')).toBe('true')
  expect(field.getAttribute('aria-describedby')).toBe(alert.parentElement?.id)
  await waitFor(() => expect(document.activeElement).toBe(field))
  expect(field.value).toBe('nowhere')
})

it('opens what is folded away when the fault is there, and asks nothing of the core for what it sees itself', async () => {
  const { seen } = await open([one('big')])
  await row('big')
  await fireEvent.click(screen.getByRole('button', { name: 'Add a model…' }))
  await fill('Name', 'big')
  await fill('Model', 'm')
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  expect((await screen.findByRole('alert')).textContent).toContain('there is a model called big')
  await fill('Name', 'home')
  await fill('Context, tokens', 'a lot')
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  expect((await screen.findByRole('alert')).textContent).toContain('no number of tokens')
  expect(screen.getByLabelText('Context, tokens').closest('details')?.open).toBe(true)
  expect(changing(seen)).toEqual([])
})

it('says when the model is saved and its key is not, and tries the key again', async () => {
  let fails = true
  const m = await open([], { 'PUT /v1/models/openai/key': () => (fails ? { status: 503, error: { code: 'unavailable', what: 'this computer’s keychain cannot be reached', hint: 'name a variable' } } : {}) })
  await fireEvent.click(await screen.findByRole('button', { name: 'Add a model…' }))
  await fireEvent.click(screen.getByRole('radio', { name: 'OpenAI' }))
  await fill('Model', 'gpt')
  await fill('Key', KEY)
  await fireEvent.click(screen.getByRole('button', { name: 'Add model' }))
  expect((await screen.findByRole('alert')).textContent).toContain('the model is saved, but its key is not')
  expect(screen.getByLabelText<HTMLInputElement>('Key').value).toBe(KEY)
  fails = false
  await fireEvent.click(screen.getByRole('button', { name: /^(Add model|Save)$/ }))
  await waitFor(() => expect(screen.queryByRole('form', { name: /model|Edit/ })).toBeNull())
  expect(changing(m.seen).filter((c) => c.path.endsWith('/key'))).toHaveLength(2)
})

it('tries a model: waits with words, can be given up, shows the answer or the error', async () => {
  let answer: (v: unknown) => void = () => {}
  const { seen } = await open([one('big'), one('small', { key: 'missing', key_env: 'SMALL_KEY' })], { 'POST /v1/models/big/try': () => ({}) })
  await row('big')
  const plain = globalThis.fetch
  vi.stubGlobal('fetch', (path: string, init: RequestInit = {}) => {
    if (!path.endsWith('/try')) return plain(path, init)
    return new Promise((done, fail) => {
      answer = (v) => done(new Response(JSON.stringify(v)))
      init.signal?.addEventListener('abort', () => fail(new DOMException('aborted', 'AbortError')))
    })
  })
  const li = await row('big')
  const again = () => fireEvent.click(within(li).getByRole('button', { name: /^Try/ }))
  await again()
  expect(li.textContent).toContain('Asking it for a word')
  await fireEvent.click(within(li).getByRole('button', { name: 'Cancel' }))
  await waitFor(() => expect(li.textContent).not.toContain('Asking'))
  expect(within(li).queryByRole('alert')).toBeNull()
  await again()
  answer({ ok: true, text: HOSTILE, usage: { input: 12, output: 3 }, took_ms: 830 })
  await waitFor(() => expect(li.textContent).toContain('It answers, after 830 ms.'))
  expect(li.textContent).toContain('15 tokens')
  expect(shown(li)).not.toMatch(HARMFUL)
  await again()
  answer({ ok: false, error: 'auth (HTTP 401): no such key', kind: 'auth', usage: {}, took_ms: 1 })
  const alert = await within(li).findByRole('alert')
  expect(alert.textContent).toContain('HTTP 401: no such key')
  expect(alert.textContent).toContain('whether the key is right')
  expect(within(alert).getByRole('button', { name: 'Edit it' })).toBeTruthy()
  expect(screen.getByRole<HTMLButtonElement>('button', { name: 'Try it: small' }).disabled).toBe(true)
  expect(seen.some((c) => c.path.endsWith('/try'))).toBe(false)
})

it('shows where each key is, and takes one out of the keychain', async () => {
  const { seen } = await open([one('big', { key: 'keychain', price: { input: 3, output: 15 } }), one('small', { key: 'environment', key_env: 'SMALL_KEY' }), one('home')])
  expect((await row('big')).textContent).toMatch(/Key in the keychain.*\$3 in, \$15 out/)
  expect((await row('small')).textContent).toContain('Key from SMALL_KEY')
  expect((await row('home')).textContent).toMatch(/No key set.*No price/)
  await fireEvent.click(screen.getByRole('button', { name: 'Edit big' }))
  await fireEvent.click(screen.getByRole('button', { name: 'Remove' }))
  await waitFor(() => expect(changing(seen)).toMatchObject([{ method: 'DELETE', path: '/v1/models/big/key' }]))
  await waitFor(() => expect(screen.queryByRole('button', { name: 'Remove' })).toBeNull())
})

it('deletes a model with a way back, and makes it the default again', async () => {
  const { seen, at } = await open([one('big', { key: 'keychain', context: 9000 }), one('small')])
  await row('big')
  await fireEvent.click(screen.getByRole('button', { name: 'Delete big' }))
  expect(await screen.findByText(/is deleted, and its key with it/)).toBeTruthy()
  await waitFor(() => expect(screen.queryByRole('listitem', { name: 'big' })).toBeNull())
  const back = screen.getByRole<HTMLButtonElement>('button', { name: 'Bring it back without the key' })
  await waitFor(() => expect(back.disabled).toBe(false))
  await fireEvent.click(back)
  await row('big')
  expect(changing(seen).slice(1)).toEqual([{ method: 'PUT', path: '/v1/models/big', body: { name: 'big', format: 'openai-chat', model: 'big-1', base_url: 'http://127.0.0.1:11434/v1', context: 9000 } }, { method: 'POST', path: '/v1/default-model', body: { name: 'big' } }])
  expect(at.usual).toBe('big')
  const other = await screen.findByRole<HTMLButtonElement>('button', { name: 'Make default: small' })
  await waitFor(() => expect(other.disabled).toBe(false))
  await fireEvent.click(other)
  await waitFor(() => expect(screen.getByRole('button', { name: 'Make default: big' })).toBeTruthy())
})

it('says why the list cannot be read, and why the file cannot', async () => {
  let fails = true
  await open([], { 'GET /v1/models': () => (fails ? { status: 503, error: { code: 'unavailable', what: 'the disk is gone' } } : { default: '', models: [one('old')], file: '/c/models.toml', problem: 'models.toml: line 3' }) })
  const part = screen.getByRole('region', { name: 'Models' })
  expect((await within(part).findByRole('alert')).textContent).toContain('the disk is gone')
  fails = false
  await fireEvent.click(within(part).getByRole('button', { name: 'Try again' }))
  await row('old')
  expect(within(part).getByRole('alert').textContent).toContain('models.toml: line 3')
  expect(within(part).getByRole('alert').textContent).toContain('/c/models.toml')
})

it('reads the models again when another client changed them', async () => {
  const { at, store } = await open([one('big')])
  await row('big')
  at.list = [one('big'), one('small')]
  const { ev } = await import('../../test/world')
  store.take([ev('core.started', { version: '1' }, { session_id: undefined, project_id: undefined })])
  store.take([ev('models.changed', { names: ['small'], default: 'big', by: 'cli' }, { session_id: undefined, project_id: undefined })])
  await row('small')
})
