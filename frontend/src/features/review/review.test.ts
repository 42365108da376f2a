import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, describe, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import type { Review } from '../../api/types'
import { core, ev, project, session, world } from '../../test/world'
import { marked } from './units'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

// The core's side of a review with two hunks in one file and a new file.
function desk() {
  const decisions: Record<string, Record<string, string>> = { f1: { h1: 'undecided', h2: 'undecided' }, f2: { file: 'undecided' } }
  const hunk = (id: string, n: number) => ({ id, old_start: n, old_lines: 1, new_start: n, new_lines: 1, lines: [{ op: '-', text: `old ${id}`, old: n }, { op: '+', text: `new ${id}`, new: n }] })
  const view = (): Review => {
    const all = Object.values(decisions).flatMap((d) => Object.values(d))
    const n = (x: string) => all.filter((d) => d === x).length
    const file = (id: string, display: string, op: string, hunks: ReturnType<typeof hunk>[]) => ({ id, display, path: display, op, added: 1, deleted: 1, new_size: 1, old_size: 1, units: Object.keys(decisions[id]!), decisions: { ...decisions[id]! }, hunks })
    return {
      id: 'r1', project_id: 'p1', base: 'b'.repeat(40), candidate: 'c'.repeat(40), opened_at: 1, remote: '/remote.git', ref: 'refs/heads/fix', accepted: n('accept'), rejected: n('reject'), undecided: n('undecided'),
      files: [file('f1', 'cart.ts', 'modify', [hunk('h1', 1), hunk('h2', 40)]), { ...file('f2', '.ci.yml', 'add', []), flags: [{ kind: 'ci', text: 'runs on a build service' }] }],
    }
  }
  const plan = { address: '/remote.git', ref: 'refs/heads/fix', commit: 'd'.repeat(40), tree: 't', message: 'm', author: 'A <a@b> 1700000000 +0000', digest: 'plan-1' }
  const seen = core({
    'POST /v1/projects/p1/reviews': view,
    'GET /v1/reviews/r1': view,
    'POST /v1/reviews/r1/decisions': (b) => {
      const { file, unit, decision } = b as { file?: string; unit?: string; decision: string }
      for (const f of file ? [file] : Object.keys(decisions)) for (const u of unit ? [unit] : Object.keys(decisions[f]!)) decisions[f]![u] = decision
      return view()
    },
    'POST /v1/reviews/r1/plan': () => plan,
    'POST /v1/reviews/r1/push': () => ({ state: 'ok', commit: plan.commit, ref: plan.ref, remote: plan.address, tree: 't', at: 1, output: 'remote: thanks' }),
  })
  const w = world(project(), session(), ev('review.opened', { review_id: 'r1', base: 'b', candidate: 'c', files: 2, units: 3 }))
  return { ...w, ...render(App, { store: w.store, live: false }), seen, decisions }
}
const decided = (seen: { path: string; body: unknown }[]) => seen.filter((c) => c.path.endsWith('/decisions')).map((c) => c.body)

async function opened() {
  const d = desk()
  await fireEvent.keyDown(document.body, { key: 'v' })
  await fireEvent.input(screen.getByLabelText(/^Remote/), { target: { value: ' /remote.git ' } })
  await fireEvent.input(screen.getByLabelText('Branch there'), { target: { value: 'fix' } })
  await fireEvent.click(screen.getByRole('button', { name: 'Open review' }))
  await screen.findByText('3 undecided')
  return d
}

it('opens a review for a remote and a branch, with nothing decided', async () => {
  const { seen } = await opened()
  expect(seen[0]).toEqual({ method: 'POST', path: '/v1/projects/p1/reviews', body: { remote: '/remote.git', ref: 'fix' } })
  expect(screen.getAllByText('runs on a build service').length).toBeGreaterThan(0)
  expect((screen.getByRole('button', { name: 'See what would be pushed' }) as HTMLButtonElement).disabled).toBe(true)
  expect(screen.getByText('3 left to decide')).toBeTruthy()
})

