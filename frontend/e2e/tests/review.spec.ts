import { execFileSync } from 'node:child_process'
import { expect, hostile, test, visit, type Page, type World } from '../fixtures'
import { broken, held, repo, themes } from '../look'

interface Line { op: string; text: string; old?: number; new?: number }
interface Hunk { id: string; old_start: number; old_lines: number; new_start: number; new_lines: number; lines: Line[] }

const setup = `name: change things
steps:
  - tool: exec
    args: {lang: bash, code: "mkdir -p cart; for i in $(seq 40); do echo \\"export const price$i = $i\\"; done > cart/prices.ts; printf 'last' > note.txt; printf '\\\\x00\\\\x01' > blob.bin; ln -s cart/prices.ts link; chmod +x note.txt"}
`

/** The longest pause between two frames since this was asked for last. */
const frames = (page: Page) => page.evaluate(() => {
  const w = window as unknown as { gap?: number; last?: number }
  const was = w.gap ?? 0
  if (w.last === undefined) {
    w.last = performance.now()
    const f = () => {
      const now = performance.now()
      w.gap = Math.max(w.gap ?? 0, now - (w.last ?? now))
      w.last = now
      requestAnimationFrame(f)
    }
    requestAnimationFrame(f)
  }
  w.gap = 0
  return Math.round(was)
})

async function reviewed(page: Page) {
  await page.keyboard.press('v')
  await page.locator('li .line').first().click()
  await expect(page.locator('.review > .head')).toBeVisible()
}

