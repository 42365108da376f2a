import { expect, test, visit, type Page, type World } from '../fixtures'

interface Logged { type: string; step_id?: string; data: Record<string, unknown> }
type Answers = { choice?: string; text?: string; by?: string }

const session = async (w: World, project: string, title: string, mode?: string) =>
  (await w.api<{ id: string }>('POST', '/v1/sessions', { project_id: project, title, agent: 'manual', ...(mode ? { mode } : {}) })).id
/** Asks for a command without waiting for it: the question is what is looked at. */
const exec = (w: World, s: string, ...argv: string[]) => w.api<{ execution_id: string }>('POST', `/v1/sessions/${s}/exec`, { argv })
const ask = async (w: World, project: string, title: string, args: object) => {
  const s = (await w.api<{ id: string }>('POST', '/v1/sessions', { project_id: project, title, agent: 'playbook' })).id
  await w.api('POST', `/v1/sessions/${s}/turns`, { agent: 'playbook', input: `name: asks\nsteps:\n  - tool: ask_user\n    args: ${JSON.stringify(args)}\n` })
  return s
}
const log = (w: World, s: string) => w.api<Logged[]>('GET', `/v1/log?session_id=${s}`)
const answers = async (w: World, s: string) => (await log(w, s)).filter((e) => e.type === 'approval.answered').map((e) => e.data as Answers)
const card = (page: Page, title: string | RegExp) => page.getByRole('region', { name: typeof title === 'string' ? `Question: ${title}` : title })

test('what will run is shown whole; keys answer only while the card has the focus', async ({ site, world, shared }) => {
  const { page } = site
  const s = await session(world, shared.id, 'keys of a card', 'ask')
  await exec(world, s, 'sh', '-c', 'echo "one  two" > answered.txt\n# and a second line')
  await site.session('keys of a card')
  const q = card(page, /answered\.txt/)
  await expect(q).toContainText('To run')
  await expect(q).toContainText('# and a second line')
  await expect(q).toContainText('why this asks')
  expect(await q.evaluate((e) => e.contains(document.activeElement)), 'no answer has the focus').toBe(false)
  await site.axe()
  // Elsewhere its keys are those of the page.
  await page.keyboard.press('Escape')
  for (const key of ['s', 'd', 'Enter', 'Backspace']) await page.keyboard.press(key)
  await expect(q).toBeVisible()
  expect(await answers(world, s)).toEqual([])
  await page.keyboard.press('w')
  await expect(q).toBeFocused()
  await expect(async () => {
    if (await q.count()) await q.press('Enter', { timeout: 1000 }).catch(() => {}) // a second press is for this card or for nobody
    await expect(q).toHaveCount(0, { timeout: 1500 })
  }).toPass()
  await expect.poll(async () => (await answers(world, s)).map((a) => a.choice)).toEqual(['once'])
  await expect(page.getByRole('feed')).toContainText('by a person')
  await expect(page.locator('[data-step="1"]')).toContainText('✓')
})

test('an answer for the session is remembered there, and nowhere else', async ({ site, world, shared }) => {
  const { page } = site
  const s = await session(world, shared.id, 'remembered here', 'ask')
  await exec(world, s, 'touch', 'here-1.txt')
  await site.session('remembered here')
  const q = card(page, /touch here-1\.txt/)
  await expect(q).toContainText('save a rule')
  await q.getByRole('button', { name: 'Allow in this session' }).click()
  await expect(page.locator('[data-step="1"]')).toContainText(/✓|\+/)
  await exec(world, s, 'touch', 'here-1.txt')
  await expect(page.locator('[data-step="2"]')).toContainText('✓')
  await expect(page.getByRole('region', { name: /^Question:/ })).toHaveCount(0)
  // Another session is asked.
  const other = await session(world, shared.id, 'not remembered there', 'ask')
  await exec(world, other, 'touch', 'here-1.txt')
  await site.session('not remembered there')
  await card(page, /touch here-1\.txt/).getByRole('button', { name: 'Deny' }).click()
  await expect(page.locator('[data-step="1"]')).toContainText('denied')
})

