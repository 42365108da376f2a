import { describe, expect, it } from 'vitest'
import { duration, line, visible } from './text'

describe('visible', () => {
  it('spells out what could hide or reorder', () => {
    expect(visible('a\u202eb')).toBe('a\\u{202e}b')
    expect(visible('\u001b[31mred')).toBe('\\x1b[31mred')
    expect(visible('x\u200by\u2066z\u3164')).toBe('x\\u{200b}y\\u{2066}z\\u{3164}')
    expect(visible('\u{e0041}')).toBe('\\u{e0041}')
  })
  it('leaves letters of all scripts and markup as they are', () => {
    expect(visible('<img onerror=x> 日本 مرحبا é 👍')).toBe('<img onerror=x> 日本 مرحبا é 👍')
  })
  it('keeps line ends, and line() does not', () => {
    expect(visible('a\nb')).toBe('a\nb')
    expect(line('a\nb')).toBe('a\\nb')
    expect(line('x'.repeat(400)).length).toBe(301)
  })
})

it('writes durations as people read them', () => {
  expect([5, 1500, 61_000].map(duration)).toEqual(['5 ms', '1.5 s', '1m01s'])
})
