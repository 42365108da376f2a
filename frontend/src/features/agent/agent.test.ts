import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { ModelView, Envelope } from '../../api/types'
import App from '../../App.svelte'
import { answered, calledStep, done, modelSession, text, turn, turnEnded } from '../../test/model'
import { core, ev, HARMFUL, HOSTILE, project, session, shown, step, world } from '../../test/world'
import { configOf, emptyForm, fieldOf } from './models'
import { heldBy, history, limitOf, nextMode, titleOf, unread } from './pick'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const model = (name: string, more: Partial<ModelView> = {}): ModelView => ({ name, format: 'openai-chat', model: `${name}-1`, key: 'keychain', price: { input: 3, output: 15 }, ...more })
const ALL = [model('big'), model('small', { key: 'missing', key_env: 'SMALL_KEY' }), model('home', { key: 'none', price: undefined, base_url: 'http://127.0.0.1:11434/v1' } as Partial<ModelView>)]
const list = (models: ModelView[] = ALL, more: object = {}) => ({ default: models[0]?.name ?? '', models, file: '/c/models.toml', ...more })
const running = (...more: Envelope[]) => [project(), modelSession(), ev('session.state', { state: 'running' }), turn('Mend it'), ...more]
const over = (result: string, reason = '') => [...running(), turnEnded(result, reason), ev('session.state', { state: 'idle' })]
function show(events: Envelope[], routes: Record<string, (body: unknown) => unknown> = {}) {
  const seen = core({ 'GET /v1/models': () => list(), ...routes })
  const w = world(...events)
  return { ...w, seen, calls: () => seen.filter((c) => c.path !== '/v1/models'), ...render(App, { store: w.store, live: false }) }
}
const box = () => screen.getByLabelText<HTMLTextAreaElement>('Message')
const type = (value: string) => fireEvent.input(box(), { target: { value } })
const enter = (more: object = {}) => fireEvent.keyDown(box(), { key: 'Enter', ...more })
const press = (key: string, more: object = {}) => fireEvent.keyDown(document.body, { key, ...more })

