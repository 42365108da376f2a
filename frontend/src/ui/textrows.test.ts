import { cleanup, fireEvent, render, screen } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, expect, it } from 'vitest'
import TextRows from './TextRows.svelte'

afterEach(cleanup)

const many = (from: number, n: number) => Array.from({ length: n }, (_, i) => `line ${from + i}\n`).join('')

it('draws what is in view of a long text, follows its end, and lets the person leave it', async () => {
  const { rerender, container } = render(TextRows, { text: many(0, 50_000), label: 'log', follow: true })
  const box = screen.getByLabelText('log')
  expect(container.querySelectorAll('.r').length).toBeLessThan(200)
  await tick()
  expect(box.scrollTop).toBe(50_000 * 19)
  await fireEvent.scroll(box)
  expect(container.textContent).toContain('line 49999')
  await rerender({ text: many(0, 50_010) })
  expect(box.scrollTop).toBe(50_010 * 19)
  // Scrolled away from its end, it stays where it is.
  Object.defineProperty(box, 'scrollHeight', { value: 50_010 * 19, configurable: true })
  box.scrollTop = 1900
  await fireEvent.scroll(box)
  await rerender({ text: many(0, 50_020) })
  expect(box.scrollTop).toBe(1900)
  expect(container.textContent).toContain('line 100')
  // A text that is another one is read anew.
  await rerender({ text: 'other\n' })
  expect(container.textContent).toContain('other')
  expect(container.textContent).not.toContain('line')
})

it('shows the rest of a very long line when it is asked for', async () => {
  const { container } = render(TextRows, { text: `${'x'.repeat(10_000)}end\nafter\n`, label: 'log' })
  expect(container.textContent).not.toContain('end')
  expect(container.textContent).toContain('after')
  await fireEvent.click(screen.getByRole('button', { name: '6,003 more characters in this line: show all' }))
  expect(container.textContent).toContain('end')
})
