import { describe, expect, it } from 'vitest'
import type { Envelope } from '../../api/types'
import { answered, begun, call, calledStep, compacted, delta, modelSession, plan, retried, text, thought, told, turn, turnEnded } from '../../test/model'
import { ev, project } from '../../test/world'
import { figures, short, tokens } from '../money'
import { apply, empty, type State } from '../state'
import { bytesOf, GAP, high, lines, nothing, plus, sent } from './model'

/** Folds events, numbered as they are given, in whatever order they were made. */
function fold(...es: (Envelope | Envelope[])[]): State {
  const all = es.flat()
  const ids = all.map((e) => e.id).filter((n) => n > 0).sort((a, b) => a - b)
  for (const e of all) if (e.id > 0) e.id = ids.shift() ?? 0
  return all.reduce(apply, empty())
}
const x = (s: State) => s.sessions['s1']!
const live = (s: State) => s.live['s1']
const kinds = (s: State) => x(s).items.map((i) => i.kind)

describe('sums', () => {
  it('hold the tokens that no server counted, apart', () => {
    const s = fold(
      begun(),
      answered(1, [text('a')], { lost_tokens: 700 }),
      answered(2, [text('b')], { usage: { input: 0, output: 0 }, context_used: 9000, cost_nanos: 5 }),
    )
    expect(x(s).spent).toMatchObject({ answers: 2, input: 1000, cached: 200, output: 80, uncounted: 9700 })
    expect(tokens(x(s).spent)).toBe(1280 + 9700)
    expect(figures(x(s).spent)).toContain('about 9,700 tokens that no server counted')
    expect(short(s.answers['an1']!.spent)).toContain('80 out, about 700 not counted, ')
  })
  it('are the sum of the answers, of the session and of each turn', () => {
    const s = fold(
      begun(),
      answered(1, [text('a')]),
      answered(2, [text('b')], { usage: { input: 5, cache_read: 6, cache_write: 7, output: 8, reasoning: 3 }, cost_nanos: 9 }),
      turnEnded('unchecked'),
      turn('more', 't2'),
      answered(3, [text('c')], { turn_id: 't2', usage: { input: 1, output: 1 }, cost_nanos: 1 }),
      // What is asked about the conversation costs too.
      answered(4, [text('sum')], { turn_id: 't2', purpose: 'summary', usage: { input: 100, output: 10 }, cost_nanos: 50 }),
    )
    expect(x(s).spent).toEqual({ answers: 4, input: 1106, cached: 206, wrote: 7, output: 99, reasoning: 3, uncounted: 0, nanos: 4_100_060, unpriced: 0 })
    expect(sent(x(s).spent)).toBe(1319)
    const turns = x(s).items.flatMap((i) => (i.kind === 'turn' ? [i.spent] : []))
    expect(turns.map((t) => [t?.answers, t?.nanos])).toEqual([[2, 4_100_009], [2, 51]])
    expect(turns.reduce((a, b) => plus(a!, b!))).toEqual(x(s).spent)
    expect(Object.values(s.answers).reduce((n, a) => plus(n, a.spent), nothing())).toEqual(x(s).spent)
    // It is no line of the conversation, and not what the context is.
    expect(kinds(s)).toEqual(['turn', 'answer', 'answer', 'end', 'turn', 'answer'])
    expect(x(s).context).toEqual({ used: 23_000, size: 128_000 })
  })
  it('say what has no price, and count no cost for it', () => {
    const s = fold(begun(), answered(1, [text('a')]), answered(2, [text('b')], { priced: false, cost_nanos: 77 }))
    expect(x(s).spent).toMatchObject({ nanos: 4_100_000, unpriced: 1 })
  })
  it('take every event and every answer once', () => {
    const all = [...begun(), answered(1, [thought('hm'), text('a'), call('k1')]), calledStep(1, 'k1'), told(1, [{ key: 'k1', tool: 'exec', step_id: 'st1', text: 'ok' }]), retried(2), plan(['open', 'a']), compacted(), turnEnded('ok')]
    const s = fold(all)
    const before = JSON.stringify(s)
    all.forEach((e) => apply(s, e))
    expect(JSON.stringify(s)).toBe(before)
    // The same answer by another event is the same answer.
    apply(s, answered(1, [text('other')]))
    expect(x(s).spent.answers).toBe(1)
    expect(s.answers['an1']!.parts).toHaveLength(2)
  })
  it('live through missing pieces', () => {
    const s = fold(project(), modelSession(), answered(1, [text('no turn')]), ev('model.answered', { turn_id: 'zz', answer_id: 'bare', number: 2, model: 'm', stop: 'end', attempts: 1 }), told(9, [{ key: 'q', tool: 'exec', text: 'bad', failed: true }]), ev('model.told', { turn_id: 't', answer_id: 'an1' }), ev('plan.updated', { turn_id: 't', items: null }), ev('turn.resumed', { turn_id: 'q' }))
    expect(x(s).spent).toMatchObject({ answers: 2, input: 1000, unpriced: 1 })
    expect(kinds(s)).toEqual(['answer', 'misfit', 'resume'])
    expect(x(s).plan?.items).toEqual([])
    // Nothing is known of the session: nothing happens.
    expect(fold(answered(1, [text('x')]), delta(1, 'text', 0, 'x'), retried(1), compacted(), plan(['open', 'x']), told(1, [{ key: 'k', failed: true, text: 'x', tool: 'y' }])).answers).toEqual({})
  })
})

