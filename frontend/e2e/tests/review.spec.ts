import { hostile, expect, test, type Page } from '../fixtures'

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
})
