import { expect, test, visit, type Locator, type Page } from '../fixtures'
import { round, spot, tabTo } from '../keys'

// No mouse, and nothing that reaches into the page: only keys, and what is seen.

const book = `name: mend by keys
steps:
  - say: First the greeting, which is wrong.
  - tool: exec
    args: {argv: [sh, greet.sh]}
  - tool: edit
    args: {path: greet.sh, old: "helo", new: "hello"}
  - tool: edit
    args: {path: greet.sh, old: "exit 0", new: "exit 0 # the end"}
  - tool: ask_user
    args: {question: "May a note be written?", options: ["Leave it", "Yes, do"]}
    expect: {has: "Yes, do"}
  - tool: write
    args: {path: note.txt, content: "mended\\n"}
  - tool: exec
    args: {argv: [curl, -fsS, -m, "60", "http://rates.demo.example/eur"]}
`

/** A key of the card answers once the card had the focus for a moment: it is pressed until it counts. */
async function answer(page: Page, card: Locator, key: string) {
  await page.keyboard.press('w')
  await expect(card).toBeFocused()
  expect((await spot(page)).seen, 'a card that has the focus is seen to have it').toBe(true)
  // One that comes too late falls to nobody: the card is gone by then.
  await expect(async () => {
    if (await card.count()) await card.press(key, { timeout: 1000 }).catch(() => {})
    await expect(card).toHaveCount(0, { timeout: 1500 })
  }).toPass()
}
/** The keys of the page answer: the focus is nowhere that keeps them. */
async function free(page: Page) {
  await page.keyboard.press('?')
  const keys = page.getByRole('dialog', { name: 'Keys' })
  await expect(keys).toBeVisible()
  await page.keyboard.press('Escape')
  await expect(keys).toHaveCount(0)
}

