import { cleanup, fireEvent, render, screen, waitFor, within } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import type { Review } from '../../api/types'
import { core, ended, ev, of, project, session, step, world } from '../../test/world'
import { taste } from './taste.svelte'

beforeEach(() => taste.set({ split: true, quietSpace: false }))
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

type Comment = NonNullable<Review['comments']>[number]

// The core's side of a review with two hunks in one file and a new file.
function desk(first: Comment[] = []) {
  const decisions: Record<string, Record<string, string>> = { f1: { h1: 'undecided', h2: 'undecided' }, f2: { file: 'undecided' } }
  const viewed: Record<string, boolean> = {}
  let comments: Comment[] = first
  const hunk = (id: string, n: number) => ({ id, old_start: n, old_lines: 1, new_start: n, new_lines: 1, lines: [{ op: '-', text: `old ${id}`, old: n }, { op: '+', text: `new ${id}`, new: n }] })
  const view = (brief = false): Review => {
    const all = Object.values(decisions).flatMap((d) => Object.values(d))
    const n = (x: string) => all.filter((d) => d === x).length
    const file = (id: string, display: string, op: string, hunks: ReturnType<typeof hunk>[]) => ({ id, display, path: display, op, added: 1, deleted: 1, new_size: 1, old_size: 1, old_oid: 'a', new_oid: 'b', units: Object.keys(decisions[id]!), decisions: { ...decisions[id]! }, viewed: !!viewed[id], ...(brief ? {} : { hunks }) })
    return {
      id: 'r1', project_id: 'p1', base: 'b'.repeat(40), candidate: 'c'.repeat(40), opened_at: 1, remote: '/remote.git', ref: 'refs/heads/fix', accepted: n('accept'), rejected: n('reject'), undecided: n('undecided'), comments,
      files: [file('f1', 'cart.ts', 'modify', [hunk('h1', 1), hunk('h2', 40)]), { ...file('f2', 'ci.yml', 'add', []), flags: [{ kind: 'ci', text: 'runs on a build service' }] }],
    }
  }
  const plan = { address: '/remote.git', ref: 'refs/heads/fix', commit: 'd'.repeat(40), tree: 't', message: 'm', author: 'A <a@b> 1700000000 +0000', digest: 'plan-1' }
  let decide = (answer: () => unknown): unknown => answer()
  let read = (): unknown => view(true)
  const seen = core({
    'POST /v1/projects/p1/reviews': () => view(),
    'GET /v1/reviews?project_id=p1': () => [],
    'GET /v1/reviews/r1': () => view(),
    'GET /v1/reviews/r1?brief=true': () => read(),
    'POST /v1/reviews/r1/decisions?brief=true': (b) => decide(() => {
      const { file, unit, decision } = b as { file?: string; unit?: string; decision: string }
      for (const f of file ? [file] : Object.keys(decisions)) for (const u of unit ? [unit] : Object.keys(decisions[f]!)) decisions[f]![u] = decision
      return view(true)
    }),
    'POST /v1/reviews/r1/viewed?brief=true': (b) => {
      const x = b as { file: string; viewed: boolean }
      viewed[x.file] = x.viewed
      return view(true)
    },
    'POST /v1/reviews/r1/comments?brief=true': (b) => {
      const x = b as { file: string; side: 'old' | 'new'; line: number; text: string }
      comments = [...comments, { id: `c_${comments.length}`, review_id: 'r1', path: 'cart.ts', state: 'draft', at: 1, was_line: x.line, quoted: 'q', ...x }]
      return view(true)
    },
    'POST /v1/reviews/r1/comments/send?brief=true': () => {
      comments = comments.map((c) => ({ ...c, state: 'sent' }))
      return view(true)
    },
    'GET /v1/reviews/r1/files/f1/lines?side=new&from=2&to=39': () => ({ from: 2, total: 50, lines: Array.from({ length: 38 }, (_, i) => `stays ${i + 2}`) }),
    'POST /v1/reviews/r1/plan': () => plan,
    'POST /v1/reviews/r1/push': () => ({ state: 'ok', commit: plan.commit, ref: plan.ref, remote: plan.address, tree: 't', at: 1, output: 'remote: thanks' }),
  })
  const w = world(project(), session(), step(1), ended(1, {}), ev('step.sealed', { commit: 'x', tree: 'y', changes: [{ path: 'cart.ts', op: 'modify', added: 1, deleted: 1 }] }, of(1)),
    ev('check.ran', { name: 'npm test', ok: true }), ev('review.opened', { review_id: 'r1', base: 'b', candidate: 'c', files: 2, units: 3 }))
  return {
    ...w, ...render(App, { store: w.store, live: false }), seen, decisions, viewed, view,
    /** The next decision waits: to be taken, or only for its answer. */
    slow: (taken = false) => {
      let go = () => {}
      const gone = new Promise<void>((done) => (go = done))
      decide = (answer) => {
        decide = (a) => a()
        const then = taken ? answer() : undefined
        return gone.then(() => then ?? answer())
      }
      return { go: () => go() }
    },
    /** How the review is read from now on; nothing: as it is. */
    reads: (f: () => unknown = () => view(true)) => (read = f),
  }
}
const sent = (seen: { path: string; body: unknown }[], what: string) => seen.filter((c) => c.path.includes(`/${what}`)).map((c) => c.body)
const key = (k: string, more: object = {}) => fireEvent.keyDown(document.body, { key: k, ...more })

