import { cleanup, fireEvent, render, screen } from '@testing-library/svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, of, project, session, step, world } from '../../test/world'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const sealed = (n: number, path: string) => [step(n), ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path, op: 'modify', added: 2, deleted: 1 }] }, of(n))]

it('groups what changed by step, newest first, and counts a file once', async () => {
  core({})
  const { store } = world(project(), session(), ...sealed(1, 'a.ts'), ...sealed(2, 'b.ts'), ...sealed(3, 'a.ts'))
  render(App, { store, live: false })
  const pane = screen.getByRole('region', { name: 'Changes' })
  expect(pane.textContent).toContain('2 files in this session')
  expect([...pane.querySelectorAll('h3 button')].map((b) => b.textContent)).toEqual(['step 3', 'step 2', 'step 1'])
  await fireEvent.click(pane.querySelectorAll('button.file')[1]!)
  await vi.waitFor(() => expect(document.activeElement?.getAttribute('data-step')).toBe('2'))
})

it('draws a bounded number of steps, and older ones on demand', async () => {
  core({})
  const { store } = world(project(), session(), ...Array.from({ length: 130 }, (_, i) => sealed(i + 1, `f${i}`)).flat())
  render(App, { store, live: false })
  const pane = screen.getByRole('region', { name: 'Changes' })
  expect(pane.querySelectorAll('h3').length).toBe(100)
  const more = [...pane.querySelectorAll('button')].at(-1)!
  expect(more.textContent).toBe('Show 30 of 30 earlier steps')
  await fireEvent.click(more)
  expect(pane.querySelectorAll('h3').length).toBe(130)
})
