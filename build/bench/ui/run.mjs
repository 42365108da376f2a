// Measures the window: how long it takes to be ready, what it needs at rest, how fast
// its live view is, and how long it keeps a frame waiting in a flood of events. Each is
// set against a window of the same toolkit with nothing in it, or against the plainest
// way to do the same in the same window. The last line is the result as JSON.
//
//   node run.mjs PROGRAM BARE STANDIN SHIM DIR [--rounds N] [--seconds N]
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sleep, Window } from '../../ci/window/driver.mjs'

const [program, bareProgram, standin, shim, dir] = process.argv.slice(2)
const arg = (name, or) => { const i = process.argv.indexOf(`--${name}`); return i < 0 ? or : Number(process.argv[i + 1]) }
const [rounds, seconds] = [arg('rounds', 3), arg('seconds', 5)]
const env = { ...process.env, GLASSHOUSE_DATA: join(dir, 'd'), GLASSHOUSE_CONFIG: join(dir, 'c') }
mkdirSync(env.GLASSHOUSE_CONFIG, { recursive: true })
writeFileSync(join(env.GLASSHOUSE_CONFIG, 'window.json'), JSON.stringify({ width: 1280, height: 800, told: true }))
const rows = []
/** more: a larger figure is better, so the ratio is turned round. */
const row = (what, ours, peer, unit, target, more = false) => {
  const ratio = Math.round((more ? peer / ours : ours / peer) * 1000) / 1000
  rows.push({ what, ours: Math.round(ours * 10) / 10, peer: Math.round(peer * 10) / 10, unit, ratio, target, ok: ratio <= target })
  console.log(`${what}: ${ours.toFixed(1)} ${unit} against ${peer.toFixed(1)} ${unit}, ratio ${ratio} (at most ${target}) ${ratio <= target ? 'ok' : 'MISSED'}`)
}
const median = (xs) => [...xs].sort((a, b) => a - b)[xs.length >> 1]
const list = (xs) => xs.map((x) => x.toFixed(0)).join(' ')

