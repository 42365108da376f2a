import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { CallError } from '../../api/transport'
import { apply, empty } from '../../lib/state'
import { ev, HARMFUL, project } from '../../test/world'
import { base64, Input, MOST, unbase64, utf8, type Typed } from './input'
import { ending, follow } from './output'
import { clean, keysOf, oneLine, runs } from './paste'

const text = (t: Typed) => new TextDecoder().decode(unbase64(t.data))
const cut = () => new CallError(0, { code: 'unavailable', what: 'nobody answered' })

describe('what is typed', () => {
  beforeEach(() => { vi.useFakeTimers() })
  afterEach(() => { vi.useRealTimers() })

  function made(answer: (t: Typed, n: number) => Promise<unknown>) {
    const sent: Typed[] = []
    const waits: [number, string][] = []
    const lost: string[] = []
    const input = new Input({
      send: (t) => { sent.push(t); return answer(t, sent.length) },
      onWaiting: (n, why) => waits.push([n, why]),
      onLost: (e) => lost.push(e.what),
    })
    input.epoch = 'e1'
    return { input, sent, waits, lost }
  }

  it('is gathered, and goes one call at a time, in order', async () => {
    let under = 0
    const { input, sent } = made(async () => {
      expect(++under).toBe(1)
      await new Promise((done) => setTimeout(done, 30))
      under--
    })
    for (const c of 'make') input.type(utf8(c))
    await vi.advanceTimersByTimeAsync(15)
    for (const c of ' test\r') { input.type(utf8(c)); await vi.advanceTimersByTimeAsync(3) }
    await vi.runAllTimersAsync()
    expect(sent[0] && text(sent[0])).toBe('make')
    expect(sent.map(text).join('')).toBe('make test\r')
    expect(sent.length).toBeLessThan(4)
    expect(sent.map((t) => t.seq)).toEqual(sent.map((_, i) => i + 1))
    expect(input.waiting).toBe(0)
  })

  it('is sent again with its number after a cut, and what follows waits behind it', async () => {
    const { input, sent, waits, lost } = made((_, n) => (n < 4 ? Promise.reject(cut()) : Promise.resolve()))
    input.type(utf8('a'))
    await vi.advanceTimersByTimeAsync(20)
    input.type(utf8('b'))
    await vi.runAllTimersAsync()
    expect(sent.map((t) => [text(t), t.seq])).toEqual([['a', 1], ['a', 1], ['a', 1], ['a', 1], ['b', 2]])
    expect(new Set(sent.map((t) => t.writer)).size).toBe(1)
    expect(waits.some(([n, why]) => n === 2 && why === 'nobody answered')).toBe(true)
    expect(waits.at(-1)).toEqual([0, ''])
    expect(lost).toEqual([])
  })

  it('keeps the epoch it was first sent with; one that may have arrived is given up aloud, what was never sent is not', async () => {
    let restarted = false
    const { input, sent, lost } = made((t) => Promise.reject(t.epoch === 'e1' ? (restarted ? new CallError(409, { code: 'conflict', what: 'started again' }) : cut()) : undefined).catch((e: unknown) => { if (e) throw e }))
    input.type(utf8('a'))
    await vi.advanceTimersByTimeAsync(300)
    input.type(utf8('b'))
    restarted = true
    input.epoch = 'e2'
    await vi.runAllTimersAsync()
    expect(lost).toEqual(['started again'])
    expect(sent.filter((t) => t.epoch === 'e2').map((t) => [text(t), t.seq])).toEqual([['b', 1]])
    expect(sent.at(-1)?.writer).not.toBe(sent[0]?.writer)
  })

  it('is held while the link is known to be cut, and goes to the core that comes next', async () => {
    const { input, sent, waits, lost } = made(() => Promise.resolve())
    input.link(false)
    input.type(utf8('abc'))
    await vi.advanceTimersByTimeAsync(5000)
    expect(sent).toEqual([])
    expect(waits.at(-1)).toEqual([3, 'the core does not answer'])
    input.epoch = 'e2'
    input.link(true)
    await vi.advanceTimersByTimeAsync(20)
    expect(sent.map((t) => [text(t), t.epoch, t.seq])).toEqual([['abc', 'e2', 1]])
    expect(lost).toEqual([])
    input.link(false)
    input.type(utf8('gone'))
    await vi.advanceTimersByTimeAsync(20)
    expect(input.drop()).toBe(4)
    input.link(true)
    input.type(utf8('d'))
    await vi.advanceTimersByTimeAsync(50)
    expect(sent.map(text)).toEqual(['abc', 'd'])
    expect(sent.at(-1)?.seq).toBe(2)
  })

  it('is refused, not dropped, when too much waits; dropping is the person’s', async () => {
    const { input, sent } = made(() => Promise.reject(cut()))
    expect(input.type(new Uint8Array(MOST - 1))).toBe(true)
    expect(input.type(utf8('ab'))).toBe(false)
    expect(input.waiting).toBe(MOST - 1)
    await vi.advanceTimersByTimeAsync(1000)
    expect(input.drop()).toBe(MOST - 1)
    await vi.runAllTimersAsync()
    const n = sent.length
    input.type(utf8('c'))
    await vi.advanceTimersByTimeAsync(20)
    expect(sent.length).toBe(n + 1)
    expect(sent.at(-1)?.seq).toBe(1) // numbers begin anew after a gap
    input.end()
  })

  it('goes in pieces the core takes, all bytes intact', async () => {
    const { input, sent } = made(() => Promise.resolve())
    const all = Uint8Array.from({ length: 100_000 }, (_, i) => i % 256)
    input.type(all)
    await vi.runAllTimersAsync()
    expect(Math.max(...sent.map((t) => unbase64(t.data).length))).toBeLessThanOrEqual(64 << 10)
    expect(sent.map((t) => t.data).join('')).toBe(sent.map((t) => base64(unbase64(t.data))).join(''))
    const back = sent.flatMap((t) => [...unbase64(t.data)])
    expect(back.length).toBe(all.length)
    expect(back.every((b, i) => b === i % 256)).toBe(true)
  })
})

