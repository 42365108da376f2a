import { cleanup, fireEvent, render, screen } from '@testing-library/svelte'
import { flushSync } from 'svelte'
import { afterEach, expect, it, vi } from 'vitest'
import App from '../App.svelte'
import { core, ev, of, project, session, step, world } from '../test/world'

afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
  localStorage.clear()
})

it('keeps the rest of the window when one part of it cannot be drawn', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {})
  core({})
  const { store, desk } = world(project(), session('the work'), step(1))
  const { container } = render(App, { store, live: false })
  expect(screen.queryByRole('alert')).toBeNull()
  // An event of a core that words it otherwise: the timeline has no title to draw.
  store.take([ev('step.requested', { number: 2, tool: 'exec' }, of(2))])
  flushSync()
  const alert = screen.getByRole('alert')
  expect(alert.textContent).toContain('the timeline cannot be drawn')
  expect(said).toHaveBeenCalled()
  // The list, the panes, the keys and the field for messages go on, with what comes next.
  expect(container.querySelector('[role=tree]')?.textContent).toContain('the work')
  store.take([ev('step.sealed', { commit: 'c', changes: [{ path: 'later.txt', op: 'add', added: 1, deleted: 0 }] }, of(1))])
  flushSync()
  expect(container.querySelector('[role=tabpanel]')?.textContent).toContain('later.txt')
  expect(container.querySelector('#say')).toBeTruthy()
  // Drawn again once there is what was missing.
  store.s.steps['st2'] = { ...store.s.steps['st2']!, title: 'a title after all' }
  await fireEvent.click(screen.getByRole('button', { name: 'Draw it again' }))
  flushSync()
  expect(screen.queryByRole('alert')).toBeNull()
  expect(container.querySelector('[role=feed]')?.textContent).toContain('a title after all')
  expect(desk.screen).toBe('session')
})
