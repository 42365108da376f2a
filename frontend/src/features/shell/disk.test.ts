import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { tick } from 'svelte'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import App from '../../App.svelte'
import { core, ev, project, session, world } from '../../test/world'

beforeEach(() => localStorage.clear())
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const space = (state: 'ok' | 'low' | 'full', text: string) => ev('disk.space', { state, dir: '/data', free_bytes: 1, total_bytes: 2, text }, { project_id: undefined, session_id: undefined })
const begun = ev('core.started', { version: '1', pid: 1, clean: true }, { project_id: undefined, session_id: undefined })

describe('a full disk of this computer', () => {
  it('is said until there is space, and the trash is emptied only after its size was seen', async () => {
    const seen = core({
      'GET /v1/trash': () => ({ dir: '/data/trash', bytes: 75 * 1024 * 1024, entries: [{ name: 'a', at: 1, bytes: 1 }, { name: 'b', at: 1, bytes: 1 }] }),
      'DELETE /v1/trash': () => ({ dir: '/data/trash', bytes: 75 * 1024 * 1024, entries: [] }),
    })
    const { store } = world(begun, project(), session())
    render(App, { store, live: false })
    store.take([space('full', 'the disk is nearly full (3 MiB left)')])
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('The disk is nearly full (3 MiB left)'))
    await fireEvent.click(screen.getByRole('button', { name: 'Look into the trash' }))
    await screen.findByRole('button', { name: 'Remove for good' })
    expect(document.body.textContent).toContain('The trash holds 2 things of deleted projects, 75 MiB.')
    expect(seen.some((c) => c.method === 'DELETE')).toBe(false)
    expect(screen.getByRole('alert')).toBeTruthy()
    await fireEvent.click(screen.getByRole('button', { name: 'Remove for good' }))
    await waitFor(() => expect(document.body.textContent).toContain('The trash is empty, 75 MiB were freed.'))
    expect(seen.filter((c) => c.method === 'DELETE')).toHaveLength(1)

    store.take([space('low', 'the disk is filling up (200 MiB left)')])
    await tick()
    expect(screen.getAllByRole('alert')).toHaveLength(1)
    expect(screen.getByRole('alert').textContent).toContain('filling up')
    store.take([space('ok', 'the disk has space')])
    await tick()
    expect(screen.queryByRole('alert')).toBeNull()
  })

  it('of long ago is not told again when the log is read', async () => {
    core({})
    const { store } = world(begun, space('full', 'the disk is nearly full'), space('ok', 'the disk has space'), project(), session())
    render(App, { store, live: false })
    await tick()
    expect(screen.queryByRole('alert')).toBeNull()
  })
})