describe('an answer that was begun before the page looked on', () => {
  const soFar = (text: string, end: number, attempt = 1, thought = '') => ev('message.so_far', { turn_id: 't1', answer_id: 'an1', attempt, text, text_end: end, thought, thought_end: thought.length })
  it('is whole once what was written is said again, and goes on', () => {
    const s = fold(begun(), delta(1, 'text', 6, 'world'))
    expect(live(s)).toMatchObject({ text: 'world', more: { text: true } })
    apply(s, soFar('hello world', 11, 1, 'hm'))
    expect(live(s)).toMatchObject({ text: 'hello world', thought: 'hm', more: { text: false, thought: false } })
    apply(s, delta(1, 'text', 11, '!'))
    expect(live(s)).toMatchObject({ text: 'hello world!' })
    // Who has all of it takes nothing back.
    apply(s, soFar('hello world', 11))
    expect(live(s)).toMatchObject({ text: 'hello world!', thought: 'hm' })
  })
  it('is seen although nothing more comes', () => {
    const s = fold(begun(), soFar('words', 5))
    expect(live(s)).toMatchObject({ answer: 'an1', text: 'words', more: { text: false } })
  })
  it('says that its beginning is missing when only the end is told', () => {
    expect(live(fold(begun(), soFar('the end', 20_000)))).toMatchObject({ text: 'the end', more: { text: true } })
  })
  it('is not brought back by words of an attempt that failed, or when it is whole', () => {
    const s = fold(begun(), delta(1, 'text', 0, 'new', { attempt: 2 }))
    apply(s, soFar('old', 3))
    expect(live(s)).toMatchObject({ text: 'new', attempt: 2 })
    apply(s, answered(1, [text('new')]))
    apply(s, soFar('new', 3, 2))
    expect(live(s)).toBeUndefined()
  })
})

describe('settings of a session', () => {
  it('begin with the session and change one by one', () => {
    const s = fold(project(), modelSession({ limit_nanos: 2e9 }), ev('session.changed', { mode: 'ask' }), ev('session.changed', { model: 'small', limit_tokens: 5 }))
    expect(x(s)).toMatchObject({ mode: 'ask', model: 'small', limitNanos: 2e9, limitTokens: 5 })
    apply(s, ev('session.changed', { limit_nanos: 0 }))
    expect(x(s)).toMatchObject({ mode: 'ask', limitNanos: 0, limitTokens: 5 })
  })
  it('know of a turn who works on it and whether it goes on', () => {
    const s = fold(begun(), turnEnded('stopped', 'the limit of $2.00 is reached'), turn('', 't2', { go_on: true }))
    expect(x(s).items.filter((i) => i.kind === 'turn')).toMatchObject([{ agent: 'model', result: 'stopped' }, { agent: 'model', goOn: true }])
  })
})

