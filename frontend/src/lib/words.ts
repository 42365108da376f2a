import { duration, line } from './text'
import type { Change, ProjectState, Question, SessionState, State, Step } from './state'

// How states are said. A tone is one of the colours of outcome.
export type Tone = '' | 'good' | 'wait' | 'harm' | 'soft'
export interface Said { text: string; tone: Tone }

export const NOT_A_VM = 'not a VM: a sandbox that shares this computer’s kernel'

export function machineWords(p: ProjectState): Said & { mark: string } {
  switch (p.machine) {
    case 'ready':
      return { mark: '●', text: 'ready', tone: 'good' }
    case 'starting':
      return { mark: '◌', text: 'starting', tone: 'wait' }
    case 'stopping':
      return { mark: '◌', text: 'stopping', tone: 'wait' }
    case 'trouble':
      return { mark: '▲', text: 'in trouble', tone: 'harm' }
    case 'off':
      return { mark: '○', text: 'off', tone: 'soft' }
  }
  return { mark: '○', text: p.progress ? 'being made' : 'not made yet', tone: 'soft' }
}

export const kindTag = (kind: string): string => (kind === 'lima' ? 'VM' : kind)
export const kindHint = (kind: string): string => (kind === 'lima' ? 'a virtual machine (Lima)' : `${kind}: ${NOT_A_VM}`)

export function sessionWords(waiting: Question[], x: SessionState): Said {
  if (waiting.some((q) => q.session === x.id)) return { text: 'Waiting for you', tone: 'wait' }
  if (x.state === 'running') return { text: 'Running', tone: 'good' }
  if (x.state === 'ended') return { text: 'Ended', tone: 'soft' }
  if (x.turn?.result) return turnWords(x.turn.result)
  return { text: 'Idle', tone: 'soft' }
}

export function turnWords(result: string): Said {
  switch (result) {
    case 'ok':
      return { text: 'Done, checks passed', tone: 'good' }
    case 'unchecked':
      return { text: 'Done, nothing was checked', tone: 'soft' }
    case 'failed':
      return { text: 'Failed', tone: 'harm' }
    case 'cancelled':
      return { text: 'Cancelled', tone: 'soft' }
    case 'interrupted':
      return { text: 'Interrupted', tone: 'wait' }
    case 'stopped':
      return { text: 'Stopped', tone: 'wait' }
  }
  return { text: line(result, 40), tone: 'soft' }
}

/** A session that was made for one command and ended with it. */
export const isCommand = (x: SessionState): boolean => x.agent === 'manual' && x.class === 'ephemeral'
/** A session's title; that of a command is what it ran. */
export function sessionTitle(s: State, x: SessionState): string {
  const first = isCommand(x) && x.title === x.agent ? s.steps[x.steps[0] ?? ''] : undefined
  return first ? stepObject(first) : x.title
}

/** What decided, in words: a mode, the usual, or a rule by its name. */
export function ruleWords(rule: string): string {
  if (rule.startsWith('mode:')) return `${line(rule.slice(5), 20)} mode`
  return rule === 'default' ? 'the usual rules' : rule === 'person' ? 'a person' : `rule ${line(rule.slice(rule.indexOf(':') + 1), 30)}`
}

export function stepWords(st: Step): Said {
  switch (st.state) {
    case 'requested':
      return { text: 'queued', tone: 'soft' }
    case 'asking':
      return { text: 'asks', tone: 'wait' }
    case 'running':
      return st.asks > 0 ? { text: 'asks', tone: 'wait' } : { text: 'running', tone: 'soft' }
    case 'denied':
      return { text: st.barred && st.rule ? `denied by ${ruleWords(st.rule)}` : 'denied', tone: 'harm' }
    case 'cancelled':
      return { text: 'cancelled', tone: 'soft' }
    case 'expired':
      return { text: 'not answered', tone: 'wait' }
  }
  switch (st.outcome) {
    case 'ok':
      return { text: '✓', tone: 'good' }
    case 'timeout':
      return { text: 'timed out', tone: 'harm' }
    case 'cancelled':
      return { text: 'cancelled', tone: 'soft' }
    case 'unknown':
      return { text: 'unknown', tone: 'wait' }
    case 'unavailable':
      return { text: 'did not run', tone: 'harm' }
  }
  if (st.signal) return { text: line(st.signal, 40), tone: 'harm' }
  return { text: st.exit ? `exit ${st.exit}` : 'failed', tone: 'harm' }
}

