import { expect, test } from '../fixtures'

test('the door is shut to whoever has no token, and calls need the page’s key', async ({ site, world, request }) => {
  const bare = await request.get(new URL('/v1/info', world.url).href)
  expect(bare.status()).toBe(403)
  // The page holds the key; the same browser without it does not get through.
  const status = await site.page.evaluate(async () => (await fetch('/v1/info')).status)
  expect(status).toBe(403)
  expect(site.page.url()).not.toContain('token')
  expect(site.page.url()).not.toContain('key')
})

test('the page sets a policy under which no foreign script runs', async ({ site, world }) => {
  const res = await site.page.request.get(new URL('/', world.url).href)
  expect(res.headers()['content-security-policy']).toContain("default-src 'none'")
  expect(res.headers()['content-security-policy']).not.toContain('unsafe-eval')
  site.expectFaults(/Content Security Policy|violates/)
  const ran = await site.page.evaluate(async () => {
    const s = document.createElement('script')
    s.textContent = 'window.smuggled = true'
    document.body.append(s)
    await new Promise((r) => setTimeout(r, 50))
    return 'smuggled' in window
  })
  expect(ran).toBe(false)
})