test('an answer for the project is asked twice, says what it covers, is in the settings, and can be taken back', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  const p = await own.api<{ id: string }>('POST', '/v1/projects', { source: own.src, machine_kind: 'local' })
  const s = await session(own, p.id, 'wide answer', 'ask')
  await exec(own, s, 'touch', 'wide.txt')
  await site.session('wide answer')
  const q = card(page, /touch wide\.txt/)
  const wide = q.getByRole('button', { name: 'Allow in this project' })
  await wide.click()
  const sure = q.getByRole('group', { name: 'Save a rule' })
  await expect(sure).toContainText('touch wide.txt')
  await expect(sure).toContainText('in this project')
  expect(await answers(own, s)).toEqual([])
  await site.axe()
  await page.keyboard.press('Escape')
  await expect(sure).toHaveCount(0)
  await expect(q).toBeFocused()
  await wide.click()
  await sure.getByRole('button', { name: /^Save the rule and allow/ }).click()
  await expect(q).toHaveCount(0)
  const t = await session(own, p.id, 'asked no more', 'ask')
  await exec(own, t, 'touch', 'wide.txt')
  await site.session('asked no more')
  await expect(page.locator('[data-step="1"]')).toContainText('✓')
  expect((await log(own, t)).filter((e) => e.type === 'approval.requested')).toEqual([])
  await page.keyboard.press('Control+,')
  const rules = page.getByRole('region', { name: /^Rules/ })
  await expect(rules.getByRole('row').filter({ hasText: 'touch wide.txt' })).toContainText('the project')
  await expect(rules.getByRole('row').filter({ hasText: 'touch wide.txt' })).toContainText(/[1-9] times/)
  await site.axe()
  await rules.getByRole('button', { name: /^Remove the rule/ }).click()
  await expect(rules).toContainText('Nothing is remembered')
  const u = await session(own, p.id, 'asked again', 'ask')
  await exec(own, u, 'touch', 'wide.txt')
  await page.keyboard.press('Escape')
  await site.session('asked again')
  await card(page, /touch wide\.txt/).getByRole('button', { name: 'Deny' }).click()
  await expect(page.locator('[data-step="1"]')).toContainText('denied')
  check()
})

test('a host: never means never, and the network pane says so', async ({ site, world, shared }) => {
  const { page } = site
  const s = await session(world, shared.id, 'never there')
  const curl = ['curl', '-sS', '-m', '60', 'http://never.demo.example/a']
  await exec(world, s, ...curl)
  await site.session('never there')
  const q = card(page, /never\.demo\.example/)
  await expect(q).toContainText('To leave the machine')
  await expect(q).toContainText('curl')
  await q.getByRole('button', { name: 'Never in this project' }).click()
  await expect(q).toHaveCount(0)
  await expect(page.getByRole('feed')).toContainText('Never in this project')
  await world.api('POST', `/v1/sessions/${s}/exec?wait=ended`, { argv: curl })
  await expect(page.locator('[data-step="2"]').getByLabel('a connection was blocked')).toBeVisible()
  expect((await log(world, s)).filter((e) => e.type === 'approval.requested')).toHaveLength(1)
  await page.keyboard.press('5')
  await expect(page.getByRole('tabpanel', { name: /Network/ })).toContainText('never.demo.example')
})

test('a question of the agent: options by number, words of one’s own, and words alone', async ({ site, world, shared }) => {
  const { page } = site
  const s = await ask(world, shared.id, 'options', { question: 'Which of them?', options: ['The left', 'The right'], free_text: true })
  await site.session('options')
  const q = card(page, 'Which of them?')
  await expect(q).toContainText('The agent asks')
  await q.getByRole('textbox', { name: 'Your words' }).fill('2 is written, not chosen')
  await page.keyboard.press('Escape')
  await expect(q).toBeFocused()
  await expect(async () => {
    if (await q.count()) await q.press('2', { timeout: 1000 }).catch(() => {}) // a second press is for this card or for nobody
    await expect(q).toHaveCount(0, { timeout: 1500 })
  }).toPass()
  await expect.poll(() => answers(world, s)).toEqual([expect.objectContaining({ choice: 'option-2', text: '2 is written, not chosen' })])
  const t = await ask(world, shared.id, 'words alone', { question: 'What name shall it have?' })
  await site.session('words alone')
  const w = card(page, 'What name shall it have?')
  // The list may know the session a moment before its question.
  await expect(w).toBeVisible()
  await page.keyboard.press('Escape')
  await page.keyboard.press('w')
  await expect(w).toBeFocused()
  await page.keyboard.press('Enter')
  await expect(w.getByRole('textbox')).toBeFocused()
  await page.keyboard.type('half a na')
  await site.open()
  await expect(w.getByRole('textbox')).toHaveValue('half a na')
  await w.getByRole('textbox').focus()
  await page.keyboard.press('End')
  await page.keyboard.type('me')
  await page.keyboard.press('Control+Enter')
  await expect(w).toHaveCount(0)
  expect(await answers(world, t)).toEqual([expect.objectContaining({ text: 'half a name' })])
  await expect(page.getByRole('feed')).toContainText('half a name')
})

