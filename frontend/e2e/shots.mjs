// A picture of every screen in both sizes and themes, from a real core at real work.
//
//   node e2e/shots.mjs [FOLDER]     GLASSHOUSE_BIN, CHROMIUM; ONLY=session,review takes those alone
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { chromium as driver } from 'playwright-core'
import { spawn } from 'node:child_process'
import { checks, job, shop, slow } from './showcase.mjs'
import { binary, chromium, World } from './world.mjs'

const out = resolve(process.argv[2] ?? join(import.meta.dirname, '../../build/shots'))
mkdirSync(out, { recursive: true })
const only = process.env.ONLY?.split(',')
const wanted = (name) => !only || only.some((o) => name.startsWith(o))
const sizes = [[1280, 800], [1920, 1200]]
const w = new World()
let browser
let taken = 0
let failed = 0
let writing = false
const servers = []

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
/** Sets a model up that answers from a script. */
async function model(name, script, format, price) {
  const file = join(w.dir, `${name}.yaml`)
  writeFileSync(file, script)
  const server = spawn(process.env.GLASSHOUSE_FAKEMODEL ?? join(dirname(binary), 'fakemodel'), ['-script', file], { stdio: ['ignore', 'pipe', 'inherit'] })
  servers.push(server)
  const base_url = await new Promise((done, fail) => {
    server.on('error', fail)
    server.stdout.once('data', (b) => done(String(b).split('\n')[0]))
  })
  await w.api('PUT', `/v1/models/${name}`, { format, model: `shop-${name}`, base_url, ...(price ? { price } : {}) })
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
  await model('coder', job, 'anthropic', { input: 3, cache_read: 0.3, cache_write: 3.75, output: 15 })
  await model('local', slow, 'openai-chat')
  const s = await w.api('POST', '/v1/sessions', { project_id: p.id, title: 'Fix the failing checkout test', agent: 'model', model: 'coder', limit_nanos: 2e9, checks })
  const upgrade = await w.api('POST', '/v1/sessions', { project_id: p.id, title: 'Upgrade the test runner', agent: 'model', model: 'local' })
  await w.api('POST', `/v1/sessions/${s.id}/turns`, { agent: 'model', prompt: 'Make the checkout test pass, and look at the page.' })
  // The job ends at a host that nobody has used; its question stays open for the pictures.
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
    await command(page, 'First line')
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
  await screen('answer', async (page) => {
    await session(page)
    await command(page, 'First line')
    await page.locator('[data-step]', { hasText: 'cart/total.py' }).nth(1).click()
    await page.getByRole('button', { name: /thought/i }).first().click()
  })
  await screen('writing', async (page) => {
    await page.getByRole('navigation').getByText('Upgrade the test').first().click()
    if (!writing) await w.api('POST', `/v1/sessions/${upgrade.id}/turns`, { agent: 'model', prompt: 'Which test runner should we use?' })
    writing = true
    await page.getByText('three ways to go').first().waitFor()
    await page.waitForTimeout(1500)
  })
  await w.api('POST', `/v1/sessions/${upgrade.id}/cancel`, {})
  await screen('stopped', async (page) => page.getByRole('navigation').getByText('Upgrade the test').first().click())
  await screen('models', (page) => command(page, 'Models'))
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
  for (const x of servers) x.kill()
}
console.log(`${taken} pictures in ${out}, ${failed} failed`)
process.exitCode = failed ? 1 : 0