describe('a paste', () => {
  it('has no control characters but tabs and line ends', () => {
    const p = clean('a\tb\u001b[201~rm -rf /\u0007\u009b1m\u0003\r\nnext\nlast\u2028\u0000')
    expect(p.text).toBe('a\tb[201~rm -rf /1m\rnext\rlast')
    expect(p.lines).toBe(3)
    expect(p.left).toBe(6)
    expect(p.text.replace(/[\t\r]/g, '')).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/)
  })
  it('cannot end its own brackets', () => {
    const sent = keysOf(clean('x\u001b[201~\nevil\n'), true)
    expect(sent.indexOf('\u001b[201~')).toBe(sent.length - 6)
  })
  it('asks where it would run, and only there', () => {
    expect(runs(clean('ls'), false)).toBe(false)
    expect(runs(clean('ls\n'), false)).toBe(true)
    expect(runs(clean('a\nb'), false)).toBe(true)
    expect(runs(clean('a\nb\n'), true)).toBe(false)
    expect(runs(oneLine(clean('a\n  b\n')), false)).toBe(false)
    expect(oneLine(clean('a\n  b\n')).text).toBe('a b')
  })
})

describe('output', () => {
  afterEach(() => { vi.unstubAllGlobals() })
  it('goes on where it was cut and ends with the exit', async () => {
    const asked: string[] = []
    const answers = [
      '{"epoch":"e","offset":0,"end":3}\n\n{"offset":0,"data":"YWJj"}\n{"offset":3,"da',
      '{"epoch":"e","offset":3,"end":9}\n{"offset":7,"lost":4,"data":"eHk="}\n{"offset":9,"note":"hm"}\n{"offset":9,"exit":{"code":2}}\n',
    ]
    vi.stubGlobal('fetch', (path: string) => { asked.push(path); return Promise.resolve(new Response(answers.shift() ?? '', { status: 200 })) })
    const got: unknown[] = []
    const end = await follow('t1', 0, {
      onHead: (epoch, to) => got.push([epoch, to]), onData: async (b, at, lost) => { got.push([new TextDecoder().decode(b), at, lost]) },
      onNote: (t) => got.push(t), onCut: () => got.push('cut'),
    }, new AbortController().signal)
    expect(got).toEqual([['e', 3], ['abc', 0, 0], 'cut', ['e', 9], ['xy', 7, 4], 'hm'])
    expect(asked).toEqual(['/v1/terminals/t1/output?from=0', '/v1/terminals/t1/output?from=3'])
    expect(end).toEqual({ exit: { code: 2 }, at: 9 })
  })
  it('says how it ended', () => {
    expect(ending({ code: 1 })).toBe('Exited 1')
    expect(ending({ code: -1, signal: 'SIGKILL' })).toBe('Ended by SIGKILL')
    expect(ending({ code: -1, unknown: true, reason: 'the machine was stopped' })).toBe('Ended: the machine was stopped; how is not known')
  })
})

describe('the fold', () => {
  it('knows which terminals run, and the last that ended', () => {
    const s = empty()
    const say = (type: string, d: object) => apply(s, ev(type, d, { session_id: '' }))
    apply(s, project())
    for (let i = 10; i < 40; i++) say('terminal.opened', { terminal_id: `t${i}`, title: 'bash', argv: [] })
    for (let i = 10; i < 38; i++) say('terminal.closed', { terminal_id: `t${i}`, title: 'bash', exit: { code: i } })
    const rows = Object.values(s.projects['p1']?.terminals ?? {})
    expect(rows.filter((t) => !t.exit).map((t) => t.id)).toEqual(['t38', 't39'])
    expect(rows.filter((t) => t.exit).length).toBe(16)
    expect(rows.find((t) => t.id === 't37')?.exit?.code).toBe(37)
    expect(HARMFUL.test(rows.map((t) => t.title).join(''))).toBe(false)
  })
})