describe('sending', () => {
  it('without a session makes one, with the title of the first line, and begins the turn', async () => {
    const { seen, calls } = show([project()], { 'POST /v1/sessions': () => ({ id: 's9' }), 'POST /v1/sessions/s9/turns': () => ({ turn_id: 't' }) })
    await type('\n  Mend the   greeting\nIt says helo.')
    await enter()
    await waitFor(() => expect(calls()).toHaveLength(2))
    expect(calls()[0]).toMatchObject({ path: '/v1/sessions', body: { project_id: 'p1', agent: 'model', title: 'Mend the greeting', mode: 'auto' } })
    expect(calls()[1]).toMatchObject({ path: '/v1/sessions/s9/turns', body: { agent: 'model', prompt: 'Mend the   greeting\nIt says helo.' } })
    await waitFor(() => expect(box().value).toBe(''))
    expect(seen.filter((c) => c.path === '/v1/models').length).toBeGreaterThan(0)
  })

  it('begins the next turn in a session that is there', async () => {
    const { calls } = show(over('unchecked'), { 'POST /v1/sessions/s1/turns': () => ({}) })
    await type('And the tests')
    await enter({ ctrlKey: true })
    await waitFor(() => expect(calls()).toMatchObject([{ path: '/v1/sessions/s1/turns', body: { agent: 'model', prompt: 'And the tests' } }]))
    await waitFor(() => expect(box().value).toBe(''))
  })

  it('leaves a message while a turn runs, and says that it is not read yet until an answer was begun after it', async () => {
    const { store, calls } = show(running(), { 'POST /v1/sessions/s1/messages': () => ({}) })
    expect(box().placeholder).toContain('before its next answer')
    await type('Look at the tests first')
    await enter()
    await waitFor(() => expect(calls()).toMatchObject([{ path: '/v1/sessions/s1/messages', body: { text: 'Look at the tests first' } }]))
    expect(screen.getByText('Sending:')).toBeTruthy()
    const said = Date.now()
    store.take([ev('message', { role: 'person', text: 'Look at the tests first' }, { at: said })])
    await waitFor(() => expect(screen.getByText('Read before its next answer:')).toBeTruthy())
    expect(box().value).toBe('')
    // An answer that was under way has not read it.
    store.take([{ ...answered(1, [text('So far')], { took_ms: 5000 }), at: said + 1000 }])
    await tick()
    expect(screen.getByText('Read before its next answer:')).toBeTruthy()
    store.take([{ ...answered(2, [text('I look at them')], { took_ms: 1 }), at: said + 2000 }])
    await waitFor(() => expect(screen.queryByText('Read before its next answer:')).toBeNull())
  })

  it('lets a message be read that came when the turn had ended', async () => {
    const { calls } = show([...over('unchecked'), ev('message', { role: 'person', text: 'one more thing' })], { 'POST /v1/sessions/s1/turns': () => ({}) })
    expect(screen.getByText('Not read yet:')).toBeTruthy()
    await fireEvent.click(screen.getByRole('button', { name: /^Let it read/ }))
    await waitFor(() => expect(calls()).toMatchObject([{ path: '/v1/sessions/s1/turns', body: { agent: 'model', go_on: true } }]))
  })

  it('shows both what was not read and how the turn ended, with one way to go on', () => {
    show([...running(ev('message', { role: 'person', text: 'one more thing' })), turnEnded('failed', 'no'), ev('session.state', { state: 'idle' })])
    expect(screen.getByText('Not read yet:')).toBeTruthy()
    expect(screen.getByText('It failed.')).toBeTruthy()
    expect(screen.getByRole('button', { name: /^Retry/ })).toBeTruthy()
    expect(screen.getAllByRole('button', { name: /^(Continue|Let it read)/ })).toHaveLength(1)
  })

  it('leaves Enter to an input method, and makes a new line with Shift', async () => {
    const { calls } = show(over('unchecked'))
    await type('こん')
    await enter({ isComposing: true })
    await enter({ keyCode: 229 })
    const e = new KeyboardEvent('keydown', { key: 'Enter', shiftKey: true, bubbles: true, cancelable: true })
    box().dispatchEvent(e)
    expect(e.defaultPrevented).toBe(false)
    await type('   ')
    await enter()
    expect(calls()).toEqual([])
  })

  it('is done once however often the key repeats', async () => {
    const { calls } = show(over('unchecked'), { 'POST /v1/sessions/s1/turns': () => ({}) })
    await type('go')
    await enter()
    await enter()
    await enter({ repeat: true })
    await waitFor(() => expect(box().value).toBe(''))
    expect(calls()).toHaveLength(1)
  })

  it('brings back what was sent, newest first', async () => {
    show([...over('unchecked'), ev('message', { role: 'person', text: 'second' })])
    await fireEvent.keyDown(box(), { key: 'ArrowUp' })
    expect(box().value).toBe('second')
    await tick()
    await fireEvent.keyDown(box(), { key: 'ArrowUp' })
    expect(box().value).toBe('Mend it')
    await fireEvent.keyDown(box(), { key: 'ArrowDown' })
    expect(box().value).toBe('second')
    await type('second thoughts')
    await fireEvent.keyDown(box(), { key: 'ArrowUp' })
    expect(box().value).toBe('second thoughts')
  })
})

