import { expect, it } from 'vitest'
import { oneByOne } from './onebyone'

/** A question whose answers the test gives. */
function question() {
  const waits: (() => void)[] = []
  return { ask: () => new Promise<void>((done) => { waits.push(done) }), asked: () => waits.length, answer: async () => { waits.at(-1)?.(); await new Promise((done) => setTimeout(done)) } }
}

it('asks once more for all that called meanwhile, and anew after that', async () => {
  const q = question()
  const read = oneByOne(q.ask)
  let done = 0
  for (let i = 0; i < 5; i++) void read().then(() => done++)
  expect(q.asked()).toBe(1)
  await q.answer()
  expect([q.asked(), done]).toEqual([2, 0])
  await q.answer()
  expect([q.asked(), done]).toEqual([2, 5])
  void read()
  expect(q.asked()).toBe(3)
})

it('does not ask again when nobody looks any more, but does when called for later', async () => {
  const q = question()
  let looks = true
  const read = oneByOne(q.ask, () => looks)
  void read()
  void read()
  looks = false
  await q.answer()
  expect(q.asked()).toBe(1)
  void read()
  expect(q.asked()).toBe(2)
})
