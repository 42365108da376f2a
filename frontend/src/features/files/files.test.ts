import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/svelte'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { FileContent } from '../../api/types'
import { core, ev, HARMFUL, HOSTILE, of, project, session, shown, step, world } from '../../test/world'
import { hex, isText, kindWord, linesOf, pictureType } from './content'
import Files from './FilesPane.svelte'
import { above, patternOf } from './tree.svelte'

beforeEach(() => {
  localStorage.clear()
  vi.stubGlobal('URL', Object.assign(URL, { createObjectURL: () => 'blob:made', revokeObjectURL: () => {} }))
})
afterEach(() => {
  cleanup()
  vi.unstubAllGlobals()
})

const ready = (state = 'ready') => ev('machine.state', { machine_id: 'm', kind: 'local', state }, { session_id: undefined })
const entry = (path: string, type = 'file', more: object = {}) => ({ path, type, size: 10, mode: 420, modified_at: 0, ...more })
const LIST = 'GET /v1/projects/p1/files?path='
const list = (path: string) => `${LIST}${encodeURIComponent(path || '/workspace')}`
const FILE = (path: string, limit = 1 << 20, offset = 0) => `GET /v1/projects/p1/file?path=${encodeURIComponent(path)}&offset=${offset}&limit=${limit}`
const content = (path: string, text: string, more: object = {}) => ({ ...entry(path), size: text.length, text, offset: 0, length: text.length, sha256: `sum of ${text}`, ...more })
const touched = (changes: [string, string][], more: object = {}, at = Date.now() + 1000) => ev('files.touched', { changes: changes.map(([path, op]) => ({ path, op, added: 0, deleted: 0 })), ...more }, { id: 0, at, session_id: undefined } as never)

function open(routes: Record<string, (b: unknown) => unknown>, ...more: ReturnType<typeof ev>[]) {
  const seen = core(routes)
  const w = world(project(), ready(), session(), ...more)
  const props = () => ({ store: w.store, desk: w.desk, project: w.store.s.projects['p1']!, session: w.store.s.sessions['s1'], visible: true })
  const r = render(Files, props())
  return { ...w, seen, take: async (...e: ReturnType<typeof ev>[]) => { w.store.take(e); await r.rerender(props()) }, rerender: () => r.rerender(props()), container: r.container }
}
const name = (x: Element | null) => `${x?.querySelector('.nm')?.textContent ?? ''}${x?.querySelector('.hidden')?.textContent ?? ''}`
const items = () => screen.queryAllByRole('treeitem').map(name)
const tree = () => screen.getByRole('tree')
const root = { [list('')]: () => ({ entries: [entry('z.txt'), entry('src', 'dir'), entry('node_modules', 'dir', { ignored: true }), entry('go', 'link', { target: '../x' }), entry('pipe', 'other')] }), [list('src')]: () => ({ entries: [entry('src/a.ts'), entry('src/b.ts')] }) }

it('lists folders first, on demand, and says what each thing is', async () => {
  const { seen } = open(root)
  await waitFor(() => expect(items()).toEqual(['node_modules, folder, ignored by git', 'src, folder', 'go → ../x, link', 'pipe (neither file nor folder)', 'z.txt']))
  expect(seen.map((c) => c.path)).toEqual([list('').slice(4)])
  await fireEvent.click(screen.getByRole('treeitem', { name: /^src/ }))
  await waitFor(() => expect(items()).toContain('a.ts'))
  expect(screen.getByRole('treeitem', { name: 'a.ts' }).getAttribute('aria-level')).toBe('2')
})

