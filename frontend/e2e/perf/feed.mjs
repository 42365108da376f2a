// A stream of events as a busy session makes them, for measuring. The same seed
// gives the same events. `stored` counts what has an id; pieces of output are
// transient and come on top.
export const PROJECT = 'p-perf'
export const SESSION = 's-perf'

function dice(seed) {
  let x = seed >>> 0 || 1
  return () => {
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    return (x >>> 0) / 4294967296
  }
}

const FILES = ['cart/total.ts', 'cart/total.test.ts', 'src/checkout/page.tsx', 'server/prices.go', 'docs/notes.md', 'lib/round.py', 'package.json']
const CALLS = [
  ['exec', 'Run npm test -- checkout', { argv: ['npm', 'test', '--', 'checkout'] }], ['exec', 'Run git status --short', { argv: ['git', 'status', '--short'] }],
  ['search', 'Search roundTotal', { pattern: 'roundTotal' }], ['read', 'Read cart/total.ts', { path: 'cart/total.ts' }], ['edit', 'Edit cart/total.ts', { path: 'cart/total.ts', old: 'a', new: 'b' }],
  ['write', 'Write docs/notes.md', { path: 'docs/notes.md', content: 'x' }], ['browser_click', 'click “Pay €24.90” [e31]', { ref: 'e31' }],
]

/** What comes before the session: the project and the session themselves. */
export function* head({ project = PROJECT, session = SESSION, id = 0, at = 1_700_000_000_000 } = {}) {
  const e = (type, data, more) => ({ id: ++id, stream: 'x', seq: id, at: at + id, type, origin: 'host', project_id: project, ...more, data })
  yield e('project.created', { project: { id: project, name: 'shop', source: '/src/shop', machine_kind: 'local' } })
  yield e('machine.state', { machine_id: 'm', kind: 'local', state: 'ready' })
  yield e('session.created', { session: { id: session, project_id: project, title: 'Fix the failing checkout test', agent: 'playbook', class: 'task', state: 'idle' } }, { session_id: session })
  yield e('session.state', { state: 'running' }, { session_id: session })
}

/** A model's words as they are written: so many pieces an answer. */
const PIECES = 20
const WORDS = 'The total is rounded **twice**: once a line and once at the end. I round once, in cents:\n\n```ts\nconst cents = lines.reduce((s, l) => s + l.price * l.qty, 0)\n```\n\n1. run the test,\n2. mend `cart/total.ts`,\n3. run it again.'

/** The events of one session, `stored` of them with an id; model: a model writes an answer before each step. */
export function* feed({ stored = 20_000, model = false, seed = 7, project = PROJECT, session = SESSION, id = 0, at = 1_700_000_000_000 } = {}) {
  const first = id
  const r = dice(seed)
  const pick = (xs) => xs[Math.floor(r() * xs.length)]
  const e = (type, data, more = {}) => ({ id: ++id, stream: 'x', seq: id, at: at + id, type, origin: 'host', project_id: project, session_id: session, ...more, data })
  let n = 0
  let turn = 0
  for (;;) {
    const some = function* () {
      if (n % 40 === 0) {
        if (turn) yield e('turn.ended', { turn_id: `t${turn}`, result: pick(['ok', 'unchecked', 'failed']), reason: r() < 0.3 ? 'line 3: expected exit 0, got exit 1' : undefined })
        yield e('turn.started', { turn_id: `t${++turn}`, prompt: 'The checkout test fails. Find out why and fix it.', ...(model ? { agent: 'model' } : {}) })
      }
      n++
      if (model) {
        const of = { turn_id: `t${turn}`, answer_id: `an${n}` }
        const size = Math.ceil(WORDS.length / PIECES)
        for (let at = 0; at < WORDS.length; at += size) yield { ...e('message.delta', { ...of, attempt: 1, kind: 'text', offset: at, text: WORDS.slice(at, at + size) }), id: (id--, 0) }
        yield e('model.answered', { ...of, number: n, model: 'big', parts: [{ kind: 'text', text: WORDS }, { kind: 'call', key: `k${n}`, tool: 'exec', args: '{}' }], stop: 'calls', usage: { input: 1000, output: 90 }, priced: true, cost_nanos: 1000, context_used: 1000 + n, context_size: 100_000, attempts: 1, first_ms: 5, took_ms: 50 })
      }
      if (n % 9 === 0 && !model) yield e('message', { role: 'agent', text: 'The total is rounded twice: once a line and once at the end. I will round once, in cents, and add a test that shows it.' }, { origin: 'agent' })
      const [tool, title, args] = pick(CALLS)
      const of = { step_id: `st${n}` }
      yield e('step.requested', { number: n, ...(model ? { key: `k${n}` } : {}), tool, title, args, reach: 'machine', digest: 'd', turn_id: `t${turn}` }, of)
      yield e('step.decided', { decision: 'allow', rule: 'auto: inside the machine' }, of)
      if (n % 97 === 0) {
        yield e('approval.requested', { approval_id: `a${n}`, kind: 'step', title: `${title}?`, digest: 'd', detail: [{ name: 'command', value: title, origin: 'agent' }], choices: [{ id: 'once', label: 'Allow once' }, { id: 'deny', label: 'Deny' }] }, of)
        yield e('approval.answered', { approval_id: `a${n}`, choice: 'once', by: 'person' }, of)
      }
      yield e('step.started', {}, of)
      for (let k = Math.floor(r() * 4); k > 0; k--) yield { ...e('step.output', { text: `  ✓ rounds ${Math.floor(r() * 1000)} lines once\n`, offset: 0 }, of), id: (id--, 0) }
      if (r() < 0.08) yield e('egress.opened', { conn_id: `c${n}`, host: 'registry.example.test', port: 443, addr: '192.0.2.1', rule: 'project' }, of)
      const bad = r() < 0.12
      const out = `> shop@1.0.0 test\n> vitest run\n\n${'  ✓ cart/total.test.ts (12 tests) 41 ms\n'.repeat(3 + Math.floor(r() * 20))}`
      yield e('step.ended', { outcome: bad ? 'failed' : 'ok', exit_code: bad ? 1 : 0, duration_ms: Math.floor(r() * 4000), stdout: { total: out.length, head: out } }, of)
      if (tool === 'edit' || tool === 'write') yield e('step.sealed', { commit: 'c', tree: 't', changes: [{ path: pick(FILES), op: 'modify', added: Math.floor(r() * 30), deleted: Math.floor(r() * 9) }] }, of)
      else yield e('step.sealed', { commit: 'c', tree: 't', same: true, changes: [] }, of)
    }
    for (const x of some()) {
      yield x
      if (x.id > 0 && id - first >= stored) return
    }
  }
}
