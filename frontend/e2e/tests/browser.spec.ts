import { expect, test, type Page, type Site, type World } from '../fixtures'
import { begun, broken, pane, played, themes } from '../look'

const MOVING = `<!doctype html><title>Moving</title><body style="margin:0;background:#fff"><div id="b" style="position:absolute;width:300px;height:300px;background:#c00"></div><script>let t=0;setInterval(()=>{t=(t+40)%900;b.style.left=t+"px";b.style.background="hsl("+t+",90%,40%)"},100)</script>`

/** Opens a page that moves in the browser of a session of its own. */
async function moving(site: Site, world: World, project: { id: string; name: string }, title: string, port: number): Promise<string> {
  const s = await begun(site, world, project, title)
  const book = { name: title, steps: [
    { tool: 'exec', args: { lang: 'bash', code: `mkdir -p /tmp/page${port}; cat > /tmp/page${port}/index.html <<'P'\n${MOVING}\nP\nsetsid python3 -m http.server --bind 127.0.0.1 -d /tmp/page${port} ${port} >/dev/null 2>&1 &\nfor i in $(seq 1000); do curl -fsS -o /dev/null http://127.0.0.1:${port}/ && exit 0; sleep 0.1; done; exit 1` }, expect: { exit: 0 } },
    { tool: 'browser_open', args: { url: `http://127.0.0.1:${port}/` } },
  ] }
  await played(world, s, book)
  return s
}

/** A few of the pixels of what is drawn. */
const pixels = (page: Page) => page.locator('#pane-browser canvas').evaluate((c: HTMLCanvasElement) => {
  const d = c.getContext('2d')?.getImageData(0, 0, c.width, c.height).data ?? []
  let h = 0
  for (let i = 0; i < d.length; i += 404) h = (h * 31 + (d[i] ?? 0)) >>> 0
  return h
})

test('the live view shows a moving page, stops while nobody looks, and says when the browser is closed', async ({ site, world, shared }) => {
  const { page } = site
  let asked = 0
  page.on('request', (r) => { if (r.url().includes('/browser/frame')) asked++ })
  const s = await moving(site, world, shared, 'a moving page', 5181)
  const view = await pane(page, 'Browser')
  await expect(view.getByRole('status')).toHaveText('Live')
  await expect(view).toContainText('http://127.0.0.1:5181/')
  await expect(page.getByRole('tab', { name: /^Browser/ })).toContainText('1')
  await expect(view.getByRole('img', { name: 'The page as it looks now' })).toBeVisible()
  const one = await pixels(page)
  await expect.poll(() => pixels(page)).not.toBe(one)
  await themes(site, '#pane-browser')

  // Fitted into the pane, and at its own size.
  const wide = () => view.locator('canvas').evaluate((c) => c.getBoundingClientRect().width)
  const fitted = await wide()
  await view.getByRole('button', { name: /^100 %/ }).click()
  await expect.poll(wide).toBe(1280)
  expect(fitted).toBeLessThan(1280)
  await expect(view.getByRole('region', { name: 'The page at its own size' })).toBeVisible()
  await themes(site, '#pane-browser')
  await view.getByRole('button', { name: /^100 %/ }).click()

  // Behind another pane nothing is asked for, and nothing is shown as live.
  await pane(page, 'Changes')
  await expect(page.locator('#pane-browser').getByText('Paused', { exact: true })).toBeAttached()
  const was = await pixels(page)
  const before = asked
  // The page goes on moving meanwhile: a step of another kind takes its time.
  await world.exec(s, 'sh', '-c', 'sleep 1')
  expect(asked).toBe(before)
  expect(await pixels(page)).toBe(was)
  await pane(page, 'Browser')
  await expect(view.getByRole('status')).toHaveText('Live')
  await expect.poll(() => pixels(page)).not.toBe(was)

  await world.api('POST', `/v1/sessions/${s}/end`, {})
  await expect(view.getByRole('status')).toHaveText('Closed')
  await expect(view).toContainText('The session has ended, and its browser with it.')
  await themes(site, '#pane-browser')
  await site.open()
  await expect(view).toContainText('No page is open')
})

test('pictures that cannot be had are not shown as live', async ({ site, world, shared }) => {
  const { page } = site
  const s = await moving(site, world, shared, 'cut pictures', 5182)
  await broken(page, /\/browser\/frame/)
  const view = await pane(page, 'Browser')
  await expect(view.getByRole('status')).toHaveText('Cut off')
  await expect(view).toContainText('The view goes on by itself')
  await themes(site, '#pane-browser')
  await page.unroute(/\/browser\/frame/)
  await expect(view.getByRole('status')).toHaveText('Live')
  const seen = await pixels(page)
  await expect.poll(() => pixels(page)).not.toBe(seen)
  await world.api('POST', `/v1/sessions/${s}/end`, {})
})

test('without a page the pane says what brings one, and keeps the last screenshot of a closed browser', async ({ site, world, shared }) => {
  const { page } = site
  await begun(site, world, shared, 'no page yet', 'manual')
  const view = await pane(page, 'Browser')
  await expect(view).toContainText('No page is open')
  await expect(view).toContainText('as soon as a step opens one')
  await themes(site, '#pane-browser')
  const s = await moving(site, world, shared, 'a kept picture', 5183)
  await played(world, s, { name: 'shot', steps: [{ tool: 'browser_screenshot', args: {} }] })
  await world.api('POST', `/v1/sessions/${s}/end`, {})
  await site.open()
  await site.session('a kept picture')
  await expect(view).toContainText('The last screenshot, by')
  await expect(view.locator('img')).toBeVisible()
  await themes(site, '#pane-browser')
  await view.getByRole('button', { name: /^step \d/ }).click()
  await expect(page.locator('[data-step]:focus')).toBeVisible()
})

test('a page that cannot be loaded is told from one that is well', async ({ site, world, shared }) => {
  const { page } = site
  const t = await begun(site, world, shared, 'a page that is not there', 'playbook')
  await played(world, t, { name: 'nowhere', steps: [{ tool: 'browser_open', args: { url: 'http://127.0.0.1:5999/' } }] })
  const view = await pane(page, 'Browser')
  await expect(view).toContainText('The page could not be loaded.')
  await themes(site, '#pane-browser')
  await world.api('POST', `/v1/sessions/${t}/end`, {})
})
