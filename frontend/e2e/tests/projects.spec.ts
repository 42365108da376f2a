import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, visit, type Page } from '../fixtures'

async function form(page: Page) {
  await page.keyboard.press('n')
  const dialog = page.getByRole('dialog', { name: 'New project' })
  await expect(dialog).toBeVisible()
  return {
    dialog,
    source: dialog.getByLabel('Folder or repository'),
    name: dialog.getByLabel('Name'),
    branch: dialog.getByLabel('Branch'),
    make: dialog.getByRole('button', { name: 'Make project' }),
  }
}
const row = (page: Page, name: string) => page.getByRole('treeitem', { name: new RegExp(`^${name}`) })

test('a project of a folder: what it begins with is said, and an uncommitted file comes along when it is picked', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  writeFileSync(join(own.src, 'picked.txt'), 'picked\n')
  writeFileSync(join(own.src, 'left.txt'), 'left\n')
  const f = await form(page)
  await f.source.fill(own.src)
  await expect(f.dialog).toContainText('A repository on main, 1 file')
  await expect(f.branch).toBeDisabled()
  const picks = f.dialog.getByRole('group', { name: /2 uncommitted files: all stay outside/ })
  await picks.getByRole('checkbox', { name: /picked\.txt/ }).check()
  await expect(f.dialog).toContainText('2 uncommitted files: 1 comes along')
  await site.axe()
  await f.name.fill('with a file')
  await f.make.click()
  await expect(f.dialog).toHaveCount(0)
  await expect(page.getByRole('heading', { name: 'with a file' })).toBeVisible()
  await expect(page.getByRole('region', { name: 'Project' })).toContainText('1 uncommitted file')
  await page.keyboard.press('4')
  const files = page.getByRole('tabpanel', { name: /Files/ })
  await expect(files.getByRole('treeitem', { name: /picked\.txt/ })).toBeVisible()
  await expect(files.getByRole('treeitem', { name: /left\.txt/ })).toHaveCount(0)
  expect(own.git('status', '--porcelain').trim().split('\n').sort()).toEqual(['?? left.txt', '?? picked.txt'])
  // The form begins anew.
  const again = await form(page)
  await expect(again.source).toHaveValue('')
  await expect(again.name).toHaveValue('')
  check()
})

test('a project of an address, on a branch that is asked for', async ({ own, page }) => {
  const { check } = await visit(page, own)
  own.git('checkout', '-q', '-b', 'side')
  writeFileSync(join(own.src, 'side.txt'), 'side\n')
  own.git('add', '.')
  own.git('-c', 'user.name=T', '-c', 'user.email=t@example.test', 'commit', '-q', '-m', 'A side')
  own.git('checkout', '-q', 'main')
  const f = await form(page)
  await f.source.fill(`file://${own.src}`)
  await expect(f.dialog).toContainText('fetched by this computer')
  await expect(f.branch).toBeEnabled()
  // A branch that is not there is said in words, and nothing typed is lost.
  await f.branch.fill('no-such-branch')
  await f.make.click()
  await expect(f.dialog.getByRole('alert')).toContainText('no-such-branch')
  await expect(f.source).toHaveValue(`file://${own.src}`)
  await expect(page.getByRole('treeitem')).toHaveCount(0)
  await f.branch.fill('side')
  await f.make.click()
  await expect(f.dialog).toHaveCount(0)
  await expect(page.getByRole('region', { name: 'Project' })).toContainText(/side\s[0-9a-f]{10}/)
  await page.keyboard.press('4')
  await expect(page.getByRole('tabpanel', { name: /Files/ }).getByRole('treeitem', { name: /side\.txt/ })).toBeVisible()
  check()
})