it('decides a hunk, a file and everything', async () => {
  const { seen, container } = await opened()
  await fireEvent.click(container.querySelector('[data-unit=h2] header button:nth-of-type(3)')!)
  await screen.findByText('1 rejected')
  await fireEvent.click(screen.getByRole('button', { name: 'Accept file' }))
  await screen.findByText('2 accepted')
  await fireEvent.click(screen.getByRole('button', { name: 'Reject all' }))
  await screen.findByText('3 rejected')
  expect(decided(seen)).toEqual([{ file: 'f1', unit: 'h2', decision: 'reject' }, { file: 'f1', decision: 'accept' }, { decision: 'reject' }])
  expect(screen.getByText('Everything is rejected.')).toBeTruthy()
})

it('decides by a and r, and goes on to the next change', async () => {
  const { seen } = await opened()
  await fireEvent.keyDown(document.body, { key: 'a' })
  await screen.findByText('1 accepted')
  await fireEvent.keyDown(document.body, { key: 'r' })
  await screen.findByText('1 rejected')
  await fireEvent.keyDown(document.body, { key: 'a' })
  await screen.findByText('2 accepted')
  await fireEvent.keyDown(document.body, { key: 'k' })
  await fireEvent.keyDown(document.body, { key: 'u' })
  await screen.findByText('1 undecided')
  expect(decided(seen).map((b) => (b as { unit: string }).unit)).toEqual(['h1', 'h2', 'file', 'h2'])
})

it('pushes only what a plan showed, by its digest, and forgets a plan when anything changes', async () => {
  const { seen } = await opened()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted')
  expect(screen.queryByRole('button', { name: /^Push/ })).toBeNull()
  await fireEvent.click(screen.getByRole('button', { name: 'See what would be pushed' }))
  await screen.findByRole('button', { name: 'Push dddddddd' })
  await fireEvent.keyDown(document.body, { key: 'r' })
  await screen.findByText('1 rejected')
  expect(screen.queryByRole('button', { name: /^Push/ })).toBeNull()
  await fireEvent.click(screen.getByRole('button', { name: 'See what would be pushed' }))
  await fireEvent.click(await screen.findByRole('button', { name: 'Push dddddddd' }))
  await screen.findByText(/^Pushed d+/)
  expect(seen.find((c) => c.path.endsWith('/push'))?.body).toEqual({ remote: '/remote.git', ref: 'refs/heads/fix', digest: 'plan-1' })
})

it('says why a push did not go through, with what to do', async () => {
  const { seen } = await opened()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted')
  await fireEvent.click(screen.getByRole('button', { name: 'See what would be pushed' }))
  const push = await screen.findByRole('button', { name: /^Push d/ })
  core({ 'POST /v1/reviews/r1/push': () => ({ status: 409, error: { code: 'conflict', what: 'the branch moved', hint: 'open a new review' } }) })
  await fireEvent.click(push)
  const alert = await screen.findByRole('alert')
  expect(alert.textContent).toContain('the branch moved')
  expect(alert.textContent).toContain('open a new review')
  expect(seen.length).toBeGreaterThan(0)
})

it('shows what another client decided', async () => {
  const { store, decisions } = await opened()
  decisions.f2!.file = 'reject'
  store.take([ev('review.decided', { review_id: 'r1', file: 'f2', decision: 'reject' })])
  await tick()
  await waitFor(() => expect(screen.getByText('1 rejected')).toBeTruthy())
})

describe('marked', () => {
  const l = (op: string, text: string) => ({ op, text })
  it('marks what differs in lines that were replaced one by one', () => {
    const m = marked([l('-', 'sum + l.price * q'), l('+', 'sum + round(l.price) * q'), l(' ', 'x')])
    expect(m.map((x) => x.line.text.slice(x.from, x.to))).toEqual(['l.price', 'round(l.price)', ''])
  })
  it('marks nothing where lines were added, or share little', () => {
    expect(marked([l('-', 'a'), l('+', 'b'), l('+', 'c')]).every((x) => x.from === x.to)).toBe(true)
    expect(marked([l('-', 'abcdefghij'), l('+', 'zyxwvutsrq')]).every((x) => x.from === x.to)).toBe(true)
  })
})
