import { execFileSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { expect, hostile, test, type Page } from '../fixtures'
import { begun, broken, harmless, pane, played, repo } from '../look'

// What a guest writes is text wherever it is shown. Every page of these tests also has
// a canary: a script that ran would fail the test.

/** A name that a file may have. */
const fileName = (n: number) => hostile(n).replaceAll('/', '')

/** The time between two frames: whoever types meanwhile is answered. */
const beat = (page: Page) => page.evaluate(() => new Promise<number>((done) => {
  const t = performance.now()
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - t)))
}))

test('outputs with markup, escapes, reordering, progress and a line of 1 MB', async ({ site, world, shared }) => {
  const { page } = site
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: `out ${hostile(1)}`, agent: 'playbook' })
  await world.exec(s.id, 'printf', '%s\\n', hostile(2))
  await world.exec(s.id, 'python3', '-c', `print("<b>${'y'.repeat(20)}</b>" + "x" * 1048576)`)
  await world.exec(s.id, 'sh', '-c', 'printf "one\\rtwo\\rthree\\n\\033[2J\\033[31mred\\033[0m \\033]52;c;aGk=\\007\\033]8;;https://evil.example/\\033\\\\\\\\link\\033]8;;\\033\\\\\\\\ \\033]0;Glasshouse: approved\\007done\\n"')
  await world.exec(s.id, 'sh', '-c', 'for i in $(seq 3000); do printf "\\r%d %%" $i; done; printf "\\rall of it\\n"')
  await world.exec(s.id, 'sh', '-c', `printf '%s' "$1" >&2; exit 3`, 'sh', hostile(3))
  await site.session('out <img')
  await harmless(page)
  const feed = page.getByRole('feed')
  const step = (n: number) => page.locator(`[data-step="${n}"]`)
  await step(1).click()
  await expect(feed).toContainText('<img src=x onerror=glasshouseCanary(2)>')
  await feed.getByRole('checkbox', { name: 'Raw' }).check()
  await harmless(page)
  await step(1).click()

  // The window answers while the line of 1 MB is open, cut and whole.
  await step(2).click()
  const box = page.getByRole('textbox', { name: 'Message' })
  expect(await beat(page)).toBeLessThan(10_000)
  await harmless(page)
  await feed.getByRole('button', { name: /^Show all/ }).click()
  const output = feed.getByRole('group', { name: 'output', exact: true })
  const toEnd = () => output.evaluate((e) => { e.scrollTop = e.scrollHeight })
  const rest = output.getByRole('button', { name: /more characters in this line/ })
  await expect(async () => {
    await toEnd()
    await expect(rest).toBeVisible({ timeout: 500 })
  }).toPass()
  await box.fill('typed beside it')
  await rest.click()
  await expect(rest).toHaveCount(0)
  expect(await beat(page)).toBeLessThan(10_000)
  await toEnd()
  expect(await beat(page)).toBeLessThan(10_000)
  await expect(box).toHaveValue('typed beside it')
  await box.fill('')
  // Of a megabyte only what is in sight is in the page.
  expect(await output.locator('.r').count()).toBeLessThan(200)
  await harmless(page)
  await step(2).click()

  // The last word of a line that was written over stands, and what went before is at hand.
  // Nothing of it is a link or became the title.
  await step(3).click()
  await expect(feed).toContainText('the last of 3')
  await expect(feed).toContainText('done')
  expect(await feed.getByRole('link').count()).toBe(0)
  expect(await page.title()).not.toContain('approved')
  await harmless(page)
  await feed.getByRole('checkbox', { name: 'Raw' }).check()
  await harmless(page)
  await step(3).click()
  await step(4).click()
  await expect(feed).toContainText('all of it')
  await step(4).click()
  await step(5).click()
  await harmless(page)
  await site.axe()
  // The other tabs of a step, too.
  for (const name of ['Call', 'Checkpoint', /^Network/] as const) {
    await feed.getByRole('tab', { name }).last().click()
    await harmless(page)
  }
})

