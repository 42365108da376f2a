import { expect, hostile, test, type Page } from '../fixtures'

const runs = `name: long work
steps:
${Array.from({ length: 60 }, (_, i) => `  - tool: exec\n    args: {argv: [echo, "number ${i + 1}"]}`).join('\n')}
  - tool: write
    args: {path: cart/total.ts, content: "export const total = (a: number[]) => a.reduce((s, x) => s + x, 0)\\n"}
  - tool: edit
    args: {path: cart/total.ts, old: "s + x, 0", new: "s + Math.round(x), 0"}
  - tool: exec
    args: {lang: bash, code: "for i in $(seq 1 20000); do echo line $i of a long log; done"}
`

/** Where a row is, from the top of the list. */
const at = (page: Page, step: number) => page.evaluate((n) => {
  const e = document.querySelector(`[data-step="${n}"]`)
  return e ? Math.round(e.getBoundingClientRect().top - (document.querySelector('[role=feed]')?.getBoundingClientRect().top ?? 0)) : undefined
}, step)

/** Where a row is once nothing moves any more: rows are measured after they are drawn. */
async function still(page: Page, step: number): Promise<number> {
  await expect(page.locator(`[data-step="${step}"]`)).toBeVisible()
  let was: number | undefined
  let same = 0
  await expect.poll(async () => {
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
    const now = await at(page, step)
    same = now === was && now !== undefined ? same + 1 : 0
    was = now
    return same
  }).toBeGreaterThan(4)
  return was ?? NaN
}

test.describe('the timeline', () => {
  test('draws what is in view, keeps its place while rows come, grow and go, and is walked by keys', async ({ site, world, shared }) => {
    const { page } = site
    const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, agent: 'playbook', title: 'place kept' })
    await world.api('POST', `/v1/sessions/${s.id}/turns`, { agent: 'playbook', input: runs })
    await site.session('place kept')
    const feed = page.getByRole('feed')
    const row = (n: number) => page.locator(`[data-step="${n}"]`)
    // The newest is in view while they come.
    await expect(row(63)).toBeInViewport({ timeout: 180_000 })
    await expect(page.getByRole('article', { name: 'Turn 1' })).toHaveCount(0)
    expect(await page.getByRole('article').count()).toBeLessThan(60)

    // An edit opens as its lines, with colours and the words that differ.
    await row(62).click()
    const edit = page.locator('[data-at]', { has: row(62) })
    await expect(edit.locator('mark').first()).toBeVisible()
    await expect(edit.locator('.tk-k').first()).toBeVisible()

    // A long output: its ends, then all of it, and what is looked for in it.
    await row(63).click()
    const out = page.locator('[data-at]', { has: row(63) })
    await out.getByRole('button', { name: /Show all/ }).click()
    await out.getByRole('searchbox').fill('line 15000')
    await expect(out.getByText('1 of 1')).toBeVisible()
    await expect(out.getByText('line 15000 of a long log')).toBeVisible()

    // Somewhere in the middle, nothing moves when a row above changes its height.
    await feed.evaluate((e) => e.scrollTo(0, 900))
    await expect(row(32)).toBeInViewport()
    await row(30).click()
    await still(page, 34)
    await feed.evaluate((e) => e.scrollBy(0, 250))
    const there = await still(page, 42)
    await page.evaluate(() => document.querySelector<HTMLElement>('[data-step="30"]')?.closest('[data-at]')?.querySelectorAll<HTMLElement>('[role=tab]')[4]?.click())
    await expect.poll(() => at(page, 42)).toBe(there)
    expect(await still(page, 42)).toBe(there)

    // Neither do things that come.
    await world.api('POST', `/v1/sessions/${s.id}/exec`, { argv: ['echo', 'later'] })
    await expect(page.getByRole('button', { name: /new ↓/ })).toBeVisible()
    expect(await still(page, 42)).toBe(there)

    // By keys: to both ends, over screens, into a step and out of it, and a turn folded.
    await row(42).focus()
    await page.keyboard.press('Home')
    await expect(page.locator(':focus')).toHaveAttribute('aria-expanded', 'true')
    await page.keyboard.press('j')
    await expect(row(1)).toBeFocused()
    await page.keyboard.press('PageDown')
    await expect(row(1)).not.toBeFocused()
    await page.keyboard.press('G')
    await expect(row(64)).toBeFocused()
    await page.keyboard.press('Enter')
    await page.keyboard.press('ArrowRight')
    await expect(page.locator(':focus')).toHaveAttribute('role', 'tab')
    await page.keyboard.press('Escape')
    await expect(row(64)).toBeFocused()

    // The focus stays on its row when the view is scrolled elsewhere.
    await feed.evaluate((e) => e.scrollTo(0, 0))
    await expect(row(1)).toBeInViewport()
    await expect(row(64)).toBeFocused()
    await site.axe('main')
  })

  test('shows hostile output as text, in colour and raw', async ({ site, world, shared }) => {
    const { page } = site
    const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, agent: 'playbook', title: 'hostile output' })
    const text = `${hostile(7)}\n\u001b[31mred letters\u001b[0m\nold\rnew\nhttps://evil.example/\n`
    await world.api('POST', `/v1/sessions/${s.id}/exec`, { argv: ['printf', '%s', text] })
    await site.session('hostile output')
    await page.locator('[data-step="1"]').click()
    const out = page.getByRole('group', { name: 'output' })
    await expect(out.locator('.an-1', { hasText: 'red letters' })).toBeVisible()
    await expect(out).toContainText('\\x1b]0;t')
    await expect(out).toContainText('the last of 2')
    await expect(out.locator('a')).toHaveCount(0)
    await page.getByRole('checkbox', { name: 'Raw' }).check()
    await expect(out).toContainText('\\x1b[31mred letters')
    await expect(out).toContainText('old\\x0dnew')
    await site.axe('main')
  })
})
