import { beforeEach, expect, it } from 'vitest'
import type { Action } from '../../lib/actions.svelte'
import { arrange, match, recent, used } from './find'

const act = (id: string, name: string, more: Partial<Action> = {}): Action => ({ id, name, run: () => {}, ...more })
beforeEach(() => localStorage.clear())

it('finds letters in their order, and prefers words to scattered letters', () => {
  expect(match('rvw', 'Review and push').score).toBeGreaterThan(0)
  expect(match('wvr', 'Review and push').score).toBe(0)
  expect(match('push', 'Review and push').score).toBeGreaterThan(match('push', 'Put up shutters').score)
  expect(match('new', 'New project').score).toBeGreaterThan(match('new', 'Show the newest').score)
  expect(match('', 'anything').score).toBeGreaterThan(0)
})

it('says which letters matched: those at the beginning of words where it can', () => {
  expect(match('sb', 'Show browser').at).toEqual([0, 5])
  expect(match('project new', 'New project').at).toEqual([0, 1, 2, 4, 5, 6, 7, 8, 9, 10])
})

it('shows the recent ones first, then groups, the disabled last in theirs', () => {
  const actions = [act('a', 'Alpha', { group: 'Window' }), act('b', 'Beta', { group: 'Go to', off: 'Not now.' }), act('c', 'Gamma', { group: 'Go to' }), act('d', 'Delta', { group: 'Window' })]
  used('a')
  used('d')
  expect(recent()).toEqual(['d', 'a'])
  const groups = arrange(actions, '', recent()).map((g) => [g.name, g.rows.map((r) => r.action.id)])
  expect(groups).toEqual([['Recent', ['d', 'a']], ['Go to', ['c', 'b']]])
})

it('lets one that can be done come before a better name that cannot', () => {
  const actions = [act('a', 'Stop', { off: 'It is off.' }), act('b', 'Stop the machine')]
  expect(arrange(actions, 'stop', []).flatMap((g) => g.rows.map((r) => r.action.id))).toEqual(['b', 'a'])
  expect(arrange(actions, 'zzz', [])).toEqual([])
})

it('forgets a memory it cannot read', () => {
  localStorage.setItem('glasshouse.recent', '{"no": "list"}')
  expect(recent()).toEqual([])
  localStorage.setItem('glasshouse.recent', 'broken')
  expect(recent()).toEqual([])
})
