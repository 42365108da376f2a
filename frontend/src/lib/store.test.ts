import { afterEach, expect, it, vi } from 'vitest'
import { ev, project } from '../test/world'
import { Store } from './store.svelte'

afterEach(() => vi.unstubAllGlobals())

/** A core with one stream that the test feeds and cuts. */
function core(latest: number, answers: Record<string, unknown> = {}) {
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  const asked: string[] = []
  let refuse = false
  let status = 200
  vi.stubGlobal('fetch', async (path: string, init: RequestInit = {}) => {
    asked.push(path)
    if (refuse) throw new TypeError('no route')
    if (path.startsWith('/v1/events')) {
      if (status !== 200) {
        const s = status
        status = 200
        return new Response(JSON.stringify({ code: 'conflict', what: 'another log' }), { status: s })
      }
      return new Response(new ReadableStream({ start(c) { streams.push(c); init.signal?.addEventListener('abort', () => { try { c.error(new Error('aborted')) } catch { /* it ended before */ } }) } }))
    }
    return new Response(JSON.stringify(path === '/v1/info' ? { version: '1', latest_event_id: latest, machine_kinds: {}, ...(answers[path] as object) } : (answers[path] ?? [])))
  })
  return {
    asked,
    send: (...events: object[]) => streams.at(-1)?.enqueue(new TextEncoder().encode(events.map((e) => `${JSON.stringify(e)}\n`).join(''))),
    cut: () => streams.at(-1)?.close(),
    refuse: (v: boolean) => (refuse = v),
    other: () => (status = 409),
    streams,
  }
}
const made = (id: number) => ({ ...project(), id })
const started = (id: number) => ({ ...ev('core.started', { version: '1' }, { session_id: undefined, project_id: undefined }), id })
const wait = { timeout: 20_000 }

it('is settled once all that was in the log is read, and not before', async () => {
  const c = core(2, { '/v1/projects': [{ id: 'p1', progress: { phase: 'boot', text: 'booting', done: 1, total: 2, since: 5 } }] })
  const store = new Store()
  const stop = new AbortController()
  void store.follow(stop.signal)
  expect(store.settled).toBe(false)
  await vi.waitFor(() => expect(store.latest).toBe(2), wait)
  c.send(started(1))
  await vi.waitFor(() => expect(store.s.last).toBe(1), wait)
  expect(store.settled).toBe(false)
  expect(store.read).toBe(0.5)
  c.send(made(2))
  await vi.waitFor(() => expect(store.settled).toBe(true), wait)
  stop.abort()
})

it('shows how far a project is after a reload, which no event tells again', async () => {
  const c = core(1, { '/v1/projects': [{ id: 'p1', progress: { phase: 'boot', text: 'booting', done: 1, total: 2, since: 5 } }] })
  const store = new Store()
  store.take([made(1) as never])
  const stop = new AbortController()
  void store.follow(stop.signal)
  await vi.waitFor(() => expect(store.s.projects['p1']?.progress).toMatchObject({ phase: 'boot', done: 1, total: 2, since: 5 }), wait)
  expect(c.asked).toContain('/v1/projects')
  stop.abort()
})

it('an answer that is older than the events begins no work again that is over', async () => {
  const progress = { phase: 'boot', text: 'booting', since: 5 }
  const store = new Store()
  store.take([made(1) as never])
  const merge = (machine_state: string, work: string) => {
    store.merge([{ id: 'p1', machine_state, progress: { ...progress, work } } as never])
    return store.s.projects['p1']?.progress?.work
  }
  store.take([{ ...ev('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' }, { session_id: undefined }), id: 2 } as never])
  expect(merge('starting', 'start')).toBeUndefined()
  store.take([{ ...ev('project.imported', { branch: 'main', files: 1 }, { session_id: undefined }), id: 3 } as never])
  expect(merge('ready', 'create')).toBeUndefined()
  store.take([{ ...ev('machine.state', { machine_id: 'm', kind: 'local', state: 'starting' }, { session_id: undefined }), id: 4 } as never])
  expect(merge('starting', 'start')).toBe('start')
})

it('says since when the link is lost, and tries again at once when asked', async () => {
  const c = core(0)
  const store = new Store()
  const stop = new AbortController()
  void store.follow(stop.signal)
  await vi.waitFor(() => expect(store.link).toBe('live'), wait)
  c.refuse(true)
  c.cut()
  await vi.waitFor(() => expect(store.link).toBe('cut'), wait)
  expect(store.lost).toBeGreaterThan(0)
  await vi.waitFor(() => expect(store.why).toContain('nobody answered'), wait)
  c.refuse(false)
  store.retry()
  await vi.waitFor(() => expect(store.link).toBe('live'), wait)
  expect(store.lost).toBe(0)
  stop.abort()
})

it('does not trust a stream that stays open after the core has said that it stops', async () => {
  const c = core(1)
  const store = new Store()
  const stop = new AbortController()
  void store.follow(stop.signal)
  await vi.waitFor(() => expect(c.streams.length).toBe(1), wait)
  c.send(started(1))
  await vi.waitFor(() => expect(store.settled && store.s.last).toBe(1), wait)
  c.refuse(true)
  c.send({ ...ev('core.stopped', {}, { session_id: undefined, project_id: undefined }), id: 2 })
  await vi.waitFor(() => expect(store.link).toBe('cut'), wait)
  expect(store.why).not.toBe('')
  c.refuse(false)
  await vi.waitFor(() => expect(store.link).toBe('live'), wait)
  stop.abort()
})

it('begins anew with another log, and says so', async () => {
  const c = core(1)
  const store = new Store()
  const news: string[] = []
  store.onNews = (t) => news.push(t)
  const stop = new AbortController()
  void store.follow(stop.signal)
  await vi.waitFor(() => expect(c.streams.length).toBe(1), wait)
  c.send(made(1))
  await vi.waitFor(() => expect(store.s.projects['p1']).toBeTruthy(), wait)
  c.other()
  c.cut()
  await vi.waitFor(() => expect(news.join()).toContain('another log'), wait)
  expect(store.s.projects['p1']).toBeUndefined()
  await vi.waitFor(() => expect(store.link).toBe('live'), wait)
  stop.abort()
})

it('says that the core started again while the page looked on, not when the page reads its past', async () => {
  const store = new Store()
  const news: string[] = []
  store.onNews = (t) => news.push(t)
  store.settled = false
  store.take([started(1) as never, started(2) as never])
  expect(news).toEqual([])
  store.settled = true
  store.take([started(3) as never])
  expect(news).toHaveLength(1)
})

it('says once how the core differs from the program that holds the page, and when it does not any more', async () => {
  const info: Record<string, unknown> = { differs: 'the core is older' }
  const c = core(0, { '/v1/info': info })
  const store = new Store()
  const said: string[] = []
  store.onDiffers = (t) => said.push(t)
  const stop = new AbortController()
  void store.follow(stop.signal)
  await vi.waitFor(() => expect(said).toEqual(['the core is older']), wait)
  const again = async () => {
    const n = c.asked.filter((p) => p === '/v1/projects').length
    c.cut()
    await vi.waitFor(() => expect(c.asked.filter((p) => p === '/v1/projects').length).toBeGreaterThan(n), wait)
  }
  await again()
  expect(said).toHaveLength(1)
  delete info['differs']
  await again()
  expect(said).toEqual(['the core is older', ''])
  stop.abort()
})
