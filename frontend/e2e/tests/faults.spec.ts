import { connected, expect, test, visit, World } from '../fixtures'

// The core is slow, gone, or another one: the screen says so, and nothing a person typed is lost.

const DRAFT = 'half a sentence that is not sent'

async function sessionWithDraft(w: World, page: import('@playwright/test').Page) {
  const p = await w.api<{ id: string }>('POST', '/v1/projects', { source: w.src, machine_kind: 'local' })
  const s = await w.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'long work', agent: 'playbook' })
  await page.getByRole('navigation').getByText('long work').click()
  await page.getByRole('textbox', { name: 'Message' }).fill(DRAFT)
  return { project: p.id, session: s.id }
}

test('a core that answers after three seconds: the page stays usable and says what it waits for', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: 'slow answers', agent: 'playbook' })
  await site.session('slow answers')
  const box = page.getByRole('textbox', { name: 'Message' })
  await box.fill('does it arrive?')
  await page.route('**/v1/**', async (r) => {
    await new Promise((done) => setTimeout(done, 3000))
    await r.continue()
  })
  await page.getByRole('button', { name: 'Send' }).click()
  // While the answer is on its way it says so, cannot be sent twice, and the text is not gone.
  await expect(page.getByRole('button', { name: 'Sending' })).toBeDisabled()
  await expect(box).toHaveValue('does it arrive?')
  // The rest of the window answers at once.
  await page.getByRole('tab', { name: /^Files/ }).click()
  await expect(page.getByRole('tab', { name: /^Files/ })).toHaveAttribute('aria-selected', 'true')
  await page.getByRole('tab', { name: /^Changes/ }).click()
  await expect(page.getByRole('feed').getByText('does it arrive?')).toBeVisible()
  await expect(box).toHaveValue('')
  const said = (await world.api<{ type: string; data: { text?: string } }[]>('GET', `/v1/log?session_id=${s.id}`)).filter((e) => e.type === 'message')
  expect(said.map((e) => e.data.text)).toEqual(['does it arrive?'])
})

test('a call that fails keeps the words and says what to do', async ({ site, world, shared }) => {
  const { page } = site
  await world.api('POST', '/v1/sessions', { project_id: shared.id, title: 'refused words', agent: 'playbook' })
  await site.session('refused words')
  await page.route('**/messages', (r) => r.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify({ code: 'unavailable', what: 'the log cannot be written: disk full', hint: 'make room, then send it again' }) }))
  await page.getByRole('textbox', { name: 'Message' }).fill('keep me')
  await page.getByRole('button', { name: 'Send' }).click()
  await expect(page.getByRole('alert')).toContainText('disk full')
  await expect(page.getByRole('alert')).toContainText('make room')
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue('keep me')
})

test('a cut stream: the page says so, and what happened meanwhile is there once, in order, when it is back', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  const { session } = await sessionWithDraft(own, page)
  await own.exec(session, 'echo', 'before')
  await expect(page.getByRole('feed').getByText('echo before')).toBeVisible()
  await own.stopServe()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  for (let i = 1; i <= 5; i++) await own.exec(session, 'echo', `meanwhile-${i}`)
  await own.serveAgain()
  await connected(page)
  await expect(page.getByRole('feed').getByText('echo meanwhile-5')).toBeVisible()
  const rows = await page.getByRole('feed').getByText(/echo meanwhile-\d/).allInnerTexts()
  expect(rows.map((t) => /meanwhile-\d/.exec(t)?.[0])).toEqual([1, 2, 3, 4, 5].map((i) => `meanwhile-${i}`))
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  void site
  check()
})

test('a stream that hangs in the middle of an event is taken up again without loss', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { session } = await sessionWithDraft(own, page)
  // Every stream is cut after an odd number of bytes, most often inside a line.
  let cuts = 0
  await page.route('**/v1/events**', async (r) => {
    const res = await r.fetch({ url: r.request().url() + '&follow=false' })
    const body = await res.body()
    const at = cuts < 4 ? Math.min(body.length, 701 + 977 * cuts) : body.length
    cuts++
    await r.fulfill({ response: res, body: body.subarray(0, at) })
  })
  await page.reload()
  await own.exec(session, 'echo', 'after the cuts')
  await expect(page.getByRole('feed').getByText('echo after the cuts')).toHaveCount(1)
  expect(cuts).toBeGreaterThan(3)
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  check()
})

test('a killed core: the page says so, another core takes over, and nothing typed is lost', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { session } = await sessionWithDraft(own, page)
  await own.exec(session, 'echo', 'one')
  await expect(page.getByRole('feed').getByText('echo one')).toBeVisible()
  own.crash()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  own.run('project', 'list') // starts another core, as any command does
  await connected(page)
  await own.exec(session, 'echo', 'two')
  await expect(page.getByRole('feed').getByText('echo two')).toBeVisible()
  await expect(page.getByRole('feed').getByText('echo one')).toHaveCount(1)
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  // A reload by hand keeps them as well.
  await page.reload()
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  check()
})

test('a core with another log: the page forgets what is not true any more', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { project } = await sessionWithDraft(own, page)
  await expect(page.getByRole('navigation').getByText('greeter')).toBeVisible()
  await own.api('DELETE', `/v1/projects/${project}`)
  await own.fresh() // the data folder is another one now, at the same address
  await expect(page.getByRole('navigation').getByText('long work')).toHaveCount(0)
  await connected(page)
  check()
})
