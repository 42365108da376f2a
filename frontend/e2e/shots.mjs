// A picture of every screen in both sizes and themes, from a real core at real work.
//
//   node e2e/shots.mjs [FOLDER]     GLASSHOUSE_BIN, CHROMIUM; ONLY=session,review takes those alone
import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { chromium as driver } from 'playwright-core'
import { checks, shop, work } from './showcase.mjs'
import { chromium, World } from './world.mjs'

const out = resolve(process.argv[2] ?? join(import.meta.dirname, '../../build/shots'))
mkdirSync(out, { recursive: true })
const only = process.env.ONLY?.split(',')
const wanted = (name) => !only || only.some((o) => name.startsWith(o))
const sizes = [[1280, 800], [1920, 1200]]
const w = new World()
let browser
let taken = 0
let failed = 0

/** Takes one screen in all four ways; go brings a fresh page to it. */
async function screen(name, go) {
  if (!wanted(name)) return
  for (const scheme of ['light', 'dark']) {
    for (const [width, height] of sizes) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
      const page = await context.newPage()
      page.setDefaultTimeout(30_000)
      try {
        await page.goto(w.url)
        await page.getByRole('contentinfo').getByText('connected', { exact: true }).waitFor()
        await go(page)
        await page.waitForTimeout(600)
        taken++
      } catch (err) {
        failed++
        console.log(`FAIL ${name} ${scheme} ${width}: ${err.message.split('\n').slice(0, 3).join(' ')}`)
      }
      await page.screenshot({ path: join(out, `${name}-${scheme}-${width}.png`) })
      await context.close()
    }
  }
  console.log(`     ${name}`)
}

const pane = (name, below) => async (page) => {
  await page.getByRole('tab', { name: new RegExp(`^${name}`) }).click()
  if (below) await command(page, `Show ${below} below`)
}
async function command(page, words) {
  await page.keyboard.press('ControlOrMeta+k')
  await page.getByRole('combobox').fill(words)
  await page.keyboard.press('Enter')
}
const session = async (page) => page.getByRole('navigation').getByText('Fix the failing').first().click()

try {
  await w.serve()
  browser = await driver.launch({ executablePath: chromium, args: ['--no-sandbox'] })
  await screen('first', async () => {})
  await screen('new-project', async (page) => {
    await page.keyboard.press('n')
    await page.getByRole('dialog').waitFor()
  })
  const src = shop(w.dir)
  const making = w.api('POST', '/v1/projects', { source: src, machine_kind: 'local' })
  await screen('making', async () => {})
  const p = await making
  await w.api('POST', '/v1/projects', { source: w.src, machine_kind: 'local' })
  await screen('project', async (page) => page.getByRole('navigation').getByText('shop-api').first().click())
  const s = await w.api('POST', '/v1/sessions', { project_id: p.id, title: 'Fix the failing checkout test', agent: 'playbook', checks })
  await w.api('POST', '/v1/sessions', { project_id: p.id, title: 'Upgrade the test runner', agent: 'playbook' })
  await w.api('POST', `/v1/sessions/${s.id}/turns`, { agent: 'playbook', input: work })
  // The playbook ends at a host that nobody has used; its question stays open for the pictures.
  for (let i = 0; ; i++) {
    const open = await w.api('GET', '/v1/approvals')
    if (open.length) break
    if (i > 1200) throw new Error('the question never came')
    await new Promise((r) => setTimeout(r, 200))
  }
  await screen('session', async (page) => {
    await session(page)
    await pane('Browser', 'changes')(page)
    await page.waitForTimeout(2500)
  })
  await screen('step', async (page) => {
    await session(page)
    await page.locator('[data-step]', { hasText: 'cart/total.py' }).nth(1).click()
  })
  for (const name of ['Changes', 'Browser', 'Terminal', 'Files', 'Network']) {
    await screen(`pane-${name.toLowerCase()}`, async (page) => {
      await session(page)
      await pane(name)(page)
      if (name === 'Terminal') {
        await page.getByRole('button', { name: 'Open a terminal' }).or(page.locator('.xterm').first()).first().waitFor()
        const first = page.getByRole('button', { name: 'Open a terminal' })
        if (await first.isVisible()) {
          await first.click()
          await page.locator('.xterm').first().click()
          await page.waitForTimeout(1500)
          await page.keyboard.type('git status --short; ls\n')
        }
        await page.waitForTimeout(1500)
      }
      if (name === 'Files') {
        await page.getByRole('treeitem', { name: /^cart/ }).first().click()
        await page.getByRole('treeitem', { name: /total\.py/ }).first().click()
      }
    })
  }
  await screen('reviews', async (page) => {
    await session(page)
    await page.keyboard.press('v')
  })
  const r = await w.api('POST', `/v1/projects/${p.id}/reviews`, { remote: w.remote, ref: 'fix-checkout' })
  const file = r.files.find((f) => f.path === 'cart/total.py')
  for (const [i, unit] of (file?.units ?? []).entries()) await w.api('POST', `/v1/reviews/${r.id}/decisions`, { file: file.id, unit, decision: i === file.units.length - 1 ? 'reject' : 'accept' })
  const review = async (page) => {
    await session(page)
    await page.keyboard.press('v')
    await page.getByRole('region', { name: 'Reviews' }).getByRole('button', { name: /change/ }).first().click()
    await page.locator('[data-unit]').first().waitFor()
    await page.getByRole('treeitem', { name: /total\.py/ }).first().click()
  }
  await screen('review', review)
  await screen('settings', (page) => command(page, 'Settings'))
  await screen('doctor', async (page) => {
    await command(page, 'Doctor')
    await page.getByRole('button', { name: 'Run again' }).waitFor()
  })
  await screen('palette', async (page) => {
    await session(page)
    await page.keyboard.press('ControlOrMeta+k')
  })
  await screen('keys', async (page) => {
    await session(page)
    await page.keyboard.press('?')
  })
  await screen('lost', async (page) => {
    await session(page)
    await w.stopServe()
    await page.getByText('Reconnecting').first().waitFor()
    await page.screenshot({ path: join(out, 'lost-now.png') })
    await w.serveAgain()
  })
} catch (err) {
  failed++
  console.log(`FAIL ${err.stack}\ncore: ${w.coreLog().slice(-1500)}`)
} finally {
  await browser?.close()
  await w.end()
}
console.log(`${taken} pictures in ${out}, ${failed} failed`)
process.exitCode = failed ? 1 : 0