describe('what goes wrong', () => {
  it('without a model says so and opens the form; what was written is kept', async () => {
    const { calls } = show([project()], { 'GET /v1/models': () => list([]), 'GET /v1/settings': () => ({ status: 503, error: { code: 'unavailable', what: 'no' } }) })
    await type('Mend it')
    await enter()
    const alert = await screen.findByRole('alert')
    expect(alert.textContent).toContain('no model to ask yet')
    expect(calls()).toEqual([])
    expect(box().value).toBe('Mend it')
    await fireEvent.click(within(alert).getByRole('button', { name: 'Add a model…' }))
    expect(await screen.findByRole('form', { name: 'Add a model' })).toBeTruthy()
  })

  it('with a model without a key says which key, and opens its form', async () => {
    show([project()], { 'GET /v1/models': () => list([ALL[1]!]), 'GET /v1/settings': () => ({ status: 503, error: { code: 'unavailable', what: 'no' } }) })
    await type('Mend it')
    await enter()
    const alert = await screen.findByRole('alert')
    expect(alert.textContent).toContain('SMALL_KEY is not set')
    await fireEvent.click(within(alert).getByRole('button', { name: 'Set the key…' }))
    expect(await screen.findByRole('form', { name: 'Edit small' })).toBeTruthy()
  })

  it('keeps the words when the session is there and its turn is not', async () => {
    const { store } = show([project()], { 'POST /v1/sessions': () => ({ id: 's1' }), 'POST /v1/sessions/s1/turns': () => ({ status: 503, error: { code: 'unavailable', what: 'the machine does not start', hint: 'see the doctor' } }) })
    await type('Mend it')
    await enter()
    store.take([modelSession()])
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('the machine does not start'))
    expect(box().value).toBe('Mend it')
  })

  it('offers to leave a message where a turn runs already', async () => {
    const { calls } = show(over('unchecked'), { 'POST /v1/sessions/s1/turns': () => ({ status: 409, error: { code: 'conflict', what: 'a turn is running in this session', hint: 'leave it a message' } }), 'POST /v1/sessions/s1/messages': () => ({}) })
    await type('And this')
    await enter()
    await fireEvent.click(await screen.findByRole('button', { name: 'Leave it as a message' }))
    await waitFor(() => expect(calls().at(-1)).toMatchObject({ path: '/v1/sessions/s1/messages', body: { text: 'And this' } }))
  })

  it('keeps the words when nobody answers', async () => {
    show(over('unchecked'))
    const plain = globalThis.fetch
    vi.stubGlobal('fetch', (path: string, init: RequestInit) => (init.method === 'POST' ? Promise.reject(new TypeError('connection lost')) : plain(path, init)))
    await type('And this')
    await enter()
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('nobody answered'))
    expect(box().value).toBe('And this')
  })

  it('cuts nothing off: what is too long is kept and said to be', async () => {
    const { calls } = show(over('unchecked'))
    await type('x'.repeat(40_000))
    await enter()
    expect((await screen.findByRole('alert')).textContent).toContain('40,000 characters')
    expect(box().value).toHaveLength(40_000)
    expect(calls()).toEqual([])
  })

  it('takes no words in a session that has ended, and offers a new one', async () => {
    show([...over('unchecked'), ev('session.state', { state: 'ended' })])
    expect(box().disabled).toBe(true)
    await fireEvent.click(screen.getByRole('button', { name: /^New session/ }))
    await waitFor(() => expect(box().disabled).toBe(false))
    expect(box().placeholder).toContain('What should be done in shop')
  })
})

