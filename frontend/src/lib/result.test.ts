import { expect, it } from 'vitest'
import { fieldsOf } from './result'

it('writes matches and lists as lines', () => {
  expect(fieldsOf({ matches: [{ path: 'a.py', line: 3, text: ' x' }, { path: 'b', line: 1, text: '' }], more: true })).toEqual([['matches', 'a.py:3:  x\nb:1: '], ['more', 'true']])
  expect(fieldsOf({ entries: [{ name: 'src', type: 'dir' }, { name: 'a', type: 'file', size: 1 }], paths: ['x', 'y'] })).toEqual([['entries', 'src/\na'], ['paths', 'x\ny']])
})

it('leaves out what says nothing and hides nothing that it does not know', () => {
  expect(fieldsOf({ stderr: '', none: null, list: [], zero: 0, odd: [{ a: 1 }] })).toEqual([['zero', '0'], ['odd', '[\n  {\n    "a": 1\n  }\n]']])
  expect(fieldsOf('text')).toEqual([['result', 'text']])
  expect(fieldsOf([{ name: 'a' }])).toEqual([['result', '[\n  {\n    "name": "a"\n  }\n]']])
  expect(fieldsOf(undefined)).toEqual([])
})
