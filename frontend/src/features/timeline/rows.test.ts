import { expect, it } from 'vitest'
import type { Item } from '../../lib/state'
import { Rows } from './rows'

const turn = (id: string) => ({ kind: 'turn', turn: id, n: 1, by: '', text: '', at: 0, steps: 0, files: new Set() }) as Item
const step = (id: number): Item => ({ kind: 'step', step: `s${id}` })
const all = (r: Rows) => Array.from({ length: r.length }, (_, i) => r.item(i))

it('has a row for every item until a turn is folded, and again when it is opened', () => {
  const items = [step(0), turn('a'), step(1), step(2), turn('b'), step(3)]
  const r = new Rows().sync(items)
  expect(all(r)).toEqual([0, 1, 2, 3, 4, 5])
  r.fold(items, 'a', true)
  expect(all(r)).toEqual([0, 1, 4, 5])
  expect([0, 1, 2, 3, 4, 5].map((i) => r.row(i))).toEqual([0, 1, 1, 1, 2, 3])
  r.fold(items, 'b', true)
  items.push(step(4), turn('c'), step(5))
  expect(all(r.sync(items))).toEqual([0, 1, 4, 7, 8])
  r.fold(items, 'a', false)
  r.fold(items, 'b', false)
  expect(all(r)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8])
})

it('begins again when the items are others', () => {
  const items = [turn('a'), step(1), step(2), turn('b')]
  const r = new Rows().sync(items)
  r.fold(items, 'a', true)
  expect(all(r.sync([turn('a'), step(1)]))).toEqual([0])
  expect(all(r.sync([turn('c')]))).toEqual([0])
  expect(all(r.sync([turn('c'), step(1)]))).toEqual([0, 1])
})

it('reads only what is new', () => {
  const items: Item[] = [turn('a'), ...Array.from({ length: 1000 }, (_, i) => step(i)), turn('b')]
  const r = new Rows().sync(items)
  r.fold(items, 'a', true)
  let reads = 0
  const counted = new Proxy(items, { get: (t, k) => { if (typeof k === 'string' && /^\d+$/.test(k)) reads++; return Reflect.get(t, k) as unknown } })
  items.push(step(2000), step(2001))
  r.sync(counted)
  expect(reads).toBe(2)
  expect(r.length).toBe(4)
  expect(r.item(4)).toBe(-1)
  expect(r.item(-1)).toBe(-1)
})