describe('what is chosen', () => {
  it('says what each mode means, and marks the one without questions about hosts', async () => {
    const { calls } = show(running(), { 'PATCH /v1/sessions/s1': () => ({}) })
    await fireEvent.click(screen.getByRole('button', { name: 'Mode: Auto' }))
    const menu = screen.getByRole('menu', { name: 'Mode' })
    const entries = within(menu).getAllByRole('menuitemradio')
    expect(entries.map((e) => e.getAttribute('aria-checked'))).toEqual(['false', 'false', 'true', 'false'])
    expect(entries[0]?.textContent).toContain('Nothing may change.')
    expect(entries[3]?.textContent).toContain('no question about hosts')
    await waitFor(() => expect(document.activeElement).toBe(entries[2]))
    await fireEvent.keyDown(entries[2]!, { key: 'ArrowUp' })
    await fireEvent.keyDown(document.activeElement!, { key: 'p' })
    expect(document.activeElement?.textContent).toContain('Plan')
    await fireEvent.click(document.activeElement!)
    expect(screen.queryByRole('menu')).toBeNull()
    await waitFor(() => expect(calls()).toEqual([{ method: 'PATCH', path: '/v1/sessions/s1', body: { mode: 'plan' } }]))
    expect(screen.getByRole('button', { name: 'Mode: Plan' })).toBeTruthy()
  })

  it('says in the menu that the models are being read, and why they cannot be', async () => {
    show(running(), { 'GET /v1/models': () => ({ status: 503, error: { code: 'unavailable', what: 'the disk is gone' } }) })
    const plain = globalThis.fetch
    let go: () => void = () => {}
    vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
      await new Promise<void>((done) => (go = done))
      return plain(path, init)
    })
    await press('M')
    const menu = await screen.findByRole('menu', { name: 'Agent' })
    expect(menu.textContent).toContain('Reading the models…')
    go()
    await waitFor(() => expect(menu.textContent).toContain('the disk is gone'))
    expect(within(menu).getByRole('menuitem', { name: /^Playbook…/ })).toBeTruthy()
  })

  it('says when a change is refused, and shows what holds', async () => {
    show(running(), { 'PATCH /v1/sessions/s1': () => ({ status: 409, error: { code: 'conflict', what: 'the session has ended' } }) })
    await press('/', { ctrlKey: true })
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('has ended'))
    expect(screen.getByRole('button', { name: 'Mode: Auto' })).toBeTruthy()
  })

  it('shows models with why some cannot be asked, and chooses by key', async () => {
    const { calls } = show(running(), { 'PATCH /v1/sessions/s1': () => ({}) })
    await press('M')
    const menu = await screen.findByRole('menu', { name: 'Agent' })
    await waitFor(() => expect(within(menu).getByRole('menuitemradio', { name: /^small/ })).toBeTruthy())
    const small = within(menu).getByRole('menuitemradio', { name: /^small/ })
    expect(small.getAttribute('aria-disabled')).toBe('true')
    expect(small.textContent).toContain('SMALL_KEY is not set')
    await fireEvent.click(small)
    expect(calls()).toEqual([])
    await fireEvent.click(within(menu).getByRole('menuitemradio', { name: /^home/ }))
    await waitFor(() => expect(calls()).toEqual([{ method: 'PATCH', path: '/v1/sessions/s1', body: { model: 'home' } }]))
  })

  it('limits in dollars, or in tokens where there is no price', async () => {
    const { store, calls } = show(running(), { 'PATCH /v1/sessions/s1': () => ({}) })
    await fireEvent.focus(box())
    await fireEvent.click(screen.getByRole('button', { name: 'Spending limit: No limit' }))
    const field = screen.getByLabelText(/most it may cost/)
    await fireEvent.input(field, { target: { value: 'much' } })
    await fireEvent.click(screen.getByRole('button', { name: 'Set' }))
    expect(screen.getByRole('alert').textContent).toContain('Give dollars')
    await fireEvent.input(field, { target: { value: '0.50' } })
    await fireEvent.keyDown(field, { key: 'Enter' })
    await waitFor(() => expect(calls()).toEqual([{ method: 'PATCH', path: '/v1/sessions/s1', body: { limit_nanos: 500_000_000 } }]))
    store.take([ev('session.changed', { limit_nanos: 500_000_000, model: 'home' })])
    const button = await screen.findByRole('button', { name: 'Spending limit: Limit $0.50' })
    await fireEvent.click(button)
    expect(screen.getByRole('dialog').textContent).toContain('cannot be kept: the model has no price')
    await fireEvent.input(screen.getByLabelText(/most tokens/), { target: { value: '200k' } })
    await fireEvent.click(screen.getByRole('button', { name: 'Set' }))
    await waitFor(() => expect(calls().at(-1)?.body).toEqual({ limit_tokens: 200_000 }))
  })

  it('keeps what a new session begins with over a reload', async () => {
    const { unmount, store } = show([project()])
    await press('/', { ctrlKey: true })
    expect(screen.getByRole('button', { name: 'Mode: Plan' })).toBeTruthy()
    unmount()
    const seen = core({ 'GET /v1/models': () => list(), 'POST /v1/sessions': () => ({ id: 's9' }), 'POST /v1/sessions/s9/turns': () => ({}) })
    render(App, { store, live: false })
    await type('Plan it')
    await enter()
    await waitFor(() => expect(seen.find((c) => c.path === '/v1/sessions')?.body).toMatchObject({ mode: 'plan' }))
  })

  it('lets a model work in a session of a playbook only when it is chosen', async () => {
    const { calls } = show([project(), session()], { 'POST /v1/sessions/s1/messages': () => ({}), 'POST /v1/sessions/s1/turns': () => ({}), 'PATCH /v1/sessions/s1': () => ({}) })
    await type('a note')
    await enter()
    await waitFor(() => expect(calls().at(-1)).toMatchObject({ path: '/v1/sessions/s1/messages' }))
    await waitFor(() => expect(box().value).toBe(''))
    await fireEvent.click(screen.getByRole('button', { name: 'Agent: Playbook' }))
    await fireEvent.click(await screen.findByRole('menuitemradio', { name: /^big/ }))
    await type('work')
    await enter()
    await waitFor(() => expect(calls().at(-1)).toMatchObject({ path: '/v1/sessions/s1/turns', body: { agent: 'model', prompt: 'work' } }))
  })

  it('closes a menu with Escape and gives the focus back; a model’s name is no harm', async () => {
    const { container } = show([project()], { 'GET /v1/models': () => list([model('x', { model: HOSTILE })]) })
    await press('M')
    const menu = await screen.findByRole('menu', { name: 'Agent' })
    await waitFor(() => expect(within(menu).queryByRole('menuitemradio')).toBeTruthy())
    expect(shown(container)).not.toMatch(HARMFUL)
    await fireEvent.keyDown(menu.querySelector('button')!, { key: 'Escape' })
    expect(screen.queryByRole('menu')).toBeNull()
    expect(document.activeElement?.id).toBe('pick-agent')
  })
})