test('names of files, in changes, files and a review', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'odd names', 'playbook')
  await world.exec(s, 'python3', '-c', 'import sys, os; os.makedirs("odd/" + sys.argv[1], exist_ok=True); open(os.path.join("odd", sys.argv[1], sys.argv[1]), "w").write(sys.argv[1] + "\\n"); os.symlink(sys.argv[1], "odd/link")', fileName(3))
  const changes = await pane(page, 'Changes')
  await expect(changes).toContainText('<img src=x onerror')
  await changes.getByRole('button', { name: /<img src=x/ }).first().click()
  await expect(changes.getByRole('group', { name: /^What step/ })).toContainText('+<img src=x')
  await harmless(page)
  const files = await pane(page, 'Files')
  await files.getByRole('treeitem', { name: /odd/ }).first().click()
  await files.getByRole('treeitem', { name: /<img src=x.*folder/ }).click()
  await files.getByRole('treeitem', { name: /^<img src=x.*added/ }).last().click()
  await expect(files.getByRole('region', { name: 'Text of the file' })).toContainText('<img src=x')
  await harmless(page)
  await site.axe()
  await files.getByRole('textbox', { name: 'Find files by name' }).fill('img')
  await expect(files.getByRole('tree', { name: 'Files found' })).toContainText('<img src=x')
  await harmless(page)
  await files.getByRole('textbox', { name: 'Find files by name' }).press('Escape')
  await world.api('POST', `/v1/projects/${shared.id}/reviews`, {})
  await page.getByRole('button', { name: /^Review/ }).click()
  await page.getByRole('region', { name: 'Reviews' }).getByRole('button', { name: /change/ }).first().click()
  const review = page.getByRole('region', { name: 'Review', exact: true })
  await review.getByRole('treeitem', { name: /<img src=x.*added,/ }).click()
  await expect(review.locator('main.diff')).toContainText('<img src=x onerror')
  await harmless(page)
  for (const split of [/^Side by side/, /^Unified/]) {
    await review.getByRole('button', { name: split }).click()
    await harmless(page)
  }
  await site.axe()
  // A comment of the person may hold what it likes: the same holds.
  await review.locator('.scroll').focus()
  await page.keyboard.press('c')
  await review.getByRole('textbox', { name: /^Comment on/ }).fill(hostile(9))
  await review.getByRole('textbox', { name: /^Comment on/ }).press('Control+Enter')
  await expect(review.getByRole('article', { name: /^Comment/ })).toContainText('<script>')
  await harmless(page)
  await review.getByRole('article').getByRole('button', { name: 'Remove' }).click()
})

test('a project, a branch, a commit and a remote with hostile words', async ({ site, world }) => {
  const { page } = site
  const branch = 'evil/<img-src=x-onerror=glasshouseCanary(4)>\u202egnp'
  const src = repo(world, 'evil', { 'a.txt': 'a\n' }, branch)
  const remote = `${src}.git`
  execFileSync('git', ['init', '-q', '--bare', remote])
  writeFileSync(`${remote}/hooks/pre-receive`, '#!/bin/sh\necho "<img src=x onerror=glasshouseCanary(5)>"\n', { mode: 0o755 })
  // A name in which something hides is refused; markup is a name like any other.
  await expect(world.api('POST', '/v1/projects', { source: src, machine_kind: 'local', name: `evil ${hostile(6)}`.slice(0, 100) })).rejects.toThrow(/name/)
  const p = await world.api<{ id: string }>('POST', '/v1/projects', { source: src, machine_kind: 'local', name: 'evil <img src=x onerror=alert(6)>' })
  await page.getByRole('navigation').getByRole('treeitem', { name: /^evil/ }).click()
  await expect(page.getByRole('main')).toContainText('evil/<img-src=x')
  await harmless(page)
  await site.axe()
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'an evil commit', agent: 'manual' })
  await world.exec(s.id, 'sh', '-c', 'echo b > a.txt; git -c user.name="<img src=x onerror=glasshouseCanary(7)>" -c user.email=e@e.example commit -qam "$1"', 'sh', hostile(7))
  await world.api('POST', `/v1/projects/${p.id}/reviews`, { remote, ref: 'main' })
  await site.session('an evil commit')
  await harmless(page)
  await page.getByRole('button', { name: /^Review/ }).click()
  await page.getByRole('region', { name: 'Reviews' }).getByRole('button', { name: /change/ }).first().click()
  const review = page.getByRole('region', { name: 'Review', exact: true })
  await review.getByRole('button', { name: 'Accept all' }).click()
  await review.getByRole('button', { name: /^See what would be pushed/ }).click()
  await expect(review.getByLabel('Plan')).toContainText('<img src=x onerror')
  await harmless(page)
  await site.axe()
  await review.getByRole('button', { name: /^Push [0-9a-f]{8}/ }).click()
  // A remote on this computer with programs of its own is not pushed to; without them it is.
  await expect(review.getByRole('alert')).toContainText('programs of its own')
  await harmless(page)
  rmSync(`${remote}/hooks/pre-receive`)
  await review.getByRole('button', { name: /^See what would be pushed/ }).click()
  await review.getByRole('button', { name: /^Push [0-9a-f]{8}/ }).click()
  await expect(review.getByText(/^Pushed [0-9a-f]+/)).toBeVisible()
  await harmless(page)
  expect(await page.title()).toMatch(/^Glasshouse: evil/)
  await world.api('DELETE', `/v1/projects/${p.id}`)
})