test('the whole job by keyboard', async ({ own, page }) => {
  const { check } = await visit(page, own)
  const { keyboard } = page

  await test.step('a project is made', async () => {
    await tabTo(page, page.getByRole('main', { name: 'Begin' }).getByRole('button', { name: 'New project' }))
    await keyboard.press('Enter')
    await expect(page.getByLabel('Folder or repository')).toBeFocused()
    await keyboard.type(own.src)
    await tabTo(page, page.getByRole('radio', { name: /^local/ }))
    await expect(page.getByRole('radio', { name: /^local/ })).toBeChecked()
    await tabTo(page, page.getByRole('button', { name: 'Make project' }))
    await keyboard.press('Enter')
    await expect(page.getByRole('heading', { name: 'greeter' })).toBeVisible()
    await expect(page.getByRole('dialog')).toHaveCount(0)
    await expect(page.getByRole('contentinfo')).toContainText('ready')
    await free(page)
  })

  await test.step('its page is gone round', async () => {
    const names = await round(page)
    for (const what of ['Run a playbook', 'Review changes', 'Stop machine', 'Delete project', 'New project', 'tab Changes', 'Width of the projects', 'Width of the session', 'Commands', 'Keys']) expect(names.some((n) => n.includes(what)), `Tab reaches ${what}`).toBe(true)
  })

  await test.step('a playbook is started', async () => {
    await tabTo(page, page.getByRole('button', { name: /^Run a playbook/ }))
    await keyboard.press('Enter')
    await expect(page.getByRole('textbox', { name: /^Playbook/ })).toBeFocused()
    await keyboard.insertText(book)
    await tabTo(page, page.getByLabel('Checks'))
    await keyboard.type('sh greet.sh | grep -q hello')
    await tabTo(page, page.getByRole('button', { name: 'Start', exact: true }))
    await keyboard.press('Enter')
    await expect(page.getByRole('heading', { name: 'mend by keys' })).toBeVisible()
    await expect(page.getByRole('dialog')).toHaveCount(0)
  })

  await test.step('its questions are answered', async () => {
    const ask = page.getByRole('region', { name: 'Question: May a note be written?' })
    await expect(ask).toBeVisible()
    await answer(page, ask, '2')
    const leave = page.getByRole('region', { name: /rates\.demo\.example/ })
    await expect(leave).toBeVisible()
    await answer(page, leave, 'd')
    await expect(page.getByRole('feed').getByText('Yes, do')).toBeVisible()
    await free(page)
  })

  const row = (n: number) => page.locator(`[data-step="${n}"]`)
  await test.step('the timeline is walked, and a step is opened and left', async () => {
    await keyboard.press('g')
    await expect(page.locator(':focus')).toContainText('Turn 1')
    for (let i = 0; i < 10 && !(await row(2).evaluate((e) => e === document.activeElement)); i++) {
      await keyboard.press('j')
      await expect.poll(async () => (await spot(page)).body).toBe(false)
      expect((await spot(page)).seen).toBe(true)
    }
    await expect(row(2)).toBeFocused()
    await keyboard.press('Enter')
    await expect(row(2)).toHaveAttribute('aria-expanded', 'true')
    await keyboard.press('ArrowRight')
    const tabs = page.getByRole('tablist', { name: 'Step 2' })
    await expect(tabs.getByRole('tab', { name: 'Diff' })).toBeFocused()
    for (const name of ['Output', 'Network 0', 'Checkpoint', 'Call', 'Diff']) {
      await keyboard.press('ArrowRight')
      await expect(tabs.getByRole('tab', { name })).toBeFocused()
      await expect(tabs.getByRole('tab', { name })).toHaveAttribute('aria-selected', 'true')
    }
    await keyboard.press('Escape')
    await expect(row(2)).toBeFocused()
    await keyboard.press('ArrowLeft')
    await expect(row(2)).toHaveAttribute('aria-expanded', 'false')
    await keyboard.press('G')
    await expect(page.locator(':focus')).not.toContainText('helo')
    await expect.poll(async () => (await spot(page)).seen).toBe(true)
  })

  await test.step('panes are switched, by key and from tab to tab', async () => {
    for (const [key, name] of [['4', /^Files/], ['5', /^Network/], ['2', /^Browser/], ['3', /^Terminal/], ['1', /^Changes/]] as const) {
      await keyboard.press(key)
      await expect(page.getByRole('tab', { name })).toHaveAttribute('aria-selected', 'true')
    }
    await tabTo(page, page.getByRole('tab', { name: /^Changes/ }))
    await keyboard.press('End')
    await expect(page.getByRole('tab', { name: /^Network/ })).toBeFocused()
    await keyboard.press('ArrowLeft')
    await expect(page.getByRole('tab', { name: /^Files/ })).toBeFocused()
    await keyboard.press('Home')
    await expect(page.getByRole('tab', { name: /^Changes/ })).toBeFocused()
    // From the list of projects to the session, and back.
    await keyboard.press('l')
    await expect(page.getByRole('treeitem', { name: 'mend by keys' })).toBeFocused()
    await keyboard.press('m')
    await expect(page.getByRole('textbox', { name: 'Message' })).toBeFocused()
    await keyboard.type('thanks')
    await keyboard.press('Control+Enter')
    await expect(page.getByRole('feed').getByText('thanks')).toBeVisible()
    await keyboard.press('Escape')
    await free(page)
  })

  const review = page.getByRole('region', { name: 'Review', exact: true })
  await test.step('a review is opened', async () => {
    await keyboard.press('v')
    await expect(page.getByRole('region', { name: 'Reviews' })).toBeVisible()
    await tabTo(page, page.getByLabel('Remote: a path'))
    await keyboard.press('Control+a')
    await keyboard.type(own.remote)
    await tabTo(page, page.getByLabel('Branch there'))
    await keyboard.press('Control+a')
    await keyboard.type('by-keys')
    await keyboard.press('Control+Enter')
    await expect(review.getByText('3 changes undecided')).toBeVisible()
  })

  await test.step('its files are walked, commented, viewed and decided', async () => {
    const file = page.getByRole('treeitem', { name: /^greet\.sh/ })
    await keyboard.press('J')
    await keyboard.press('K')
    await expect(file).toHaveAttribute('aria-selected', 'true')
    await keyboard.press('c')
    const box = page.getByRole('textbox', { name: /^Comment on/ })
    await expect(box).toBeFocused()
    await keyboard.type('why so?')
    await keyboard.press('Control+Enter')
    await expect(review.getByRole('article', { name: /^Comment on/ })).toContainText('why so?')
    await expect(box).toHaveCount(0)
    // The focus is at the lines again, where the keys of the review answer.
    await expect(page.getByRole('region', { name: 'Changes of greet.sh' })).toBeFocused()
    await keyboard.press('a')
    await expect(review.getByRole('region', { name: /^@@ 1,5.*Accepted/ })).toBeVisible()
    await keyboard.press('x')
    // It goes on to the next file, and the focus with it.
    await expect(page.getByRole('region', { name: 'Changes of note.txt' })).toBeFocused()
    await keyboard.press('k')
    await expect(review.getByRole('region', { name: /^@@ 12,4.*Rejected/ })).toBeVisible()
    await expect(page.getByRole('region', { name: 'Changes of greet.sh' })).toBeFocused()
    await keyboard.press('u')
    await expect(review.getByText('2 changes undecided')).toBeVisible()
    await keyboard.press('x')
    await keyboard.press('a')
    await expect(review.getByText('undecided', { exact: false }).filter({ hasText: 'change' })).toHaveCount(0)
    await expect(review.getByText('1 left out; the workspace keeps it.')).toBeVisible()
    await keyboard.press('K')
    await expect(file).toHaveAttribute('aria-selected', 'true')
    await keyboard.press('v')
    await expect(review.getByText('1 of 2 viewed')).toBeVisible()
    // The tree of the files is a stop too, and is walked by arrows.
    await tabTo(page, page.getByRole('treeitem', { name: /^note\.txt/ }))
    await keyboard.press('ArrowUp')
    await expect(file).toBeFocused()
    await keyboard.press('/')
    await expect(page.getByLabel('Filter files')).toBeFocused()
    await keyboard.type('note')
    await expect(file).toHaveCount(0)
    await keyboard.press('Escape')
    await expect(file).toBeVisible()
    await keyboard.press('Escape')
  })

  await test.step('the review is gone round', async () => {
    const names = await round(page, 200)
    for (const what of ['All reviews', 'Accept all', 'Accept file', 'Changes of', 'treeitem', 'Remote', 'Branch', 'Send 1 comment', 'See what would be pushed', 'Session']) expect(names.some((n) => n.includes(what)), `Tab reaches ${what}: ${names.join(', ')}`).toBe(true)
  })

  await test.step('the comment is sent, the plan is seen, and it is pushed', async () => {
    await tabTo(page, page.getByRole('button', { name: 'Send 1 comment to the agent' }))
    await keyboard.press('Enter')
    await expect(review.getByRole('button', { name: /Comment|sent/ }).filter({ hasText: 'sent' }).first()).toBeVisible()
    await tabTo(page, page.getByRole('button', { name: /^See what would be pushed/ }))
    await keyboard.press('Enter')
    await expect(page.getByRole('button', { name: /^Push [0-9a-f]{8}/ })).toBeVisible()
    expect(own.there('branch', '--list', 'by-keys')).toBe('')
    await keyboard.press('Control+Enter')
    await expect(review.getByText(/^Pushed [0-9a-f]+/)).toBeVisible()
    await keyboard.press('Escape')
    await expect(page.getByRole('main', { name: 'Session' })).toBeVisible()
  })
  const text = own.there('show', 'by-keys:greet.sh')
  expect(text).toContain('echo hello')
  expect(text).not.toContain('# the end')
  expect(own.there('show', 'by-keys:note.txt')).toBe('mended\n')

  await test.step('settings and doctor are gone round', async () => {
    await keyboard.press('Control+,')
    await expect(page.getByRole('main', { name: 'Settings' })).toBeVisible()
    const set = await round(page)
    for (const what of ['As the system', 'Kind', 'Processors', 'Question waits', 'Resolver of the gate', 'limactl', 'Read the files again', 'Copy the version']) expect(set.some((n) => n.includes(what)), `Tab reaches ${what}: ${set.join(', ')}`).toBe(true)
    await keyboard.press('Control+k')
    await keyboard.type('doctor')
    await keyboard.press('Enter')
    await expect(page.getByRole('main', { name: 'Doctor' })).toBeVisible()
    await expect(page.getByRole('button', { name: 'Run again' })).toBeEnabled()
    const doc = await round(page)
    expect(doc.some((n) => n.includes('Run again'))).toBe(true)
    await keyboard.press('Escape')
    await expect(page.getByRole('main', { name: 'Session' })).toBeVisible()
  })
  check()
})

test('a panel takes the focus, keeps it while it is there, and gives it back', async ({ site, world, shared }) => {
  const { page } = site
  await world.api('POST', '/v1/sessions', { project_id: shared.id, title: 'focus given back', agent: 'playbook' })
  await site.session('focus given back')
  const { keyboard } = page
  await keyboard.press('l')
  const row = page.getByRole('treeitem', { name: 'focus given back' })
  await expect(row).toBeFocused()
  for (const [key, name] of [['n', 'New project'], ['p', /^Run a playbook in/], ['?', 'Keys'], ['Control+k', 'Commands']] as const) {
    await keyboard.press(key)
    const panel = page.getByRole('dialog', { name })
    await expect(panel).toBeVisible()
    expect(await panel.evaluate((e) => e.contains(document.activeElement)), `${String(name)} has the focus`).toBe(true)
    for (let i = 0; i < 30; i++) {
      await keyboard.press('Tab')
      expect(await panel.evaluate((e) => e.contains(document.activeElement) || document.activeElement === document.body), `Tab stays in ${String(name)}`).toBe(true)
    }
    await keyboard.press('Escape')
    await expect(panel).toHaveCount(0)
    await expect(row).toBeFocused()
  }
})
