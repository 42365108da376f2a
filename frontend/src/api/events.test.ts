import { waitFor } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import { Batch, follow, type Link } from './events'
import type { Envelope } from './types'

// A core whose streams are written out, one a connection.
function streams(...all: (string[] | Response | Error)[]) {
  const asked: string[] = []
  const rest = [...all]
  vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
    asked.push(path)
    const next = rest.shift()
    if (next instanceof Error) throw next
    if (next instanceof Response) return next
    return new Response(new ReadableStream({
      start(c) {
        const enc = new TextEncoder()
        for (const piece of next ?? []) c.enqueue(enc.encode(piece))
        if (next) c.close()
        else init.signal?.addEventListener('abort', () => c.error(new Error('aborted')))
      },
    }))
  })
  return asked
}
const line = (id: number) => `${JSON.stringify({ id, type: 't', data: {} })}\n`

async function run(until: (seen: Envelope[], links: Link[], resets: number) => boolean) {
  const seen: Envelope[] = []
  const links: Link[] = []
  const why: string[] = []
  let resets = 0
  const stop = new AbortController()
  const done = follow({ onEvents: (e) => seen.push(...e), onLink: (l, w) => { links.push(l); why.push(w) }, onReset: () => { resets++; seen.length = 0 } }, stop.signal)
  await waitFor(() => expect(until(seen, links, resets)).toBe(true))
  stop.abort()
  await done
  return { ids: seen.map((e) => e.id), links, why, resets }
}

afterEach(() => vi.unstubAllGlobals())

it('takes a cut stream up after the last event, and joins lines that come in pieces', async () => {
  const two = line(2)
  const asked = streams([line(1), two.slice(0, 9)], [two.slice(0, 4), two.slice(4), '\n', line(3)])
  const r = await run((s) => s.length === 3)
  expect(r.ids).toEqual([1, 2, 3])
  expect(asked.slice(0, 2).map((p) => /after=(\d+)/.exec(p)?.[1])).toEqual(['0', '1'])
  expect(r.links.slice(0, 4)).toEqual(['connecting', 'live', 'cut', 'live'])
})

it('passes over lines that are no events, and reads them once', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {})
  const odd = ['{"id":2,', 'null', '5', '[]', '{}', '{"id":"3","type":"t","data":{}}', '{"id":3,"type":7,"data":{}}', '{"id":3,"type":"t"}', '{"id":3,"type":"t","data":null}', '\u0000']
  const asked = streams([line(1), ...odd.map((l) => `${l}\n`), line(4)], [line(5)])
  const r = await run((s) => s.length === 3)
  expect(r.ids).toEqual([1, 4, 5])
  expect(/after=(\d+)/.exec(asked[1] ?? '')?.[1]).toBe('4')
  expect(said).toHaveBeenCalledTimes(odd.length)
  said.mockRestore()
})

it('is live as soon as the stream is there, though it is quiet', async () => {
  streams()
  expect((await run((_, l) => l.includes('live'))).links).toEqual(['connecting', 'live'])
})

it('starts over when the core has another log', async () => {
  const asked = streams([line(7)], new Response(JSON.stringify({ code: 'conflict', what: 'the log has no event 7 yet' }), { status: 409 }), [line(1)])
  const r = await run((s, _, n) => n === 1 && s.length === 1)
  expect(r.ids).toEqual([1])
  expect(asked[2]).toContain('after=0')
})

it('says why the link is cut, and tries again', async () => {
  streams(new Error('refused'), new Response(JSON.stringify({ code: 'denied', what: 'the token is missing or wrong', hint: 'open the address' }), { status: 403 }), [line(1)])
  const r = await run((s) => s.length === 1)
  expect(r.why.join()).toContain('nobody answered')
  expect(r.why.join()).toContain('the token is missing or wrong (open the address)')
})

it('hands events over in order, once a frame, and not so many that a frame is late', async () => {
  const frames: (() => void)[] = []
  vi.stubGlobal('requestAnimationFrame', (f: () => void) => frames.push(f))
  vi.stubGlobal('cancelAnimationFrame', (n: number) => { frames[n - 1] = () => {} })
  let now = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  const got: number[][] = []
  const b = new Batch((e) => {
    got.push(e.map((x) => x.id))
    now += 5
  })
  for (let i = 1; i <= 1000; i++) b.push({ id: i } as Envelope)
  expect(got).toEqual([])
  const frame = () => frames.splice(0).forEach((f) => f())
  frame()
  // Two portions of 5 ms each, then the frame is left to others.
  expect(got.map((g) => g.length)).toEqual([256, 256])
  b.push({ id: 1001 } as Envelope)
  frame()
  expect(got.flat()).toEqual(Array.from({ length: 1001 }, (_, i) => i + 1))
  frame()
  expect(got.length).toBe(4)
  // The rest comes at once when the stream ends, and nothing after a reset.
  b.push({ id: 1002 } as Envelope)
  b.flush()
  b.push({ id: 1003 } as Envelope)
  b.drop()
  frame()
  expect(got.slice(4)).toEqual([[1002]])
  vi.restoreAllMocks()
})

it('hands events over also while no frame is drawn', async () => {
  vi.stubGlobal('requestAnimationFrame', () => 1)
  vi.stubGlobal('cancelAnimationFrame', () => {})
  const got: number[] = []
  const b = new Batch((e) => got.push(...e.map((x) => x.id)))
  b.push({ id: 1 } as Envelope)
  await waitFor(() => expect(got).toEqual([1]))
})
