import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import type { Envelope } from '../../api/types'
import { answered, begun, call, calledStep, compacted, delta, done, modelSession, plan, retried, text, thought, told, turn, turnEnded } from '../../test/model'
import { core, ev, HARMFUL, HOSTILE, project, shown, world } from '../../test/world'
import { misfitWords } from './answer'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

function show(...events: (Envelope | Envelope[])[]) {
  core({})
  const w = world(...events.flat())
  const r = render(App, { store: w.store, live: false })
  const take = async (...es: Envelope[]) => {
    w.store.take(es)
    await tick()
  }
  return { ...w, ...r, take, feed: () => r.container.querySelector<HTMLElement>('[role=feed], [aria-label=Timeline]')! }
}
const writing = () => screen.queryByRole('article', { name: 'What the model writes' })

it('shows an answer while it is written, and the whole one in its place', async () => {
  const { take, container } = show(begun())
  expect(writing()?.textContent).toContain('waiting for the model')
  await take(delta(1, 'thought', 0, 'Let me think'))
  expect(writing()?.textContent).toContain('thinking for ')
  expect(writing()?.textContent).not.toContain('Let me think')
  await fireEvent.click(within(writing()!).getByRole('button', { name: /thinking/ }))
  expect(writing()?.textContent).toContain('Let me think')
  await take(delta(1, 'text', 0, 'I look at `a.ts`'), delta(1, 'call', 0, '{"path":"src/app.ts","old":"', { tool: 'edit' }))
  expect(writing()?.querySelector('code')?.textContent).toBe('a.ts')
  expect(writing()?.textContent).toContain('edit')
  expect(writing()?.textContent).toContain('src/app.ts')
  expect(writing()?.textContent).toContain('writing')
  const before = container.querySelectorAll('[data-at]').length
  await take(answered(1, [thought('Let me think'), text('I look at `a.ts` first.'), call('k1', 'edit', { path: 'src/app.ts' })]), calledStep(1, 'k1', 'Edit src/app.ts', 'edit'))
  expect(writing()?.textContent?.trim()).toBe('')
  const row = screen.getByRole('article', { name: 'Answer 1 of the model' })
  expect(row.textContent).toContain('first.')
  expect(row.textContent).not.toContain('Let me think')
  await fireEvent.click(within(row).getByRole('button', { name: /thought/ }))
  expect(row.textContent).toContain('Let me think')
  expect(container.querySelectorAll('[data-at]').length).toBe(before + 2)
  await take(...done(1), turnEnded('ok'))
  expect(writing()).toBeNull()
})

it('draws the rows of the timeline no more while pieces come', async () => {
  const { take, container } = show(begun(), answered(1, [text('one')]), calledStep(1, 'k1'))
  const seen: MutationRecord[] = []
  const watch = new MutationObserver((m) => seen.push(...m))
  watch.observe(container.querySelector('.space')!, { childList: true, subtree: true, characterData: true, attributes: true })
  for (let i = 0; i < 50; i++) await take(delta(2, 'text', 5 * i, 'word '))
  seen.push(...watch.takeRecords())
  expect(writing()?.textContent).toContain('word word')
  expect(seen).toEqual([])
})

it('takes back what an attempt wrote that failed, and says so on one line that opens', async () => {
  const { take } = show(begun(), delta(1, 'text', 0, 'half of it'))
  await take(retried(1, 1))
  expect(writing()?.textContent).not.toContain('half of it')
  const row = screen.getByRole('button', { name: /busy \(529\), tries again after 4 s/ })
  await take(retried(1, 2, { kind: 'rate', status: 429, wait_ms: 9000 }))
  await take(answered(1, [text('there')]))
  expect(screen.getByRole('button', { name: /too many requests \(429\), tried again 2 times, the last after 9 s/ })).toBeTruthy()
  await fireEvent.click(screen.getByRole('button', { name: /too many requests/ }))
  expect(screen.getAllByText(/the server is overloaded/)).toHaveLength(2)
  expect(row.isConnected).toBe(true)
})