async function opened(first: Comment[] = []) {
  const d = desk(first)
  await key('v')
  await fireEvent.input(screen.getByLabelText(/^Remote/), { target: { value: ' /remote.git ' } })
  await fireEvent.input(screen.getByLabelText('Branch there'), { target: { value: 'fix' } })
  await fireEvent.click(screen.getByRole('button', { name: /^Open review/ }))
  await screen.findByText('3 undecided')
  return d
}

it('opens a review for a remote and a branch, with nothing decided', async () => {
  const { seen } = await opened()
  expect(seen.find((c) => c.method === 'POST')).toEqual({ method: 'POST', path: '/v1/projects/p1/reviews', body: { remote: '/remote.git', ref: 'fix' } })
  expect(screen.getAllByText(/runs on a build service/).length).toBeGreaterThan(0)
  expect((screen.getByRole('button', { name: /^See what would be pushed/ }) as HTMLButtonElement).disabled).toBe(true)
  expect(screen.getByText(/3 changes of 3 wait/)).toBeTruthy()
  expect(screen.getByText('from step 1')).toBeTruthy()
  expect(within(screen.getByLabelText('What to look at')).getByText('npm test')).toBeTruthy()
})

it('suggests where the source comes from, and a branch named after the work', async () => {
  desk()
  await key('v')
  expect((screen.getByLabelText(/^Remote/) as HTMLInputElement).value).toBe('/src/shop')
  expect((screen.getByLabelText('Branch there') as HTMLInputElement).value).toBe('work')
})

it('decides a hunk, a file and everything', async () => {
  const { seen, container } = await opened()
  await waitFor(() => expect(container.querySelector('[data-unit=h2]')).toBeTruthy())
  await fireEvent.click(within(container.querySelector<HTMLElement>('[data-unit=h2]')!).getByRole('button', { name: /^Reject/ }))
  await screen.findByText('1 rejected')
  await fireEvent.click(screen.getByRole('button', { name: 'Accept file' }))
  await screen.findByText('2 accepted')
  await fireEvent.click(screen.getByRole('button', { name: 'Reject all' }))
  await screen.findByText('3 rejected')
  await waitFor(() => expect(sent(seen, 'decisions')).toEqual([{ file: 'f1', unit: 'h2', decision: 'reject' }, { file: 'f1', decision: 'accept' }, { decision: 'reject' }]))
  expect(screen.getByText(/Everything is rejected/)).toBeTruthy()
})