test('a making is cancelled: from the form, and from the list after the form was closed', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  // A server that takes the request and never answers.
  const silent = createServer(() => {})
  await new Promise<void>((done) => silent.listen(0, '127.0.0.1', done))
  try {
    const address = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/never.git`
    let f = await form(page)
    await f.source.fill(address)
    await f.name.fill('never there')
    await f.make.click()
    await expect(f.dialog.getByRole('progressbar')).toBeVisible()
    await expect(f.source).toBeDisabled()
    await expect(row(page, 'never there')).toBeVisible()
    await f.dialog.getByRole('button', { name: 'Cancel', exact: true }).click()
    await expect(f.dialog.getByRole('alert')).toContainText('You cancelled the making of the project.')
    await expect(f.source).toHaveValue(address)
    await expect(f.name).toHaveValue('never there')
    await expect(row(page, 'never there')).toHaveCount(0)

    await f.make.click()
    await expect(row(page, 'never there')).toBeVisible()
    await f.dialog.getByRole('button', { name: 'Close' }).last().click()
    // Its page says that nothing can be done in it yet.
    await row(page, 'never there').click()
    await expect(page.getByRole('button', { name: /^Run a playbook/ })).toBeDisabled()
    await site.axe()
    await page.getByRole('navigation').getByRole('button', { name: 'Cancel' }).click()
    await expect(page.getByText(/cancelled; nothing of it is left/).first()).toBeVisible()
    await expect(row(page, 'never there')).toHaveCount(0)
    f = await form(page)
    await expect(f.source).toHaveValue(address)
    expect(await own.api('GET', '/v1/projects')).toEqual([])
  } finally {
    silent.closeAllConnections()
    silent.close()
  }
  check()
})

test('a name that is taken, a path that leads nowhere, and a folder that cannot be one', async ({ site, world, shared }) => {
  const { page } = site
  const f = await form(page)
  await f.source.fill(world.src)
  await f.name.fill(shared.name)
  await f.make.click()
  await expect(f.dialog.getByRole('alert')).toContainText(shared.name)
  await expect(f.name).toHaveValue(shared.name)
  await site.axe()
  await f.source.fill('/no/such/folder')
  await expect(f.dialog).toContainText(/no such|does not exist|not there|no folder/i)
  await f.name.fill('another name')
  await f.make.click()
  await expect(f.dialog.getByRole('alert')).toContainText(/there is no folder .*choose a folder that exists/)
  await f.source.fill('https://exa mple/with space')
  await f.make.click()
  await expect(f.dialog.getByRole('alert')).toBeVisible()
  await expect(row(page, 'another name')).toHaveCount(0)
  await page.keyboard.press('Escape')
  await expect(f.dialog).toHaveCount(0)
})

test('the page of a project: its machine is stopped and started, its sessions are opened, and it is deleted after one more question', async ({ own, page }) => {
  const { site, check } = await visit(page, own)
  const p = await own.api<{ id: string }>('POST', '/v1/projects', { source: own.src, machine_kind: 'local', name: 'to go' })
  const s = await own.api<{ id: string }>('POST', '/v1/sessions', { project_id: p.id, title: 'some work', agent: 'playbook' })
  await own.exec(s.id, 'sh', '-c', 'echo kept > kept.txt')
  await row(page, 'to go').click()
  const one = page.getByRole('region', { name: 'Project' })
  const machine = one.getByRole('region', { name: 'Machine' })
  await expect(one).toContainText(own.src)
  await expect(one).toContainText('1 file at main')
  await expect(machine).toContainText('Machine ready')
  await expect(machine).toContainText('not a VM')
  await expect(machine).toContainText(/of [\d.]+ GB/)
  await site.axe()
  await machine.getByRole('button', { name: 'Stop machine' }).click()
  await expect(machine).toContainText('Machine off')
  await expect(machine).toContainText('It starts by itself when a session needs it.')
  await expect(row(page, 'to go')).toContainText('off')
  await expect(page.getByRole('contentinfo')).toContainText('off')
  await machine.getByRole('button', { name: 'Start machine' }).click()
  await expect(machine).toContainText('Machine ready')
  await one.getByRole('button', { name: /some work/ }).click()
  await expect(page.getByRole('heading', { name: 'some work' })).toBeVisible()
  await page.getByRole('tab', { name: /^Files/ }).click()
  await expect(page.getByRole('treeitem', { name: /kept\.txt/ })).toBeVisible()
  await page.getByRole('banner').getByRole('button', { name: 'to go' }).click()
  // A stop that is refused says why, beside the machine.
  await page.route('**/machine/stop', (r) => r.fulfill({ status: 409, contentType: 'application/json', body: JSON.stringify({ code: 'conflict', what: 'two steps still run', hint: 'cancel them first' }) }))
  await machine.getByRole('button', { name: 'Stop machine' }).click()
  await expect(machine.getByRole('alert')).toContainText('two steps still run')
  await expect(machine.getByRole('alert')).toContainText('cancel them first')
  await page.unroute('**/machine/stop')
  await one.getByRole('button', { name: 'Delete project…' }).click()
  await expect(one.getByRole('button', { name: 'Keep' })).toBeFocused()
  await expect(one).toContainText('The source and what was pushed stay.')
  await page.keyboard.press('Enter')
  await expect(one.getByRole('button', { name: 'Delete project…' })).toBeVisible()
  await one.getByRole('button', { name: 'Delete project…' }).click()
  await one.getByRole('button', { name: 'Delete', exact: true }).click()
  await expect(page.getByText('to go is in the trash; its source stays as it is.').first()).toBeVisible()
  await expect(page.getByRole('main', { name: 'Begin' })).toBeVisible()
  expect(own.git('status', '--porcelain')).toBe('')
  check()
})