it('folds a long text, opens it, and leaves one as long as it was that was seen being written', async () => {
  const long = Array.from({ length: 120 }, (_, i) => `line ${i}`).join('\n')
  const { take } = show(begun(), answered(1, [text(long)]))
  const one = screen.getByRole('article', { name: 'Answer 1 of the model' })
  expect(one.textContent).not.toContain('line 60')
  await fireEvent.click(within(one).getByRole('button', { name: 'Show all 120 lines' }))
  expect(one.textContent).toContain('line 119')
  await fireEvent.click(within(one).getByRole('button', { name: 'Show less' }))
  expect(one.textContent).not.toContain('line 119')
  await take(delta(2, 'text', 0, long))
  await take(answered(2, [text(long)]))
  expect(screen.getByRole('article', { name: 'Answer 2 of the model' }).textContent).toContain('line 119')
})

it('says what an answer took: on its line, on the steps it asked for, on its turn and at the top', async () => {
  const { container, take } = show(begun({ limit_nanos: 10_000_000 }), answered(1, [text('go'), call('k1'), call('k2'), call('k3')]), calledStep(1, 'k1', 'one'), calledStep(2, 'k2', 'two'))
  await fireEvent.click(screen.getByRole('button', { name: 'Answer 1: its figures' }))
  expect(screen.getByRole('article', { name: 'Answer 1 of the model' }).textContent).toContain('1,200 in (200 cached), 80 out, $0.0041 · 4.1 s, the first word after 800 ms')
  await fireEvent.click(screen.getByRole('button', { name: /two/ }))
  expect(container.querySelector('.open')?.textContent).toContain('asked by answer 1: 1,200 in (200 cached), 80 out, $0.0041, shared with 2 calls')
  expect(container.querySelector('.turn')?.textContent).toContain('1 answer · 2 steps · 1.3k tok · $0.004')
  const facts = () => container.querySelector('.top .facts')!
  expect(facts().textContent).toContain('1.3k tok')
  expect(facts().querySelector('.spent')?.getAttribute('title')).toBe('1 answer of the model\n1,200 tokens in, 200 of them from the server’s cache\n80 tokens out\n$0.0041\nlimit $0.0100')
  expect(facts().querySelector('.spent.wait')).toBeNull()
  const meter = () => screen.getByRole('img', { name: /^Context/ })
  expect(meter().getAttribute('title')).toBe('Context: 21,000 of 128,000 tokens')
  await take(answered(2, [text('more')], { context_used: 102_400, cost_nanos: 4_000_000 }))
  expect(meter().getAttribute('aria-label')).toBe('Context 80 % full')
  expect(meter().classList.contains('wait')).toBe(true)
  expect(facts().querySelector('.spent.wait')).toBeTruthy()
  await take(answered(3, [text('free')], { priced: false }))
  expect(facts().textContent).toContain('$0.008 and more')
})

it('says that a cost is not known', () => {
  const { container } = show(begun(), answered(1, [text('go')], { priced: false }))
  expect(container.querySelector('.top .facts')?.textContent).toContain('cost not known')
})

it('says in a line what did not fit, however it was told', () => {
  const told = (v: unknown) => misfitWords(JSON.stringify(v))
  expect(told({ error: 'The arguments of exec do not fit; the call was not made', problems: [{ pointer: '/argv', expected: 'array', got: 'string' }], hint: 'write a list' })).toEqual({ first: 'arguments did not fit: /argv expected array, got string', all: 'The arguments of exec do not fit; the call was not made\n/argv expected array, got string\nwrite a list' })
  expect(told({ error: 'no JSON', problems: [{ expected: 'a', got: 'b' }, { pointer: '/x', expected: 'c', got: 'd' }] }).first).toBe('arguments did not fit: expected a, got b, and 1 more')
  expect(told({ error: 'There is no tool "x"', hint: 'the tools are: exec' })).toEqual({ first: 'There is no tool "x"', all: 'There is no tool "x"\nthe tools are: exec' })
  for (const v of ['{', '{}', '{"error":5}', 'plain\nmore', '', '{"error":{}}']) expect(misfitWords(v).all).toBe(v)
  expect(told({ error: 'e', problems: [null, 5, { pointer: {}, got: [] }], hint: 7 })).toEqual({ first: 'e', all: 'e' })
})

