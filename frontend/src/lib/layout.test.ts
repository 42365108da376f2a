import { beforeEach, expect, it } from 'vitest'
import { span } from './clock.svelte'
import { Layout } from './layout.svelte'
import { phaseWord, share } from './phases'

beforeEach(() => localStorage.clear())

const FIRST = new Layout().get('side')

it('keeps the columns over a reload, within what they may be', () => {
  const one = new Layout()
  one.set('side', 300)
  one.set('middle', 5)
  one.set('lower', Number.NaN)
  one.toggleSide()
  const two = new Layout()
  expect(two.get('side')).toBe(300)
  expect(two.get('middle')).toBe(two.range('middle')[1])
  expect(two.get('lower')).toBe(new Layout().get('lower'))
  expect(two.sideOff).toBe(true)
  two.reset('side')
  expect(new Layout().get('side')).toBe(FIRST)
})

it('begins as it is made when the memory is broken', () => {
  localStorage.setItem('glasshouse.layout', '{"side": "wide", "middle": -3')
  expect(new Layout().get('side')).toBe(FIRST)
  localStorage.setItem('glasshouse.layout', '{"side": "wide", "middle": -3}')
  const l = new Layout()
  expect(l.get('side')).toBe(FIRST)
  expect(l.get('middle')).toBe(l.range('middle')[0])
})

it('says spans of time', () => {
  expect([0, 42_000, 130_000, 3_840_000, 90_000_000, -5].map(span)).toEqual(['0 s', '42 s', '2 m 10 s', '1 h 04 m', '1 d 1 h', '0 s'])
})

it('says phases, with the part and the share where they are known', () => {
  expect(phaseWord({ phase: 'image', text: 'guest image, part 2 of 5: unpacking' })).toBe('Building the guest image, part 2 of 5')
  expect(phaseWord({ phase: 'workspace', text: 'filling the workspace' })).toBe('Filling the workspace')
  expect(phaseWord({ phase: 'later', text: 'something new' })).toBe('Something new')
  expect(phaseWord({ phase: '', text: '' })).toBe('Working')
  expect(share({ done: 41, total: 100 })).toBe(0.41)
  expect(share({ done: 7, total: 0 })).toBeUndefined()
  expect(share({ done: 12, total: 10 })).toBe(1)
})