describe('stop, continue, retry', () => {
  it('stops a turn while no step runs: by button, by key, by Escape twice', async () => {
    const { calls } = show(running(), { 'POST /v1/sessions/s1/cancel': () => ({}) })
    const cancel = { method: 'POST', path: '/v1/sessions/s1/cancel', body: {} }
    await fireEvent.click(within(document.querySelector<HTMLElement>('header.top')!).getByRole('button', { name: 'Stop turn' }))
    await waitFor(() => expect(calls()).toEqual([cancel]))
    await press('X')
    await waitFor(() => expect(calls()).toHaveLength(2))
    box().focus()
    await fireEvent.keyDown(box(), { key: 'Escape' })
    expect(document.activeElement).not.toBe(box())
    expect(calls()).toHaveLength(2)
    await press('Escape')
    await waitFor(() => expect(calls()).toEqual([cancel, cancel, cancel]))
  })

  it('says when stopping failed, with a way to try again', async () => {
    let fails = true
    const { calls } = show(running(), { 'POST /v1/sessions/s1/cancel': () => (fails ? { status: 503, error: { code: 'unavailable', what: 'the disk is full' } } : {}) })
    await press('X')
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('the disk is full'))
    fails = false
    await fireEvent.click(screen.getByRole('button', { name: 'Stop again' }))
    await waitFor(() => expect(calls()).toHaveLength(2))
    await waitFor(() => expect(screen.queryByRole('alert')).toBeNull())
  })

  it('begins nothing before the core has the mode that was chosen, and nothing where it refused it', async () => {
    let answer: (v: unknown) => void = () => {}
    const { calls } = show(over('unchecked'), { 'POST /v1/sessions/s1/turns': () => ({}), 'PATCH /v1/sessions/s1': () => new Promise((done) => (answer = done)) })
    await fireEvent.keyDown(box(), { key: '/', ctrlKey: true })
    await waitFor(() => expect(calls()).toMatchObject([{ method: 'PATCH', body: { mode: 'plan' } }]))
    await type('Look at it')
    await enter()
    await new Promise((r) => setTimeout(r, 30))
    expect(calls()).toHaveLength(1)
    answer({})
    await waitFor(() => expect(calls().at(-1)).toMatchObject({ path: '/v1/sessions/s1/turns', body: { prompt: 'Look at it' } }))
    await waitFor(() => expect(box().value).toBe(''))
    const n = calls().length
    await fireEvent.keyDown(box(), { key: '/', ctrlKey: true })
    await waitFor(() => expect(calls()).toHaveLength(n + 1))
    await type('And now')
    await enter()
    answer({ status: 503, error: { code: 'unavailable', what: 'the disk is full' } })
    expect((await screen.findByRole('alert')).textContent).toContain('the disk is full')
    expect(calls()).toHaveLength(n + 1)
    expect(box().value).toBe('And now')
  })

  it('says nothing more of a stop that failed once nothing runs', async () => {
    const { store } = show(running(), { 'POST /v1/sessions/s1/cancel': () => ({ status: 503, error: { code: 'unavailable', what: 'the disk is full' } }) })
    await press('X')
    await screen.findByRole('alert')
    store.take([turnEnded('cancelled'), ev('session.state', { state: 'idle' })])
    await waitFor(() => expect(screen.queryByRole('alert')).toBeNull())
  })

  it.each(['cancelled', 'stopped', 'interrupted', 'failed'])('continues and retries after a turn that was %s', async (result) => {
    const { calls } = show(over(result, 'why it ended'), { 'POST /v1/sessions/s1/turns': () => ({}) })
    await fireEvent.click(screen.getByRole('button', { name: /^Continue/ }))
    await waitFor(() => expect(calls()).toMatchObject([{ path: '/v1/sessions/s1/turns', body: { agent: 'model', go_on: true } }]))
    await waitFor(() => expect(screen.getByRole<HTMLButtonElement>('button', { name: /^Retry/ }).disabled).toBe(false))
    await press('r')
    await waitFor(() => expect(calls().at(-1)).toMatchObject({ body: { agent: 'model', prompt: 'Mend it' } }))
  })

  it('offers neither after a turn that is done, while one runs, nor for a playbook, and says why', async () => {
    const { store, unmount } = show(over('ok'))
    expect(screen.queryByRole('button', { name: /^(Continue|Retry)/ })).toBeNull()
    await press('k', { ctrlKey: true })
    const find = screen.getByRole('combobox', { name: 'Find a command' })
    await fireEvent.input(find, { target: { value: 'continue where' } })
    expect(screen.getByRole('option', { name: /Continue where/ }).textContent).toContain('The last turn is done')
    await fireEvent.keyDown(find, { key: 'Escape' })
    store.take([ev('session.state', { state: 'running' }), turn('again', 't2')])
    await tick()
    expect(screen.queryByRole('button', { name: /^(Continue|Retry)/ })).toBeNull()
    unmount()
    cleanup()
    show([project(), session(), ev('turn.started', { turn_id: 't1', prompt: 'x', agent: 'playbook' }), step(1), ev('turn.ended', { turn_id: 't1', result: 'failed', reason: 'no' })])
    expect(screen.queryByRole('button', { name: /^(Continue|Retry)/ })).toBeNull()
  })

  it('leads from a limit to the limit, and from a key that is not taken to the models', async () => {
    const { unmount, store } = show([project(), modelSession({ limit_nanos: 4_000_000 }), turn('Mend it'), answered(1, [text('a')]), turnEnded('stopped', 'the limit of what the session may cost is reached: $0.0041 of $0.004 are used; raise it to go on')])
    await fireEvent.click(screen.getByRole('button', { name: 'Change the limit…' }))
    expect(screen.getByRole('dialog', { name: 'Spending limit' })).toBeTruthy()
    store.take([ev('session.changed', { limit_nanos: 8_000_000 })])
    await tick()
    expect(screen.queryByRole('button', { name: 'Change the limit…' })).toBeNull()
    unmount()
    cleanup()
    show(over('failed', 'The model big does not take the key (HTTP 401)'))
    expect(screen.getByRole('button', { name: 'Models…' })).toBeTruthy()
  })
})

