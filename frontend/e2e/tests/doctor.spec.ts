import { expect, test, type Page } from '../fixtures'

async function doctor(page: Page) {
  await page.keyboard.press('Control+k')
  await page.getByRole('combobox', { name: 'Find a command' }).fill('doctor')
  await page.keyboard.press('Enter')
  return page.getByRole('main', { name: 'Doctor' })
}

test('the doctor says what works on this computer and how the rest is mended, and its report is copied whole', async ({ site, world }) => {
  const { page } = site
  const main = await doctor(page)
  await expect(main.getByRole('button', { name: 'Run again' })).toBeEnabled()
  const d = await world.api<{ version: string; lines: { name: string; ok: boolean; text: string; fix?: string }[] }>('GET', '/v1/doctor')
  const items = main.getByRole('listitem')
  await expect(items).toHaveCount(d.lines.length)
  for (const l of d.lines) {
    const item = items.filter({ has: page.getByText(l.name, { exact: true }) }).first()
    await expect(item.getByRole('img', { name: l.ok ? 'works' : 'trouble' })).toBeVisible()
    if (l.fix) await expect(item).toContainText(l.fix.slice(0, 20))
  }
  // What is in trouble comes first.
  const bad = d.lines.filter((l) => !l.ok).length
  expect(await main.getByRole('img').evaluateAll((all) => all.map((e) => e.getAttribute('aria-label')))).toEqual([...Array<string>(bad).fill('trouble'), ...Array<string>(d.lines.length - bad).fill('works')])
  await site.axe()
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await main.getByRole('button', { name: 'Copy report' }).click()
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain(`Glasshouse ${d.version}`)
  const report = await page.evaluate(() => navigator.clipboard.readText())
  for (const l of d.lines) expect(report).toContain(l.name)
})

test('a doctor that takes its time or fails says so, and is asked again', async ({ site }) => {
  const { page } = site
  let letGo = () => {}
  const held = new Promise<void>((done) => (letGo = done))
  await page.route('**/v1/doctor', async (r) => {
    await held
    await r.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify({ code: 'unavailable', what: 'the core is stopping', hint: 'ask again in a moment' }) })
  })
  const main = await doctor(page)
  await expect(main.getByRole('heading', { name: 'Looking at this computer' })).toBeVisible()
  await expect(main).toContainText('Looking for')
  await expect(main.getByRole('button', { name: 'Running' })).toBeDisabled()
  letGo()
  await expect(main.getByRole('alert')).toContainText('the core is stopping')
  await site.axe()
  await page.unroute('**/v1/doctor')
  await main.getByRole('button', { name: 'Try again' }).click()
  await expect(main.getByRole('alert')).toHaveCount(0)
  await expect(main.getByRole('listitem').first()).toBeVisible()
  await page.reload()
  await expect(main).toBeVisible()
  await page.keyboard.press('Escape')
  await expect(main).toHaveCount(0)
})