test.describe('a review', () => {
  test('from changes to the remote: by keys, with a comment that survives, reaches the session and is answered', async ({ site, world }) => {
    const { page } = site
    const p = await world.api<{ id: string }>('POST', '/v1/projects', { source: world.src, machine_kind: 'local', name: 'reviewed' })
    const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, agent: 'playbook', title: 'prices' })
    await world.api('POST', `/v1/sessions/${s.id}/turns?wait=ended`, { agent: 'playbook', input: setup })
    await site.session('prices')
    await expect(page.getByText('cart/prices.ts').first()).toBeVisible()
    await expect.poll(async () => (await world.api<{ state: string }>('GET', `/v1/sessions/${s.id}`)).state).toBe('idle')
    const r = await world.api<{ id: string }>('POST', `/v1/projects/${p.id}/reviews`, { remote: world.remote, ref: 'prices' })
    await reviewed(page)
    await site.axe('.review')

    // Half a comment is there after the page was loaded again.
    await page.getByRole('treeitem', { name: /prices\.ts/ }).click()
    await page.keyboard.press('c')
    await page.getByRole('textbox', { name: /^Comment on/ }).fill('half a th')
    await site.open()
    await page.getByRole('treeitem', { name: /prices\.ts/ }).click()
    const box = page.getByRole('textbox', { name: /^Comment on/ })
    await expect(box).toHaveValue('half a th')
    await box.fill(`why 40 of them? ${hostile(7)}`)
    await box.press('Control+Enter')
    await expect(page.locator('.note')).toContainText('draft')
    await page.getByRole('button', { name: 'Send 1 comment to the agent' }).click()
    await expect(page.locator('.note')).toContainText('sent')
    const got = await world.api<{ comments: { id: string }[] }>('GET', `/v1/reviews/${r.id}?brief=true`)
    await world.api('POST', `/v1/sessions/${s.id}/messages`, { text: 'not an answer: it is a person’s' })
    await page.getByRole('treeitem', { name: /prices\.ts/ }).click()
    expect(got.comments.length).toBe(1)

    // Every file is gone through by keys: viewed, then decided.
    const n = await page.getByRole('treeitem').filter({ has: page.locator('.chk') }).count()
    await page.locator('.review .scroll').focus()
    for (let i = 0; i < n; i++) {
      await page.keyboard.press(']')
      await page.keyboard.press('v')
    }
    await expect(page.getByText(`${n} of ${n} viewed`)).toBeVisible()
    await page.getByRole('button', { name: 'Accept all' }).click()
    await page.getByRole('treeitem', { name: /blob\.bin/ }).click()
    await page.keyboard.press('x')
    await expect(page.getByText('1 rejected')).toBeVisible()
    await page.keyboard.press('Control+Enter')
    await expect(page.getByRole('button', { name: /^Push [0-9a-f]{8}/ })).toBeVisible()
    await page.keyboard.press('Control+Enter')
    await expect(page.getByText(/^Pushed [0-9a-f]+/)).toBeVisible()
    const names = world.there('ls-tree', '-r', '--name-only', 'prices')
    expect(names).toContain('cart/prices.ts')
    expect(names).not.toContain('blob.bin')
    await site.axe('.review')
  })

  // The core's answers are made up: what is looked at is the page under a review no person would open.
  test('of 300 files, one of 50,000 lines and one of 2,500 hunks, answers while it is walked', async ({ site, world, shared }) => {
    test.slow()
    const { page } = site
    const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, agent: 'manual', title: 'large' })
    await world.exec(s.id, 'sh', '-c', 'echo large > large.txt')
    await world.api('POST', `/v1/projects/${shared.id}/reviews`, {})
    const files = Array.from({ length: 300 }, (_, i) => {
      const hunks: Hunk[] = []
      if (i === 3) hunks.push({ id: 'big', old_start: 0, old_lines: 0, new_start: 1, new_lines: 50_000, lines: Array.from({ length: 50_000 }, (_, k) => ({ op: '+', text: `export const value${k} = compute(${k}, "a line as long as lines are, and then some")`, new: k + 1 })) })
      else {
        for (let h = 0; h < (i === 4 ? 2500 : 1); h++) {
          const b = h * 20 + 1
          hunks.push({ id: `h${i}-${h}`, old_start: b, old_lines: 6, new_start: b, new_lines: 6, lines: [0, 1, 2].map((k): Line => ({ op: ' ', text: `same ${b + k}`, old: b + k, new: b + k })).concat([3, 4, 5].map((k) => ({ op: '-', text: `let x${b + k} = old(${k})`, old: b + k })), [3, 4, 5].map((k) => ({ op: '+', text: `let x${b + k} = fresh(${k})`, new: b + k }))) })
        }
      }
      const units = i === 3 ? ['file'] : hunks.map((h) => h.id)
      const path = `src/part${i % 12}/file${String(i).padStart(3, '0')}.ts`
      return { id: `f${i}`, path, display: path, op: i === 3 ? 'add' : 'modify', old_oid: 'a', new_oid: `b${i}`, old_size: 1, new_size: 9, added: 1, deleted: 1, units, hunks, decisions: Object.fromEntries(units.map((u) => [u, 'undecided'])), viewed: false }
    })
    const view = (brief: boolean) => {
      const all = files.flatMap((f) => Object.values(f.decisions))
      const of = (d: string) => all.filter((x) => x === d).length
      return { id: 'r', project_id: shared.id, base: 'b'.repeat(40), candidate: 'c'.repeat(40), opened_at: 1, accepted: of('accept'), rejected: of('reject'), undecided: of('undecided'), files: brief ? files.map((f) => ({ ...f, hunks: undefined })) : files }
    }
    await page.route(/\/v1\/reviews\/[^/?]+(\?.*)?$/, (r) => r.fulfill({ json: view(r.request().url().includes('brief')) }))
    await page.route(/\/v1\/reviews\/[^/]+\/decisions/, (r) => {
      const b = r.request().postDataJSON() as { file: string; unit: string; decision: string }
      const f = files.find((x) => x.id === b.file)
      if (f) f.decisions[b.unit] = b.decision
      return r.fulfill({ json: view(true) })
    })
    await site.session('large')
    await frames(page)
    await reviewed(page)
    const report = [`opened: ${await frames(page)} ms`]
    for (const [name, id] of [['50,000 lines', 'file003'], ['2,500 hunks', 'file004']] as const) {
      await page.getByLabel('Filter files').fill(id)
      await page.getByRole('treeitem', { name: new RegExp(id) }).click()
      await page.getByLabel('Filter files').fill('')
      await expect(page.getByRole('region', { name: new RegExp(id) })).toBeVisible()
      const scroll = page.locator('.review .scroll')
      await scroll.focus()
      for (let i = 0; i <= 20; i++) await scroll.evaluate(async (b, k) => {
        b.scrollTop = b.scrollHeight * k
        await new Promise((r) => requestAnimationFrame(r))
      }, i / 20)
      // Only what is in sight is in the page.
      expect(await page.locator('.row-at').count()).toBeLessThan(200)
      await page.keyboard.press('s')
      await page.keyboard.press('s')
      for (let i = 0; i < 20; i++) await page.keyboard.press('ArrowDown')
      await page.keyboard.press('c')
      const box = page.getByRole('textbox', { name: /^Comment on/ })
      await expect(box).toBeFocused()
      await page.keyboard.type('typed while all is there')
      await expect(box).toHaveValue('typed while all is there')
      await box.press('Escape')
      report.push(`${name}: ${await frames(page)} ms`)
    }
    // Decisions as fast as the keys come; none is lost.
    await page.getByLabel('Filter files').fill('file004')
    await page.getByRole('treeitem', { name: /file004/ }).click()
    await page.getByLabel('Filter files').fill('')
    await page.locator('.review .scroll').focus()
    for (let i = 0; i < 30; i++) await page.keyboard.press('a')
    await expect(page.getByText('30 accepted', { exact: true })).toBeVisible()
    await expect.poll(() => Object.values(files[4]!.decisions).filter((d) => d === 'accept').length).toBe(30)
    report.push(`30 decisions: ${await frames(page)} ms`)
    console.log(`the longest pause between two frames: ${report.join(', ')}`)
  })

  test('every kind of change is shown as what it is, in one column and in two, and decided by keys', async ({ site, world }) => {
    const { page } = site
    const many = Array.from({ length: 60 }, (_, i) => `line ${i + 1}`).join('\n') + '\n'
    const src = repo(world, 'kinds', { 'mod.txt': many, 'gone.txt': 'gone\n', 'old-name.txt': many.replaceAll('line', 'row'), 'run.sh': 'echo run\n', 'blob.bin': new Uint8Array([0, 1, 2]) })
    const remote = `${src}.git`
    execFileSync('git', ['clone', '-q', '--bare', src, remote])
    const { r } = await prepared(world, { name: 'kinds', src, title: 'all kinds', remote, ref: 'main', code: 'sed -i "s/^line 3$/line three/; s/^line 50$/line fifty/" mod.txt; rm gone.txt; mv old-name.txt new-name.txt; chmod +x run.sh; printf "\\0\\7" > blob.bin; printf last > no-end.txt; : > empty.txt; ln -s mod.txt link; head -c 5000000 /dev/zero | tr "\\0" "x" > large.txt' })
    await site.session('all kinds')
    await reviewed(page)
    const review = page.getByRole('region', { name: 'Review', exact: true })
    const tree = review.getByRole('tree', { name: 'Changed files' })
    await expect(tree.getByRole('treeitem')).toHaveCount(9)
    const show = async (name: RegExp, ...words: string[]) => {
      await tree.getByRole('treeitem', { name }).click()
      for (const w of words) await expect(review.locator('main.diff')).toContainText(w)
    }
    for (const split of [true, false]) {
      await review.getByRole('button', { name: split ? /^Side by side/ : 'Unified' }).click()
      await show(/^mod\.txt, modified, 2 added, 2 deleted/, 'line three', 'fifty')
      await expect(review.locator('.row-at .two').first()).toBeVisible({ visible: split })
      await show(/^gone\.txt, deleted/, 'The deletion of the file')
      await show(/^new-name\.txt, renamed/, 'Renamed from old-name.txt', 'Only the name changes')
      await show(/^run\.sh, mode changed/, '100644 → 100755', 'becomes an executable file')
      await show(/^blob\.bin, modified/, 'cannot be read as text: 3 B before, 2 B now')
      await show(/^no-end\.txt, added/, 'The whole new file', 'no line break at the end')
      await show(/^empty\.txt, added/, 'The file is empty.')
      await show(/^link, added/, 'The new link')
      await show(/^large\.txt, added/, 'Not shown line by line')
      await themes(site, '.review')
    }
    // Keys: files by J and K, changes by j and k over the ends of files, s for the view, / for the filter.
    await tree.getByRole('treeitem', { name: /^mod\.txt/ }).click()
    await review.locator('.scroll').focus()
    const current = () => tree.locator('[role=treeitem][aria-selected=true]').getAttribute('title')
    const unit = () => review.locator('.unit .name[aria-current=true]').innerText()
    const first = await unit()
    await page.keyboard.press('j')
    await expect.poll(unit).not.toBe(first)
    expect(await current()).toBe('mod.txt')
    await page.keyboard.press('k')
    await expect.poll(unit).toBe(first)
    await page.keyboard.press('J')
    await expect.poll(current).not.toBe('mod.txt')
    await page.keyboard.press('K')
    await expect.poll(current).toBe('mod.txt')
    await page.keyboard.press('s')
    await expect(review.getByRole('button', { name: /^Side by side/ })).toHaveAttribute('aria-pressed', 'true')
    await page.keyboard.press('a')
    await expect(review.getByText('1 accepted', { exact: true })).toBeVisible()
    await page.keyboard.press('x')
    await expect(review.getByText('1 rejected', { exact: true })).toBeVisible()
    await expect.poll(current).not.toBe('mod.txt')
    await page.keyboard.press('k')
    await expect.poll(current).toBe('mod.txt')
    await page.keyboard.press('u')
    await expect(review.getByText('0 rejected', { exact: true })).toBeVisible()
    await page.keyboard.press('v')
    await expect(tree.getByRole('treeitem', { name: /^mod\.txt.*, viewed/ })).toBeVisible()
    await expect(review.getByText('1 of 9 viewed')).toBeVisible()
    await page.keyboard.press('/')
    await expect(review.getByLabel('Filter files')).toBeFocused()
    await review.getByLabel('Filter files').fill('zzz')
    await expect(review).toContainText('No file fits the filter.')
    await review.getByLabel('Filter files').fill('new-')
    await expect(tree.getByRole('treeitem')).toHaveCount(1)
    await page.keyboard.press('Escape')
    await expect(tree.getByRole('treeitem')).toHaveCount(9)
    // The core holds what was decided.
    const got = await world.api<{ accepted: number; rejected: number; files: { path: string; viewed: boolean }[] }>('GET', `/v1/reviews/${r}?brief=true`)
    expect(got).toMatchObject({ accepted: 1, rejected: 0 })
    expect(got.files.filter((f) => f.viewed).map((f) => f.path)).toEqual(['mod.txt'])
    // What cannot be pushed yet says why.
    await expect(review.getByRole('button', { name: /^See what would be pushed/ })).toBeDisabled()
    await expect(review.getByRole('button', { name: /^See what would be pushed/ })).toHaveAttribute('title', /left to decide/)

    // All but one hunk of one file is taken; with a message of the person's, exactly that is pushed.
    await review.getByRole('button', { name: 'Accept all' }).click()
    await tree.getByRole('treeitem', { name: /^mod\.txt/ }).click()
    await review.locator('.unit').filter({ hasText: '@@ 47' }).getByRole('button', { name: /^Reject/ }).click()
    await expect(tree.getByRole('treeitem', { name: /^mod\.txt.*accepted in part/ })).toBeVisible()
    await expect(review.getByText('1 left out; the workspace keeps it.', { exact: false })).toBeVisible()
    await review.getByRole('textbox', { name: 'Message' }).fill('All kinds of changes')
    await review.getByRole('button', { name: /^See what would be pushed/ }).click()
    await expect(review.getByLabel('Plan')).toContainText('All kinds of changes')
    // A plan is about what was seen: another decision voids it.
    await tree.getByRole('treeitem', { name: /^empty\.txt/ }).click()
    await review.getByRole('button', { name: 'Reject file' }).click()
    await expect(review.getByLabel('Plan')).toHaveCount(0)
    await review.getByRole('button', { name: /^See what would be pushed/ }).click()
    await review.getByRole('button', { name: /^Push [0-9a-f]{8}/ }).click()
    await expect(review.getByRole('status').filter({ hasText: 'Pushed' })).toBeVisible()
    await themes(site, '.review')
    const there = (...a: string[]) => execFileSync('git', ['-C', remote, ...a], { encoding: 'utf8' })
    expect(there('ls-tree', '-r', 'main').split('\n').filter(Boolean).map((l) => `${l.slice(0, 6)} ${l.split('\t')[1]}`)).toEqual(['100644 blob.bin', '100644 large.txt', '120000 link', '100644 mod.txt', '100644 new-name.txt', '100644 no-end.txt', '100755 run.sh'])
    expect(there('show', 'main:mod.txt')).toBe(many.replace('line 3\n', 'line three\n'))
    expect(there('show', 'main:no-end.txt')).toBe('last')
    expect(there('log', '-1', '--format=%s', 'main').trim()).toBe('All kinds of changes')
  })

  test('comments and viewed marks go along into the next review where what they are about is still there', async ({ site, world }) => {
    const { page } = site
    const src = repo(world, 'carried', { 'a.txt': 'a1\na2\na3\n', 'b.txt': 'b1\nb2\nb3\n' })
    const { p, s } = await prepared(world, { name: 'carried', src, title: 'carried over', code: 'sed -i s/a2/A2/ a.txt; sed -i s/b2/B2/ b.txt' })
    await site.session('carried over')
    await reviewed(page)
    const review = page.getByRole('region', { name: 'Review', exact: true })
    const item = (name: string) => review.getByRole('treeitem', { name: new RegExp(`^${name}`) })
    const say = async (file: string, text: string) => {
      await item(file).click()
      await review.locator('.scroll').focus()
      await page.keyboard.press('c')
      const box = review.getByRole('textbox', { name: /^Comment on/ })
      await expect(box).toBeFocused()
      await box.fill(text)
      await box.press('Control+Enter')
      await expect(review.getByRole('article', { name: /^Comment/ })).toContainText(text)
    }
    await say('a.txt', 'why is a2 loud')
    await say('b.txt', 'a word that is taken back')
    await review.getByRole('article').getByRole('button', { name: 'Remove' }).click()
    await expect(review.getByRole('article')).toHaveCount(0)
    await say('b.txt', 'half right')
    await review.getByRole('article').getByRole('button', { name: 'Edit' }).click()
    await review.getByRole('textbox', { name: 'Edit the comment' }).fill('b2 should stay small')
    await review.getByRole('textbox', { name: 'Edit the comment' }).press('Control+Enter')
    await expect(review.getByRole('article')).toContainText('b2 should stay small')
    await expect(item('b.txt')).toHaveAccessibleName(/1 comment/)
    await themes(site, '.review')
    await review.getByRole('button', { name: 'Send 2 comments to the agent' }).click()
    await expect(review.getByRole('article').locator('.tag')).toHaveText('sent')
    const said = (await world.api<{ type: string; data: { text?: string } }[]>('GET', `/v1/log?session_id=${s}`)).filter((e) => e.type === 'message').map((e) => e.data.text ?? '')
    expect(said).toHaveLength(1)
    expect(said[0]).toContain('why is a2 loud')
    expect(said[0]).toContain('b2 should stay small')
    expect(said[0]).not.toContain('taken back')
    for (const f of ['a.txt', 'b.txt']) {
      await item(f).click()
      await review.getByRole('button', { name: /^Mark viewed/ }).click()
      await expect(item(f)).toHaveAccessibleName(/viewed/)
    }

    // The agent does what was asked about b, and a stays as it is.
    await world.exec(s, 'sh', '-c', 'printf "b1\nb3\n" > b.txt')
    await world.api('POST', `/v1/projects/${p}/reviews`, {})
    await review.getByRole('button', { name: 'A newer review is there: open it' }).click()
    await expect(item('a.txt')).toHaveAccessibleName(/viewed/)
    await expect(item('b.txt')).not.toHaveAccessibleName(/viewed/)
    await item('a.txt').click()
    await expect(review.getByRole('article', { name: /^Comment on line 2/ })).toContainText('why is a2 loud')
    await expect(review.getByRole('article').locator('.tag')).toHaveText('sent')
    await item('b.txt').click()
    await expect(review.getByRole('article')).toContainText('b2 should stay small')
    await expect(review.getByRole('article').locator('.tag')).toHaveText('sent, outdated')
    await expect(review.getByRole('article')).toContainText('B2') // the line it was about
    await themes(site, '.review')
    await review.getByRole('article').getByRole('button', { name: 'Done' }).click()
    await expect(review.getByRole('article')).toHaveCount(0)
  })

  test('a remote that moved meanwhile refuses the push in words, and nothing is overwritten', async ({ site, world }) => {
    const { page } = site
    const src = repo(world, 'moved', { 'a.txt': 'a\n' })
    const remote = `${src}.git`
    execFileSync('git', ['clone', '-q', '--bare', src, remote])
    await prepared(world, { name: 'moved', src, title: 'too late', code: 'echo mine > a.txt', remote, ref: 'main' })
    await site.session('too late')
    await reviewed(page)
    const review = page.getByRole('region', { name: 'Review', exact: true })
    await review.getByRole('button', { name: 'Accept all' }).click()
    await page.keyboard.press('Control+Enter')
    const plan = review.getByLabel('Plan')
    await expect(plan).toContainText('refs/heads/main')
    await themes(site, '.review')
    // Somebody else is quicker.
    const git = (...a: string[]) => execFileSync('git', ['-C', src, '-c', 'user.name=Eve', '-c', 'user.email=eve@shop.example', ...a], { encoding: 'utf8' })
    execFileSync('sh', ['-c', 'echo theirs > a.txt'], { cwd: src })
    git('commit', '-qam', 'Quicker')
    git('push', '-q', remote, 'main')
    const theirs = git('rev-parse', 'HEAD').trim()
    await review.getByRole('button', { name: /^Push [0-9a-f]{8}/ }).click()
    const alert = review.getByRole('alert')
    await expect(alert).toContainText(/moved|holds another|has changed/i)
    expect(execFileSync('git', ['-C', remote, 'rev-parse', 'main'], { encoding: 'utf8' }).trim()).toBe(theirs)
    await expect(alert).toContainText('review again, push again; nothing was changed')
    await themes(site, '.review')
    // To a branch of its own it goes.
    await review.getByLabel('Branch').fill('mine')
    await page.getByRole('button', { name: /^See what would be pushed/ }).click()
    await expect(plan).toContainText('refs/heads/mine')
    await review.getByRole('button', { name: /^Push [0-9a-f]{8}/ }).click()
    await expect(review.getByRole('status').filter({ hasText: 'Pushed' })).toBeVisible()
    expect(execFileSync('git', ['-C', remote, 'show', 'mine:a.txt'], { encoding: 'utf8' })).toBe('mine\n')
  })

  test('two windows decide the same review and see what the other did', async ({ site, world, context }) => {
    const { page } = site
    const src = repo(world, 'shared-review', { 'a.txt': 'a\n', 'b.txt': 'b\n' })
    await prepared(world, { name: 'two windows', src, title: 'seen by two', code: 'echo A > a.txt; echo B > b.txt' })
    const two = await visit(await context.newPage(), world)
    const regions = []
    for (const w of [site, two.site]) {
      await w.session('seen by two')
      await reviewed(w.page)
      regions.push(w.page.getByRole('region', { name: 'Review', exact: true }))
    }
    const [mine, theirs] = regions as [ReturnType<Page['locator']>, ReturnType<Page['locator']>]
    await mine.getByRole('treeitem', { name: /^a\.txt/ }).click()
    await mine.getByRole('button', { name: 'Accept file' }).click()
    await expect(theirs.getByRole('treeitem', { name: /^a\.txt.*, accepted/ })).toBeVisible()
    await theirs.getByRole('treeitem', { name: /^a\.txt/ }).click()
    await theirs.getByRole('button', { name: 'Reject file' }).click()
    await expect(mine.getByRole('treeitem', { name: /^a\.txt.*, rejected/ })).toBeVisible()
    // Half a comment here is not lost by what happens there.
    await mine.locator('.scroll').focus()
    await page.keyboard.press('c')
    await mine.getByRole('textbox', { name: /^Comment on/ }).fill('half')
    await theirs.getByRole('button', { name: 'Accept all' }).click()
    await expect(mine.getByText('2 accepted', { exact: true })).toBeVisible()
    await expect(mine.getByRole('textbox', { name: /^Comment on/ })).toHaveValue('half')
    await mine.getByRole('textbox', { name: /^Comment on/ }).press('Control+Enter')
    await theirs.getByRole('treeitem', { name: /^a\.txt.*1 comment/ }).click()
    await expect(theirs.getByRole('article')).toContainText('half')
    two.check()
  })

  test('no review yet, one that is slow, one that fails: each says so', async ({ site, world }) => {
    const { page } = site
    const src = repo(world, 'states', { 'a.txt': 'a\n' })
    const p = await world.api<{ id: string }>('POST', '/v1/projects', { source: src, machine_kind: 'local', name: 'states' })
    const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'states of a review', agent: 'manual' })
    await site.session('states of a review')
    await page.keyboard.press('v')
    const list = page.getByRole('region', { name: 'Reviews' })
    await expect(list).toContainText('Nothing leaves the machine before.')
    await themes(site)
    // Nothing was changed: that is said, and there is nothing to decide.
    await list.getByRole('button', { name: /^Open review/ }).click()
    await expect(list.getByRole('alert')).toContainText('nothing changed since the project was made')
    await themes(site)
    await world.exec(s.id, 'sh', '-c', 'echo b > a.txt')
    await broken(page, /\/projects\/[^/]+\/reviews$/)
    await list.getByLabel(/^Remote/).fill('/no/such/place')
    await list.getByRole('button', { name: /^Open review/ }).click()
    await expect(list.getByRole('alert')).toContainText('the disk is full')
    await expect(list.getByLabel(/^Remote/)).toHaveValue('/no/such/place')
    await themes(site)
    await page.unroute(/\/projects\/[^/]+\/reviews$/)
    await list.getByLabel(/^Remote/).fill('')
    const go = await held(page, /\/v1\/reviews\/[^/?]+$/)
    await list.getByRole('button', { name: /^Open review/ }).click()
    await expect(page.getByText('Reading the review')).toBeVisible()
    await themes(site)
    await go()
    const review = page.getByRole('region', { name: 'Review', exact: true })
    await expect(review.getByRole('treeitem', { name: /^a\.txt/ })).toBeVisible()
    // A decision that fails is taken back on the screen and said.
    await broken(page, /\/decisions/)
    await review.getByRole('button', { name: 'Accept all' }).click()
    await expect(review.getByRole('alert')).toContainText('the disk is full')
    await expect(review.getByText('0 accepted', { exact: true })).toBeVisible()
    await themes(site, '.review')
    await page.unroute(/\/decisions/)
    await review.getByRole('button', { name: 'Accept all' }).click()
    await expect(review.getByText('1 accepted', { exact: true })).toBeVisible()
    await broken(page, /\/v1\/reviews\/[^/?]+$/)
    await site.open()
    await expect(page.getByRole('alert')).toContainText('the disk is full')
    await themes(site)
  })
})

/** A project with a review of what one step did to it. */
async function prepared(world: World, o: { name: string; src: string; title: string; code: string; remote?: string; ref?: string }): Promise<{ p: string; s: string; r: string }> {
  const p = await world.api<{ id: string }>('POST', '/v1/projects', { source: o.src, machine_kind: 'local', name: o.name })
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: o.title, agent: 'playbook' })
  await world.exec(s.id, 'sh', '-c', o.code)
  const r = await world.api<{ id: string }>('POST', `/v1/projects/${p.id}/reviews`, o.remote ? { remote: o.remote, ref: o.ref } : {})
  return { p: p.id, s: s.id, r: r.id }
}