describe('words and numbers', () => {
  it('make a title of the first line', () => {
    expect(titleOf('\n\n  Fix  it\nnow')).toBe('Fix it')
    expect(titleOf('word '.repeat(40))).toMatch(/^(word )+word…$/)
    expect(titleOf('x'.repeat(300)).length).toBeLessThanOrEqual(81)
    expect(titleOf(' \n ')).toBe('')
  })
  it('take limits as people write them', () => {
    expect([['2', 2e9], ['$0.50', 5e8], ['0,5', 5e8], ['', 0], ['.000000001', 1]].map(([t, n]) => limitOf(t as string, true) === n)).toEqual([true, true, true, true, true])
    for (const bad of ['-1', 'x', '1e9', '0', '2 usd', '.', '99999999']) expect(limitOf(bad, true), bad).toBeUndefined()
    expect([limitOf('200k', false), limitOf('1.5M', false), limitOf('200,000', false), limitOf('', false), limitOf('-5', false), limitOf('k', false)]).toEqual([200_000, 1_500_000, 200_000, 0, undefined, undefined])
  })
  it('know the limit that a turn stopped at', () => {
    const at = (reason: string, nanos: number, toks = 0) => heldBy(reason, nanos, toks)
    expect([at('$0.945 of $1.00 are used', 1e9), at('of $1.00, raise', 1e9), at('of $1.00.', 1e9), at('$0.50 of $1.005 are', 1e9), at('of $11.00', 1e9), at('of $0.000000001', 1), at('of $2.50', 25e8), at('', 1e9), at('of $1.00', 0)]).toEqual([true, true, true, false, false, true, true, false, false])
    expect([at('1,000 of 20,000 tokens are used', 0, 20_000), at('of 120,000 tokens', 0, 20_000)]).toEqual([true, false])
  })
  it('never come to full mode by the way', () => {
    expect(['plan', 'ask', 'auto', 'full', 'other'].map(nextMode)).toEqual(['ask', 'auto', 'plan', 'plan', 'plan'])
  })
  it('know what no answer was begun after, over many steps', () => {
    const { store } = world(...running(), answered(1, [text('a')], { took_ms: 0 }), ev('message', { role: 'person', text: 'first' }), ...Array.from({ length: 50 }, (_, i) => [calledStep(i + 1, `k${i}`), ...done(i + 1)]).flat(), ev('message', { role: 'person', text: 'second' }))
    const x = store.s.sessions.s1!
    expect(unread(store.s, x).map((m) => m.text)).toEqual(['first', 'second'])
    expect(history(x)).toEqual(['second', 'first', 'Mend it'])
  })
  it('make a configuration of a form, or say which field is wrong', () => {
    const f = { ...emptyForm(), name: 'a', model: 'm', context: '128,000', input: '1.25', output: '10' }
    expect(configOf(f)).toEqual({ config: { name: 'a', format: 'openai-responses', model: 'm', context: 128_000, price: { input: 1.25, output: 10 } } })
    expect(configOf({ ...f, input: '' })).toMatchObject({ error: { pointer: '/price/input' } })
    expect(configOf({ ...f, context: '12.5' })).toMatchObject({ error: { pointer: '/context' } })
    expect(configOf({ ...f, output: 'ten' })).toMatchObject({ error: { pointer: '/price/output' } })
    expect([fieldOf({ code: '', what: '', pointer: '/base_url' }), fieldOf({ code: '', what: '', pointer: 'body.price.input' }), fieldOf({ code: '', what: '', pointer: '/other' }), fieldOf({ code: '', what: '' })]).toEqual(['base_url', 'price/input', '', ''])
  })
})

