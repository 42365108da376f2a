import { connected, expect, test, visit } from '../fixtures'

// The greeting is wrong at first; at the end there is a connection to a host that nobody ever used.
const reaching = `name: mend the greeting
steps:
  - say: First the greeting, which is wrong.
  - tool: exec
    args: {argv: [sh, greet.sh]}
    expect: {exit: 0, has: "helo"}
  - tool: edit
    args: {path: greet.sh, old: "helo", new: "hello"}
    expect: {changed: [greet.sh]}
  - tool: edit
    args: {path: greet.sh, old: "exit 0", new: "exit 0 # the end"}
  - tool: ask_user
    args: {question: "May the notes be mended as well?", options: ["Yes, do", "Leave them"]}
    expect: {has: "Yes, do"}
  - tool: write
    args: {path: "notes/<img src=x onerror=alert(1)>.txt", content: "mended\\n"}
  - tool: exec
    args: {lang: bash, code: "printf '\\\\033[31mred\\\\033[0m <img src=x onerror=alert(2)>\\\\n'; sh greet.sh"}
    expect: {exit: 0, has: "hello"}
  - tool: exec
    args: {argv: [curl, -fsS, -m, "60", "http://rates.demo.example/eur"]}
    expect: {outcome: failed}
`

// The whole job by mouse, as a person does it: from a folder to a branch of the
// remote. What the remote holds at the end is the judge.
test('a project is made, a playbook runs, questions are answered, a hunk is rejected, and the rest is pushed', async ({ own, page, context }) => {
  const { site, check } = await visit(page, own)
  await expect(page.getByRole('main', { name: 'Begin' })).toBeVisible()

  await test.step('a wrong folder is refused in words, and what was typed stays', async () => {
    await page.getByRole('main', { name: 'Begin' }).getByRole('button', { name: 'New project' }).click()
    const source = page.getByLabel('Folder or repository')
    await source.fill('no/such')
    await page.getByRole('button', { name: 'Make project' }).click()
    await expect(page.getByRole('alert')).toContainText('absolute path')
    await expect(source).toHaveValue('no/such')
  })

  await test.step('a project is made, and says how far it is', async () => {
    await page.getByLabel('Folder or repository').fill(own.src)
    await expect(page.getByText('It is read, never written.')).toBeVisible()
    await page.getByRole('radio', { name: /^local/ }).check()
    await expect(page.getByText('not a VM: a sandbox')).toBeVisible()
    await page.getByRole('button', { name: 'Make project' }).click()
    await expect(page.getByRole('dialog').getByRole('progressbar')).toBeVisible()
    await expect(page.getByRole('dialog')).toHaveCount(0)
    await expect(page.getByRole('contentinfo')).toContainText('machine local (not a VM) · ready')
    await expect(page.getByRole('heading', { name: 'greeter' })).toBeVisible()
  })

  await test.step('a playbook is started with a check', async () => {
    await page.getByRole('button', { name: 'Run a playbook' }).click()
    await page.getByRole('textbox', { name: /^Playbook/ }).fill(reaching)
    await page.getByLabel('Checks').fill('sh greet.sh | grep -q hello')
    await page.getByRole('button', { name: 'Start', exact: true }).click()
    await expect(page.getByRole('heading', { name: 'mend the greeting' })).toBeVisible()
  })

  const ask = page.getByRole('region', { name: 'Question: May the notes be mended' })
  await test.step('the question waits in place and in the list, and no answer has the focus', async () => {
    await expect(ask).toBeVisible()
    await expect(page.getByRole('navigation').getByText('May the notes be mended')).toHaveCount(1)
    expect(await ask.evaluate((e) => e.contains(document.activeElement))).toBe(false)
    await page.getByRole('textbox', { name: 'Message' }).fill('half a sen')
  })

  await test.step('two windows answer at once: the second is told who said what', async () => {
    const other = await context.newPage()
    await other.goto(new URL('/', own.url).href)
    await connected(other)
    const theirs = other.getByRole('region', { name: 'Question: May the notes be mended' })
    await expect(theirs).toBeVisible()
    // This window's answer is held back until the other's is in.
    let letGo = () => {}
    const held = new Promise<void>((done) => (letGo = done))
    await page.route('**/answer', async (r) => {
      await held
      await r.continue()
    })
    await ask.getByRole('button', { name: 'Leave them' }).click()
    await theirs.getByRole('button', { name: 'Yes, do' }).click()
    await expect(theirs).toHaveCount(0)
    letGo()
    const late = page.getByRole('alert').filter({ hasText: 'Your answer came second.' })
    await expect(late).toContainText('Yes, do')
    await expect(late).toContainText('by a person')
    await page.unroute('**/answer')
    await other.close()
  })

  await test.step('a connection is asked about, in the list too, and denied', async () => {
    await page.getByRole('navigation').getByText('rates.demo.example').click()
    const leave = page.getByRole('region', { name: /rates\.demo\.example/ })
    await leave.getByRole('button', { name: 'Deny' }).click()
    await expect(leave).toHaveCount(0)
    await expect(page.getByText('Done, checks passed').first()).toBeVisible()
    await expect(page.getByRole('textbox', { name: 'Message' })).toHaveValue('half a sen')
  })

  await test.step('what the guest printed is text', async () => {
    await page.getByRole('feed').getByRole('button', { name: /printf/ }).click()
    const out = page.getByRole('group', { name: 'output' })
    await expect(out).toContainText('<img src=x onerror=alert(2)>')
    await expect(out.getByText('red', { exact: true })).toBeVisible()
    await page.getByRole('checkbox', { name: 'Raw' }).check()
    await expect(out).toContainText('\\x1b[31mred')
    await expect(page.locator('img[src="x"]')).toHaveCount(0)
  })

  const review = page.getByRole('region', { name: 'Review', exact: true })
  await test.step('a review opens with nothing decided; all is accepted but one hunk', async () => {
    await page.getByRole('banner').getByRole('button', { name: /^Review/ }).click()
    await page.getByLabel('Remote: a path').fill(own.remote)
    await page.getByLabel('Branch there').fill('mended')
    await page.getByRole('button', { name: /^Open review/ }).click()
    await expect(review.getByText('3 changes undecided')).toBeVisible()
    await review.getByRole('button', { name: 'Accept all' }).click()
    await expect(review.getByText('changes undecided')).toHaveCount(0)
    await review.getByRole('treeitem', { name: /^greet\.sh/ }).click()
    await review.getByRole('region', { name: /^@@ 12,4/ }).getByRole('button', { name: /^Reject/ }).click()
    await expect(review.getByText('1 left out; the workspace keeps it.')).toBeVisible()
  })

  let commit = ''
  await test.step('the plan is shown before anything is sent, and that is what is pushed', async () => {
    await review.getByRole('textbox', { name: 'Message' }).fill('Mend the greeting')
    await review.getByRole('button', { name: /^See what would be pushed/ }).click()
    const push = review.getByRole('button', { name: /^Push [0-9a-f]{8}/ })
    await expect(push).toBeVisible()
    commit = /Push ([0-9a-f]{8})/.exec(await push.innerText())?.[1] ?? ''
    await expect(review.getByText('Mend the greeting').first()).toBeVisible()
    expect(own.there('branch', '--list', 'mended')).toBe('')
    await push.click()
    await expect(review.getByText(`Pushed ${commit}`)).toBeVisible()
  })

  const text = own.there('show', 'mended:greet.sh')
  expect(text, 'the accepted hunk is at the remote').toContain('echo hello')
  expect(text, 'the rejected hunk is not').not.toContain('# the end')
  expect(own.there('rev-parse', 'mended').startsWith(commit), 'what was planned is what was pushed').toBe(true)
  expect(own.there('log', '-1', '--format=%s', 'mended').trim()).toBe('Mend the greeting')
  expect(own.there('ls-tree', '-r', '-z', '--name-only', 'mended')).toContain('notes/<img src=x onerror=alert(1)>.txt')
  expect(own.there('rev-parse', 'main'), 'the branch main is as it was').toBe(own.git('rev-parse', 'main'))
  expect(own.git('status', '--porcelain'), 'the source is as it was').toBe('')
  await site.axe()
  check()
})
