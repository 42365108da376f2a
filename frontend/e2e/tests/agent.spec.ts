import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fakeModel, forms, gate, guard, KEY, keychain, noKeychain, type Fake } from '../agent'
import { connected, expect, test as base, visit, World, type Page, type Site } from '../fixtures'
import { themes } from '../look'

interface Stage { world: World; site: Site; page: Page; fake: Fake; check: () => void }
/** A core of the test's own with one project, and a model that answers from a script. */
const test = base.extend<{ stage: (script: string, more?: { price?: object; begin?: boolean }) => Promise<Stage> }>({
  stage: async ({ page }, use) => {
    const ends: (() => Promise<void> | void)[] = []
    await use(async (script, more = {}) => {
      const world = new World()
      ends.push(() => world.end())
      if (!noKeychain()) ends.push(await keychain(world))
      await world.serve()
      const fake = await fakeModel(world, script)
      ends.push(() => fake.end())
      await world.api('POST', '/v1/projects', { source: world.src, machine_kind: 'local' })
      const { site, check } = await visit(page, world)
      if (more.begin !== false) {
        // The key is set through the door that the page uses too.
        await world.api('PUT', '/v1/models/big', { format: 'openai-chat', model: 'big-1', base_url: fake.url, price: more.price ?? { input: 3, output: 15 } })
        await world.api('PUT', '/v1/models/big/key', { key: KEY })
        await page.getByRole('treeitem', { name: /greeter/ }).click()
      }
      return { world, site, page, fake, check }
    })
    for (const end of ends.reverse()) await end()
  },
})
test.beforeEach(() => {
  const why = noKeychain()
  if (why) console.log(`skipped: ${why}`)
  test.skip(!!why, why)
})

const box = (page: Page) => page.getByRole('textbox', { name: 'Message' })
const feed = (page: Page) => page.getByRole('feed', { name: 'Timeline' })
const settled = (page: Page) => expect(page.getByRole('form', { name: 'Message to the agent' }).getByRole('button', { name: /^(Stop|Stopping|Again)/ })).toHaveCount(0)
const wrote = async (page: Page, text: string) => {
  await box(page).fill(text)
  await page.keyboard.press('Enter')
}