it('decides by a and x, as fast as the keys come, and goes on to the next change', async () => {
  const { seen } = await opened()
  await key('a')
  await key('x')
  await key('a')
  await screen.findByText('2 accepted')
  await waitFor(() => expect(sent(seen, 'decisions')).toEqual([{ file: 'f1', unit: 'h1', decision: 'accept' }, { file: 'f1', unit: 'h2', decision: 'reject' }, { file: 'f2', unit: 'file', decision: 'accept' }]))
  await key('u')
  await screen.findByText('1 undecided')
})

it('a wish the core refuses is taken back, with its words', async () => {
  await opened()
  core({ 'POST /v1/reviews/r1/decisions?brief=true': () => ({ status: 409, error: { code: 'conflict', what: 'a push is running', hint: 'wait for its end' } }), 'GET /v1/reviews/r1?brief=true': () => ({ status: 503, error: { code: 'conflict', what: 'a push is running' } }) })
  await key('a')
  const alert = await screen.findByRole('alert')
  expect(alert.textContent).toContain('a push is running')
})

it('shows a plan before the push, and the push is bound to it', async () => {
  const { seen } = await opened()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted')
  await key('Enter', { ctrlKey: true })
  await screen.findByRole('button', { name: /^Push dddddddd/ })
  expect(screen.getByLabelText('Plan').textContent).toContain('/remote.git')
  expect(sent(seen, 'push')).toEqual([])
  await key('x') // what was planned no longer holds
  await screen.findByText('1 rejected')
  expect(screen.queryByRole('button', { name: /^Push d/ })).toBeNull()
  expect(screen.getByText(/1 left out; the workspace keeps it/)).toBeTruthy()
  await fireEvent.click(screen.getByRole('button', { name: /^See what would be pushed/ }))
  await fireEvent.click(await screen.findByRole('button', { name: /^Push dddddddd/ }))
  await screen.findByText(/^Pushed d+/)
  expect(sent(seen, 'push')).toEqual([{ remote: '/remote.git', ref: 'fix', digest: 'plan-1' }])
})

it('plans and pushes nothing before the core has every decision that is shown', async () => {
  const d = await opened()
  const all = d.slow()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted') // as it is wished
  await key('Enter', { ctrlKey: true })
  await screen.findByRole('button', { name: /^Planning/ })
  await new Promise((r) => setTimeout(r, 30))
  expect(sent(d.seen, 'plan')).toEqual([])
  all.go()
  await screen.findByRole('button', { name: /^Push dddddddd/ })
  expect(d.decisions.f2!.file).toBe('accept')
  expect(sent(d.seen, 'plan')).toHaveLength(1)
  // A decision that is made while a push waits for another voids what was planned.
  const one = d.slow()
  await key('Enter', { ctrlKey: true })
  await screen.findByText(/^Pushed d+/)
  await fireEvent.click(screen.getByRole('button', { name: 'Reject file' }))
  await fireEvent.click(await screen.findByRole('button', { name: /^See what would be pushed/ }))
  await screen.findByRole('button', { name: /^Planning/ })
  expect(sent(d.seen, 'plan')).toHaveLength(1)
  one.go()
  await screen.findByRole('button', { name: /^Push dddddddd/ })
  expect(sent(d.seen, 'push')).toHaveLength(1)
})

it('an answer that is older than what was done since is not shown', async () => {
  const d = await opened()
  let go = () => {}
  const gone = new Promise<void>((done) => (go = done))
  d.reads(() => {
    const then = d.view(true)
    return gone.then(() => then)
  })
  d.store.take([ev('review.viewed', { review_id: 'r1', file: 'f1', viewed: false })])
  await waitFor(() => expect(d.seen.filter((c) => c.path === '/v1/reviews/r1?brief=true')).toHaveLength(1))
  d.reads()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted')
  await waitFor(() => expect(sent(d.seen, 'decisions')).toHaveLength(1))
  go()
  // It is read once more, and says what holds.
  await waitFor(() => expect(d.seen.filter((c) => c.path === '/v1/reviews/r1?brief=true')).toHaveLength(2))
  expect(screen.getByText('3 accepted')).toBeTruthy()
  expect(screen.queryByText('3 undecided')).toBeNull()
})

