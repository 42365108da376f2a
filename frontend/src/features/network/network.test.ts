import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import { core, ev, HARMFUL, HOSTILE, of, project, question, session, shown, step, world } from '../../test/world'
import { wrongHost } from './hosts'
import Network from './NetworkPane.svelte'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const rule = (id: string, host: string, decision = 'allow', more: object = {}) => ({ id, project_id: 'p1', created_at: 1, hits: 2, rule: { id, kind: 'egress', scope: 'project', host, port: 443, decision, text: `${decision} connections to ${host}:443`, by: 'person', ...more } })
const opened = (n: number, host = 'example.org', more: object = {}) => ev('egress.opened', { conn_id: `c${n}`, host, port: 443, addr: '203.0.113.7:443', rule: 'grant:r1', method: 'CONNECT', claim: 'curl -s x', ...more }, of(1))
const closed = (n: number) => ev('egress.closed', { conn_id: `c${n}`, bytes_out: 100, bytes_in: 2048, duration_ms: 50 }, of(1))
const blocked = (host: string, more: object = {}) => ev('egress.blocked', { host, port: 443, reason: 'the person said no', method: 'CONNECT', ...more }, of(1))
const RULES = 'GET /v1/projects/p1/rules'

function open(routes: Record<string, (b: unknown) => unknown>, ...events: ReturnType<typeof ev>[]) {
  const seen = core({ [RULES]: () => [], ...routes })
  const w = world(project(), session(), step(1), ...events)
  const props = () => ({ store: w.store, desk: w.desk, project: w.store.s.projects['p1']!, session: undefined, visible: true })
  const r = render(Network, props())
  return { ...w, seen, container: r.container, take: async (...e: ReturnType<typeof ev>[]) => { w.store.take(e); await r.rerender(props()) } }
}
const rows = () => [...document.querySelectorAll('.c')].map((r) => (r.textContent ?? '').replace(/\s+/g, ' ').trim())

it('lists every connection, newest first, with its rule in words, its claim as a claim and its step', async () => {
  open({ [RULES]: () => [rule('r1', 'example.org')] }, opened(1), closed(1), opened(2), blocked('evil.test'))
  await waitFor(() => expect(rows()[1]).toContain('allowed by a rule of this project'))
  expect(rows().length).toBe(3)
  expect(rows()[0]).toMatch(/blocked ?CONNECT evil\.test:443 ?the person said no.*Allow from now on.*step 1/)
  expect(rows()[1]).toMatch(/open.*the guest says: curl -s x.*open/)
  expect(rows()[2]).toMatch(/ended.*↑ 100 B ↓ 2\.0 KB/)
  await fireEvent.click(document.querySelector('[data-row="2"]')!)
  expect(screen.getByText('203.0.113.7:443')).toBeTruthy()
  expect(document.querySelector('dl')!.textContent).toContain('allow connections to example.org:443')
  expect(screen.getByText('The machine says so; nothing is decided by it.')).toBeTruthy()
})

it('filters by state and words, and sums up by host', async () => {
  open({}, opened(1), closed(1), opened(2), closed(2), opened(3, 'cdn.test'), blocked('evil.test'), blocked('evil.test'))
  await fireEvent.click(screen.getByRole('button', { name: /^Blocked/ }))
  expect(rows().length).toBe(2)
  await fireEvent.click(screen.getByRole('button', { name: 'All' }))
  await fireEvent.input(screen.getByRole('textbox', { name: 'Filter connections' }), { target: { value: 'CDN' } })
  expect(rows().length).toBe(1)
  await fireEvent.input(screen.getByRole('textbox', { name: 'Filter connections' }), { target: { value: '' } })
  await fireEvent.click(screen.getByRole('button', { name: 'By host' }))
  expect(rows().map((r) => r.replace(/\d\d:\d\d:\d\d/, ''))).toEqual([expect.stringMatching(/evil\.test:443 2 blocked/), expect.stringMatching(/cdn\.test:443 1 connection, 1 open/), expect.stringMatching(/example\.org:443 2 connections↑ 200 B ↓ 4\.0 KB/)])
  await fireEvent.click(document.querySelector('[data-row="2"]')!)
  expect(rows().length).toBe(2)
})

it('allows a blocked host from now on, and takes that back', async () => {
  const { seen } = open({ 'POST /v1/projects/p1/rules': () => rule('r9', 'evil.test'), 'DELETE /v1/projects/p1/rules/r9': () => ({}) }, blocked('evil.test'))
  await fireEvent.click(screen.getByRole('button', { name: 'Allow from now on' }))
  await waitFor(() => expect(screen.getByText('evil.test:443 is allowed from now on.')).toBeTruthy())
  expect(seen.find((c) => c.method === 'POST')).toMatchObject({ body: { host: 'evil.test', port: 443, decision: 'allow' } })
  await fireEvent.click(screen.getByRole('button', { name: 'Undo' }))
  await waitFor(() => expect(seen.some((c) => c.method === 'DELETE' && c.path.endsWith('/r9'))).toBe(true))
})