test('a model is set up with a key, tried, and works: a question, another mode and a message in mid-turn', async ({ stage }) => {
  const { world, site, page, fake, check } = await stage(`
plain: Ready.
answers:
  - think: The greeting looks wrong.
    say: I look at the greeting.
    calls: [{tool: exec, args: {argv: [sh, greet.sh]}}]
  - expect: {has: [helo]}
    calls: [{tool: ask_user, args: {question: "Which greeting do you want?", options: [hello, good day]}}]
  - expect: {has: [good day]}
    say: I write it.
    calls: [{tool: exec, args: {argv: [sh, -c, "sed -i 's/helo/good day/' greet.sh"]}}]
  - expect: {has: ["and keep it short"]}
    say: The greeting is mended.
`, { begin: false })
  const secret = guard(page, 'big')
  await test.step('without a model, what is sent leads to the form', async () => {
    await page.getByRole('treeitem', { name: /greeter/ }).click()
    await wrote(page, 'Mend the greeting\nIt says helo.')
    const alert = page.getByRole('alert')
    await expect(alert).toContainText('There is no model to ask yet.')
    await themes(site)
    await alert.getByRole('button', { name: 'Add a model…' }).click()
  })
  await test.step('the form: a fault is said at its field, the key is sent once and shown no more', async () => {
    const form = page.getByRole('form', { name: 'Add a model' })
    await form.getByText('Compatible', { exact: true }).click()
    await form.getByLabel('Name').fill('big')
    await form.getByLabel('Model', { exact: true }).fill('big-1')
    await form.getByLabel('Address').fill('nowhere')
    await form.getByLabel('Key', { exact: true }).fill(KEY)
    await secret.look('while it is typed', true)
    await form.getByLabel('in', { exact: true }).fill('3')
    await form.getByLabel('out', { exact: true }).fill('15')
    await form.getByRole('button', { name: 'Add model' }).click()
    await expect(form.getByRole('alert')).toContainText('no address')
    await expect(form.getByLabel('Address')).toBeFocused()
    await expect(form.getByLabel('Key', { exact: true })).toHaveValue(KEY)
    expect(secret.sent(), 'no key without its model').toBe(0)
    await themes(site)
    await secret.look('after a fault', true)
    await form.getByLabel('Address').fill(fake.url)
    await form.getByRole('button', { name: 'Add model' }).click()
    const row = page.getByRole('listitem', { name: 'big' })
    await expect(row).toContainText('Key in the keychain')
    await expect(form).toHaveCount(0) // the list may know it before the form is put away
    expect(secret.sent()).toBe(1)
    await secret.look('after it was saved')
    await row.getByRole('button', { name: 'Try it: big' }).click()
    await expect(row).toContainText('It answers')
    await expect(row).toContainText('“Ready.”')
    await themes(site)
    await row.getByRole('button', { name: 'Edit big' }).click()
    await expect(page.getByRole('form', { name: 'Edit big' }).getByLabel('Key', { exact: true })).toHaveValue('')
    await secret.look('in its form')
    await page.getByRole('button', { name: 'Cancel' }).click()
  })
  await test.step('what was written is there, and is sent', async () => {
    await page.keyboard.press('Escape')
    await expect(box(page)).toHaveValue('Mend the greeting\nIt says helo.')
    await box(page).focus()
    await page.keyboard.press('Enter')
    await expect(page.getByRole('heading', { name: 'Mend the greeting' })).toBeVisible()
    await expect(box(page)).toHaveValue('')
    await expect(feed(page).getByText('I look at the greeting.')).toBeVisible()
    await secret.look('while it works')
  })
  const question = page.getByRole('region', { name: /^Question: .*Which greeting/ })
  await test.step('another mode while it waits for an answer', async () => {
    await expect(question).toBeVisible()
    await page.getByRole('button', { name: 'Mode: Auto' }).click()
    const menu = page.getByRole('menu', { name: 'Mode' })
    await expect(menu.getByRole('menuitemradio')).toHaveCount(4)
    await themes(site)
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Enter')
    await expect(page.getByRole('button', { name: 'Mode: Ask' })).toBeVisible()
    await question.getByRole('button', { name: 'good day' }).click()
  })
  await test.step('the new mode holds: the change asks; a message is left meanwhile', async () => {
    const asks = page.getByRole('region', { name: /^Question: .*sed/ })
    await expect(asks).toBeVisible()
    await wrote(page, 'and keep it short')
    await expect(page.getByText('Read before its next answer:')).toBeVisible()
    await expect(box(page)).toHaveValue('')
    await secret.look('with a message that waits')
    await themes(site)
    await asks.getByRole('button', { name: /^Allow once/ }).click()
    await expect(feed(page).getByText('The greeting is mended.')).toBeVisible()
    await expect(page.getByText('Read before its next answer:')).toHaveCount(0)
  })
  await settled(page)
  await expect(page.getByRole('button', { name: /^(Continue|Retry)/ })).toHaveCount(0)
  await page.reload()
  await connected(page)
  await expect(feed(page).getByText('The greeting is mended.')).toBeVisible()
  await secret.look('at the end')
  // Neither the log of the core nor what it keeps beside it holds the key.
  for (const file of ['logs/core.log', 'glasshouse.db', 'glasshouse.db-wal']) {
    let kept = ''
    try {
      kept = readFileSync(join(world.env.GLASSHOUSE_DATA ?? '', file), 'latin1')
    } catch {
      continue
    }
    expect(forms(KEY).filter((f) => kept.includes(f)), file).toEqual([])
  }
  expect(readFileSync(join(world.env.GLASSHOUSE_CONFIG ?? '', 'models.toml'), 'utf8')).not.toContain('sk-e2e')
  expect(fake.faults()).toEqual([])
  expect(secret.sent()).toBe(1)
  check()
})