it('what another client decides while a wish is on its way is seen when it has arrived', async () => {
  const d = await opened()
  const mine = d.slow(true)
  await fireEvent.click(screen.getByRole('button', { name: 'Accept file' }))
  await screen.findByText('2 accepted')
  await waitFor(() => expect(sent(d.seen, 'decisions')).toHaveLength(1))
  d.decisions.f2!.file = 'reject'
  d.store.take([ev('review.decided', { review_id: 'r1', file: 'f2', decision: 'reject' })])
  await waitFor(() => expect(d.seen.some((c) => c.path === '/v1/reviews/r1?brief=true')).toBe(true))
  await tick()
  mine.go()
  await screen.findByText('1 rejected')
  expect(screen.getByText('2 accepted')).toBeTruthy()
})

it('says why a push did not go through, with what to do', async () => {
  await opened()
  await fireEvent.click(screen.getByRole('button', { name: 'Accept all' }))
  await screen.findByText('3 accepted')
  await fireEvent.click(screen.getByRole('button', { name: /^See what would be pushed/ }))
  const push = await screen.findByRole('button', { name: /^Push d/ })
  core({ 'POST /v1/reviews/r1/push': () => ({ status: 409, error: { code: 'conflict', what: 'the branch moved', hint: 'open a new review' } }) })
  await fireEvent.click(push)
  const alert = await screen.findByText('the branch moved')
  expect(alert.closest('[role=alert]')?.textContent).toContain('open a new review')
})

it('shows what another client decided', async () => {
  const { store, decisions } = await opened()
  decisions.f2!.file = 'reject'
  store.take([ev('review.decided', { review_id: 'r1', file: 'f2', decision: 'reject' })])
  await tick()
  await screen.findByText('1 rejected')
})

it('marks a file viewed by V and goes on to the next that is not', async () => {
  const { seen } = await opened()
  await screen.findByText('0 of 2 viewed')
  await key('v')
  await screen.findByText('1 of 2 viewed')
  await waitFor(() => expect(sent(seen, 'viewed')).toEqual([{ file: 'f1', viewed: true }]))
  expect(screen.getByRole('treeitem', { selected: true }).textContent).toContain('ci.yml')
  await key('K')
  expect(screen.getByRole('treeitem', { selected: true }).textContent).toContain('cart.ts')
  await key(']')
  expect(screen.getByRole('treeitem', { selected: true }).textContent).toContain('ci.yml')
  expect(screen.getByText('1 file not viewed')).toBeTruthy()
})

it('keeps a half-written comment, saves it as a draft, and sends it in one message', async () => {
  const { seen, desk: look } = { ...(await opened()), desk: undefined }
  void look
  await key('c')
  const box = await screen.findByRole('textbox', { name: 'Comment on line 1' })
  await fireEvent.input(box, { target: { value: 'name the limit' } })
  expect(sessionStorage.getItem('glasshouse.desk')).toContain('name the limit')
  expect((screen.getByRole('button', { name: 'Send comments to the agent' }) as HTMLButtonElement).disabled).toBe(true)
  await fireEvent.keyDown(box, { key: 'Enter', ctrlKey: true })
  await waitFor(() => expect(sent(seen, 'comments')).toEqual([{ file: 'f1', side: 'new', line: 1, unit: 'h1', text: 'name the limit' }]))
  await waitFor(() => expect(screen.queryByRole('textbox', { name: 'Comment on line 1' })).toBeNull())
  expect(screen.getAllByText('draft').length).toBeGreaterThan(0)
  await fireEvent.click(screen.getByRole('button', { name: 'Send 1 comment to the agent' }))
  await waitFor(() => expect(sent(seen, 'comments/send')).toEqual([{ session_id: 's1' }]))
  await waitFor(() => expect(screen.getAllByText('sent').length).toBeGreaterThan(0))
})