test('several at once wait in the order they came; an answer by key leads to the next', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  const p = await own.api<{ id: string }>('POST', '/v1/projects', { source: own.src, machine_kind: 'local' })
  for (const name of ['first', 'second', 'third']) {
    await ask(own, p.id, `${name} session`, { question: `The ${name}?`, options: ['Yes', 'No'] })
    await expect(page.getByRole('navigation').getByRole('button', { name: new RegExp(`The ${name}\\?`) })).toBeVisible()
  }
  const waiting = page.getByRole('navigation').getByRole('button', { name: /^.*The \w+\?/ })
  expect((await waiting.allInnerTexts()).map((t) => /The \w+/.exec(t)?.[0])).toEqual(['The first', 'The second', 'The third'])
  await expect(page).toHaveTitle(/^\(3\)/)
  await expect(page.getByRole('navigation').getByRole('heading', { name: /Waiting for you/ })).toContainText('3')
  await site.axe()
  await page.keyboard.press('w')
  for (const name of ['first', 'second', 'third']) {
    const q = card(page, `The ${name}?`)
    await expect(q).toBeFocused()
    await expect(async () => {
      if (await q.count()) await q.press('1', { timeout: 1000 }).catch(() => {}) // a second press is for this card or for nobody
      await expect(q).toHaveCount(0, { timeout: 1500 })
    }).toPass()
  }
  await expect(page.getByRole('navigation')).toContainText('Nothing.')
  await expect(page).not.toHaveTitle(/^\(/)
  check()
})

test('a question that somebody else answers or that is cancelled says so in its place', async ({ site, world, shared }) => {
  const { page } = site
  const s = await ask(world, shared.id, 'answered elsewhere', { question: 'Answered by whom?', options: ['Me', 'Them'] })
  await site.session('answered elsewhere')
  await expect(card(page, 'Answered by whom?')).toBeVisible()
  const [mine] = await world.api<{ id: string; asked: { digest: string } }[]>('GET', `/v1/approvals?session_id=${s}`)
  await world.api('POST', `/v1/approvals/${mine?.id}/answer`, { digest: mine?.asked.digest, choice: 'option-2' })
  await expect(card(page, 'Answered by whom?')).toHaveCount(0)
  await expect(page.getByRole('feed')).toContainText(/Them\s*by/)
  const t = await ask(world, shared.id, 'cancelled question', { question: 'Still there?', options: ['Yes', 'No'] })
  await site.session('cancelled question')
  await expect(card(page, 'Still there?')).toBeVisible()
  await page.getByRole('banner').getByRole('button', { name: /^Stop/ }).click()
  await expect(card(page, 'Still there?')).toHaveCount(0)
  await expect(page.getByRole('feed')).toContainText('cancelled')
  expect(await answers(world, t), 'a cancel is nobody’s no').toEqual([])
})

test('a question that expires says when', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  const p = await own.api<{ id: string }>('POST', '/v1/projects', { source: own.src, machine_kind: 'local' })
  const set = await own.api<{ settings: object }>('GET', '/v1/settings')
  await own.api('PUT', '/v1/settings', { ...set.settings, question_minutes: 5 })
  await ask(own, p.id, 'in time', { question: 'In time?', options: ['Yes', 'No'] })
  await site.session('in time')
  const q = card(page, 'In time?')
  await expect(q).toContainText(/expires in (5 ?m|4 ?m)/)
  // The page's clock goes on: what is left turns short, and is said to be.
  await page.clock.install()
  await page.clock.fastForward('04:30')
  await expect(q).toContainText(/expires (in \d+ ?s|now)/)
  await q.getByRole('button', { name: 'Yes' }).click()
  await expect(q).toHaveCount(0)
  check()
})
