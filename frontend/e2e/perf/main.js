import { mount } from 'svelte'
import '../../src/base.css'
import { Desk } from '../../src/lib/desk.svelte'
import { Store } from '../../src/lib/store.svelte'
import { bare } from './bare.js'
import { feed, head, SESSION } from './feed.mjs'
import Perf from './Perf.svelte'

// ?what=bare|timeline|app &stored=20000 &rate=2000 &away=1: scroll away in the middle;
// &model=1: a model writes between the steps, at a tenth of the rate.
const q = new URLSearchParams(location.search)
const what = q.get('what') ?? 'timeline'
const model = q.get('model') === '1'
const stored = Number(q.get('stored') ?? 20_000) / (model ? 10 : 1)
const rate = Number(q.get('rate') ?? 2000) / (model ? 10 : 1)
const away = q.get('away') === '1'
const enc = new TextEncoder()

// Made before the clock runs: only how they are taken in is measured.
const begin = [...head()].map((e) => `${JSON.stringify(e)}\n`)
const events = [...feed({ stored, model, id: 4 })]
const text = events.map((e) => `${JSON.stringify(e)}\n`)
/** For each stored event, where in the whole stream it is. */
const at = []
events.forEach((e, i) => e.id > 0 && at.push(i))

let sent = 0
const real = window.fetch
window.fetch = async (path, init) => {
  if (!String(path).startsWith('/v1/')) return real(path, init)
  if (!String(path).startsWith('/v1/events')) return new Response('{}', { status: 200 })
  return new Response(new ReadableStream({
    start(c) {
      c.enqueue(enc.encode(begin.join('')))
      window.begin = () => {
        const began = performance.now()
        const t = setInterval(() => {
          const due = Math.min(stored, Math.floor(((performance.now() - began) * rate) / 1000))
          const to = due >= stored ? text.length : (at[due] ?? text.length)
          if (to > sent) c.enqueue(enc.encode(text.slice(sent, to).join('')))
          sent = to
          if (sent < text.length) return
          clearInterval(t)
          if (what === 'bare') c.close()
        }, 4)
      }
    },
  }))
}

const stop = new AbortController()
const out = { what, away, stored: 0, rows: 0, gaps: [] }
let done
/** The most that was seen of an answer while it was written. */
let written = 0
const ended = new Promise((r) => (done = r))
let store
if (what === 'bare') {
  bare(stop.signal).then((r) => {
    Object.assign(out, r, { stored: r.stored - begin.length })
    done()
  })
} else {
  store = new Store()
  const desk = new Desk(store)
  if (WHOLE && what === 'app') mount((await import('../../src/App.svelte')).default, { target: document.getElementById('app'), props: { store, live: false } })
  else mount(Perf, { target: document.getElementById('app'), props: { store, desk } })
  void store.follow(stop.signal)
  const last = events.findLast((e) => e.id > 0)
  const poll = setInterval(() => {
    if (store.s.last < last.id) return
    clearInterval(poll)
    const x = store.s.sessions[SESSION]
    const kinds = { 'step.requested': 1, 'turn.started': 1, message: 1, 'approval.requested': 1, ...(model ? { 'model.answered': 1, 'turn.ended': 1 } : {}) }
    const lost = events.filter((e) => (e.type === 'step.requested' && !store.s.steps[e.step_id]) || (e.type === 'model.answered' && store.s.answers[e.data.answer_id]?.parts[0]?.text !== e.data.parts[0].text)).length
    const wrong = events.filter((e) => e.type === 'step.ended' && store.s.steps[e.step_id]?.outcome !== e.data.outcome).length
    Object.assign(out, { stored: store.s.last - begin.length, rows: x.items.length, expected: events.filter((e) => kinds[e.type]).length, lost, wrong, deltas: events.filter((e) => e.type === 'message.delta').length, written })
    done()
  }, 20)
}

function place() {
  const box = document.querySelector('[role=feed]')
  const b = box.getBoundingClientRect()
  const el = [...box.querySelectorAll('[data-at]')].find((x) => x.getBoundingClientRect().top >= b.top)
  return el && { at: el.dataset.at, y: Math.round(el.getBoundingClientRect().top - b.top) }
}

window.run = async () => {
  const frame = () => new Promise((r) => requestAnimationFrame(r))
  for (let i = 0; i < 30; i++) await frame()
  let on = true
  let before = performance.now()
  const watch = (now) => {
    out.gaps.push(now - before)
    if (model) written = Math.max(written, store.s.live[SESSION]?.text.length ?? 0)
    before = now
    if (on) requestAnimationFrame(watch)
  }
  requestAnimationFrame(watch)
  window.begin()
  if (away) {
    await new Promise((r) => setTimeout(r, (stored / rate) * 400))
    const box = document.querySelector('[role=feed]')
    box.dispatchEvent(new WheelEvent('wheel', { deltaY: -500 }))
    box.scrollTop -= 5000
    await frame()
    await frame()
    await frame()
    out.before = place()
    // Nothing that comes may move what is read, in any frame.
    const look = () => {
      const p = place()
      if (p?.at !== out.before.at || Math.abs(p.y - out.before.y) > 1) out.moved = (out.moved ?? 0) + 1
      if (on) requestAnimationFrame(look)
    }
    requestAnimationFrame(look)
  }
  await ended
  await frame()
  await frame()
  await frame()
  on = false
  if (away) {
    out.after = place()
    out.pill = document.querySelector('.pill')?.textContent
  } else if (what !== 'bare') {
    const box = document.querySelector('[role=feed]')
    const rows = [...box.querySelectorAll('[data-at]')]
    const b = box.getBoundingClientRect()
    out.end = { last: Number(rows.at(-1)?.dataset.at), of: store.s.sessions[SESSION].items.length - 1, inView: rows.at(-1)?.getBoundingClientRect().bottom <= b.bottom + 1, drawn: rows.length }
  }
  stop.abort()
  const g = out.gaps.slice().sort((a, b) => a - b)
  return { ...out, gaps: undefined, frames: g.length, longest: g.at(-1), p99: g[Math.floor(g.length * 0.99)], p50: g[Math.floor(g.length / 2)], late: g.filter((x) => x > 34).length }
}
