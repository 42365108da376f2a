// The page in a browser against a real core with a machine of kind local: a
// project is made, a playbook runs, questions are answered, a hunk is rejected, the
// rest is pushed; the remote's tree is the judge.
//
//   node e2e/smoke.mjs     GLASSHOUSE_BIN, CHROMIUM; GLASSHOUSE_SHOTS=folder GLASSHOUSE_SIZE=1920x1200 GLASSHOUSE_SCHEME=dark for pictures
import { join } from 'node:path'
import { chromium as driver } from 'playwright-core'
import { chromium, reaching, Tally, World } from './world.mjs'

// A hang guard, not a measure: a first machine and a busy computer take their time.
const LONG = 240_000
const t = new Tally()
const w = new World()
const [width, height] = (process.env.GLASSHOUSE_SIZE ?? '1280x800').split('x').map(Number)
let browser
let page
const shot = async (name) => process.env.GLASSHOUSE_SHOTS && page.screenshot({ path: join(process.env.GLASSHOUSE_SHOTS, `${name}.png`) })

try {
  const url = await w.serve()
  browser = await driver.launch({ executablePath: chromium, args: ['--no-sandbox'] })
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: process.env.GLASSHOUSE_SCHEME === 'dark' ? 'dark' : 'light' })
  page = await context.newPage()
  page.setDefaultTimeout(LONG)
  const faults = []
  page.on('pageerror', (e) => faults.push(String(e)))
  // A refused call and a lost link are said by the browser as well; the page's own words about them are looked at below.
  page.on('console', (m) => m.type() === 'error' && !/^Failed to load resource/.test(m.text()) && faults.push(m.text()))
  page.on('dialog', (d) => { faults.push(`a dialog: ${d.message()}`); void d.dismiss() })

  const bare = await context.request.get(new URL('/v1/info', url).href)
  t.ok('without the token the door is shut', bare.status() === 403, String(bare.status()))
  await page.goto(url)
  await page.getByText('connected').waitFor()
  t.ok('the page connects and the token is out of its address', !page.url().includes('token'), page.url())
  await shot('1-empty')

  // A wrong folder first: what was typed stays, and the error says what to do.
  await page.keyboard.press('n')
  await page.getByLabel('Folder or repository').fill('no/such')
  await page.getByRole('button', { name: 'Make project' }).click()
  await page.getByRole('alert').waitFor()
  t.ok('a wrong folder is refused in words', /absolute path/.test(await page.getByRole('alert').innerText()), await page.getByRole('alert').innerText())
  t.ok('what was typed is still there', (await page.getByLabel('Folder or repository').inputValue()) === 'no/such')
  await page.getByLabel('Folder or repository').fill(w.src)
  await page.getByRole('radio', { name: /^local/ }).check()
  t.ok('local is said not to be a VM', (await page.getByText('not a VM: a sandbox').count()) > 0)
  await page.getByRole('button', { name: 'Make project' }).click()
  await page.getByRole('dialog').getByRole('progressbar').waitFor()
  await shot('2-making')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  t.ok('the project is made and its machine ready', (await page.getByText('machine local (not a VM) · ready').count()) === 1)
  await shot('3-project')

  await page.getByRole('button', { name: 'Start work' }).click()
  await page.getByLabel('Playbook: a written list').fill(reaching)
  await page.getByLabel('Checks').fill('sh greet.sh | grep -q hello')
  await page.getByRole('button', { name: 'Start', exact: true }).click()

  const ask = page.getByRole('region', { name: 'May the notes be mended' })
  await ask.waitFor()
  await page.getByText('Waiting for you').first().waitFor()
  await shot('4-question')
  t.ok('the question waits in place and in the list', (await page.locator('nav').getByText('May the notes be mended').count()) === 1)
  t.ok('no answer has the focus by itself', await ask.evaluate((e) => !e.contains(document.activeElement)))
  // Words that are half typed outlive a lost link: the listener goes and comes back.
  await page.getByLabel('Message').fill('half a sen')
  await w.stopServe()
  await page.getByText('Reconnecting…').waitFor()
  const at = new URL(url)
  await w.serve('--listen', at.host, '--token', at.searchParams.get('token'))
  await page.getByText('connected').waitFor()
  t.ok('half-typed words outlive a lost link', (await page.getByLabel('Message').inputValue()) === 'half a sen')
  // Two windows answer at once: this one's answer is held back until the other's is in.
  const other = await context.newPage()
  await other.goto(new URL('/', url).href)
  const theirs = other.getByRole('region', { name: 'May the notes be mended' })
  await theirs.waitFor()
  let letGo
  const held = new Promise((done) => (letGo = done))
  await page.route('**/answer', async (r) => { await held; await r.continue() })
  await ask.getByRole('button', { name: 'Leave them' }).click()
  await theirs.getByRole('button', { name: 'Yes, do' }).click()
  await theirs.waitFor({ state: 'detached' })
  letGo()
  await page.getByText('Your answer came second.').waitFor()
  t.ok('the second of two answers is told what was answered', (await page.locator('.late').innerText()).includes('Yes, do'), await page.locator('.late').innerText())
  await other.close()
  const leave = page.getByRole('region', { name: 'rates.demo.example' })
  await leave.waitFor()
  t.ok('the answered question says who answered what', /Yes, do by a person/.test((await page.locator('.past').innerText()).replace(/\s+/g, ' ')), await page.locator('.past').innerText())
  await shot('5-egress')
  await leave.getByRole('button', { name: 'Deny' }).click()
  await page.getByText('Done, checks passed').first().waitFor()
  t.ok('the turn ends with its checks passed', true)
  t.ok('half-typed words are kept', (await page.getByLabel('Message').inputValue()) === 'half a sen')

  // The guest's text is text.
  await page.locator('[data-step]', { hasText: 'printf' }).or(page.locator('[data-step="6"]')).first().click()
  await page.getByRole('region', { name: 'output' }).first().waitFor()
  const out = await page.getByRole('region', { name: 'output' }).first().innerText()
  t.ok('escapes of a terminal and markup are spelt out', out.includes('\\x1b[31mred') && out.includes('<img src=x onerror=alert(2)>'), out)
  t.ok('no element came from the guest', (await page.locator('img[src="x"]').count()) === 0)
  await shot('6-timeline')

  await page.keyboard.press('v')
  await page.getByLabel('Remote: a path').fill(w.remote)
  await page.getByLabel('Branch there').fill('mended')
  await page.getByRole('button', { name: 'Open review' }).click()
  await page.locator('[data-unit]').first().waitFor()
  const review = page.getByRole('region', { name: 'Review', exact: true })
  t.ok('nothing is decided by itself', (await review.getByText('0 accepted').count()) === 1)
  await review.getByRole('button', { name: 'Accept all' }).click()
  await review.getByText('0 undecided').waitFor()
  await review.locator('aside').getByText('greet.sh').click()
  const hunk = page.locator('section[data-unit]', { hasText: '# the end' })
  await hunk.getByRole('button', { name: 'Reject' }).click()
  await review.getByText('1 rejected').waitFor()
  await page.getByLabel('Message').fill('Mend the greeting')
  await review.getByRole('button', { name: 'See what would be pushed' }).click()
  const push = review.getByRole('button', { name: /^Push [0-9a-f]{8}$/ })
  await push.waitFor()
  await shot('7-plan')
  const commit = (await push.innerText()).split(' ')[1]
  t.ok('the plan is shown before anything is sent', w.there('branch', '--list', 'mended') === '')
  await push.click()
  await review.getByText(`Pushed ${commit}`).waitFor()
  await shot('8-pushed')

  const text = w.there('show', 'mended:greet.sh')
  t.ok('the accepted hunk is at the remote', text.includes('echo hello'), text)
  t.ok('the rejected hunk is not', !text.includes('# the end'), text)
  t.ok('what was planned is what was pushed', w.there('rev-parse', 'mended').startsWith(commit))
  t.ok('the message is the one that was typed', w.there('log', '-1', '--format=%s', 'mended').trim() === 'Mend the greeting')
  t.ok('the file with the hostile name came along whole', w.there('ls-tree', '-r', '-z', '--name-only', 'mended').includes('notes/<img src=x onerror=alert(1)>.txt'))
  t.ok('the branch main is as it was', w.there('rev-parse', 'main').trim() === w.git('rev-parse', 'main').trim())

  t.ok('the page had no fault', faults.length === 0, faults.join(' | '))
  t.ok('the listener sets its policy on the page', /default-src 'none'/.test((await (await page.context().request.get(new URL('/', url).href)).headers())['content-security-policy'] ?? ''))
} catch (err) {
  t.ok('the walk got through', false, `${err.stack}\n${page ? await page.locator('body').innerText().catch(() => '') : ''}\ncore: ${w.coreLog().slice(-2000)}`)
  await shot('failed').catch?.(() => {})
} finally {
  await browser?.close()
  await w.end()
  t.end()
}