it('is walked by keyboard: arrows, ends, letters, Enter', async () => {
  const { desk } = open({ ...root, [FILE('src/b.ts')]: () => content('src/b.ts', 'bee\n') })
  await waitFor(() => expect(items().length).toBe(5))
  const at = () => name(document.getElementById(tree().getAttribute('aria-activedescendant') ?? ''))
  const key = (k: string) => fireEvent.keyDown(tree(), { key: k })
  await key('End')
  expect(at()).toBe('z.txt')
  await key('Home')
  expect(at()).toMatch(/^node_modules/)
  await key('s')
  expect(at()).toBe('src, folder')
  await key('ArrowRight')
  await waitFor(() => expect(items()).toContain('b.ts'))
  await key('ArrowRight')
  await key('ArrowDown')
  expect(at()).toBe('b.ts')
  await key('Enter')
  expect(desk.drafts['file:p1']).toBe('src/b.ts')
  await waitFor(() => expect(screen.getByRole('region', { name: 'File' }).textContent).toContain('bee'))
  await key('ArrowLeft')
  expect(at()).toBe('src, folder')
  await key('ArrowLeft')
  await waitFor(() => expect(items()).not.toContain('b.ts'))
})

it('marks what the session changed, and what is touched now, also in folders that are closed', async () => {
  const { take } = open(root, step(1), ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: 'z.txt', op: 'modify', added: 1, deleted: 0 }, { path: 'gone.txt', op: 'delete', added: 0, deleted: 1 }] }, of(1)))
  await waitFor(() => expect(items()).toContain('z.txt, modified in this session'))
  expect(items()).toContain('gone.txt, deleted in this session')
  expect(items()).toContain('src, folder')
  await take(touched([['src/a.ts', 'modify']]))
  expect(items()).toContain('src, folder, changes inside')
})

it('reads a folder again when something came or went in it, and not for a mere change', async () => {
  let n = 0
  const { take, seen } = open({ [list('')]: () => ({ entries: n++ ? [entry('new.txt'), entry('z.txt')] : [entry('z.txt')] }) })
  await waitFor(() => expect(items()).toEqual(['z.txt']))
  await take(touched([['z.txt', 'modify']]))
  await new Promise((r) => setTimeout(r, 300))
  expect(seen.length).toBe(1)
  await take(touched([['new.txt', 'add']], {}, Date.now() + 2000))
  await waitFor(() => expect(items()).toEqual(['new.txt, added, in no checkpoint yet', 'z.txt, modified, in no checkpoint yet']))
  await take(touched([], { resync: true }))
  await waitFor(() => expect(seen.length).toBe(3))
})

it('starts no machine by itself, and offers to', async () => {
  const seen = core({ 'POST /v1/projects/p1/machine/start': () => ({}) })
  const w = world(project(), ready('off'), session())
  render(Files, { store: w.store, desk: w.desk, project: w.store.s.projects['p1']!, session: undefined, visible: true })
  await new Promise((r) => setTimeout(r, 50))
  expect(seen).toEqual([])
  await fireEvent.click(screen.getByRole('button', { name: 'Start the machine' }))
  expect(seen[0]).toMatchObject({ method: 'POST', path: '/v1/projects/p1/machine/start' })
})

it('reads an open file again when it changed, says so and by whom, and tells when it is deleted', async () => {
  let text = 'one\n'
  let there = true
  const { take, desk, store, rerender } = open({ ...root, [FILE('z.txt')]: () => (there ? content('z.txt', text) : { status: 404, error: { code: 'not_found', what: 'no such file' } }) }, step(1))
  desk.drafts['file:p1'] = 'z.txt'
  await rerender()
  const view = () => screen.getByRole('region', { name: 'File' }).textContent ?? ''
  await waitFor(() => expect(view()).toContain('one'))
  expect(view()).not.toContain('changed')
  text = 'two\n'
  const e = touched([['z.txt', 'modify']])
  await take({ ...e, step_id: 'st1' } as never)
  await waitFor(() => expect(view()).toContain('two'))
  expect(view()).toMatch(/changed (just now|\d+ s ago) by step 1/) // on a busy computer it is a while ago
  there = false
  await take(touched([['z.txt', 'delete']], {}, Date.now() + 5000))
  await waitFor(() => expect(view()).toMatch(/Deleted (just now|\d+ s ago); below is what was read before/))
  expect(view()).toContain('two')
  expect(store.s.projects['p1']!.touched['z.txt']!.op).toBe('delete')
})

