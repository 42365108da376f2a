import { expect, type Locator, type Page } from './fixtures'

/** What has the focus: how it is called, and whether a person sees that it has it. */
export interface Spot { name: string; seen: boolean; body: boolean; key: string }

/** Looks at what has the focus. */
export const spot = (page: Page): Promise<Spot> => page.evaluate(() => {
  const e = document.activeElement as HTMLElement | null
  if (!e || e === document.body || e === document.documentElement) return { name: 'body', seen: true, body: true, key: 'body' }
  const name = `${e.getAttribute('role') ?? e.tagName.toLowerCase()} ${(e.getAttribute('aria-label') ?? ((e as HTMLInputElement).labels?.[0]?.textContent || e.textContent) ?? '').trim().replace(/\s+/g, ' ').slice(0, 60)}`
  const r = e.getBoundingClientRect()
  const x = Math.min(innerWidth - 1, Math.max(0, r.left + Math.min(r.width / 2, 40)))
  const y = Math.min(innerHeight - 1, Math.max(0, r.top + Math.min(r.height / 2, 10)))
  const top = document.elementFromPoint(x, y)
  // Small inputs are drawn by their labels.
  const hit = !!top && (e.contains(top) || top.contains(e) || (e.closest('label')?.contains(top) ?? false))
  const inView = r.bottom > 0 && r.right > 0 && r.top < innerHeight && r.left < innerWidth
  const outlined = (el: Element) => {
    const s = getComputedStyle(el)
    return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0
  }
  // Without an outline of its own: one of what it stands in, its border in the accent, or the line drawn over it.
  const probe = document.createElement('i')
  probe.style.color = 'var(--accent)'
  document.body.append(probe)
  const accent = getComputedStyle(probe).color
  probe.remove()
  let marked = outlined(e) || parseFloat(getComputedStyle(e, '::before').opacity) === 1 && getComputedStyle(e, '::before').content !== 'none'
  for (let p: Element | null = e, n = 0; p && n < 4 && !marked; p = p.parentElement, n++) marked = outlined(p) || getComputedStyle(p).borderTopColor === accent
  // The field of the commands has its panel to itself.
  if (e.getAttribute('role') === 'combobox') marked = true
  // By itself, not by its place: what comes and goes before it in the page moves that.
  const known = ((window as unknown as { spots?: WeakMap<Element, string> }).spots ??= new WeakMap<Element, string>())
  const key = known.get(e) ?? `${performance.now()} ${Math.random()}`
  known.set(e, key)
  return { name, seen: inView && hit && marked, body: false, key }
})

/** Presses Tab until something has the focus, as a person would; every stop on the way must be seen. */
export async function tabTo(page: Page, to: Locator, key: 'Tab' | 'Shift+Tab' = 'Tab', most = 80) {
  const way: string[] = []
  for (let i = 0; i < most; i++) {
    if (await to.evaluate((e) => e === document.activeElement)) return
    await page.keyboard.press(key)
    const s = await spot(page)
    way.push(s.name)
    expect(s.seen, `the focus is seen at: ${way.join(' → ')}`).toBe(true)
  }
  expect(way.join(' → '), `Tab reaches ${String(to)}`).toBe('')
}

/** Goes round with Tab until it comes to where it began; gives the names of the stops. */
export async function round(page: Page, most = 120): Promise<string[]> {
  const names: string[] = []
  const unseen: string[] = []
  const keys = new Set<string>()
  let bodies = 0
  for (let i = 0; i < most; i++) {
    await page.keyboard.press('Tab')
    const s = await spot(page)
    if (s.body) {
      // The end of the page, once: the browser's own parts are next.
      expect(++bodies, `the focus is not lost: ${names.join(' → ')}`).toBeLessThan(3)
      continue
    }
    if (keys.has(s.key)) {
      expect(unseen, 'every stop is seen').toEqual([])
      return names
    }
    keys.add(s.key)
    names.push(s.name)
    if (!s.seen) unseen.push(s.name)
  }
  throw new Error(`no way round: ${names.join(' → ')}`)
}
