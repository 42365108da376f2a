import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, type Page, type World } from './fixtures'
import { binary } from './world.mjs'

/** The key a person types: with characters that JSON, URLs and pages write in other ways. */
export const KEY = 'sk-e2e/9f8a7b"c6+Zq=31\\c5%d2<x>'

/** The model server of tests, answering from a script. */
export interface Fake { url: string; faults: () => string[]; end: () => void }

/** A place at which the model server of a script stands still until it is opened. */
export function gate(): { file: string; open: () => void } {
  const dir = mkdtempSync(join(tmpdir(), 'gh-gate-'))
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }))
  const file = join(dir, 'open')
  return { file, open: () => writeFileSync(file, '') }
}

const program = process.env.GLASSHOUSE_FAKEMODEL ?? join(dirname(binary), 'fakemodel')
export function fakeModel(w: World, script: string, key = KEY): Promise<Fake> {
  if (!existsSync(program)) throw new Error(`${program} is not there: build it with "make fakemodel"`)
  const file = join(w.dir, `script-${Math.random().toString(36).slice(2)}.yaml`)
  writeFileSync(file, script)
  const p = spawn(program, ['-script', file, '-key', key], { stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  let err = ''
  p.stderr.on('data', (b) => (err += b))
  return new Promise((done, fail) => {
    p.on('exit', (code) => fail(new Error(`the model server ended with ${code}: ${err}`)))
    p.stdout.on('data', (b) => {
      out += b
      const lines = out.split('\n')
      if (lines.length > 1) done({ url: lines[0] ?? '', faults: () => out.split('\n').slice(1).filter(Boolean), end: () => { p.removeAllListeners('exit'); p.kill('SIGKILL') } })
    })
  })
}

/** Why no keychain can be had here; empty: it can. */
export const noKeychain = (): string => ['dbus-daemon', 'gnome-keyring-daemon'].filter((p) => !which(p)).map((p) => `${p} is not installed (build/setup/apt.sh test)`).join(', ')
const which = (p: string): boolean => {
  try {
    execFileSync('sh', ['-c', `command -v ${p}`])
    return true
  } catch {
    return false
  }
}

/** A keychain of the world's own, as a desktop session has one. Before the core is started. */
export async function keychain(w: World): Promise<() => void> {
  const dir = join(w.dir, 'k')
  mkdirSync(dir, { mode: 0o700 })
  const bus = join(dir, 'bus')
  const env = { ...process.env, HOME: dir, XDG_RUNTIME_DIR: dir, XDG_DATA_HOME: dir, DBUS_SESSION_BUS_ADDRESS: `unix:path=${bus}` }
  const started: ChildProcess[] = []
  const end = () => started.forEach((p) => p.kill('SIGKILL'))
  started.push(spawn('dbus-daemon', ['--session', '--nofork', `--address=unix:path=${bus}`], { env, stdio: 'ignore' }))
  await expect.poll(() => existsSync(bus), { message: 'the message bus listens' }).toBe(true)
  const ring = spawn('gnome-keyring-daemon', ['--unlock', '--components=secrets', '--foreground'], { env, stdio: ['pipe', 'ignore', 'ignore'] })
  started.push(ring)
  ring.stdin?.end('a password of the test')
  // The bus has its place in the file system before it listens there.
  const names = () => {
    try {
      return execFileSync('dbus-send', ['--session', '--print-reply', '--dest=org.freedesktop.DBus', '/', 'org.freedesktop.DBus.ListNames'], { env, encoding: 'utf8', stdio: 'pipe' })
    } catch (err) {
      return String(err)
    }
  }
  await expect.poll(names, { message: 'the keychain is there' }).toContain('org.freedesktop.secrets')
  Object.assign(w.env, { DBUS_SESSION_BUS_ADDRESS: env.DBUS_SESSION_BUS_ADDRESS })
  return end
}

/** How a key looks where it got by accident. */
export function forms(key: string): string[] {
  const b = Buffer.from(key)
  // Of base64 what does not depend on what stands before and after, at each of three places.
  const b64 = [0, 1, 2].map((n) => Buffer.concat([Buffer.alloc(n), b]).toString('base64').slice(n ? 4 : 0, -4))
  // Parts that stay as they are however often the whole is escaped.
  const parts = key.split(/[^\w+=/-]+/).filter((x) => x.length > 7)
  return [key, ...parts, ...b64, ...b64.map((x) => x.replaceAll('+', '-').replaceAll('/', '_')), b.toString('hex'), b.toString('hex').toUpperCase(), encodeURIComponent(key), encodeURI(key), JSON.stringify(key).slice(1, -1), JSON.stringify(JSON.stringify(key).slice(1, -1)).slice(1, -1),
    key.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;'), key.replaceAll('"', '&quot;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')]
}

/** Watches where the key of the page goes; look says whether it is anywhere it should not be. */
export function guard(page: Page, name: string): { look: (where: string, typing?: boolean) => Promise<void>; sent: () => number } {
  const all = forms(KEY)
  const leaks: string[] = []
  let sent = 0
  const found = (text: string): string | undefined => all.find((f) => text.includes(f))
  page.on('request', (r) => {
    const setting = r.method() === 'PUT' && new URL(r.url()).pathname === `/v1/models/${name}/key`
    if (setting && r.postData() === JSON.stringify({ key: KEY })) sent++
    else if (found(`${r.postData() ?? ''}`)) leaks.push(`body of ${r.method()} ${r.url()}`)
    if (found(`${r.url()} ${JSON.stringify(r.headers())}`)) leaks.push(`address or head of ${r.method()} ${r.url()}`)
  })
  page.on('response', (r) => {
    if (/\/v1\/events/.test(r.url())) return // It does not end; what it brings is on the page.
    r.text().then((t) => { if (found(t)) leaks.push(`answer to ${r.request().method()} ${r.url()}`) }, () => {})
  })
  page.on('console', (m) => { if (found(m.text())) leaks.push(`console: ${m.type()}`) })
  return {
    sent: () => sent,
    look: async (where, typing = false) => {
      const places = await page.evaluate(async () => {
        const field = (e: Element) => (e instanceof HTMLInputElement || e instanceof HTMLTextAreaElement ? e.value : '')
        const dbs = 'databases' in indexedDB ? (await indexedDB.databases()).map((d) => d.name).join() : ''
        return {
          'the page': document.documentElement.outerHTML, 'its words': document.body.innerText, 'its fields': [...document.querySelectorAll('input:not([type=password]), textarea')].map(field).join('\n'), 'a field for keys': [...document.querySelectorAll('input[type=password]')].map(field).join('\n'),
          'local storage': JSON.stringify({ ...localStorage }), 'session storage': JSON.stringify({ ...sessionStorage }), cookies: document.cookie, 'the address': `${location.href} ${document.title} ${dbs} ${JSON.stringify(history.state)}`,
        }
      })
      // While it is typed, it is in its field and nowhere else.
      if (typing) expect(found(places['a field for keys'])).toBeDefined()
      const in_ = Object.entries(places).filter(([place, text]) => found(text) && !(typing && place === 'a field for keys')).map(([place]) => place)
      expect([...leaks, ...in_.map((p) => `${p}, ${where}`)], 'the key is nowhere it should not be').toEqual([])
    },
  }
}
