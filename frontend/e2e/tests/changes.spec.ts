import { expect, test } from '../fixtures'
import { begun, broken, held, pane, themes } from '../look'

test('what a step touches shows while it runs, and what it changed when it is sealed', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'live rows', 'manual')
  const other = await world.api<{ id: string }>('POST', '/v1/sessions', { project_id: shared.id, title: 'the other hand', agent: 'manual' })
  const changes = await pane(page, 'Changes')
  await expect(changes).toContainText('No step has changed a file yet')
  await themes(site, '#pane-changes')
  // A folder of its own, for the workspace outlives the session.
  const at = `live-${Date.now()}`
  const running = world.exec(s, 'sh', '-c', `mkdir ${at}; cd ${at}; echo one > live-a.txt; echo two > live-b.txt; until [ -e go ]; do sleep 0.05; done; echo three >> live-a.txt`)
  const row = changes.locator('.live', { hasText: 'live-a.txt' })
  await expect(row).toContainText('live')
  await expect(row.getByRole('button', { name: 'step 1' })).toBeVisible()
  await expect(changes).toContainText('not in a checkpoint yet')
  await themes(site, '#pane-changes')
  await world.exec(other.id, 'touch', `${at}/go`)
  await running
  await expect(changes.locator('.live')).toHaveCount(0)
  const sealed = changes.getByRole('button', { name: /live-a\.txt/ })
  await expect(sealed).toBeVisible()
  await sealed.click()
  const one = changes.getByRole('group', { name: 'What step 1 changed' })
  await expect(one).toContainText('three')
  await expect(page.getByRole('tab', { name: /^Changes/ })).toContainText(/\d/)
})

test('changes by step and by file, by keys, with every kind of change in its place', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'kinds of changes', 'manual')
  await world.exec(s, 'sh', '-c', 'echo x > kinds-while; rm kinds-while; mkdir -p kinds; printf "a\\nb\\nc\\n" > kinds/a.txt; printf "a long enough text\\nto be found again\\n" > kinds/old.txt; printf "\\0\\1\\2" > kinds/b.bin; : > kinds/empty; echo x > kinds/run.sh')
  await world.exec(s, 'sh', '-c', 'printf "a\\nB\\nc\\n" > kinds/a.txt; mv kinds/old.txt kinds/new.txt; chmod +x kinds/run.sh; rm kinds/empty')
  const changes = await pane(page, 'Changes')
  const group = changes.getByRole('group', { name: 'Group changes' })
  await group.getByRole('button', { name: 'by step' }).click()
  await expect(changes.locator('[data-row]')).toHaveCount(9)

  // Down to a row and into it, without a pointer.
  await changes.locator('[data-row="0"]').focus()
  await page.keyboard.press('j')
  await expect(changes.locator('[data-row="1"]')).toBeFocused()
  await page.keyboard.press('k')
  await expect(changes.locator('[data-row="0"]')).toBeFocused()
  const rowOf = (name: RegExp, n = 0) => changes.locator('[data-row]').filter({ hasText: name }).nth(n)
  const shown = changes.getByRole('group', { name: /^What step/ })
  await rowOf(/kinds\/a\.txt/).focus()
  await page.keyboard.press('Enter')
  await expect(shown).toContainText('−b')
  await expect(shown).toContainText('+B')
  await themes(site, '#pane-changes')
  await rowOf(/kinds\/new\.txt/).click()
  await expect(shown).toContainText('renamed from kinds/old.txt')
  await rowOf(/kinds\/run\.sh/).click()
  await expect(shown).toContainText('not executable → executable')
  await rowOf(/kinds\/empty/).click()
  await expect(shown).toContainText('An empty file was deleted.')
  await rowOf(/kinds\/b\.bin/).click()
  await expect(shown).toContainText('Not text: nothing → 3 B')
  await rowOf(/kinds\/b\.bin/).click()
  await expect(shown).toHaveCount(0)

  // By file: one row for a file that two steps changed, and each of them at hand.
  await rowOf(/kinds\/a\.txt/).focus()
  await page.keyboard.press('g')
  await expect(group.getByRole('button', { name: 'by file' })).toHaveAttribute('aria-pressed', 'true')
  const a = rowOf(/kinds\/a\.txt/)
  await expect(changes.locator('.r', { hasText: 'kinds/a.txt' })).toContainText('2 steps')
  await a.click()
  const steps = changes.getByRole('group', { name: 'Steps that changed it' })
  await expect(steps.getByRole('button')).toHaveCount(2)
  await steps.getByRole('button', { name: 'step 1' }).click()
  await expect(changes.getByRole('group', { name: 'What step 1 changed' })).toContainText('+a')
  await themes(site, '#pane-changes')
  // The way to the step.
  await changes.locator('.r', { hasText: 'kinds/a.txt' }).getByRole('button', { name: 'step 2' }).click()
  await expect(page.locator('[data-step="2"]')).toBeFocused()
  // The choice is kept over a reload.
  await site.open()
  await expect(changes.getByRole('button', { name: 'by file' })).toHaveAttribute('aria-pressed', 'true')
  await changes.getByRole('button', { name: 'by step' }).click()
})

test('a diff that is slow says so, one that fails says why and is tried again', async ({ site, world, shared }) => {
  const { page } = site
  const s = await begun(site, world, shared, 'slow diffs', 'manual')
  await world.exec(s, 'sh', '-c', 'echo slow > slow-diff.txt')
  const changes = await pane(page, 'Changes')
  const go = await held(page, /\/diff\?/)
  await changes.getByRole('button', { name: /slow-diff\.txt/ }).click()
  await expect(changes).toContainText('Reading what step 1 changed')
  await themes(site, '#pane-changes')
  await go()
  await expect(changes.getByRole('group', { name: 'What step 1 changed' })).toContainText('+slow')
  // What was read is not read again; another page has read nothing.
  await site.open()
  await broken(page, /\/diff\?/)
  await changes.getByRole('button', { name: /slow-diff\.txt/ }).click()
  await expect(changes.getByRole('alert')).toContainText('the disk is full')
  await expect(changes.getByRole('alert')).toContainText('make room')
  await themes(site, '#pane-changes')
  await page.unroute(/\/diff\?/)
  await changes.getByRole('button', { name: 'Try again' }).click()
  await expect(changes.getByRole('group', { name: 'What step 1 changed' })).toContainText('+slow')
})

test('without a session the pane says what will appear in it', async ({ site, shared }) => {
  const { page } = site
  await page.getByRole('navigation').getByRole('treeitem', { level: 1 }).filter({ hasText: shared.name }).first().click()
  await expect(await pane(page, 'Changes')).toContainText('What a session changes appears here.')
  await expect(await pane(page, 'Browser')).toContainText('Choose a session')
  await themes(site)
})
