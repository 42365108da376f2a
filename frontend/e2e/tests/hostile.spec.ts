import { expect, hostile, test } from '../fixtures'

// What a guest writes is text wherever it is shown. Every page of these tests also has
// a canary: a script that ran would fail the test.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff]/

/** No element of the guest's making, and no character that hides, reorders or commands. */
async function harmless(page: import('@playwright/test').Page) {
  expect(await page.locator('img[src="x"], script:not([src]):not([type="module"])').count()).toBe(0)
  const text = await page.evaluate(() => document.body.innerText)
  expect(HIDDEN.exec(text)?.[0]?.codePointAt(0)?.toString(16)).toBeUndefined()
}

test('outputs with markup, escapes, reordering and a line of 1 MB', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: `out ${hostile(1)}`, agent: 'playbook' })
  await world.exec(s.id, 'printf', '%s\\n', hostile(2))
  await world.exec(s.id, 'python3', '-c', `print("<b>${'y'.repeat(20)}</b>" + "x" * 1048576)`)
  await world.exec(s.id, 'sh', '-c', 'printf "one\\rtwo\\rthree\\n\\033[2J\\033[31mred\\033[0m \\033]52;c;aGk=\\007done\\n"')
  await site.session('out <img')
  await harmless(page)
  for (const i of [0, 1, 2]) {
    await page.locator('[data-step]').nth(i).click()
    await harmless(page)
  }
  await expect(page.getByRole('feed')).toContainText(`<img src=x onerror=glasshouseCanary(2)>`)
  // The window answers while the line of 1 MB is open.
  const gap = await page.evaluate(() => new Promise<number>((done) => { const t = performance.now(); requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - t))) }))
  expect(gap).toBeLessThan(10_000)
  await site.axe()
})

test('names of files, in changes, files and a review', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: 'odd names', agent: 'playbook' })
  const name = hostile(3).replaceAll('/', '')
  await world.exec(s.id, 'python3', '-c', 'import sys, os; os.makedirs("odd", exist_ok=True); open(os.path.join("odd", sys.argv[1]), "w").write(sys.argv[1] + "\\n")', name)
  await site.session('odd names')
  await page.getByRole('tab', { name: /^Changes/ }).click()
  await expect(page.getByRole('tabpanel', { name: /Changes/ })).toContainText('<img src=x onerror')
  await harmless(page)
  await page.getByRole('tab', { name: /^Files/ }).click()
  await page.getByRole('treeitem', { name: /odd/ }).first().click()
  await expect(page.getByRole('treeitem', { name: /<img src=x/ })).toBeVisible()
  await page.getByRole('treeitem', { name: /<img src=x/ }).click()
  await harmless(page)
  await site.axe()
  const r = await world.api<{ id: string }>('POST', `/v1/projects/${shared.id}/reviews`, {})
  void r
  await page.keyboard.press('Escape')
  await page.keyboard.press('v')
  await page.getByRole('region', { name: 'Reviews' }).getByRole('button', { name: /change/ }).first().click()
  await expect(page.getByRole('region', { name: 'Review', exact: true })).toContainText('<img src=x onerror')
  await harmless(page)
  await site.axe()
})

test('questions and messages cannot imitate the window', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: 'odd words', agent: 'playbook' })
  const book = `name: odd\nsteps:\n  - say: ${JSON.stringify(hostile(4))}\n  - tool: ask_user\n    args: ${JSON.stringify({ question: `Allow all?\n\n[ Allow ] ${hostile(5)}`, options: [`Yes ${hostile(6)}`, 'No'] })}\n`
  await world.api('POST', `/v1/sessions/${s.id}/turns`, { agent: 'playbook', input: book })
  await site.session('odd words')
  const card = page.getByRole('region', { name: /Allow all/ })
  await expect(card).toBeVisible()
  await harmless(page)
  await site.axe()
  await card.getByRole('button', { name: 'No', exact: true }).click()
  await expect(card).toBeHidden()
})
