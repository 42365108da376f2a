// What the window itself does: one of it, its place, where it does not go, what cannot
// end it, and how it finds the core again.
//
//   node native.mjs PROGRAM SHIM DIR
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { LONG, sleep, Tally, Window, xdotool } from './driver.mjs'

const [program, shim, dir] = process.argv.slice(2)
const t = new Tally()
chmodSync(dir, 0o711)
const env = { ...process.env, GLASSHOUSE_DATA: join(dir, 'd'), GLASSHOUSE_CONFIG: join(dir, 'c') }
const state = join(env.GLASSHOUSE_CONFIG, 'window.json')
mkdirSync(env.GLASSHOUSE_CONFIG, { recursive: true })
writeFileSync(join(env.GLASSHOUSE_CONFIG, 'config.toml'), 'machine = "local"\n')
// Saved on a screen that is gone.
writeFileSync(state, JSON.stringify({ x: 5000, y: 4000, width: 1100, height: 700, placed: true }))
const cli = (...a) => execFileSync(program, a, { env, encoding: 'utf8', timeout: 600_000 })
const place = (id) => Object.fromEntries(xdotool('getwindowgeometry', '--shell', id).split('\n').map((l) => l.split('=')).map(([k, v]) => [k, Number(v)]))
const wait = async (f) => {
  for (const end = Date.now() + LONG; Date.now() < end; await sleep(100)) {
    try {
      const v = await f()
      if (v) return v
    } catch { /* not yet */ }
  }
  return false
}
const corePid = () => Number(readFileSync(join(env.GLASSHOUSE_DATA, 'core.lock'), 'utf8'))
// Any other origin; it must never hear of the window.
let heard = 0
const elsewhere = createServer((_, res) => { heard++; res.end('elsewhere') }).listen(0, '127.0.0.1')
await new Promise((r) => elsewhere.once('listening', r))
const there = `http://127.0.0.1:${elsewhere.address().port}/`
let w
try {
  w = await Window.open({ program, shim, dir, env })
  await w.says('connected')
  const id = () => xdotool('search', '--onlyvisible', '--pid', String(w.pid), '--name', '^Glasshouse').split('\n').at(-1)
  const [sw, sh] = xdotool('getdisplaygeometry').split(' ').map(Number)
  let g
  // The window manager may still be about it when the page is there.
  t.ok('a place on a screen that is gone is brought into view', await wait(() => { g = place(id()); return g.WIDTH === 1100 && g.HEIGHT === 700 && g.X >= 0 && g.Y >= 0 && g.X + g.WIDTH <= sw && g.Y + g.HEIGHT <= sh }), JSON.stringify([g, sw, sh]))

  const second = spawnSync(program, ['desktop'], { env, encoding: 'utf8', timeout: LONG })
  t.ok('a second start brings the first to the front and ends well', second.status === 0 && /open already/.test(second.stderr) && w.alive, `${second.status} ${second.stderr}`)

  xdotool('windowsize', '--sync', id(), '1200', '760')
  xdotool('windowmove', '--sync', id(), '120', '90')
  t.ok('a new place is remembered while the window is open', await wait(() => { const p = JSON.parse(readFileSync(state, 'utf8')); return p.width === 1200 && p.height === 760 && p.placed }), existsSync(state) && readFileSync(state, 'utf8'))

  // Where it does not go.
  await w.run((there) => {
    const a = document.createElement('a')
    a.href = there
    document.body.append(a)
    a.click()
    a.target = '_blank'
    a.click()
    a.remove()
    window.open(there)
    location.assign('file:///etc/passwd')
    const f = document.createElement('iframe')
    f.src = there
    document.body.append(f)
    const s = document.createElement('script')
    s.textContent = 'window.stranger = 1'
    document.head.append(s)
    const i = new Image()
    i.src = `${there}pixel.png`
  }, there)
  await w.runLater(async (there) => { await fetch(there, { mode: 'no-cors' }).catch(() => {}); navigator.sendBeacon?.(there, 'x') }, there)
  await sleep(1500)
  t.ok('links, scripts, frames, pictures and calls to other places lead nowhere', heard === 0 && (await w.run(() => location.href)) === 'wails://wails/' && !(await w.run(() => window.stranger)), `${heard} requests, ${await w.run(() => location.href)}`)
  t.ok('the page is still the page', await w.says('connected', 'footer'))
  const shown = () => xdotool('search', '--onlyvisible', '--pid', String(w.pid), '').split('\n').length
  const windows = shown()
  xdotool('mousemove', '--window', id(), '600', '400', 'click', '3')
  await sleep(800)
  t.ok('a right click opens no menu of the view’s', shown() === windows, `${windows} windows, then ${shown()}`)

  // What cannot end it. A body that is no string ends a web view of this kind, so the
  // page's own way out takes strings alone; long ones and broken ones are answered.
  const answers = await w.runLater(async () => {
    const post = async (body, type = 'application/json') => (await fetch('/v1/sessions', { method: 'POST', body, headers: { 'Content-Type': type } })).status
    return [await post(''), await post('{'), await post('null'), await post(`{"project_id":"${'x'.repeat(4 << 20)}"}`), await post('\u0000\ufffd', 'text/plain'), (await fetch('/v1/..%2f..%2f..%2fetc/passwd')).status, (await fetch('/v1/x', { method: 'DELETE' })).status]
  })
  t.ok('hostile bodies and paths are refused in words', answers.every((s) => s >= 400 && s < 500), answers)
  const names = await w.run(() => Object.keys(window.go.desktop.Native).sort())
  t.ok('the page can do natively what is listed and nothing else', names.join() === 'CloseWindow,Notices,PickFolder,SetNotices', names)
  const odd = await w.runLater(async () => Promise.all([[null], [{}], ['x', 1, 2], []].map((a) => window.go.desktop.Native.SetNotices(...a).then(() => 'ok', (e) => String(e)))))
  t.ok('odd arguments of native calls are errors', odd.filter((x) => x !== 'ok').length >= 2 && w.alive, odd)
  await w.runLater(() => window.go.desktop.Native.SetNotices(false))
  t.ok('turning notices off is remembered', await wait(() => JSON.parse(readFileSync(state, 'utf8')).quiet === true))

  // A core that crashes is started again by the window; one that was quit is not.
  const before = corePid()
  process.kill(before, 'SIGKILL')
  t.ok('a core that was killed is started again', await wait(() => corePid() > 0 && corePid() !== before) && cli('project', 'list') !== undefined, readFileSync(join(env.GLASSHOUSE_DATA, 'core.lock'), 'utf8'))
  t.ok('and the page finds it by itself', await w.says('connected', 'footer'))
  cli('quit', '--now')
  await w.until('the lost link', () => !document.querySelector('footer').innerText.includes('connected'))
  await sleep(6000)
  t.ok('a core that was quit stays ended while the window only looks on', !existsSync(join(env.GLASSHOUSE_DATA, 'core.sock')))
  const made = await w.runLater(async () => (await fetch('/v1/log/verify', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } })).status)
  t.ok('what a person does starts it again', made === 200 && existsSync(join(env.GLASSHOUSE_DATA, 'core.sock')), made)
  t.ok('and the page is connected', await w.says('connected', 'footer'))

  // The page's own process dies: the page is loaded again.
  const kids = (pid) => execFileSync('sh', ['-c', `ps -e -o pid=,ppid=,comm= | awk '$2 == ${pid} { print $1, $3 }'`], { encoding: 'utf8' }).trim().split('\n').map((l) => l.split(' '))
  const all = [w.pid, ...kids(w.pid).map(([p]) => Number(p))].flatMap((p) => kids(p))
  const web = all.find(([, name]) => /WebKitWeb/.test(name ?? ''))
  if (web) process.kill(Number(web[0]), 'SIGKILL')
  t.ok('the page’s process was found and ended', !!web, JSON.stringify(all))
  t.ok('the window outlives it and shows a page again', await wait(() => w.alive && /the page's process ended/.test(w.said())) && await wait(() => xdotool('getwindowname', id()).startsWith('Glasshouse')) && w.alive, w.said())

  // Closing: said once, ends nothing.
  xdotool('windowactivate', '--sync', id())
  xdotool('key', 'ctrl+shift+w')
  const dialog = await wait(() => xdotool('search', '--onlyvisible', '--name', '^Glasshouse goes on$').split('\n').at(-1))
  t.ok('the first closing says that it ends nothing', !!dialog)
  // A dialog that is not ready for the key yet is told again.
  t.ok('then the window closes', await wait(async () => {
    if (w.alive && xdotool('search', '--onlyvisible', '--name', '^Glasshouse goes on$')) {
      xdotool('windowactivate', '--sync', dialog)
      xdotool('key', 'Return')
      await sleep(2000)
    }
    return !w.alive
  }))
  t.ok('the core goes on', cli('project', 'list') !== undefined && existsSync(join(env.GLASSHOUSE_DATA, 'core.sock')))
  t.ok('that it was said is remembered', JSON.parse(readFileSync(state, 'utf8')).told === true)
  t.ok('no fault was reported', !/fault in|panic|SIG(SEGV|ABRT|BUS|FPE|ILL|TRAP)/.test(w.said()), w.said())
} catch (err) {
  t.ok('the trial got through', false, `${err.stack}\n${await w?.run(() => document.body.innerText.slice(0, 1500)).catch(() => '')}\n${w?.said()}`)
} finally {
  await w?.end()
  elsewhere.close()
  try { cli('quit', '--now') } catch { /* It ended before. */ }
  t.end()
}