describe('a step', () => {
  it('that is one of several of a call knows the answer too', () => {
    const s = fold(begun(), answered(1, [call('k1', 'checks', '{}')]), calledStep(1, 'k1/1'), calledStep(2, 'k1/2'), told(1, [{ key: 'k1', tool: 'checks', step_id: 'st1', text: 'failed: unit', failed: true }]))
    expect(Object.values(s.steps).map((x) => x.answer)).toEqual(['an1', 'an1'])
    expect(kinds(s)).not.toContain('misfit')
  })
  it('knows the answer that asked for it, and the answer its steps, in whatever order they came', () => {
    for (const order of [0, 1]) {
      const a = answered(1, [call('k1'), call('k2', 'read'), call('k3', 'exec', 'no json')])
      const steps = [calledStep(1, 'k1'), calledStep(2, 'k2')]
      const s = fold(begun(), order ? [...steps, a] : [a, ...steps])
      expect([s.steps['st1']!.answer, s.steps['st2']!.answer]).toEqual(['an1', 'an1'])
      expect(s.answers['an1']!.calls.map((c) => c.step)).toEqual(['st1', 'st2', undefined])
    }
  })
  it('of no key, or of a key nobody asked for, belongs to no answer', () => {
    const s = fold(begun(), calledStep(1, 'zz'), calledStep(2, ''), answered(1, [call('k1'), call('')]))
    expect([s.steps['st1']!.answer, s.steps['st2']!.answer]).toEqual([undefined, undefined])
    expect(s.answers['an1']!.calls.map((c) => c.step)).toEqual([undefined, undefined])
  })
  it('is one step for a key, the first', () => {
    const s = fold(begun(), answered(1, [call('k1')]), calledStep(1, 'k1'), calledStep(2, 'k1'))
    expect(s.answers['an1']!.calls[0]!.step).toBe('st1')
    expect(s.steps['st2']!.answer).toBeUndefined()
  })
})