it('shows a call that no step came of, a shorter conversation and a turn taken up again', async () => {
  show(begun(), answered(1, [call('k1', 'exec', '{"argv":"npm test"}')]), told(1, [{ key: 'k1', tool: 'exec', text: 'arguments did not fit: /argv expected array, got string', failed: true }]), compacted(), ev('turn.resumed', { turn_id: 't1' }))
  await fireEvent.click(screen.getByRole('button', { name: /arguments did not fit: \/argv expected array, got string/ }))
  expect(screen.getByLabelText('The arguments as it wrote them').textContent).toBe('{"argv":"npm test"}')
  const made = screen.getByRole('button', { name: /made shorter, from 92.1k to about 14.2k tokens/ })
  await fireEvent.click(made)
  expect(screen.getByLabelText('What was kept').textContent).toContain('You asked: fix the test.')
  expect(screen.getByText('rounded').tagName).toBe('STRONG')
  expect(screen.getByText('goes on after an interruption')).toBeTruthy()
})

it('keeps the plan in view while the turn runs, one line after, and none of another turn', async () => {
  const { take } = show(begun(), plan(['done', 'Look'], ['doing', 'Mend'], ['open', 'Test'], ['dropped', 'Sing']))
  const strip = () => screen.queryByRole('region', { name: 'Plan' })
  expect(within(strip()!).getAllByRole('listitem').map((l) => l.textContent)).toEqual(['✓done: Look', '●being done: Mend', '○open: Test', '–dropped: Sing'])
  expect(strip()?.textContent).toContain('1 of 3 done')
  await fireEvent.click(within(strip()!).getByRole('button'))
  expect(within(strip()!).queryAllByRole('listitem')).toEqual([])
  expect(strip()?.textContent).toContain('Mend')
  await take(turnEnded('stopped', 'the limit of $2.00 is reached'))
  expect(strip()).toBeTruthy()
  await take(turn('', 't2', { go_on: true }))
  expect(strip()).toBeTruthy()
  await take(turn('Something else', 't3'))
  expect(strip()).toBeNull()
})

it('says at the end of a turn how it ended, and shows the step that failed', async () => {
  show(begun(), answered(1, [text('go'), call('k1')]), calledStep(1, 'k1', 'Run npm test'), done(1, { outcome: 'failed', exit_code: 1 }), turnEnded('failed', `the model cannot be reached\n${'why\n'.repeat(30)}`))
  const end = screen.getByRole('article', { name: 'The end of the turn' })
  expect(end.textContent).toContain('Failed: the model cannot be reached')
  expect(end.textContent).toContain('1 answer · 1 step')
  expect(end.textContent?.match(/why/g)).toHaveLength(5)
  await fireEvent.click(within(end).getByRole('button', { name: 'Show all' }))
  expect(end.textContent?.match(/why/g)).toHaveLength(30)
  await fireEvent.click(within(end).getByRole('button', { name: 'Show the step' }))
  await waitFor(() => expect(screen.getByRole('button', { name: /npm test/ }).getAttribute('aria-expanded')).toBe('true'))
})

it('is walked and opened by the keyboard alone', async () => {
  const { container } = show(begun(), answered(1, [text('one')]), retried(2), answered(2, [text('two')]))
  const at = () => document.activeElement?.closest('[data-at]')?.getAttribute('data-at')
  await fireEvent.keyDown(document.body, { key: 'g' })
  await waitFor(() => expect(at()).toBe('0'))
  await fireEvent.keyDown(document.body, { key: 'j' })
  await waitFor(() => expect(at()).toBe('1'))
  await fireEvent.keyDown(document.activeElement!, { key: 'Enter' })
  expect(container.querySelector('[data-at="1"] .facts')?.textContent).toContain('Answer 1')
  await fireEvent.keyDown(document.activeElement!, { key: 'ArrowLeft' })
  expect(container.querySelector('[data-at="1"] .facts')).toBeNull()
  await fireEvent.keyDown(document.activeElement!, { key: 'j' })
  await waitFor(() => expect(at()).toBe('2'))
  await fireEvent.keyDown(document.activeElement!, { key: 'ArrowRight' })
  expect(container.querySelector('[data-at="2"] .open')).toBeTruthy()
})