it('a comment that cannot be saved stays in its editor', async () => {
  await opened()
  await key('c')
  const box = await screen.findByRole('textbox', { name: 'Comment on line 1' })
  await fireEvent.input(box, { target: { value: 'words' } })
  core({ 'POST /v1/reviews/r1/comments?brief=true': () => ({ status: 503, error: { code: 'unavailable', what: 'the disk is full' } }) })
  await fireEvent.keyDown(box, { key: 'Enter', ctrlKey: true })
  await screen.findByText('the disk is full')
  expect((screen.getByRole('textbox', { name: 'Comment on line 1' }) as HTMLTextAreaElement).value).toBe('words')
})

it('lists what is outdated with what it was about, and shows an answer', async () => {
  const c = (id: string, more: Partial<Comment>): Comment => ({ id, review_id: 'r0', path: 'cart.ts', file: 'f1', text: `text ${id}`, state: 'sent', at: 1, ...more })
  await opened([c('c_old', { outdated: true, why: 'the line is not there any more', was_line: 7, side: 'new', quoted: 'the line as it was' }), c('c_said', { side: 'new', line: 40, state: 'answered', answer: 'It is done.' }), c('c_far', { side: 'new', line: 20 }), c('c_gone', { file: '', path: 'gone.ts', outdated: true, why: 'the file is not part of this review' })])
  await screen.findByText('the line as it was')
  expect(screen.getByText('It is done.')).toBeTruthy()
  expect(screen.getAllByText('text c_far').length).toBe(2) // in the rail, and below the lines that are shown
  expect(screen.getAllByText('sent, outdated').length).toBeGreaterThan(1)
  expect(screen.getByText('text c_gone')).toBeTruthy()
})

it('shows old above new, or beside it, and lines between hunks when they are asked for', async () => {
  const { container } = await opened()
  await waitFor(() => expect(container.querySelectorAll('.two > .c').length).toBeGreaterThan(0))
  await key('s')
  await waitFor(() => expect(container.querySelectorAll('.row-at .l.add').length).toBe(2))
  await fireEvent.click(screen.getByRole('button', { name: /38 lines that stay/ }))
  await screen.findByText('stays 20')
  expect(screen.queryByRole('button', { name: /38 lines that stay/ })).toBeNull()
})

it('moves a line cursor by the arrow keys, and comments there', async () => {
  await opened()
  await key('ArrowDown')
  await key('ArrowLeft')
  await key('c')
  expect(await screen.findByRole('textbox', { name: 'Comment on line 1, before' })).toBeTruthy()
})

it('filters the files by a step and by words', async () => {
  const { store } = await opened()
  expect(store.s.steps.st1?.changes?.length).toBe(1)
  await fireEvent.change(screen.getByLabelText('Steps'), { target: { value: 'st1' } })
  await waitFor(() => expect(screen.getAllByRole('treeitem').length).toBe(1))
  await fireEvent.change(screen.getByLabelText('Steps'), { target: { value: '' } })
  await fireEvent.input(screen.getByLabelText('Filter files'), { target: { value: 'YML' } })
  await waitFor(() => expect(screen.getAllByRole('treeitem').map((x) => x.textContent)).toEqual([expect.stringContaining('ci.yml')]))
})

it('the session says which comments were not sent, and leads to them', async () => {
  const d = desk()
  const id = 'c_0123456789abcdef'
  const said = (role: string) => ev('message', { role, text: `[${id}] cart.ts:1` })
  d.store.take([ev('review.commented', { comment_id: id, review_id: 'r1', file: 'f1', path: 'cart.ts', text: 't' }), said('agent')])
  const button = await screen.findByRole('button', { name: '1 review comment not sent' })
  await fireEvent.click(button)
  await screen.findByText('3 undecided')
  d.store.take([said('person')]) // sent, by the message itself
  await waitFor(() => expect(screen.queryByText('1 review comment not sent')).toBeNull())
  expect(d.store.s.projects.p1?.drafts).toEqual({})
})