it('shows what a step deleted, although it is no longer there', async () => {
  const { desk, rerender } = open({
    ...root, [FILE('gone.txt')]: () => ({ status: 404, error: { code: 'not_found', what: 'no such file' } }),
    'GET /v1/sessions/s1/steps/st1/diff?path=gone.txt': () => ({ path: 'gone.txt', op: 'delete', binary: false, too_large: false, hunks: [{ id: 'h', old_start: 1, old_lines: 1, new_start: 0, new_lines: 0, lines: [{ op: '-', text: 'it said this', old: 1 }] }] }),
  }, step(1), ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: 'gone.txt', op: 'delete', added: 0, deleted: 1 }] }, of(1)))
  desk.drafts['file:p1'] = 'gone.txt'
  await rerender()
  await waitFor(() => expect(screen.getByRole('region', { name: 'File' }).textContent).toMatch(/Deleted by step 1\..*it said this/))
})

it('reads a large file in parts, whole characters each', async () => {
  const a = 'x'.repeat(100) + '\n'
  const b = 'y€\n'
  const { desk, rerender } = open({ ...root, [FILE('z.txt')]: () => content('z.txt', a, { more: true, size: 106 }), [FILE('z.txt', 1 << 20, 101)]: () => ({ ...content('z.txt', b), offset: 101, length: 5 }) })
  desk.drafts['file:p1'] = 'z.txt'
  await rerender()
  await waitFor(() => expect(screen.getByText('101 B of 106 B are read')).toBeTruthy())
  await fireEvent.click(screen.getByRole('button', { name: 'Read 5 B more' }))
  await waitFor(() => expect(screen.getByRole('region', { name: 'File' }).textContent).toContain('y€'))
  expect(screen.queryByText(/are read/)).toBeNull()
})

it('draws no more lines than a screen holds, and cuts long ones with a way to see all', async () => {
  const text = `${'z'.repeat(5000)}\n${'line\n'.repeat(20_000)}`
  const { desk, rerender, container } = open({ ...root, [FILE('z.txt')]: () => content('z.txt', text) })
  desk.drafts['file:p1'] = 'z.txt'
  await rerender()
  await waitFor(() => expect(container.querySelectorAll('.view .l').length).toBeGreaterThan(20))
  expect(container.querySelectorAll('.view .l').length).toBeLessThan(120)
  expect(container.textContent).toContain('20,001 lines')
  const first = container.querySelector('.view .l')!
  expect(first.querySelector('.t')!.textContent!.length).toBe(1000)
  await fireEvent.click(screen.getByRole('button', { name: '4,000 more characters: show' }))
  expect(container.querySelector('.view .l .t')!.textContent!.length).toBe(5000)
})

it('shows pictures of four kinds as pictures and all else as text or bytes, whatever its name', async () => {
  const b64 = (s: string) => btoa(s)
  const png = '\x89PNG\r\n\x1a\n....'
  const { desk, rerender, container } = open({
    ...root,
    [FILE('p.png', 8 << 20)]: () => ({ ...content('p.png', ''), base64: b64(png), size: png.length, length: png.length }),
    [FILE('fake.png', 8 << 20)]: () => ({ ...content('fake.png', ''), base64: b64('\xff\xfe<svg onload=alert(1)>'), size: 23, length: 23 }),
    [FILE('x.svg')]: () => content('x.svg', '<svg onload="alert(1)"></svg>'),
  })
  const see = async (p: string) => { desk.drafts['file:p1'] = p; await rerender() }
  await see('p.png')
  await waitFor(() => expect(container.querySelector('img')?.getAttribute('src')).toBe('blob:made'))
  await see('fake.png')
  await waitFor(() => expect(container.textContent).toContain('bytes that are no text'))
  expect(container.querySelector('img')).toBeNull()
  await see('x.svg')
  await waitFor(() => expect(container.querySelector('.view')?.textContent).toContain('<svg onload="alert(1)"></svg>'))
  expect(container.querySelector('svg')).toBeNull()
})