/** Proportional memory in MiB of a process and all it started. */
function memory(pid) {
  const kids = new Map()
  for (const p of readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
    try {
      const st = readFileSync(`/proc/${p}/stat`, 'utf8')
      const of = Number(st.slice(st.lastIndexOf(')') + 2).split(' ')[1])
      kids.set(of, [...(kids.get(of) ?? []), Number(p)])
    } catch { /* It ended meanwhile. */ }
  }
  let kib = 0
  for (const todo = [pid]; todo.length;) {
    const p = todo.pop()
    todo.push(...(kids.get(p) ?? []))
    try {
      kib += Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${p}/smaps_rollup`, 'utf8'))[1])
    } catch { /* The same. */ }
  }
  return kib / 1024
}

async function open(which) {
  const w = await Window.open({ program: which === 'ours' ? program : bareProgram, args: which === 'ours' ? ['desktop'] : [], shim, dir, env, name: which })
  await w.until('the page to be ready', () => performance.getEntriesByName('glasshouse-ready').length > 0)
  return w
}

const core = spawn(standin, ['-data', env.GLASSHOUSE_DATA], { stdio: ['ignore', 'pipe', 'inherit'] })
await new Promise((done, fail) => { core.stdout.once('data', done); core.once('exit', (c) => fail(new Error(`the stand-in ended with ${c}`))) })
let w
let failed = ''
try {
  // A session with some history: a window that is opened on nothing is no measure.
  w = await open('ours') // the first start of each reads the disk, and is not counted
  await w.runLater(async () => {
    await fetch('/v1/standin/start', { method: 'POST', body: JSON.stringify({ events: 1500, rate: 1500 }) })
    for (;;) {
      if ((await (await fetch('/v1/standin/state')).json()).done) return
      await new Promise((r) => setTimeout(r, 300))
    }
  })
  await w.end()
  w = await open('bare')
  await w.end()
  const start = { ours: [], bare: [] }
  const rest = { ours: [], bare: [] }
  for (let i = 0; i < rounds; i++) {
    for (const which of i % 2 ? ['bare', 'ours'] : ['ours', 'bare']) {
      w = await open(which)
      const began = Number(readFileSync(`${w.pidFile}.at`, 'utf8'))
      const ready = await w.run(() => performance.timeOrigin + performance.getEntriesByName('glasshouse-ready')[0].startTime)
      start[which].push(ready - began)
      await sleep(6000)
      rest[which].push(memory(w.pid))
      await w.end()
    }
  }
  console.log(`start, each: ours ${list(start.ours)} ms; bare ${list(start.bare)} ms`)
  console.log(`memory, each: ours ${list(rest.ours)} MiB; bare ${list(rest.bare)} MiB; the core beside it ${memory(core.pid).toFixed(0)} MiB`)
  // Ours connects to the core and takes in a session before it counts as drawn; the bare one says a word.
  row('start of the window to connected and drawn', median(start.ours), median(start.bare), 'ms', 3)
  row('memory of the window’s processes at rest (PSS)', median(rest.ours), median(rest.bare), 'MiB', 1.3)

  // The live view, and beside it the plainest loop that shows the same pictures.
  w = await open('ours')
  await w.runLater(() => fetch('/v1/standin/browser', { method: 'POST' }).then(() => {}))
  await w.click(await w.find('tab', 'Changes'))
  await w.click(await w.find('tab', 'Browser'))
  const ours = []
  const plain = []
  await w.until('a picture', () => { const c = document.querySelector('[data-scope=browser] canvas'); return c && c.width === 1280 })
  const other = (name) => w.find('tab', name).then((e) => w.click(e))
  for (let i = 0; i < rounds; i++) {
    ours.push(await w.runLater(async (ms) => {
      const real = CanvasRenderingContext2D.prototype.drawImage
      let n = 0
      CanvasRenderingContext2D.prototype.drawImage = function (...a) { n++; return real.apply(this, a) }
      const began = performance.now()
      await new Promise((r) => setTimeout(r, ms))
      CanvasRenderingContext2D.prototype.drawImage = real
      return (n * 1000) / (performance.now() - began)
    }, seconds * 1000))
    await other('Changes') // what is not seen asks for nothing
    await sleep(500)
    plain.push(await w.runLater(async (ms) => {
      const c = document.createElement('canvas')
      c.width = 1280
      c.height = 800
      c.style.cssText = 'position:fixed;right:0;top:120px;width:600px;z-index:9'
      document.body.append(c)
      let n = 0
      const began = performance.now()
      while (performance.now() - began < ms) {
        const bitmap = await createImageBitmap(await (await fetch(`/v1/standin/picture?n=${n}`)).blob())
        c.getContext('2d', { alpha: false }).drawImage(bitmap, 0, 0)
        bitmap.close()
        n++
      }
      c.remove()
      return (n * 1000) / (performance.now() - began)
    }, seconds * 1000))
    await other('Browser')
    await sleep(500)
  }
  console.log(`live view, each: ours ${list(ours)} a second; plain ${list(plain)}`)
  // The plain loop does nothing else; a browser gives at most 15 pictures a second, so both have some to spare.
  row('live view, pictures a second', median(ours), median(plain), '1/s', 3, true)
  await w.end()
  w = undefined
  core.kill('SIGTERM')

  const flood = join(dir, 'flood')
  mkdirSync(flood)
  let out = ''
  try {
    out = execFileSync('node', [join(dirname(fileURLToPath(import.meta.url)), '../../ci/window/flood.mjs'), program, standin, shim, flood], { env: process.env, encoding: 'utf8', timeout: 900_000 })
  } catch (err) {
    out = err.stdout ?? ''
  }
  console.log(out.split('\n').filter((l) => l.startsWith('   ') || l.startsWith('FAIL')).join('\n'))
  const line = out.split('\n').find((l) => l.startsWith('{"what"'))
  if (!line) throw new Error(`the flood was not measured: ${out.slice(-2000)}`)
  rows.push(JSON.parse(line))
} catch (err) {
  failed = `${err.stack}\n${w && existsSync(w.log) ? w.said() : ''}`
} finally {
  await w?.end()
  core.kill('SIGTERM')
}
if (failed) {
  console.error(failed)
  process.exit(1)
}
console.log(JSON.stringify({ bench: 'ui', rows }))
