// A world for tests of the page: a source repository, an empty remote, and a core
// with a loopback listener on a data folder of its own. All of it is gone afterwards.
import { execFileSync, spawn } from 'node:child_process'
import { request } from 'node:http'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..')
export const binary = process.env.GLASSHOUSE_BIN ?? join(root, 'build/bin/glasshouse')
export const chromium = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p))

export class World {
  /** The address of the listener, with its token. */
  url = ''
  constructor() {
    // Short, for it holds sockets; passable for a root core's service user.
    this.dir = mkdtempSync(join(tmpdir(), 'gh-ui-'))
    chmodSync(this.dir, 0o711)
    this.src = join(this.dir, 'greeter')
    this.remote = join(this.dir, 'remote.git')
    this.env = { ...process.env, GLASSHOUSE_DATA: join(this.dir, 'd'), GLASSHOUSE_CONFIG: join(this.dir, 'c'), GLASSHOUSE_LIBEXEC: process.env.GLASSHOUSE_LIBEXEC ?? join(root, 'build/bin') }
    mkdirSync(this.env.GLASSHOUSE_CONFIG)
    writeFileSync(join(this.env.GLASSHOUSE_CONFIG, 'config.toml'), 'machine = "local"\n')
    mkdirSync(this.src)
    const filler = Array.from({ length: 12 }, (_, i) => `# line ${i + 1}`).join('\n')
    writeFileSync(join(this.src, 'greet.sh'), `#!/bin/sh\necho helo\n${filler}\nexit 0\n`)
    this.git('init', '-q', '-b', 'main')
    this.git('add', '.')
    this.git('-c', 'user.name=T', '-c', 'user.email=t@example.test', 'commit', '-q', '-m', 'A greeting')
    execFileSync('git', ['init', '-q', '--bare', '-b', 'main', this.remote])
    this.git('push', '-q', this.remote, 'main')
  }

  git(...args) {
    return execFileSync('git', ['-C', this.src, ...args], { encoding: 'utf8' })
  }

  /** What git says about the remote. */
  there(...args) {
    return execFileSync('git', ['-C', this.remote, ...args], { encoding: 'utf8' })
  }

  /** Runs a command of the program and returns what it printed. */
  run(...args) {
    return execFileSync(binary, args, { env: this.env, encoding: 'utf8', timeout: 600_000, stdio: 'pipe' })
  }

  /** Starts the listener and returns the address it printed. */
  async serve(...args) {
    if (args.length) return this.#serve(args)
    // It may have to be had again: below the ports that the system gives to whoever asks for any.
    for (let tries = 1; ; tries++) {
      try {
        return await this.#serve(['--listen', `127.0.0.1:${20_000 + Math.floor(Math.random() * 12_000)}`])
      } catch (err) {
        if (tries >= 20 || !/in use/.test(String(err))) throw err
      }
    }
  }

  #serve(args) {
    this.server = spawn(binary, ['serve', ...args], { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] })
    let out = ''
    let err = ''
    this.server.stderr.on('data', (b) => (err += b))
    return new Promise((done, fail) => {
      this.server.stdout.on('data', (b) => {
        out += b
        const m = /(http:\/\/\S+)\s/.exec(out)
        if (!m) return
        this.url = m[1]
        done(m[1])
      })
      // Once all that it said is read, unless something it began holds on to its pipes.
      this.server.on('exit', (code) => {
        const end = () => fail(new Error(`serve ended with ${code}: ${err}`))
        setTimeout(end, 2000).unref()
        this.server?.once('close', end)
      })
    })
  }

  /** Starts the listener again at the same address with the same token, as if it had never been gone. */
  async serveAgain() {
    const at = new URL(this.url)
    await this.serve('--listen', at.host, '--token', at.searchParams.get('token'))
  }

  /**
   * A call at the core's own socket; rejects with the core's words.
   * @template [T=unknown]
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @returns {Promise<T>}
   */
  api(method, path, body) {
    return new Promise((done, fail) => {
      const q = request({ socketPath: join(this.env.GLASSHOUSE_DATA, 'core.sock'), method, path, headers: { Host: 'core', 'Content-Type': 'application/json' } }, (r) => {
        let text = ''
        r.setEncoding('utf8').on('data', (b) => (text += b)).on('end', () => {
          if ((r.statusCode ?? 500) >= 300) fail(new Error(`${method} ${path}: ${r.statusCode} ${text}`))
          else done(text ? JSON.parse(text) : undefined)
        })
      })
      q.on('error', fail)
      q.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  /**
   * Runs a command in a session as a step and returns its answer.
   * @param {string} session
   * @param {...string} argv
   */
  exec(session, ...argv) {
    return this.api('POST', `/v1/sessions/${session}/exec?wait=sealed`, { argv })
  }

  /** Kills the core as a crash would; its machines go on. */
  crash() {
    const pid = Number(readFileSync(join(this.env.GLASSHOUSE_DATA, 'core.lock'), 'utf8').trim())
    process.kill(pid, 'SIGKILL')
    return pid
  }

  /** Ends the core and begins again with an empty data folder, at the same address. */
  async fresh() {
    await this.stopServe()
    this.run('quit', '--now')
    rmSync(this.env.GLASSHOUSE_DATA, { recursive: true, force: true, maxRetries: 20, retryDelay: 200 })
    await this.serveAgain()
  }

  coreLog() {
    try {
      return readFileSync(join(this.env.GLASSHOUSE_DATA, 'logs/core.log'), 'utf8')
    } catch {
      return ''
    }
  }

  /** Ends the listener and waits until it is gone. */
  async stopServe() {
    const s = this.server
    this.server = undefined
    if (!s || s.exitCode !== null) return
    s.removeAllListeners('exit')
    const gone = new Promise((done) => s.once('exit', done))
    s.kill('SIGTERM')
    await gone
  }

  async end() {
    await this.stopServe()
    try {
      this.run('quit', '--now')
    } finally {
      rmSync(this.dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 200 })
    }
  }
}

/** Counts what holds and what does not, and says it. */
export class Tally {
  passed = 0
  failed = 0

  ok(what, holds, more = '') {
    if (holds) this.passed++
    else this.failed++
    console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}${!holds && more ? `: ${more}` : ''}`)
    return holds
  }

  end() {
    console.log(`${this.passed} passed, ${this.failed} failed`)
    process.exitCode = this.failed || !this.passed ? 1 : 0
  }
}
