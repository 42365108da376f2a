// The main job by hand in the real window: a project is made, a playbook runs and is
// watched, the page in its browser is seen as it moves, a question is answered, changes
// are reviewed and one is refused, the rest is pushed. The remote's tree and the log
// are the judges. What is pressed and typed goes the way of a person's hand.
//
//   node walk.mjs PROGRAM SHIM DIR      GLASSHOUSE_SHOTS=folder keeps pictures
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { LONG, sleep, Tally, Window } from './driver.mjs'

const [program, shim, dir] = process.argv.slice(2)
const t = new Tally()
chmodSync(dir, 0o711) // a root core's service user passes through
const env = { ...process.env, GLASSHOUSE_DATA: join(dir, 'd'), GLASSHOUSE_CONFIG: join(dir, 'c') }
mkdirSync(env.GLASSHOUSE_CONFIG, { recursive: true })
writeFileSync(join(env.GLASSHOUSE_CONFIG, 'config.toml'), 'machine = "local"\n')
writeFileSync(join(env.GLASSHOUSE_CONFIG, 'window.json'), JSON.stringify({ width: 1280, height: 800, told: true }))
const [src, remote] = [join(dir, 'greeter'), join(dir, 'remote.git')]
const git = (at, ...a) => execFileSync('git', ['-C', at, ...a], { encoding: 'utf8' })
const there = (...a) => git(remote, ...a)
const cli = (...a) => execFileSync(program, a, { env, encoding: 'utf8', timeout: 600_000 })
mkdirSync(src)
const filler = Array.from({ length: 12 }, (_, i) => `# line ${i + 1}`).join('\n')
writeFileSync(join(src, 'greet.sh'), `#!/bin/sh\necho helo\n${filler}\nexit 0\n`)
writeFileSync(join(src, 'page.html'), `<!doctype html><title>Clock</title><h1>Clock</h1><p id=n>0</p><script>let n=0;setInterval(()=>{document.getElementById('n').textContent=++n;document.body.style.background='hsl('+n*20%360+' 80% 80%)'},100)</script>\n`)
execFileSync('git', ['init', '-q', '-b', 'main', src])
git(src, 'add', '.')
git(src, '-c', 'user.name=T', '-c', 'user.email=t@example.test', 'commit', '-q', '-m', 'A greeting')
execFileSync('git', ['init', '-q', '--bare', '-b', 'main', remote])
git(src, 'push', '-q', remote, 'main')

