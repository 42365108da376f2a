import { expect, test, type Page } from '../fixtures'
import { hostile } from '../fixtures'

/** What the shown terminal has on its screen. */
const screen = (p: Page) => p.evaluate(() => [...document.querySelectorAll('.one:not([hidden]) .xterm-rows > div')].map((r) => (r.textContent ?? '').replace(/\u00a0/g, ' ').trimEnd()).join('\n').trimEnd())
const shows = (p: Page, what: RegExp) => expect.poll(() => screen(p), { timeout: 60_000 }).toMatch(what)
const into = (p: Page) => p.locator('.one:not([hidden]) .xterm').click()
async function pane(p: Page, project: string) {
  await p.getByRole('navigation').getByText(project).first().click()
  await p.getByRole('tab', { name: /^Terminal/ }).first().click()
}
async function opened(p: Page, project: string) {
  await pane(p, project)
  const made = p.waitForResponse((r) => r.request().method() === 'POST' && r.url().endsWith('/terminals'))
  await p.getByRole('button', { name: 'New terminal' }).click()
  // The new one is the one that is shown, and what is on the screen is its own.
  const { id } = (await (await made).json()) as { id: string }
  await expect(p.locator(`[data-terminal="${id}"]`)).toHaveAttribute('aria-selected', 'true')
  await shows(p, /\$ *$/)
  await into(p)
  return id
}

test('a terminal takes what is typed, knows its size, and is there again after a reload', async ({ site, shared }) => {
  const p = site.page
  await opened(p, shared.name)
  await p.keyboard.type('v=$((40+2)); echo got-$v; stty size\n')
  await shows(p, /\ngot-42\n\d+ \d+\n/)
  const before = /\n(\d+) (\d+)\n/.exec(await screen(p))
  await p.setViewportSize({ width: 1700, height: 1000 })
  await expect.poll(async () => {
    await p.keyboard.type('clear; stty size\n')
    await p.waitForTimeout(300)
    const now = /(\d+) (\d+)\n/.exec(await screen(p))
    return now ? Number(now[2]) > Number(before?.[2]) && Number(now[1]) > Number(before?.[1]) : false
  }, { timeout: 60_000 }).toBe(true)
  // The other screen of full-screen programs comes back with the page too.
  await p.keyboard.type('printf "\\e[?1049h\\e[2J\\e[5;10Hother-screen"; read x; printf "\\e[?1049l"; echo after-$x\n')
  await shows(p, /^ {9}other-screen/m)
  await site.open()
  await pane(p, shared.name)
  await shows(p, /^ {9}other-screen/m)
  await into(p)
  await p.keyboard.type('q\n')
  await shows(p, /\nafter-q\n/)
  expect(await screen(p)).toContain('printf') // the main screen is there again
  await site.axe('[data-scope=terminal]')
  await p.keyboard.type('exit 3\n')
  await expect(p.getByText('Exited 3')).toBeVisible()
  await p.getByRole('button', { name: 'Restart' }).click()
  await shows(p, /\$ *$/)
  await expect(p.getByText('Exited 3')).toHaveCount(0)
})

test('a flood is drawn to its end, and Ctrl+C ends one', async ({ site, shared }) => {
  const p = site.page
  await opened(p, shared.name)
  await p.keyboard.type('clear; yes | head -n 200000; echo done-$((1+1))\n')
  await shows(p, /\ndone-2\n.*\$$/)
  await p.keyboard.type('clear; yes again\n')
  await shows(p, /again\nagain\nagain/)
  await p.keyboard.press('Control+c')
  await shows(p, /\$$/) // what is typed ahead of a Ctrl+C is thrown away, here as anywhere
  await p.keyboard.type('echo still-$((2+2))\n')
  await shows(p, /\nstill-4\n/)
})

test('two windows show one terminal; either types', async ({ site, shared, world, context }) => {
  const p = site.page
  const id = await opened(p, shared.name)
  const q = await context.newPage()
  await q.goto(world.url)
  await pane(q, shared.name)
  await q.locator(`[data-terminal="${id}"]`).click()
  await shows(q, /\$ *$/)
  await into(p)
  await p.keyboard.type('echo one-$((20+2))\n')
  await shows(p, /\none-22\n/)
  await shows(q, /\none-22\n/)
  await into(q)
  await q.keyboard.type('echo two-$((30+3))\n')
  await shows(p, /\ntwo-33\n/)
  await q.close()
})

test('a program in a machine gets no link, no clipboard, no size and no words of ours', async ({ site, shared, context }) => {
  const p = site.page
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  await p.evaluate(() => navigator.clipboard.writeText('mine'))
  await opened(p, shared.name)
  await p.keyboard.type('stty size > /tmp/s0; clear; printf "\\e]52;c;ZXZpbA==\\a\\e]8;;http://example.test/\\alink\\e]8;;\\a\\e[8;5;5t\\e[3;0;0t\\e]0;%s\\a" "$(printf "<img src=x onerror=glasshouseCanary(9)>\\u202egnp")"; sleep 1; stty size | cmp - /tmp/s0 && echo same-$((1+1))\n')
  await shows(p, /same-2/)
  await expect(p.locator('.one:not([hidden]) a')).toHaveCount(0)
  expect(await p.evaluate(() => navigator.clipboard.readText())).toBe('mine')
  await p.keyboard.press('Control+c')
  await p.evaluate((t) => navigator.clipboard.writeText(t), `first line\nsecond ${hostile(8)}\n`)
  // A program that does not say it takes pastes as such would run each line: it is asked.
  // What is printed comes after the shell has given the terminal away.
  await p.keyboard.type('clear; echo in-$((3+3)); cat\n')
  await shows(p, /in-6/)
  await p.keyboard.press('Control+Shift+V')
  const ask = p.getByRole('alertdialog')
  await expect(ask).toContainText('These 2 lines run')
  await site.axe('[data-scope=terminal]')
  await ask.getByRole('button', { name: 'Cancel' }).click()
  await expect(ask).toHaveCount(0)
  expect(await screen(p)).not.toContain('first line')
  await p.keyboard.press('Control+Shift+V')
  await ask.getByRole('button', { name: 'Paste and run' }).click()
  await shows(p, /second <img src=x/)
  await p.keyboard.press('Control+c')
})

test('keys of the window stay out, but for the commands and the way out', async ({ site, shared }) => {
  const p = site.page
  await opened(p, shared.name)
  await p.keyboard.type('n?1w')
  await shows(p, /\$ n\?1w/)
  await expect(p.getByRole('dialog')).toHaveCount(0)
  await p.keyboard.press('Control+k')
  await expect(p.getByRole('dialog')).toHaveCount(1)
  await p.keyboard.press('Escape')
  await into(p)
  await p.keyboard.press('Control+Shift+Escape')
  await expect.poll(() => p.evaluate(() => document.activeElement?.getAttribute('role'))).toBe('tab')
})

test('what is typed while the core is gone is held and arrives once', async ({ own, page }) => {
  test.setTimeout(240_000)
  const project = await own.api<{ name: string; id: string }>('POST', '/v1/projects', { source: own.src, machine_kind: 'local' })
  await page.goto(own.url)
  await opened(page, project.name)
  await page.route('**/v1/terminals/**', (r) => r.abort())
  await page.keyboard.type('echo held-$((8+8))\n')
  await expect(page.getByText(/typed bytes? waiting/)).toBeVisible({ timeout: 30_000 })
  await page.unroute('**/v1/terminals/**')
  await shows(page, /\nheld-16\n/)
  expect((await screen(page)).split('held-16').length).toBe(2)
})