/** What a step came to, in a word: what it found where it found something, else its state. */
export function resultWords(st: Step): Said {
  const said = stepWords(st)
  if (st.outcome !== 'ok' || said.tone !== 'good') return said
  if (st.failed) return { text: 'not kept', tone: 'harm' }
  if (st.tool === 'restore') {
    const n = (st.result as { files?: unknown } | null | undefined)?.files
    const files = typeof n === 'number' ? n : st.state === 'sealed' ? (st.changes?.length ?? 0) : undefined
    return { text: files === undefined ? '' : files ? count(files, 'file') : 'nothing differed', tone: 'soft' }
  }
  const r = st.result as { matches?: unknown; paths?: unknown; entries?: unknown; lines?: unknown; text?: unknown; more?: unknown } | null | undefined
  const soft = (n: number, one: string, many?: string): Said => ({ text: count(n, one, many), tone: 'soft' })
  if (typeof r === 'object' && r) {
    if (st.tool === 'search' && Array.isArray(r.matches)) return soft(r.matches.length, 'match', 'matches')
    if (st.tool === 'glob' && Array.isArray(r.paths)) return soft(r.paths.length, 'file')
    if (st.tool === 'list' && Array.isArray(r.entries)) return soft(r.entries.length, 'entry', 'entries')
    if (st.tool === 'read' && typeof r.lines === 'number') return soft(r.lines, 'line')
    if (st.tool === 'read' && typeof r.text === 'string') return soft(r.text.split('\n').length - (r.text.endsWith('\n') ? 1 : 0), 'line')
  }
  // The lines it changed say it.
  if ((st.tool === 'edit' || st.tool === 'write') && st.changes?.some((c) => c.added || c.deleted)) return { text: '', tone: 'good' }
  return said
}

/** A tool's name in the narrow column; the title says the rest. */
export const toolWord = (tool: string): string => (tool.startsWith('browser_') ? 'browser' : tool === 'ask_user' ? 'ask' : tool)

const VERBS: Record<string, string> = { exec: 'Run ', edit: 'Edit ', write: 'Write ', read: 'Read ', ask_user: 'Ask: ', list: 'List ', search: 'Search ', glob: 'Find ' }
/** A step's title without the word that its tool says already. */
export function stepObject(st: Pick<Step, 'tool' | 'title'> & Partial<Pick<Step, 'outcome' | 'undoes'>>): string {
  // Only a person goes back; what went wrong was not done.
  const to = st.tool === 'restore' ? /^restore (?:the workspace )?to (.+)$/is.exec(st.title)?.[1] : undefined
  if (st.undoes) return st.outcome === 'ok' ? `You undid the restore of step ${st.undoes}` : `Undo the restore of step ${st.undoes}`
  if (to) return st.outcome === 'ok' ? `You restored the workspace to ${to}` : `Restore the workspace to ${to}`
  const verb = VERBS[st.tool]
  return verb && st.title.startsWith(verb) && st.title.length > verb.length ? st.title.slice(verb.length) : st.title
}

export const busy = (st: Step): boolean => st.state === 'requested' || st.state === 'asking' || st.state === 'running'
export const stepTime = (st: Step): string => (st.ms === undefined ? '' : duration(st.ms))

export const opMark: Record<string, string> = { add: 'A', delete: 'D', modify: 'M', rename: 'R', mode: 'X', type: 'T' }
export const opTone: Record<string, Tone> = { add: 'good', delete: 'harm' }
export const opWord: Record<string, string> = { add: 'added', delete: 'deleted', modify: 'modified', rename: 'renamed', mode: 'mode changed', type: 'type changed' }

export function sum(cs: Pick<Change, 'added' | 'deleted'>[]): { added: number; deleted: number } {
  return cs.reduce((t, c) => ({ added: t.added + c.added, deleted: t.deleted + c.deleted }), { added: 0, deleted: 0 })
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(1)} KB`
  return `${(n / 1024 / 1024).toFixed(1)} MB`
}

export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`
/** Progress in words, with its share where one is known. */
/** What the core says in the middle of a line, as a line of its own. */
export const upper = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)
export const progressText = (p: { text: string; done: number; total: number }): string => (p.total > 0 ? `${p.text} (${Math.floor((100 * p.done) / p.total)} %)` : p.text)
const CLOCK = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
export const clock = (ms: number): string => CLOCK.format(ms)
export const by = (actor: string): string => (actor === 'person' ? 'a person' : actor || 'somebody')
