import { afterEach, expect, test, vi } from 'vitest'
import { call, takeKey } from './transport'

afterEach(() => {
  vi.unstubAllGlobals()
  localStorage.clear()
  history.replaceState(null, '', '/')
})

test('the key leaves the address and goes with every call', async () => {
  const sent: (Record<string, string> | undefined)[] = []
  vi.stubGlobal('fetch', (_: string, init: RequestInit) => {
    sent.push(init.headers as Record<string, string> | undefined)
    return Promise.resolve(new Response('{}'))
  })
  await call('GET', '/v1/info')
  expect(sent[0]?.['X-Glasshouse-Key']).toBeUndefined()
  history.replaceState(null, '', '/?a=1#key=00ff')
  takeKey()
  expect(location.href).toMatch(/\/\?a=1$/)
  await call('GET', '/v1/info')
  await call('POST', '/v1/x', {})
  expect(sent.slice(1).map((h) => h?.['X-Glasshouse-Key'])).toEqual(['00ff', '00ff'])
  expect(sent[2]?.['Content-Type']).toBe('application/json')
  // Kept for the next load of the page at this origin.
  expect(Object.values({ ...localStorage })).toContain('00ff')
})

test('what is no key stays where it is', () => {
  history.replaceState(null, '', '/#key=<script>')
  takeKey()
  expect(location.hash).not.toBe('')
  expect(localStorage.length).toBe(0)
})
