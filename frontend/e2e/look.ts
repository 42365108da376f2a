import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, type Locator, type Page, type Shared, type Site, type World } from './fixtures'
import { binary } from './world.mjs'

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff]/

/** No element of a guest's making, and no character that hides, reorders or commands: in what is seen, in names and in the title. */
export async function harmless(page: Page): Promise<void> {
  expect(await page.locator('img[src="x"], iframe, object, embed, base, script:not([src]):not([type="module"])').count()).toBe(0)
  const texts = await page.evaluate(() => [document.title, document.body.innerText, ...[...document.querySelectorAll('*')].flatMap((e) => ['aria-label', 'title', 'alt', 'placeholder'].map((a) => e.getAttribute(a) ?? ''))])
  expect(texts.map((t) => HIDDEN.exec(t)).filter(Boolean).map((m) => `U+${m?.[0].codePointAt(0)?.toString(16)} in ${JSON.stringify(m?.input.slice(Math.max(0, m.index - 30), m.index + 30))}`)).toEqual([])
}

/** Nothing serious in light nor in dark. */
export async function themes(site: Site, where?: string): Promise<void> {
  for (const colorScheme of ['dark', 'light'] as const) {
    await site.page.emulateMedia({ colorScheme })
    await site.axe(where)
  }
}

/** A session of its own in the project that tests share, on the screen. */
export async function begun(site: Site, world: World, project: Shared, title: string, agent = 'playbook'): Promise<string> {
  const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: project.id, title, agent })
  await site.session(title)
  await expect(site.page.getByRole('heading', { name: title })).toBeVisible()
  return s.id
}

/** Plays a playbook in a session, to its end. */
export async function played(world: World, session: string, book: unknown): Promise<void> {
  await world.api('POST', `/v1/sessions/${session}/turns`, { agent: 'playbook', input: JSON.stringify(book) })
  await expect.poll(async () => (await world.api<{ state: string }>('GET', `/v1/sessions/${session}`)).state, { timeout: 120_000 }).not.toBe('running')
}

/** Shows a pane at the right and gives it. */
export async function pane(page: Page, name: 'Changes' | 'Browser' | 'Terminal' | 'Files' | 'Network'): Promise<Locator> {
  await page.getByRole('tablist', { name: 'Panes' }).getByRole('tab', { name: new RegExp(`^${name}`) }).click()
  const p = page.getByRole('tabpanel', { name: new RegExp(`^${name}`) })
  await expect(p).toBeVisible()
  return p
}

/** Lets calls of a kind wait until the returned function is called. */
export async function held(page: Page, url: RegExp): Promise<() => Promise<void>> {
  let go: () => void = () => {}
  const gone = new Promise<void>((done) => (go = done))
  await page.route(url, async (r) => {
    await gone
    await r.continue().catch(() => {})
  })
  return async () => {
    go()
    await page.unroute(url)
  }
}

/** Lets calls of a kind fail with words, until the route is taken away. */
export const broken = (page: Page, url: RegExp, what = 'the disk is full', hint = 'make room, then try again', details: string[] = []) =>
  page.route(url, (r) => r.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify({ code: 'unavailable', what, hint, details }) }))

export const INTERNET = 'rates.demo.example'
/**
 * Gives a core that was not started yet an internet of its own: a network namespace
 * with one name and one server. /hold keeps a connection until /free is asked for.
 * Undefined where that cannot be had; the caller says so.
 */
export async function internet(w: World): Promise<{ end: () => void } | undefined> {
  const hosts = join(w.dir, 'hosts')
  writeFileSync(hosts, `127.0.0.1 localhost\n203.0.113.10 ${INTERNET}\n`)
  const server = join(w.dir, 'server.cjs')
  writeFileSync(server, `const held = []
require('node:http').createServer((q, r) => {
  if (q.url === '/hold') { r.write('begun\\n'); held.push(r) } else { for (const h of held.splice(0)) h.end('done\\n'); r.end('1.0000\\n') }
}).listen(80, '203.0.113.10', () => console.log('listens'))`)
  const script = `set -e; ip link set lo up; ip addr add 203.0.113.10/32 dev lo; mount --bind '${hosts}' /etc/hosts; '${binary}' project list >/dev/null 2>&1; exec '${process.execPath}' '${server}'`
  const p = spawn('unshare', ['-n', '-m', 'sh', '-c', script], { env: w.env, stdio: ['ignore', 'pipe', 'ignore'] })
  const listens = await new Promise<boolean>((done) => {
    p.stdout.on('data', () => done(true))
    p.on('error', () => done(false))
    p.on('exit', () => done(false))
  })
  return listens ? { end: () => void p.kill('SIGKILL') } : undefined
}

/** A repository with one commit in the world's folder. */
export function repo(w: World, name: string, files: Record<string, string | Uint8Array>, branch = 'main'): string {
  const src = join(w.dir, name)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(src, path)), { recursive: true })
    writeFileSync(join(src, path), text)
  }
  const git = (...a: string[]) => execFileSync('git', ['-C', src, '-c', 'user.name=Ada', '-c', 'user.email=ada@shop.example', ...a])
  git('init', '-q', '-b', branch)
  git('add', '.')
  git('commit', '-q', '-m', 'The beginning')
  return src
}
