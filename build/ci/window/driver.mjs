// A client of the system's WebDriver for the one window, without dependencies.
// Closing a session and its pictures hang there, so the window is ended by its process
// and pictures are taken of the display.
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
export const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
/** A hang guard, not a measure. */
export const LONG = Number(process.env.GLASSHOUSE_LIMIT ?? 180) * 1000

const freePort = () => new Promise((done, fail) => {
  const s = createServer().once('error', fail).listen(0, '127.0.0.1', () => {
    const { port } = s.address()
    s.close(() => done(port))
  })
})

/** The display's own hand. */
export function xdotool(...args) {
  for (let tries = 1; ; tries++) {
    try {
      return execFileSync('xdotool', args, { encoding: 'utf8', timeout: LONG, stdio: ['ignore', 'pipe', 'pipe'] }).trim()
    } catch (err) {
      // A search goes through all windows; one of any program that closes meanwhile ends it.
      if (args[0] !== 'search' || tries >= 50 || !/BadWindow/.test(err.stderr ?? '')) throw err
    }
  }
}

export class Window {
  /** Opens a program's window. env: its environment; dir: a folder of the test's own; shim: the preloaded library. */
  static async open({ program, args = ['desktop'], env = process.env, dir, shim, name = 'window' }) {
    const w = new Window()
    w.pidFile = join(dir, `${name}.pid`)
    w.log = join(dir, `${name}.log`)
    const launch = join(dir, `${name}.sh`)
    const quote = (s) => `'${s.replaceAll("'", "'\\''")}'`
    writeFileSync(launch, `#!/bin/sh\necho $$ >${quote(w.pidFile)}\ndate +%s%3N >${quote(`${w.pidFile}.at`)}\nLD_PRELOAD=${quote(shim)} exec ${[program, ...args].map(quote).join(' ')} >>${quote(w.log)} 2>&1\n`, { mode: 0o755 })
    // A port that was free may be another's by the time the driver asks for it.
    for (const end = Date.now() + LONG; !w.base;) {
      const port = await freePort()
      const driver = (w.driver = spawn('WebKitWebDriver', [`--port=${port}`, '--host=127.0.0.1'], { env, stdio: ['ignore', 'ignore', 'inherit'] }))
      const base = `http://127.0.0.1:${port}`
      while (!w.base && driver.exitCode === null && driver.signalCode === null) {
        try {
          const said = await fetch(`${base}/status`, { signal: AbortSignal.timeout(LONG) })
          if (driver.exitCode === null && 'value' in (await said.json())) w.base = base
        } catch (err) {
          if (Date.now() > end) throw err
        }
        if (!w.base) await sleep(50)
      }
      if (Date.now() > end) throw new Error('the driver of the view does not come')
    }
    const s = await w.#ask('POST', '/session', { capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': { binary: launch, args: [] } } } })
    w.session = `/session/${s.sessionId}`
    await w.#ask('POST', `${w.session}/timeouts`, { script: LONG, pageLoad: LONG })
    return w
  }

  get pid() {
    return Number(readFileSync(this.pidFile, 'utf8'))
  }

