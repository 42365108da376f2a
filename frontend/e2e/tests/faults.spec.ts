import { connected, expect, test, visit, type Page, type World } from '../fixtures'
import { held } from '../look'

// The core is slow, gone, or another one: the screen says so, and nothing a person typed is lost.

const DRAFT = 'half a sentence that is not sent'

async function sessionWithDraft(w: World, page: Page) {
  const p = await w.api<{ id: string }>('POST', '/v1/projects', { source: w.src, machine_kind: 'local' })
  const s = await w.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'long work', agent: 'playbook' })
  await page.getByRole('navigation').getByText('long work').click()
  await page.getByRole('textbox', { name: 'Message' }).fill(DRAFT)
  return { project: p.id, session: s.id }
}

test('a core that takes its time to answer: the page stays usable and says what it waits for', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: 'slow answers', agent: 'playbook' })
  await site.session('slow answers')
  const box = page.getByRole('textbox', { name: 'Message' })
  await box.fill('does it arrive?')
  const go = await held(page, /\/v1\//)
  await page.getByRole('button', { name: 'Send' }).click()
  // While the answer is on its way it says so, cannot be sent twice, and the text is not gone.
  await expect(page.getByRole('button', { name: 'Sending' })).toBeDisabled()
  await expect(box).toHaveValue('does it arrive?')
  // The rest of the window answers at once.
  await page.getByRole('tab', { name: /^Files/ }).click()
  await expect(page.getByRole('tab', { name: /^Files/ })).toHaveAttribute('aria-selected', 'true')
  await page.getByRole('tab', { name: /^Changes/ }).click()
  await expect(page.getByRole('tab', { name: /^Changes/ })).toHaveAttribute('aria-selected', 'true')
  await go()
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
  const { check } = await visit(page, own)
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
  check()
})

test('a stream that is cut in the middle of a line is taken up again without loss', async ({ own, page }) => {
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
  await own.exec(session, 'echo', 'after-the-cuts')
  await expect(page.getByRole('feed').getByText('echo after-the-cuts')).toHaveCount(1)
  await expect.poll(() => cuts).toBeGreaterThan(3)
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  // The page asks for the next one at once: what is still on its way then ends with the test.
  await page.unrouteAll({ behavior: 'ignoreErrors' })
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

test('half a comment, half a playbook and half a form outlive a cut link, a killed core and a reload', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { project, session } = await sessionWithDraft(own, page)
  await own.exec(session, 'sh', '-c', 'echo changed > greet.sh')
  await own.api('POST', `/v1/projects/${project}/reviews`, {})
  const comment = page.getByRole('textbox', { name: /^Comment on/ })
  const playbook = page.getByRole('textbox', { name: /^Playbook/ })
  const form = { source: page.getByLabel('Folder or repository'), name: page.getByLabel('Name'), memory: page.getByLabel('Memory, MiB') }

  await page.keyboard.press('Escape')
  await page.keyboard.press('v')
  await page.getByRole('region', { name: 'Reviews' }).getByRole('button', { name: /1 change/ }).click()
  await page.getByRole('treeitem', { name: /^greet\.sh/ }).click()
  await page.keyboard.press('c')
  await comment.fill('half a com')
  // Escape leaves the field, and the words in it.
  await page.keyboard.press('Escape')
  await page.keyboard.press('p')
  await playbook.fill('name: half a play')
  await page.getByLabel('Checks').fill('make te')
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
  await page.keyboard.press('n')
  await form.source.fill('/home/somebody/half')
  await form.name.fill('half a na')
  await page.getByText('Size of the machine').click()
  await form.memory.fill('2048')

  /** All that was typed is there, wherever it was typed; ends with the form open, as it begins. */
  const all = async () => {
    await expect(form.source).toHaveValue('/home/somebody/half')
    await expect(form.name).toHaveValue('half a na')
    await expect(form.memory).toHaveValue('2048')
    await page.keyboard.press('Escape')
    await expect(page.getByRole('dialog')).toHaveCount(0)
    await expect(comment).toHaveValue('half a com')
    await page.keyboard.press('p')
    await expect(playbook).toHaveValue('name: half a play')
    await expect(page.getByLabel('Checks')).toHaveValue('make te')
    await page.keyboard.press('Escape')
    await expect(page.getByRole('dialog')).toHaveCount(0)
    await page.keyboard.press('n')
    await expect(form.source).toBeVisible()
  }
  await own.stopServe()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  // What cannot be done while nobody answers says so.
  await expect(page.getByRole('button', { name: 'Make project' })).toBeDisabled()
  await all()
  await own.serveAgain()
  await connected(page)
  await all()
  own.crash()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  await all()
  own.run('project', 'list')
  await connected(page)
  await all()
  await page.reload()
  await connected(page)
  await page.keyboard.press('n')
  await all()
  await page.keyboard.press('Escape')
  await page.keyboard.press('Escape')
  await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue(DRAFT)
  check()
})

test('an answer given while the link is cut: it says so in words, nothing is lost, and it counts once', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { session } = await sessionWithDraft(own, page)
  const book = 'name: asks\nsteps:\n  - tool: ask_user\n    args: {question: "Which port?", options: ["8080", "Another"], free_text: true}\n'
  await own.api('POST', `/v1/sessions/${session}/turns`, { agent: 'playbook', input: book })
  const card = page.getByRole('region', { name: 'Question: Which port?' })
  await card.getByRole('textbox', { name: 'Your words' }).fill('because 80 is taken')
  await own.stopServe()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  await card.getByRole('button', { name: '8080' }).click()
  const said = card.getByRole('alert')
  await expect(said).toContainText('nobody answered')
  await expect(said).toContainText('the page connects again by itself')
  await expect(card.getByRole('textbox', { name: 'Your words' })).toHaveValue('because 80 is taken')
  await expect(card.getByRole('button', { name: '8080' })).toBeEnabled()
  await own.serveAgain()
  await connected(page)
  await card.getByRole('button', { name: '8080' }).click()
  await expect(card).toHaveCount(0)
  await expect(page.getByRole('feed')).toContainText('because 80 is taken')
  const log = await own.api<{ type: string; data: { choice?: string; text?: string } }[]>('GET', `/v1/log?session_id=${session}`)
  expect(log.filter((e) => e.type === 'approval.answered').map((e) => [e.data.choice, e.data.text])).toEqual([['option-1', 'because 80 is taken']])
  check()
})

test('a question outlives a killed core: it waits on, and its answer goes through', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { session } = await sessionWithDraft(own, page)
  const book = 'name: asks\nsteps:\n  - tool: ask_user\n    args: {question: "Go on?", options: ["Yes", "No"]}\n    expect: {has: "Yes"}\n'
  await own.api('POST', `/v1/sessions/${session}/turns`, { agent: 'playbook', input: book })
  const card = page.getByRole('region', { name: 'Question: Go on?' })
  await expect(card).toBeVisible()
  own.crash()
  await expect(page.getByText('Reconnecting').first()).toBeVisible()
  own.run('project', 'list')
  await connected(page)
  await card.getByRole('button', { name: 'Yes' }).click()
  await expect(card).toHaveCount(0)
  await expect(page.getByRole('feed')).toContainText(/Yes\s*by a person/)
  check()
})