describe('what is being written', () => {
  it('grows by pieces, is nobody’s line, and leaves the session as it is', () => {
    const s = fold(begun())
    const before = x(s)
    for (const e of [delta(1, 'thought', 0, 'Let me'), delta(1, 'thought', 6, ' see.'), delta(1, 'text', 0, 'I '), delta(1, 'text', 2, 'read it.'), delta(1, 'call', 0, '{"path":', { tool: 'read' }), delta(1, 'call', 8, '"a.ts"}'), delta(1, 'call', 15, '{}', { tool: 'list' })]) apply(s, e)
    expect(live(s)).toMatchObject({ thought: 'Let me see.', text: 'I read it.', more: { text: false, thought: false }, calls: [{ tool: 'read', args: '{"path":"a.ts"}', size: 15 }, { tool: 'list', args: '{}', size: 2 }] })
    expect(x(s)).toBe(before)
    expect(live(s)!.thinksFor).toBeGreaterThanOrEqual(0)
    apply(s, answered(1, [thought('Let me see.'), text('I read it.')]))
    expect(live(s)).toBeUndefined()
    expect(s.answers['an1']!.thought).toBeGreaterThanOrEqual(0)
    // A piece that was on its way is late.
    apply(s, delta(1, 'text', 10, ' more'))
    expect(live(s)).toBeUndefined()
  })
  it('passes over pieces that came already, and marks one that did not come', () => {
    const s = fold(begun(), delta(1, 'text', 0, 'one'), delta(1, 'text', 0, 'one'), delta(1, 'text', 3, ' two'), delta(1, 'text', 3, ' two'))
    expect(live(s)!.text).toBe('one two')
    apply(s, delta(1, 'text', 2, 'e '))
    expect(live(s)!.text).toBe('one two')
    apply(s, delta(1, 'text', 20, 'late'))
    expect(live(s)).toMatchObject({ text: `one two${GAP}late`, more: { text: true } })
    apply(s, delta(1, 'text', 24, '!'))
    expect(live(s)!.text.endsWith('late!')).toBe(true)
  })
  it('shows somebody who comes late what there is', () => {
    const s = fold(begun(), delta(1, 'text', 500, 'the end'), delta(1, 'call', 40, '"b"}'))
    expect(live(s)).toMatchObject({ text: 'the end', more: { text: true }, calls: [{ tool: '', args: '"b"}' }] })
    apply(s, answered(1, [text('all of the end')]))
    expect(live(s)).toBeUndefined()
    expect(s.answers['an1']!.parts).toEqual([{ kind: 'text', text: 'all of the end' }])
  })
  it('counts offsets in bytes, as they are told', () => {
    expect(['', 'a', 'ä', '€', '😀', 'a😀ä', '\ud800', '\udc00a'].map(bytesOf)).toEqual([0, 1, 2, 3, 4, 7, 3, 4])
    for (const t of ['', 'a', 'ä', '€', '😀', 'a😀ä', 'x'.repeat(99)]) expect(bytesOf(t)).toBe(new TextEncoder().encode(t).length)
    const s = fold(begun(), delta(1, 'text', 0, 'ä😀'), delta(1, 'text', 6, '!'))
    expect(live(s)).toMatchObject({ text: 'ä😀!', more: { text: false } })
    // A byte that was no text came as a sign of three: nothing after it is lost.
    apply(s, delta(1, 'text', 7, '\ufffdab'))
    apply(s, delta(1, 'text', 10, 'cdef'))
    apply(s, delta(1, 'text', 14, 'gh'))
    expect(live(s)).toMatchObject({ text: 'ä😀!\ufffdabcdefgh', more: { text: false } })
  })
  it('keeps the end of a long text, from the beginning of a line, and the beginning of long arguments', () => {
    const s = fold(begun())
    const line = `${'x'.repeat(99)}\n`
    for (let i = 0; i < 3000; i++) apply(s, delta(1, 'text', 100 * i, line))
    expect(live(s)!.text.length).toBeLessThan(65_600)
    expect(live(s)!.text.startsWith('x'.repeat(99))).toBe(true)
    expect(live(s)!.more.text).toBe(true)
    apply(s, delta(1, 'call', 0, 'y'.repeat(9000), { tool: 'write' }))
    apply(s, delta(1, 'call', 9000, 'y'.repeat(9000)))
    expect(live(s)!.calls).toMatchObject([{ size: 18_000 }])
    expect(live(s)!.calls[0]!.args.length).toBe(4096)
    for (let i = 0; i < 500; i++) apply(s, delta(1, 'call', 18_000 + i, 'z', { tool: 't' }))
    expect(live(s)!.calls.length).toBe(64)
  })
  it('is dropped when the attempt failed, and begins again with the next', () => {
    const s = fold(begun(), delta(1, 'text', 0, 'half'), retried(1, 1))
    expect(live(s)).toBeUndefined()
    apply(s, delta(1, 'text', 0, 'again', { attempt: 2 }))
    // A piece of the one that failed counts for nothing, and a retry that is told again neither.
    apply(s, delta(1, 'text', 4, 'late'))
    apply(s, retried(1, 1))
    expect(live(s)).toMatchObject({ text: 'again', attempt: 2 })
    // The next attempt begins without a word about the last.
    apply(s, delta(1, 'text', 0, 'third', { attempt: 3 }))
    expect(live(s)).toMatchObject({ text: 'third', attempt: 3, more: { text: false } })
  })
  it('is of the newest answer alone', () => {
    const s = fold(begun(), delta(1, 'text', 0, 'one'), delta(2, 'text', 0, 'two'))
    expect(live(s)).toMatchObject({ answer: 'an2', text: 'two' })
  })
  it('ends with its turn, its session and its core', () => {
    const ends = [turnEnded('cancelled'), ev('session.state', { state: 'ended' }), ev('core.started', { version: '1' }, { session_id: undefined, project_id: undefined }), ev('turn.resumed', { turn_id: 't1' })]
    for (const e of ends) expect(live(fold(begun(), delta(1, 'text', 0, 'half'), e)), e.type).toBeUndefined()
    expect(live(fold(begun(), delta(1, 'text', 0, 'half'), turnEnded('ok', '', 'other')))).toBeDefined()
  })
  it('is kept a session each', () => {
    const s = fold(begun(), modelSession({}, 's2'), delta(1, 'text', 0, 'one'), ev('message.delta', { turn_id: 'u', answer_id: 'b', attempt: 1, kind: 'text', offset: 0, text: 'two' }, { id: 0, session_id: 's2' }))
    expect([s.live['s1']!.text, s.live['s2']!.text]).toEqual(['one', 'two'])
  })
})