const LONG = Array.from({ length: 60 }, (_, i) => `word${i}`).join(' ')

test('stop, continue, and retry after a failure', async ({ stage }) => {
  const { site, page, fake, check } = await stage(`
answers:
  - {say: "${LONG}", delay_ms: 100, chunk: 8, stall: {after_events: 20}}
  - say: I go on from there.
  - fail: {kind: invalid}
  - say: Now it works.
  - {say: "${LONG}", delay_ms: 100, chunk: 8, stall: {after_events: 20}}
`)
  await wrote(page, 'Write a lot')
  await expect(feed(page).getByText(/word2\b/)).toBeVisible()
  await test.step('Escape twice stops it, the first one says so', async () => {
    const stopped = page.getByText('You stopped it.')
    // The second counts for a moment only, which may be over on a busy computer.
    await expect(async () => {
      if (await stopped.count()) return
      await box(page).focus()
      await page.keyboard.press('Escape')
      await expect(page.getByRole('button', { name: 'Again stops it' })).toBeVisible({ timeout: 2000 })
      await page.keyboard.press('Escape')
      await expect(stopped).toBeVisible({ timeout: 5000 })
    }).toPass()
    await expect(stopped).toBeVisible()
    await themes(site)
  })
  await test.step('continue', async () => {
    await box(page).blur() // where the second Escape found it in the box, it is there still
    await page.keyboard.press('o')
    await expect(feed(page).getByText('I go on from there.')).toBeVisible()
    await settled(page)
    await expect(page.getByRole('button', { name: /^Continue/ })).toHaveCount(0)
  })
  await test.step('a turn that failed is tried again with the same prompt', async () => {
    await wrote(page, 'And now this')
    await expect(page.getByText('It failed.')).toBeVisible()
    await themes(site)
    await page.getByRole('button', { name: /^Retry/ }).click()
    await expect(feed(page).getByText('Now it works.')).toBeVisible()
    await settled(page)
    await expect(feed(page).getByText('And now this')).toHaveCount(2)
  })
  await test.step('the button at the top stops it too, while no step runs', async () => {
    await wrote(page, 'Once more')
    await expect(feed(page).getByText(/word2\b/).last()).toBeVisible()
    await page.locator('header').getByRole('button', { name: 'Stop turn', exact: true }).click()
    await expect(page.getByText('You stopped it.')).toBeVisible()
  })
  expect(fake.faults()).toEqual([])
  check()
})

test('a reload in mid-answer, and a core that is killed in mid-turn: it goes on, and nothing typed is lost', async ({ stage }) => {
  const [reloaded, killed] = [gate(), gate()]
  const { world, page, check } = await stage(`
replay: true
answers:
  - {say: "${LONG}", delay_ms: 60, chunk: 8, hold: [{after_events: 20, file: ${reloaded.file}}]}
  - say: I look first.
    calls: [{tool: exec, args: {argv: [sh, greet.sh]}}]
  - {say: "${LONG.replaceAll('word', 'part')}", delay_ms: 60, chunk: 8, hold: [{after_events: 20, file: ${killed.file}}]}
`)
  await wrote(page, 'Write a lot')
  await expect(feed(page).getByText(/word3\b/)).toBeVisible()
  await box(page).fill('half a sen')
  await page.reload()
  await connected(page)
  await expect(box(page)).toHaveValue('half a sen')
  await expect(page.getByRole('button', { name: 'Stop turn', exact: true }).first()).toBeVisible()
  reloaded.open()
  await expect(feed(page).getByText(/word59/)).toBeVisible()
  await settled(page)
  await box(page).fill('Look, then write')
  await page.keyboard.press('Enter')
  await expect(feed(page).getByText(/part3\b/)).toBeVisible()
  await box(page).fill('another half')
  world.crash()
  await expect(page.getByText('Reconnecting…')).toBeVisible()
  await expect(box(page)).toHaveValue('another half')
  world.run('project', 'list')
  await connected(page)
  killed.open()
  await expect(feed(page).getByText(/part59/)).toBeVisible()
  await settled(page)
  // The step ran once.
  await expect(feed(page).locator('[data-step]')).toHaveCount(1)
  await expect(box(page)).toHaveValue('another half')
  check()
})