describe('checks', () => {
  it('are declared before the session is there, sent with it, and shown in it', async () => {
    const { store, calls } = show([project()], { 'POST /v1/sessions': () => ({ id: 's1' }), 'POST /v1/sessions/s1/turns': () => ({}) })
    await fireEvent.click(screen.getByRole('button', { name: 'Checks: No check' }))
    const field = screen.getByLabelText<HTMLTextAreaElement>('Done when this command exits 0')
    await waitFor(() => expect(document.activeElement).toBe(field))
    await fireEvent.input(field, { target: { value: ' npm test \n\nnpm run lint\nnpm test' } })
    await fireEvent.keyDown(field, { key: 'Enter' })
    expect(screen.getByRole('button', { name: 'Checks: 2 checks' })).toBeTruthy()
    await type('Mend it')
    await enter()
    await waitFor(() => expect(calls()).toHaveLength(2))
    expect(calls()[0]?.body).toMatchObject({ checks: [{ name: 'npm test', code: 'npm test' }, { name: 'npm run lint', code: 'npm run lint' }] })
    store.take([modelSession({ checks: [{ name: 'npm test', code: 'npm test' }] })])
    await fireEvent.click(await screen.findByRole('button', { name: 'Checks: 1 check' }))
    const dialog = screen.getByRole('dialog', { name: 'Checks' })
    expect(dialog.textContent).toContain('this command exits 0')
    expect(dialog.textContent).toContain('npm test')
    expect(within(dialog).queryByRole('textbox')).toBeNull()
  })

  it('are taken away again, and are not too many', async () => {
    const { calls } = show([project()], { 'POST /v1/sessions': () => ({ id: 's9' }), 'POST /v1/sessions/s9/turns': () => ({}) })
    const field = () => screen.getByLabelText<HTMLTextAreaElement>('Done when this command exits 0')
    await fireEvent.click(screen.getByRole('button', { name: 'Checks: No check' }))
    await fireEvent.input(field(), { target: { value: Array.from({ length: 21 }, (_, i) => `t${i}`).join('\n') } })
    await fireEvent.click(screen.getByRole('button', { name: 'Set' }))
    expect(screen.getByRole('alert').textContent).toContain('There may be 20 checks')
    await fireEvent.input(field(), { target: { value: 'make' } })
    await fireEvent.click(screen.getByRole('button', { name: 'Set' }))
    await fireEvent.click(screen.getByRole('button', { name: 'Checks: 1 check' }))
    expect(field().value).toBe('make')
    await fireEvent.click(screen.getByRole('button', { name: 'No check' }))
    await type('Mend it')
    await enter()
    await waitFor(() => expect(calls()).toHaveLength(2))
    expect(calls()[0]?.body).not.toHaveProperty('checks')
  })
})