it('points to the question while one waits, and says why a host cannot be allowed beside a rule that denies it', async () => {
  const { desk } = open({ [RULES]: () => [rule('r2', 'no.test', 'deny')] }, question({ kind: 'egress' }), blocked('ask.test', { approval_id: 'a1' }), blocked('no.test'))
  await waitFor(() => expect(screen.getByRole('button', { name: 'Denied by a rule' })).toHaveProperty('disabled', true))
  await fireEvent.click(screen.getByRole('button', { name: 'Answer the question' }))
  cleanup()
  // A program that gave up while the question waits is told so without its id: the host says which it is.
  const w = open({}, question({ kind: 'egress', detail: [{ name: 'host', value: 'wait.test:443', origin: 'host' }] }), blocked('wait.test'))
  await fireEvent.click(screen.getByRole('button', { name: 'Answer the question' }))
  expect(w.desk.goal.id).toBe('a1')
  expect(desk.goal.id).toBe('a1')
})

it('adds a rule, says what is wrong with one, and keeps what was typed', async () => {
  let answer: unknown = { status: 422, error: { code: 'invalid', what: 'the name has an empty part', hint: 'give a name like example.com' } }
  const { desk, seen } = open({ 'POST /v1/projects/p1/rules': () => answer })
  const host = screen.getByRole('textbox', { name: 'Host' })
  const add = screen.getByRole('button', { name: 'Add rule' })
  expect(add).toHaveProperty('disabled', true)
  await fireEvent.input(host, { target: { value: 'https://x.test/a' } })
  await fireEvent.click(add)
  expect(screen.getByText(/Leave the http:\/\/ out/)).toBeTruthy()
  expect(seen.some((c) => c.method === 'POST')).toBe(false)
  await fireEvent.input(host, { target: { value: 'x..test' } })
  await fireEvent.click(add)
  await waitFor(() => expect(screen.getByText(/the name has an empty part\. Give a name like example\.com\./)).toBeTruthy())
  expect(desk.drafts['rule.host:p1']).toBe('x..test')
  answer = rule('r3', 'x.test', 'deny')
  await fireEvent.change(screen.getByRole('combobox', { name: 'Allow or deny' }), { target: { value: 'deny' } })
  await fireEvent.input(host, { target: { value: 'x.test' } })
  await fireEvent.input(screen.getByRole('textbox', { name: /^Port/ }), { target: { value: '8443' } })
  await fireEvent.click(add)
  await waitFor(() => expect(screen.getByText('Added: deny connections to x.test:443')).toBeTruthy())
  expect(seen.findLast((c) => c.method === 'POST')).toMatchObject({ body: { host: 'x.test', port: 8443, decision: 'deny' } })
  expect(desk.drafts['rule.host:p1']).toBe('')
})

it('removes a rule with a way back, and reads the rules again when they changed elsewhere', async () => {
  let rules = [rule('r1', 'example.org')]
  const { seen, take } = open({ [RULES]: () => rules, 'DELETE /v1/projects/p1/rules/r1': () => { rules = []; return {} }, 'POST /v1/projects/p1/rules': () => rule('r4', 'example.org') })
  await waitFor(() => expect(screen.getByText('used 2 times')).toBeTruthy())
  await fireEvent.click(screen.getByRole('button', { name: /^Remove the rule/ }))
  await waitFor(() => expect(screen.getByText('Removed: allow connections to example.org:443')).toBeTruthy())
  await take(ev('rule.removed', { id: 'r1' }, { session_id: undefined }))
  await waitFor(() => expect(screen.getByText(/No rule yet/)).toBeTruthy())
  await fireEvent.click(screen.getByRole('button', { name: 'Undo' }))
  await waitFor(() => expect(seen.findLast((c) => c.method === 'POST')).toMatchObject({ body: { host: 'example.org', port: 443, decision: 'allow' } }))
})

it('draws a bounded number of rows and says what is left out', () => {
  const { container } = open({}, ...Array.from({ length: 2500 }, (_, i) => opened(i, `h${i % 40}.test`)))
  expect(rows().length).toBeLessThan(80)
  expect(container.textContent).toContain('500 older ones are not listed here')
})

it('shows hostile hosts, reasons, claims and rules as text', async () => {
  const H = HOSTILE
  const { container } = open({ [RULES]: () => [rule('r1', H, 'allow', { text: H, by: H })] }, opened(1, H, { claim: H, method: H, addr: H, rule: H }), blocked(H, { reason: H, claim: H, method: H }))
  await waitFor(() => expect(container.querySelectorAll('li').length).toBe(1))
  for (const b of [...container.querySelectorAll('[data-row]')]) await fireEvent.click(b)
  await fireEvent.click(screen.getByRole('button', { name: 'By host' }))
  expect(shown(container)).not.toMatch(HARMFUL)
  expect(container.querySelector('img, script')).toBeNull()
})

it('sees what is no host before the core is asked', () => {
  expect(['', 'http://a', 'a/b', 'a b', '*.a'].map(wrongHost).every(Boolean)).toBe(true)
  expect(['example.org', 'example.org:8080', '[2001:db8::1]:443', '203.0.113.7'].map(wrongHost)).toEqual(['', '', '', ''])
})