describe('lines of the timeline', () => {
  it('have what the model said, and no line for what its steps say', () => {
    const s = fold(begun(), answered(1, [call('k1')]), answered(2, [thought('hm'), call('k2')]), answered(3, [text('done'), { kind: 'thought', opaque: 'xx' } as never]), answered(4, [], { stop: 'length' }), answered(5, [], { stop: 'refused' }), answered(6, [], { parts_blob: { sha256: 'f', size: 9 } }))
    expect(x(s).items.flatMap((i) => (i.kind === 'answer' ? [i.answer] : []))).toEqual(['an2', 'an3', 'an4', 'an5', 'an6'])
    expect(s.answers['an3']!.parts).toEqual([{ kind: 'text', text: 'done' }])
  })
  it('have calls that no step came of, with what was written', () => {
    const s = fold(begun(), answered(1, [call('k1', 'exec', '{"argv":"npm test"}'), call('k2', 'plan', {}), call('k3')]), told(1, [{ key: 'k1', tool: 'exec', text: 'arguments did not fit: /argv expected array, got string', failed: true }, { key: 'k2', tool: 'plan', text: 'ok' }, { key: 'k3', tool: 'exec', step_id: 'st1', text: 'denied', failed: true }]))
    expect(x(s).items.slice(1)).toMatchObject([{ kind: 'misfit', tool: 'exec', args: '{"argv":"npm test"}', text: 'arguments did not fit: /argv expected array, got string' }])
  })
  it('have one line for all failed attempts of an answer', () => {
    const s = fold(begun(), retried(1, 1), answered(9, [text('other')]), retried(1, 2, { kind: 'network', status: 0, wait_ms: 8000 }), retried(2, 1))
    expect(x(s).items.slice(1)).toMatchObject([{ kind: 'retry', answer: 'an1', tries: [{ attempt: 1, kind: 'busy', status: 529, wait: 4000 }, { attempt: 2, kind: 'network', status: 0 }] }, { kind: 'answer' }, { kind: 'retry', answer: 'an2' }])
  })
  it('have what a shorter conversation keeps, and the context is as full as told', () => {
    const s = fold(begun(), answered(1, [text('a')]), compacted())
    expect(x(s).items.at(-1)).toMatchObject({ kind: 'compact', before: 92_100, after: 14_200, kept: 'You asked: fix the test.' })
    expect(x(s).context).toEqual({ used: 14_200, size: 128_000 })
    expect(x(fold(begun(), compacted())).context).toBeUndefined()
  })
  it('are guessed about as high as they are', () => {
    expect(lines('', 9)).toBe(1)
    expect(lines('a\nb\n\nc', 9)).toBe(4)
    expect(lines('x'.repeat(620), 99)).toBe(10)
    expect(lines('\n'.repeat(5_000_000), 40)).toBe(40)
    expect(high({ parts: [{ kind: 'text', text: 'a\n'.repeat(99) }] })).toBe(29)
    expect(high({ parts: [{ kind: 'thought', text: 'x'.repeat(9999) }, { kind: 'text', text: 'a\nb' }] })).toBe(3)
  })
})

it('keeps the newest plan, whatever states it is told', () => {
  const s = fold(begun(), plan(['done', 'one'], ['doing', 'two']), plan(['done', 'one'], ['done', 'two'], ['weird', 'three'], ['dropped', 'four']))
  expect(x(s).plan).toMatchObject({ turn: 't1', items: [{ state: 'done' }, { state: 'done' }, { state: 'open', text: 'three' }, { state: 'dropped' }] })
})

it('comes out the same however the log is cut, and without what was only for eyes', () => {
  const stored = [...begun(), plan(['doing', 'a']), retried(1), answered(1, [text('a'), call('k1')]), calledStep(1, 'k1'), told(1, [{ key: 'k1', tool: 'exec', step_id: 'st1', text: 'ok' }]), compacted(), answered(2, [text('b')]), turnEnded('ok')]
  const eyes = stored.flatMap((e) => (e.type === 'model.answered' ? [delta(e.data.number, 'text', 0, 'half'), e] : [e]))
  const plain = (s: State) => JSON.stringify({ ...s, answers: Object.values(s.answers).map(({ thought: _, ...a }) => a) })
  expect(plain(fold(eyes))).toBe(plain(fold(stored)))
})