describe('the first screens', () => {
  it('say that an agent needs a model, which one is the default, and lead to them', async () => {
    for (const [events, models, said, leads] of [
      [[], [], 'An agent needs a model, and none is set up yet', 'Add a model…'],
      [[project()], [], 'An agent needs a model, and none is set up yet', 'Add a model…'],
      [[], ALL, 'Agents ask big, the default model.', 'Models…'],
      [[project()], [ALL[1]!], 'Agents ask small, the default model. It has no key: SMALL_KEY is not set where the core runs.', 'Set it up…'],
      [[project()], ALL.slice(0, 2), 'No model is the default', 'Models…'],
    ] as const) {
      core({ 'GET /v1/models': () => list([...models], models.length === 2 ? { default: '' } : {}) })
      const { store } = world(...events)
      render(App, { store, live: false })
      expect(screen.getByText(/^An agent needs a model\./)).toBeTruthy()
      store.onModels()
      const button = () => screen.getByRole('button', { name: leads })
      await waitFor(() => expect(button().closest('p')?.textContent?.trim().slice(0, said.length)).toBe(said))
      await fireEvent.click(button())
      expect(screen.getByRole('heading', { name: 'Settings' })).toBeTruthy()
      cleanup()
      vi.unstubAllGlobals()
    }
  })
})