  async #ask(method, path, body) {
    const r = await fetch(this.base + path, { method, body: body === undefined ? undefined : JSON.stringify(body), headers: { 'content-type': 'application/json' }, signal: AbortSignal.timeout(LONG) })
    const { value } = await r.json()
    if (!r.ok) throw new Error(`${path.replace(/^\/session\/[^/]*/, '')}: ${value?.error}: ${value?.message}`)
    return value
  }

  /** Runs a function of the page; what it is given and gives back is JSON, or an element it returns. */
  async run(f, ...args) {
    return this.#ask('POST', `${this.session}/execute/sync`, { script: `return (${f})(...arguments)`, args })
  }

  /** The same for a function that answers later. */
  async runLater(f, ...args) {
    const [ok, v] = await this.#ask('POST', `${this.session}/execute/async`, {
      script: `const done = arguments[arguments.length - 1]; const a = [...arguments].slice(0, -1); Promise.resolve().then(() => (${f})(...a)).then((v) => done([true, v ?? null]), (e) => done([false, String(e && e.stack || e)]))`, args,
    })
    if (!ok) throw new Error(v)
    return v
  }

  async go(url) {
    await this.#ask('POST', `${this.session}/url`, { url })
  }

  /** Waits until f holds in the page and returns what it gave. */
  async until(what, f, ...args) {
    const end = Date.now() + LONG
    let last
    for (;;) {
      try {
        const v = await this.run(f, ...args)
        if (v) return v
      } catch (err) {
        last = err
      }
      if (Date.now() > end) throw new Error(`${what} did not come about${last ? `: ${last.message}` : ''}`)
      await sleep(80)
    }
  }

  /** The element of a role (or '' for any) whose name holds a text; the last one if several. */
  async find(role, name) {
    return this.until(`${role || 'an element'} "${name}"`, (role, name) => {
      const tags = { button: 'button,[role=button]', field: 'input,textarea,select', link: 'a', tab: '[role=tab]', region: '[role=region],section,article', dialog: 'dialog,[role=dialog]', item: '[role=treeitem],[role=option],li,[role=row],summary,button' }
      const named = (e) => {
        const by = e.getAttribute('aria-labelledby')
        const label = e.labels?.[0]?.innerText
        return e.getAttribute('aria-label') ?? (by ? by.split(' ').map((i) => document.getElementById(i)?.innerText ?? '').join(' ') : undefined) ?? label ?? e.getAttribute('placeholder') ?? e.innerText ?? ''
      }
      const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden' && !e.disabled
      const re = name.startsWith('/') ? new RegExp(name.slice(1, -1)) : null
      const fits = (e) => { const n = named(e).replace(/\s+/g, ' ').trim(); return re ? re.test(n) : n.includes(name) }
      const all = [...document.querySelectorAll(tags[role] ?? '*')].filter((e) => seen(e) && fits(e))
      // What is on top of everything has the word.
      const top = [...document.querySelectorAll('dialog[open]')].at(-1)
      const on = top ? all.filter((e) => top.contains(e)) : all
      return on.at(-1) ?? null
    }, role, name)
  }

  /** The text of the page now, its blanks as one. */
  async text(css = 'body') {
    return this.run((c) => (document.querySelector(c)?.innerText ?? '').replace(/\s+/g, ' '), css)
  }

  /** Waits until the page says something. */
  async says(text, css = 'body') {
    return this.until(`"${text}"`, (t, c) => [...document.querySelectorAll(c)].some((e) => e.innerText.replace(/\s+/g, ' ').includes(t)), text, css)
  }

  /** Puts a text into a field by the hand and the keys, in the place of what is there. */
  async fill(name, text) {
    await this.click(await this.find('field', name))
    await this.chord('\uE009', 'a')
    await this.type(text)
  }

  /**
   * A real press of the pointer on an element, once it stands still and nothing lies over
   * it: rows of a list are measured after they are drawn, and move.
   */
  async click(e) {
    const el = typeof e === 'string' ? await this.find('button', e) : e
    await this.until('a place to press that stands still', (x) => {
      x.scrollIntoView({ block: 'nearest' })
      const r = x.getBoundingClientRect()
      const now = [r.x, r.y, r.width, r.height].join()
      const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)
      const free = !!at && (x.contains(at) || !!x.closest('label')?.contains(at))
      const still = free && window.stoodAt?.deref() === x && window.stood === now
      window.stoodAt = new WeakRef(x)
      window.stood = now
      return still
    }, el)
    await this.#actions([{ type: 'pointer', id: 'mouse', parameters: { pointerType: 'mouse' }, actions: [{ type: 'pointerMove', duration: 0, origin: { [ELEMENT]: el[ELEMENT] }, x: 0, y: 0 }, { type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 }] }])
  }

  /** Real presses of keys, one after the other; a text or names as WebDriver has them. */
  async type(text) {
    const actions = []
    // A line's end is the key Enter.
    for (const c of text.replaceAll('\n', '\uE007')) actions.push({ type: 'keyDown', value: c }, { type: 'keyUp', value: c })
    for (let i = 0; i < actions.length; i += 400) await this.#actions([{ type: 'key', id: 'keys', actions: actions.slice(i, i + 400) }])
  }

  /** A key with others held: chord('\uE009', 'k') is Control and K. */
  async chord(...keys) {
    await this.#actions([{ type: 'key', id: 'keys', actions: [...keys.map((value) => ({ type: 'keyDown', value })), ...keys.reverse().map((value) => ({ type: 'keyUp', value }))] }])
  }

  /** Turns the wheel up over an element, by the display: the system's driver has no wheel. */
  async wheel(css, notches) {
    const [x, y] = await this.run((c) => { const r = document.querySelector(c).getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] }, css)
    const [id] = xdotool('search', '--onlyvisible', '--pid', String(this.pid), '--name', '^').split('\n').slice(-1)
    // The page begins below the window's menus.
    const above = await this.run(() => window.outerHeight - window.innerHeight)
    xdotool('mousemove', '--window', id, String(Math.round(x)), String(Math.round(y + above)))
    for (let i = 0; i < notches; i++) xdotool('click', '4')
  }

  async #actions(actions) {
    await this.#ask('POST', `${this.session}/actions`, { actions })
  }

  get alive() {
    try {
      process.kill(this.pid, 0)
      return !readFileSync(`/proc/${this.pid}/stat`, 'utf8').includes(') Z ')
    } catch {
      return false
    }
  }

  said() {
    return existsSync(this.log) ? readFileSync(this.log, 'utf8') : ''
  }

  /** Ends the window as a system does that shuts down, and what drives it. */
  async end() {
    try {
      if (this.alive) process.kill(this.pid, 'SIGTERM')
      for (let i = 0; this.alive && i < 200; i++) await sleep(50)
      if (this.alive) process.kill(this.pid, 'SIGKILL')
    } catch {
      // It never started.
    }
    this.driver.kill('SIGKILL')
  }
}

/** Counts what holds and what does not, and says it. */
export class Tally {
  passed = 0
  failed = 0

  ok(what, holds, more = '') {
    if (holds) this.passed++
    else this.failed++
    console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}${!holds && more ? `: ${String(more).slice(0, 3000)}` : ''}`)
    return holds
  }

  end() {
    console.log(`${this.passed} passed, ${this.failed} failed`)
    process.exitCode = this.failed || !this.passed ? 1 : 0
  }
}
