import { test as base, expect, type Locator, type Page } from '@playwright/test'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { World } from './world.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** A project of the worker's core that tests share; each makes sessions of its own. */
export interface Shared { id: string; name: string }
/** One page on the core, already connected. */
export interface Site {
  page: Page
  /** Opens the page again, as a reload by the person would. */
  open: (path?: string) => Promise<void>
  /** Opens a session by what the list at the left shows. */
  session: (title: string) => Promise<void>
  /** Fails when axe finds something serious on the screen. */
  axe: (where?: string) => Promise<void>
  /** Errors that the test provokes on purpose; the rest fails it. */
  expectFaults: (of: RegExp) => void
}

// A script that guest text smuggled in would call this.
const CANARY = 'glasshouseCanary'
export const hostile = (n: number): string => `<img src=x onerror=${CANARY}(${n})><script>${CANARY}(${n})</script>\u001b[31mred\u001b]0;t\u0007\u202egnp.exe\u202c\u200b`

export const test = base.extend<{ site: Site; own: World }, { world: World; shared: Shared }>({
  // eslint-style empty patterns are how the runner says "needs nothing".
  world: [async ({}, use) => {
    const w = new World()
    await w.serve()
    await use(w)
    await w.end()
  }, { scope: 'worker', timeout: 300_000 }],

  shared: [async ({ world }, use) => {
    const p = await world.api<{ id: string; name: string }>('POST', '/v1/projects', { source: world.src, machine_kind: 'local' })
    await use(p)
  }, { scope: 'worker', timeout: 300_000 }],

  // A core that the test may stop and break; the worker's goes on.
  own: async ({}, use) => {
    const w = new World()
    await w.serve()
    await use(w)
    await w.end()
  },

  site: async ({ page, world }, use) => {
    const s = await visit(page, world)
    await use(s.site)
    s.check()
  },
})

/** The page follows the core and has read all that happened. */
export const connected = (page: Page) => expect(page.getByRole('contentinfo').getByText('connected', { exact: true })).toBeVisible()

/** Opens a page on a core and watches it: faults, dialogs and scripts of a guest fail the test. */
export async function visit(page: Page, world: World): Promise<{ site: Site; check: () => void }> {
  const faults: string[] = []
  let wanted: RegExp | undefined
  const fault = (text: string) => { if (!wanted?.test(text)) faults.push(text) }
  await page.exposeFunction(CANARY, (n: number) => faults.push(`a script of the guest ran: ${n}`))
  page.on('pageerror', (e) => fault(String(e)))
  // A refused call and a lost link are said by the browser as well; the page's own words about them are what tests look at.
  page.on('console', (m) => m.type() === 'error' && !/^Failed to load resource/.test(m.text()) && fault(m.text()))
  page.on('dialog', (d) => { fault(`a dialog: ${d.message()}`); void d.dismiss() })
  const site: Site = {
    page,
    open: async (path) => {
      await page.goto(path ?? world.url)
      await connected(page)
    },
    session: async (title) => {
      await page.getByRole('navigation').getByText(title).first().click()
    },
    axe: async (where) => {
      // Half of a change of colours is no colour of ours.
      await page.emulateMedia({ reducedMotion: 'reduce' })
      await page.evaluate(axe)
      const found = await page.evaluate(async (at) => {
        const r = await (window as unknown as { axe: typeof import('axe-core') }).axe.run(at ?? document, { resultTypes: ['violations'] })
        return r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(' | ')}`)
      }, where)
      expect(found).toEqual([])
    },
    expectFaults: (of) => { wanted = of },
  }
  await site.open()
  return { site, check: () => expect(faults, 'the page had no fault').toEqual([]) }
}

export { expect, World }
export type { Locator, Page }