const playbook = `name: mend the greeting
steps:
- {tool: exec, args: {argv: [sh, greet.sh]}, expect: {exit: 0, has: helo}}
- {tool: edit, args: {path: greet.sh, old: helo, new: hello}}
- {tool: edit, args: {path: greet.sh, old: "exit 0", new: "exit 0 # the end"}}
- {tool: exec, args: {lang: bash, code: "setsid python3 -m http.server 8000 >/tmp/s.log 2>&1 & for i in $(seq 1000); do curl -fsS -o /dev/null http://127.0.0.1:8000/page.html && exit 0; sleep 0.1; done; exit 1"}, expect: {exit: 0}}
- {tool: browser_open, args: {url: "http://127.0.0.1:8000/page.html"}, expect: {has: Clock}}
- {tool: ask_user, args: {question: "May the notes be mended as well?", options: ["Yes, do", "Leave them"]}, expect: {has: "Yes, do"}}
- {tool: write, args: {path: notes.txt, content: "mended"}}
- {tool: exec, args: {argv: [sh, greet.sh]}, expect: {exit: 0, has: hello}}
`
const shot = (name) => process.env.GLASSHOUSE_SHOTS && execFileSync('import', ['-window', 'root', join(process.env.GLASSHOUSE_SHOTS, `${name}.png`)], { timeout: LONG })
let w
try {
  w = await Window.open({ program, shim, dir, env })
  await w.says('connected')
  t.ok('the window opens and connects to the core it started', true)

  await w.click('New project')
  await w.fill('Folder or repository', src)
  await w.run(() => document.querySelector('dialog input[type=radio][value=local]')?.closest('label').scrollIntoView())
  await w.click(await w.until('the kind local', () => document.querySelector('dialog input[type=radio][value=local]')))
  await w.click('Make project')
  await w.until('the project', () => !document.querySelector('dialog[open]') && document.querySelector('footer').innerText.includes('ready'))
  t.ok('a project is made of the folder that was typed, and its machine is ready', JSON.parse(cli('--json', 'project', 'list')).some((p) => p.source === src))
  shot('walk-1-project')

  await w.click('Run a playbook')
  // Pasted as a person pastes: a list this long is not typed. The keys are pressed below.
  await w.click(await w.find('field', 'Playbook'))
  await w.run((text) => document.execCommand('insertText', false, text), playbook)
  await w.fill('Checks', 'sh greet.sh | grep -q hello')
  await w.click(await w.find('button', '/^Start( |$)/'))
  const asks = () => document.querySelector('section[data-question]')
  const question = await w.until('the question', asks)
  t.ok('the playbook runs and its question waits', (await w.text('section[data-question]')).includes('May the notes be mended'))
  t.ok('the changes it made so far are listed', await w.says('greet.sh', '[role=tabpanel]'))
  shot('walk-2-question')

  // The page in the machine's browser changes ten times a second; so does what is seen of it.
  await w.click(await w.find('tab', 'Browser'))
  const look = () => {
    const c = document.querySelector('[data-scope=browser] canvas')
    if (!c || !c.width || getComputedStyle(c).visibility === 'hidden') return ''
    const b = c.getContext('2d').getImageData(c.width >> 1, c.height - 8, 1, 1).data
    return [...b].join()
  }
  const seen = new Set()
  await w.until('a live frame', look)
  for (const end = Date.now() + LONG; Date.now() < end && seen.size < 4;) {
    seen.add(await w.run(look))
    await sleep(50)
  }
  t.ok('the page in its browser is seen as it moves', seen.size >= 4, [...seen])
  shot('walk-3-browser')
  await w.click(await w.find('tab', 'Changes'))

  await w.click(await w.find('button', 'Yes, do'))
  await w.says('checks passed')
  t.ok('the answer is given, the work ends and its checks pass', true)
  t.ok('the file of the later step is in the changes', await w.says('notes.txt', '[role=tabpanel]'))
  void question

  await w.run(() => document.activeElement?.blur())
  await w.type('v')
  await w.fill('Remote', remote)
  await w.fill('Branch there', 'mended')
  await w.click(await w.find('button', '/^(Open|Open review|Open a review)/'))
  await w.until('the changes', () => document.querySelector('[data-unit]'))
  await w.click('Accept all')
  await w.says('0 undecided')
  await w.click(await w.until('the file', () => [...document.querySelectorAll('[role=treeitem], aside button')].find((e) => e.innerText.includes('greet.sh'))))
  // The change of the last line is the last one of its file.
  const reject = () => [...([...document.querySelectorAll('[data-unit]')].filter((e) => e.querySelector('button')).at(-1)?.querySelectorAll('button') ?? [])].find((b) => b.innerText.trim().startsWith('Reject'))
  await w.until('both changes of the file', () => document.querySelectorAll('section[data-unit]').length > 1)
  await w.click(await w.until('the last change', reject))
  await w.says('1 rejected')
  await w.fill('Message', 'Mend the greeting')
  shot('walk-4-review')
  await w.click('See what would be pushed')
  const push = await w.find('button', '/^Push [0-9a-f]{8}/')
  const commit = /[0-9a-f]{8}/.exec(await w.run((e) => e.innerText, push))[0]
  t.ok('the plan is shown before anything is sent', there('branch', '--list', 'mended') === '')
  await w.click(push)
  await w.says(`Pushed ${commit}`)
  shot('walk-5-pushed')

  const text = there('show', 'mended:greet.sh')
  t.ok('the accepted change is at the remote', text.includes('echo hello') && there('show', 'mended:notes.txt').includes('mended'), text)
  t.ok('the rejected one is not', !text.includes('# the end'), text)
  t.ok('what was planned is what was pushed, under the message that was typed', there('rev-parse', 'mended').startsWith(commit) && there('log', '-1', '--format=%s', 'mended').trim() === 'Mend the greeting')
  t.ok('the branch main is as it was', there('rev-parse', 'main') === git(src, 'rev-parse', 'main'))
  t.ok('the folder it came from is as it was', git(src, 'status', '--porcelain') === '')

  const session = JSON.parse(cli('--json', 'session', 'list')).find((s) => s.agent === 'playbook')
  const events = JSON.parse(`[${cli('--json', 'log', '--session', session.id).trim().replace(/\}\s*\{/g, '},{')}]`).flat()
  const of = (type) => events.filter((e) => e.type === type)
  const asked = of('step.requested')
  const at = (type, step) => events.findIndex((e) => e.type === type && e.step_id === step)
  const wrong = asked.filter((e, i) => e.data.number !== i + 1 || !(at('step.requested', e.step_id) < at('step.ended', e.step_id)) || e.data.tool === 'edit' && at('step.sealed', e.step_id) < at('step.ended', e.step_id))
  t.ok(`the log holds the ${asked.length} steps in order, each with its end, changes with their seal`, asked.length >= 8 && wrong.length === 0, JSON.stringify(wrong))
  t.ok('and the answer as a person’s', of('approval.answered').length === 1 && of('approval.answered')[0].data.by === 'person', JSON.stringify(of('approval.answered')))
  cli('quit', '--now')
  t.ok('the window reported no fault', !/fault in|panic|SIG(SEGV|ABRT|BUS|FPE|ILL|TRAP)/.test(w.said()), w.said())
} catch (err) {
  shot('walk-failed')
  t.ok('the walk got through', false, `${err.stack}\n\n${await w?.run(() => document.body.innerText.slice(0, 2500)).catch(() => '')}\n${w?.said()}\n${(() => { try { return readFileSync(join(env.GLASSHOUSE_DATA, 'logs/core.log'), 'utf8').slice(-1500) } catch { return '' } })()}`)
} finally {
  await w?.end()
  try { cli('quit', '--now') } catch { /* It ended above. */ }
  t.end()
}