test('a limit asks near it and stops at it; a repeated call asks too', async ({ stage }) => {
  // $0.105 each: after eight the person is asked, and after nine the next would go over.
  const cost = 'usage: {input: 30000, output: 1000}'
  const { site, page, fake, check } = await stage(`
answers:
${[1, 2, 3, 4, 5, 6, 7, 8, 9].map((n) => `  - {say: "Step ${n}.", calls: [{tool: exec, args: {argv: [echo, "${n}"]}}], ${cost}}`).join('\n')}
  - say: All is done.
  - {calls: [{tool: exec, args: {argv: [sh, greet.sh]}}], repeat: 3}
  - say: I was told.
`)
  await test.step('a limit is set before the session is there', async () => {
    await page.getByRole('button', { name: 'Spending limit: No limit' }).click()
    const dialog = page.getByRole('dialog', { name: 'Spending limit' })
    await dialog.getByRole('textbox').fill('a lot')
    await page.keyboard.press('Enter')
    await expect(dialog.getByRole('alert')).toContainText('Give dollars')
    await themes(site)
    await dialog.getByRole('textbox').fill('1')
    await page.keyboard.press('Enter')
    await expect(page.getByRole('button', { name: 'Spending limit: Limit $1.00' })).toBeVisible()
  })
  await wrote(page, 'Nine steps')
  const card = page.getByRole('region', { name: /^Question: .*limit of what the session may cost/ })
  await test.step('near it the person is asked, with figures', async () => {
    await expect(card).toBeVisible()
    await expect(card).toContainText('$1.00')
    await expect(card).toContainText('$0.84')
    await themes(site)
    // In a narrow column too the mode can be read while it works.
    await page.setViewportSize({ width: 940, height: 768 })
    const mode = page.getByRole('button', { name: 'Mode: Auto' }).locator('.cut').first()
    await expect.poll(() => mode.evaluate((e) => e.scrollWidth - e.clientWidth)).toBe(0)
    await page.setViewportSize({ width: 1280, height: 800 })
    await card.getByRole('button', { name: /^Go on/ }).click()
  })
  await test.step('at it the turn stops, and goes on with a larger one', async () => {
    await expect(page.getByText('It stopped.')).toBeVisible()
    await themes(site)
    await page.getByRole('button', { name: 'Change the limit…' }).click()
    await page.getByRole('dialog', { name: 'Spending limit' }).getByRole('textbox').fill('9')
    await page.keyboard.press('Enter')
    await expect(page.getByRole('button', { name: 'Spending limit: Limit $9.00' })).toBeVisible()
    await page.getByRole('button', { name: /^Continue/ }).click()
    await expect(feed(page).getByText('All is done.')).toBeVisible()
    await settled(page)
  })
  await test.step('the same call again and again', async () => {
    await wrote(page, 'Look again and again')
    const loop = page.getByRole('region', { name: /^Question: .*same call again/ })
    await expect(loop).toBeVisible()
    await expect(loop).toContainText('greet.sh')
    await themes(site)
    await loop.getByRole('textbox').fill('it will not change')
    await loop.getByRole('button', { name: /^Stop/ }).click()
    await expect(page.getByText('It stopped.')).toBeVisible()
    await expect(feed(page)).toContainText('it will not change')
  })
  expect(fake.faults()).toEqual([])
  check()
})