it('finds files by name or pattern', async () => {
  const { desk } = open({ ...root, [`GET /v1/projects/p1/find?pattern=${encodeURIComponent('**/*bee*')}`]: () => ({ paths: ['deep/bee.ts'], more: true }), [FILE('deep/bee.ts')]: () => content('deep/bee.ts', 'x') })
  await waitFor(() => expect(items().length).toBe(5))
  const field = screen.getByRole('textbox', { name: 'Find files by name' })
  await fireEvent.input(field, { target: { value: 'bee' } })
  await waitFor(() => expect(items()).toEqual(['deep/bee.ts']))
  expect(screen.getByText(/and more found/)).toBeTruthy()
  await fireEvent.keyDown(field, { key: 'Enter' })
  expect(desk.drafts['file:p1']).toBe('deep/bee.ts')
  await fireEvent.keyDown(field, { key: 'Escape' })
  await waitFor(() => expect(items().length).toBe(5))
})

it('shows hostile names, targets and texts as harmless text', async () => {
  const H = HOSTILE.replaceAll('/', '|') // a name, not a path
  const { desk, rerender, container } = open({
    [list('')]: () => ({ entries: [entry(H), entry(`${H}l`, 'link', { target: H })] }),
    [FILE(H)]: () => content(H, `${H.replaceAll('\0', '')}\n`),
  }, step(1), ev('step.sealed', { commit: 'c', tree: 't', changes: [{ path: `${H}d`, op: 'delete', added: 0, deleted: 1 }] }, of(1)))
  await waitFor(() => expect(items().length).toBe(3))
  desk.drafts['file:p1'] = H
  await rerender()
  await waitFor(() => expect(container.querySelectorAll('.view .l').length).toBe(1))
  expect(shown(container)).not.toMatch(HARMFUL)
  expect(container.querySelector('img, script, svg')).toBeNull()
})

it('draws a bounded number of rows of a folder with thousands, and says what is not listed', async () => {
  const { container } = open({ [list('')]: () => ({ entries: Array.from({ length: 5000 }, (_, i) => entry(`f${i}`)), more: true }) })
  await waitFor(() => expect(items().length).toBeGreaterThan(10))
  expect(items().length).toBeLessThan(120)
  await fireEvent.keyDown(tree(), { key: 'End' })
  expect(container.querySelector('[role=tree]')!.getAttribute('aria-activedescendant')).toMatch(/-5000$/)
})

it('tells texts, pictures and bytes apart', () => {
  const c = (text?: string, base64?: string) => ({ text, base64 }) as unknown as FileContent
  expect([isText(c('a')), isText(c('a\0b')), isText(c(undefined, 'AA==')), isText(c())]).toEqual([true, false, false, true])
  expect(pictureType(new TextEncoder().encode('<svg>'))).toBe('')
  expect(pictureType(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]))).toBe('image/jpeg')
  expect(kindWord(new Uint8Array([0x7f, 0x45, 0x4c, 0x46]))).toBe('a Linux program')
  expect(hex(new Uint8Array(40), 32).length).toBe(2)
  expect(hex(new TextEncoder().encode('ab\u001b'))[0]).toEqual({ at: '000000', hex: '61 62 1b', text: 'ab·' })
  expect(linesOf('a\r\nb\n')).toEqual(['a', 'b'])
  expect(above('a/b/c')).toEqual(['a/b', 'a', ''])
  expect([patternOf(' '), patternOf('x'), patternOf('src/x'), patternOf('*.ts'), patternOf('src/*.ts')]).toEqual(['', '**/*x*', '**/src/x*', '**/*.ts', 'src/*.ts'])
})
