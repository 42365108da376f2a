import { fakeModel, gate, type Fake } from '../agent'
import { connected, expect, hostile, test as base, visit, World, type Page, type Site } from '../fixtures'
import { harmless, themes } from '../look'

// How a model's work looks: while it writes, after, and after a reload. Its words are as
// hostile as a guest's, and its figures are the core's.

interface Stage { world: World; site: Site; page: Page; session: string; turn: (prompt: string) => Promise<void>; check: () => void }
const test = base.extend<{ stage: (script: string) => Promise<Stage> }>({
  stage: async ({ page }, use) => {
    const ends: (() => Promise<void> | void)[] = []
    await use(async (script) => {
      const world = new World()
      ends.push(() => world.end())
      await world.serve()
      const fake: Fake = await fakeModel(world, script, '')
      ends.push(() => fake.end())
      const p = await world.api<{ id: string }>('POST', '/v1/projects', { source: world.src, machine_kind: 'local' })
      await world.api('PUT', '/v1/models/big', { format: 'anthropic', model: 'big-1', base_url: fake.url, context: 40_000, price: { input: 3, output: 15, cache_read: 0.3 } })
      const s = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'words', agent: 'model', model: 'big' })
      const { site, check } = await visit(page, world)
      await site.session('words')
      const turn = async (prompt: string) => { await world.api('POST', `/v1/sessions/${s.id}/turns`, { agent: 'model', prompt }) }
      return { world, site, page, session: s.id, turn, check }
    })
    for (const end of ends.reverse()) await end()
  },
})

const writing = (page: Page) => page.getByRole('article', { name: 'What the model writes' })
const ended = (page: Page, n = 1) => expect(page.getByRole('article', { name: 'The end of the turn' })).toHaveCount(n)
const words = (n: number) => `# ${hostile(n)}\n\n[click](javascript:glasshouseCanary(${n})) ![i](https://evil.example/x.png) **${hostile(n)}**\n\n- \`${hostile(n)}\`\n\n| a | b |\n|---|---|\n| ${hostile(n)} | <a href="https://evil.example">x</a> |\n\n\`\`\`js\nconst a = ${JSON.stringify(hostile(n))}\n\`\`\`\n`

test('hostile words of a model are text while they are written, when they are whole and when all is opened', async ({ stage }) => {
  // It stands still in the middle of its thought, and of what it says, until each was looked at.
  const [thought, said] = [gate(), gate()]
  const deltas = (n: number) => Math.ceil(Buffer.byteLength(words(n)) / 24)
  const { world, site, page, session, turn, check } = await stage(`
delay_ms: 30
chunk: 24
answers:
  - think: ${JSON.stringify(words(1))}
    say: ${JSON.stringify(words(2))}
    hold: [{after_events: ${Math.floor(deltas(1) / 2)}, file: ${thought.file}}, {after_events: ${deltas(1) + Math.floor(deltas(2) / 2)}, file: ${said.file}}]
    calls: [{tool: exec, args: {argv: [echo, hi]}}, {tool: exec, args: {argv: ${JSON.stringify(hostile(3))}}}, {tool: plan, args: {items: [{text: ${JSON.stringify(hostile(4))}, state: doing}, {text: Rest, state: open}]}}]
  - fail: {kind: busy}
  - say: ${JSON.stringify(words(5))}
`)
  await turn(`Look. ${words(6)}`)
  await expect(writing(page)).toContainText('thinking for')
  await harmless(page)
  thought.open()
  await expect(writing(page)).toContainText('onerror=glasshouseCanary(2)')
  await harmless(page)
  said.open()
  await ended(page)
  const feed = page.getByRole('feed')
  await expect(feed).toContainText('<img src=x onerror=glasshouseCanary(5)>')
  await expect(page.getByRole('region', { name: 'Plan' })).toContainText('0 of 2 done')
  await expect(feed.getByRole('button', { name: /did not fit/ })).toHaveCount(1)
  await expect(feed.getByRole('button', { name: /busy/ })).toHaveCount(1)
  await harmless(page)
  await page.getByRole('region', { name: 'Plan' }).getByRole('button').click()
  const shut = feed.getByRole('button', { expanded: false })
  await expect(async () => {
    if (await shut.count()) await shut.first().click({ timeout: 2000 })
    await harmless(page)
    expect(await shut.count()).toBe(0)
  }).toPass()
  await page.keyboard.press('Home')
  await expect(feed).toContainText('onerror=glasshouseCanary(1)')
  await harmless(page)
  expect(await feed.locator('a, img, form, iframe').count()).toBe(0)
  await themes(site)

  // The figures at the top are those that the core adds up.
  const { spent } = await world.api<{ spent: { usage: { input: number; cache_read?: number; cache_write?: number; output: number }; cost_nanos: number; answers: number } }>('GET', `/v1/sessions/${session}`)
  const u = spent.usage
  const told = await page.locator('header [title*="tokens in"]').getAttribute('title')
  expect(spent.answers).toBe(2)
  expect(told).toContain(`${(u.input + (u.cache_read ?? 0) + (u.cache_write ?? 0)).toLocaleString('en-US')} tokens in`)
  expect(told).toContain(`${u.output.toLocaleString('en-US')} tokens out`)
  expect(told).toContain(`$${(spent.cost_nanos / 1e9).toFixed(4)}`)
  await expect(feed.getByText(/^asked by answer 1: .* in.*, .* out, \$0\.0\d+, shared with 2 calls$/)).toBeVisible()
  check()
})

test('a reload in mid-answer shows what was written, what comes from then on, and then all of it', async ({ stage }) => {
  const lines = Array.from({ length: 90 }, (_, i) => `line ${i} of the answer`).join('\n')
  const [reloaded, seen] = [gate(), gate()]
  const { site, page, turn, check } = await stage(`
delay_ms: 60
chunk: 16
answers:
  - say: ${JSON.stringify(lines)}
    hold: [{after_events: 70, file: ${reloaded.file}}, {after_events: 100, file: ${seen.file}}]
`)
  await turn('Write much.')
  await expect(writing(page)).toContainText('line 12 ')
  // What is newest stays in view while the box below takes more room, and while text comes.
  const below = () => page.getByRole('feed').evaluate((l) => l.scrollHeight - l.clientHeight - l.scrollTop)
  for (const text of ['a\nb\nc\nd\ne', '']) {
    await page.getByRole('textbox', { name: 'Message' }).fill(text)
    await expect.poll(below).toBeLessThan(3)
  }
  await site.open()
  await connected(page)
  await site.session('words')
  // It is told from its beginning, also while nothing new comes; then it goes on.
  await expect(writing(page)).toContainText('line 0 of the answer')
  await expect(writing(page)).not.toContainText('What came before is in the answer')
  reloaded.open()
  await expect(writing(page)).toContainText('line 60 of')
  seen.open()
  await ended(page)
  const answer = page.getByRole('article', { name: 'Answer 1 of the model' })
  // It was seen being written, so it stays whole; after another reload it is folded.
  await expect(answer).toContainText('line 0 of')
  await expect(answer).toContainText('line 89 of')
  await site.open()
  await connected(page)
  await site.session('words')
  await expect(answer).not.toContainText('line 89 of')
  await answer.getByRole('button', { name: 'Show all 90 lines' }).click()
  await expect(answer).toContainText('line 89 of')
  check()
})