test('questions and messages cannot imitate the window', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'odd words', 'playbook')
  await world.api('POST', `/v1/sessions/${s}/turns`, { agent: 'playbook', input: JSON.stringify({ name: `odd ${hostile(4)}`, steps: [{ say: hostile(4) }, { tool: 'ask_user', args: { question: `Allow all?\n\n[ Allow ] ${hostile(5)}`, options: [`Yes ${hostile(6)}`, 'No'], free_text: true } }] }) })
  const card = page.getByRole('region', { name: /Allow all/ })
  await expect(card).toBeVisible()
  // The words of the guest stand in the frame of the window, which says whose they are.
  await expect(card).toContainText('The agent asks')
  await expect(page.getByRole('navigation')).toContainText('Allow all?')
  await harmless(page)
  expect(await page.title()).toMatch(/^\(1\) Glasshouse/)
  await site.axe()
  await card.getByRole('textbox').fill(hostile(7))
  await card.getByRole('button', { name: 'No', exact: true }).click()
  await expect(card).toBeHidden()
  await page.getByRole('textbox', { name: 'Message' }).fill(hostile(8))
  await page.getByRole('button', { name: 'Send' }).click()
  await expect(page.getByRole('feed')).toContainText('<img src=x onerror=glasshouseCanary(8)>')
  await harmless(page)
})

test('hosts and what the guest claims about a connection', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'odd hosts', 'manual')
  const out = await pane(page, 'Network')
  const program = 'import socket, sys\nc = socket.create_connection(("127.0.0.1", 3128))\nc.sendall(("CONNECT " + sys.argv[1] + " HTTP/1.1\\r\\nHost: " + sys.argv[1] + "\\r\\n\\r\\n").encode())\nprint(c.recv(2000).decode("utf8", "replace"))'
  // A name that is none is refused by the gate, in words that come back into the output.
  await world.exec(s, 'python3', '-c', program, '<img/src=x/onerror=glasshouseCanary(1)>\u202e.example:443')
  await page.locator('[data-step="1"]').click()
  await harmless(page)
  const asked = world.exec(s, 'python3', '-c', program, 'odd-host.example:443', hostile(2))
  const card = page.getByRole('region', { name: /odd-host\.example/ })
  await expect(card).toContainText('<img src=x onerror=glasshouseCanary(2)>')
  await harmless(page)
  await site.axe()
  await card.getByRole('button', { name: /^Deny/ }).first().click()
  await asked
  const row = out.locator('.c').filter({ hasText: 'odd-host.example:443' }).first()
  await expect(row).toContainText('the guest says:')
  await row.getByRole('button', { name: /odd-host/ }).click()
  await expect(out.locator('dl')).toContainText('<img src=x onerror=glasshouseCanary(2)>')
  await harmless(page)
  await site.axe('#pane-network')
})

