// Measures the timeline against a bare virtual list: 20,000 stored events at 2,000
// a second into one session. Both are fed by the same stream in the same page, in
// turns; the longest gap between two frames counts, the best of the rounds each.
//   node e2e/perf/run.mjs [--rounds 3] [--stored 20000] [--rate 2000] [--app]
import { createServer } from 'node:http'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, extname, join, normalize, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'
import { build } from 'vite'
import { chromium as browserPath, Tally } from '../world.mjs'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..')
const arg = (name, or) => {
  const i = process.argv.indexOf(`--${name}`)
  return i < 0 ? or : Number(process.argv[i + 1])
}
const [rounds, stored, rate] = [arg('rounds', 3), arg('stored', 20_000), arg('rate', 2000)]
const out = mkdtempSync(join(tmpdir(), 'gh-perf-'))
const t = new Tally()
let browser
let server
try {
  await build({ root, logLevel: 'error', define: { WHOLE: String(process.argv.includes('--app')) }, build: { outDir: out, emptyOutDir: true, rollupOptions: { input: join(root, 'e2e/perf/index.html') } } })
  const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.woff2': 'font/woff2' }
  server = createServer((req, res) => {
    try {
      const path = normalize(decodeURIComponent(new URL(req.url, 'http://x').pathname))
      const body = readFileSync(join(out, path))
      res.writeHead(200, { 'Content-Type': types[extname(path)] ?? 'application/octet-stream' }).end(body)
    } catch {
      res.writeHead(404).end()
    }
  })
  await new Promise((r) => server.listen(0, '127.0.0.1', r))
  const at = `http://127.0.0.1:${server.address().port}/e2e/perf/index.html`
  browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox'] })
  async function one(what, more = '') {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
    page.on('pageerror', (e) => t.ok(`${what}: no error in the page`, false, String(e)))
    await page.goto(`${at}?what=${what}&stored=${stored}&rate=${rate}${more}`)
    await page.waitForFunction('window.run && window.begin')
    // The page's own work, as its main thread counts it: a busy computer makes frames late, not this long.
    const cdp = await page.context().newCDPSession(page)
    await cdp.send('Performance.enable', { timeDomain: 'threadTicks' })
    const work = async () => (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value
    const began = await work()
    const r = await page.evaluate('run()')
    r.work = await work() - began
    await page.close()
    console.log(`${what}${more}: ${r.stored} stored, ${r.rows} rows, ${r.frames} frames, longest gap ${r.longest.toFixed(1)} ms, p99 ${r.p99.toFixed(1)}, p50 ${r.p50.toFixed(1)}, over 34 ms: ${r.late}; ${r.work.toFixed(2)} s of work`)
    return r
  }
  const best = {}
  const kinds = ['bare', 'timeline', ...(process.argv.includes('--app') ? ['app'] : [])]
  for (let i = 0; i < rounds; i++) {
    for (const what of kinds) {
      const r = await one(what)
      best[what] = Math.min(best[what] ?? Infinity, r.longest)
      t.ok(`${what}: all ${stored} stored events came`, r.stored === stored, `${r.stored}`)
      if (what === 'bare') continue
      t.ok(`${what}: every row is there and every step has its outcome`, r.rows === r.expected && r.lost === 0 && r.wrong === 0, JSON.stringify(r))
      t.ok(`${what}: the newest row is in view, and few are drawn`, r.end.last === r.end.of && r.end.inView && r.end.drawn < 120, JSON.stringify(r.end))
    }
  }
  const r = await one('timeline', '&away=1')
  t.ok('scrolled away: what is read stays where it is, in every frame', r.before.at === r.after.at && r.before.y === r.after.y && !r.moved, JSON.stringify([r.before, r.after, r.moved]))
  t.ok('scrolled away: the pill counts what came', / new/.test(r.pill ?? ''), r.pill)
  const m = await one('timeline', '&model=1')
  t.ok('a model writes: every answer and every step is there and whole, and was seen being written', m.rows === m.expected && m.lost === 0 && m.wrong === 0 && m.written > 0, JSON.stringify(m))
  t.ok('a model writes: the newest row is in view, and few are drawn', m.end.last === m.end.of && m.end.inView && m.end.drawn < 60, JSON.stringify(m.end))
  const w = await one('timeline', '&model=1&away=1')
  t.ok('a model writes, scrolled away: what is read stays where it is, in every frame', w.before.at === w.after.at && w.before.y === w.after.y && !w.moved, JSON.stringify([w.before, w.after, w.moved]))
  console.log(`a model writes: ${m.deltas} pieces in ${(m.stored / (rate / 10)).toFixed(0)} s`)
  console.log(`longest gap, best of ${rounds}: bare ${best.bare.toFixed(1)} ms, timeline ${best.timeline.toFixed(1)} ms${best.app ? `, whole window ${best.app.toFixed(1)} ms` : ''}; ratio ${(best.timeline / best.bare).toFixed(2)}`)
  t.ok('the longest gap is at most twice that of a bare virtual list', best.timeline <= 2 * best.bare, `${best.timeline} against ${best.bare}`)
} finally {
  await browser?.close()
  server?.close()
  rmSync(out, { recursive: true, force: true })
}
t.end()