it('gets all of an answer that was too long to be told, and takes nothing else from its blob', async () => {
  const parts = [{ kind: 'text', text: 'all of it' }, { kind: 'call', args: '<b>' }, { kind: 'text', text: 5 }, null, { kind: 'evil', text: 'no' }]
  core({ 'GET /v1/blobs/feed': () => new Response(JSON.stringify(parts)), 'GET /v1/blobs/dead': () => new Response('no json') })
  const w = world(project(), modelSession(), turn(), answered(1, [text('the beg')], { parts_blob: { sha256: 'feed', size: 9_000_000 } }), answered(2, [], { parts_blob: { sha256: 'dead', size: 5 } }))
  render(App, { store: w.store, live: false })
  await fireEvent.click(screen.getByRole('button', { name: 'It is longer: show all 8.6 MB' }))
  await waitFor(() => expect(screen.getByRole('article', { name: 'Answer 1 of the model' }).textContent).toContain('all of it'))
  expect(screen.getByRole('article', { name: 'Answer 1 of the model' }).textContent).not.toMatch(/<b>|no/)
  await fireEvent.click(screen.getByRole('button', { name: /It is longer/ }))
  await waitFor(() => expect(screen.getByRole('alert')).toBeTruthy())
})

const LINK = '[click](javascript:alert(1)) ![i](https://evil.example/x.png) <a href="https://evil.example">x</a> https://evil.example/y'
const ALL = `# ${HOSTILE}\n\n${HOSTILE} ${LINK}\n\n- ${HOSTILE}\n  ${LINK}\n\n1. ${HOSTILE}\n\n> ${HOSTILE}\n\n| ${HOSTILE} | ${LINK} |\n|---|---|\n| \`${HOSTILE}\` | **${HOSTILE}** |\n\n\`\`\`js ${HOSTILE}\nconst a = "${HOSTILE}"\n\`\`\`\n\`${HOSTILE}\` **${HOSTILE}**`

it('takes hostile words of a model for words, wherever they stand', async () => {
  const { container, take } = show(
    project(HOSTILE), modelSession({ model: HOSTILE }), ev('session.state', { state: 'running' }), turn(ALL), plan(['doing', ALL], ['open', HOSTILE]), retried(1, 1, { kind: HOSTILE, reason: ALL }),
    answered(1, [thought(ALL), text(ALL), call('k1', HOSTILE, ALL)], { served: HOSTILE, stop: HOSTILE }), told(1, [{ key: 'k1', tool: HOSTILE, text: ALL, failed: true }]), compacted({ kept: ALL, summary: ALL, reason: ALL }),
    delta(2, 'thought', 0, ALL), delta(2, 'text', 0, ALL), delta(2, 'call', 0, `{"path":"${HOSTILE}"`, { tool: HOSTILE }),
  )
  for (const b of container.querySelectorAll<HTMLElement>('button.note, button.who, button.line')) await fireEvent.click(b)
  const harmless = () => {
    expect(container.querySelectorAll('img, script, iframe, a, object, embed, svg svg').length).toBe(0)
    expect(HARMFUL.exec(shown(container))).toBeNull()
    const walk = document.createTreeWalker(container, NodeFilter.SHOW_TEXT)
    let n = 0
    for (let t = walk.nextNode(); t; t = walk.nextNode()) {
      if (!t.textContent?.includes('onerror=')) continue
      n++
      expect(t.parentElement?.closest('.guest'), t.parentElement?.outerHTML).not.toBeNull()
    }
    return n
  }
  expect(harmless()).toBeGreaterThan(30)
  await waitFor(() => expect(container.querySelectorAll('.code .tk-k').length).toBeGreaterThan(0))
  harmless()
  await take(answered(2, [text(ALL)]), turnEnded(HOSTILE, ALL))
  harmless()
})

it('draws little of a text of five megabytes, of many lines or of one', async () => {
  for (const big of ['x'.repeat(5 << 20), 'y\n'.repeat(2 << 20), `${'`'.repeat(5 << 20)}`, `\`\`\`\n${'z\n'.repeat(2 << 20)}`]) {
    const { container, take, unmount } = show(begun(), answered(1, [text(big), thought(big)]), delta(2, 'text', 0, big), delta(2, 'call', 0, big, { tool: 'write' }))
    expect((container.textContent ?? '').length).toBeLessThan(200_000)
    await fireEvent.click(within(screen.getByRole('article', { name: 'Answer 1 of the model' })).getAllByRole('button', { name: /^Show all/ })[0]!)
    expect((container.textContent ?? '').length).toBeLessThan(400_000)
    expect(container.querySelectorAll('*').length).toBeLessThan(12_000)
    await take(answered(2, [text(big)]))
    unmount()
    cleanup()
  }
})