test('the title, the address and the dialog of a page', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'odd page', 'playbook')
  const html = `<!doctype html><meta charset=utf-8><title>x</title><a href="/" target=_blank rel=opener>the next</a><script>document.title = ${JSON.stringify(hostile(1)).replaceAll('<', '\\u003c')}; history.replaceState(0, "", "/?q=" + document.title + "#" + document.title); setTimeout(() => alert(${JSON.stringify(hostile(2)).replaceAll('<', '\\u003c')}), 500)</script>`
  await played(world, s, { name: 'odd page', steps: [
    { tool: 'exec', args: { argv: ['python3', '-c', `import os, subprocess, sys, time, urllib.request
os.makedirs("/tmp/odd", exist_ok=True)
open("/tmp/odd/index.html", "w").write(sys.argv[1])
subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "-d", "/tmp/odd", "5190"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(1000):
    try: urllib.request.urlopen("http://127.0.0.1:5190/"); break
    except OSError: time.sleep(0.1)`, html] }, expect: { exit: 0 } },
    { tool: 'browser_open', args: { url: 'http://127.0.0.1:5190/' } },
    { tool: 'browser_snapshot', capture: { next: 'link "the next"[^\\n]*\\[(\\w+)\\]' } },
    { tool: 'browser_click', args: { ref: '${next}' } },
    { tool: 'browser_snapshot' },
  ] })
  const view = await pane(page, 'Browser')
  await expect(view.getByRole('status')).toHaveText('Live')
  await expect(view).toContainText('http://127.0.0.1:5190/?q=')
  await expect(view).toContainText('<img src=x onerror=glasshouseCanary(2)>')
  // Two tabs, each with such a title.
  await expect(view.getByRole('list', { name: 'Tabs of the browser' }).getByRole('listitem')).toHaveText([/<img src=x/, /<img src=x/])
  await harmless(page)
  await site.axe()
  for (const step of await page.locator('[data-step]').all()) {
    await step.click()
    await harmless(page)
  }
  await world.api('POST', `/v1/sessions/${s}/end`, {})
  await expect(view.getByRole('status')).toHaveText('Closed')
  await harmless(page)
})

test('a terminal whose program gives itself a title and more', async ({ site, world, shared }) => {
  const { page } = site
  await begun(site, world, shared, 'odd terminal', 'manual')
  const pane3 = await pane(page, 'Terminal')
  await pane3.getByRole('button', { name: 'New terminal' }).click()
  const rows = pane3.locator('.one:not([hidden]) .xterm-rows')
  await expect(rows).toContainText('$')
  await pane3.locator('.one:not([hidden]) .xterm').click()
  await page.keyboard.type(`printf '\\033]0;<img src=x onerror=${'glasshouse'}Canary(1)>\\342\\200\\256\\007\\033]52;c;aGk=\\007<script>glasshouseCanary(2)</script>\\n'\n`)
  await expect(pane3.getByRole('tab', { name: /<img src=x/ })).toBeVisible()
  await expect(rows).toContainText('<script>glasshouseCanary(2)</script>')
  await pane3.getByRole('button', { name: 'Close', exact: true }).click()
  await expect(pane3.getByRole('tab', { name: /<img src=x/ })).toHaveCount(0)
  await harmless(page)
})

test('what went wrong, in the words of whoever it came from', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'odd errors', 'manual')
  await world.exec(s, 'sh', '-c', 'echo e > odd-error.txt')
  const evil = (n: number) => [`it broke: ${hostile(n)}`, `do ${hostile(n + 1)}`, [hostile(n + 2)]] as const
  await broken(page, /\/(messages|rules|file|diff|start|stop|end|reviews|terminals|files|browser)(\?.*)?$/, ...(evil(1) as unknown as [string, string, string[]]))
  const alerts = page.getByRole('alert')
  await page.getByRole('textbox', { name: 'Message' }).fill('a word')
  await page.getByRole('button', { name: 'Send' }).click()
  await expect(alerts.first()).toContainText('it broke: <img src=x')
  await harmless(page)
  await alerts.first().getByText('Details').click()
  await harmless(page)
  await pane(page, 'Changes')
  await page.getByRole('tabpanel', { name: /^Changes/ }).getByRole('button', { name: /odd-error/ }).click()
  await expect(page.getByRole('tabpanel', { name: /^Changes/ }).getByRole('alert')).toContainText('it broke: <img')
  await harmless(page)
  for (const name of ['Files', 'Network', 'Terminal', 'Browser'] as const) {
    await pane(page, name)
    await harmless(page)
  }
  await page.getByRole('button', { name: 'End session' }).click()
  await expect(alerts.first()).toBeVisible()
  await harmless(page)
  await page.getByRole('button', { name: /^Review/ }).click()
  await page.getByRole('button', { name: /^Open review/ }).click()
  await expect(page.getByRole('region', { name: 'Reviews' }).getByRole('alert')).toContainText('it broke: <img')
  await harmless(page)
  await site.axe()
})
