// The one way the page speaks to the core: fetch, and a stream of ndjson. The
// same paths work in the window (through its asset handler) and in a browser.
import type { ApiError } from './types'

/** A call that did not work out, in the core's words. Status 0: nobody answered. */
export class CallError extends Error {
  constructor(
    readonly status: number,
    readonly api: ApiError,
  ) {
    super(api.hint ? `${api.what} (${api.hint})` : api.what)
  }
}

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, signal: signal ?? null }
  if (body !== undefined) {
    // A string body: the window's web view cannot send any other kind.
    init.body = JSON.stringify(body)
    init.headers = { 'Content-Type': 'application/json' }
  }
  const res = await reach(path, init)
  const text = await res.text()
  if (!res.ok) throw new CallError(res.status, parseError(res.status, text))
  return (text ? JSON.parse(text) : undefined) as T
}

/** The answer to a GET as it is, for what is no JSON. What went wrong is thrown as by call. */
export async function answer(path: string, signal?: AbortSignal): Promise<Response> {
  const res = await reach(path, { signal: signal ?? null })
  if (!res.ok) throw new CallError(res.status, parseError(res.status, await res.text()))
  return res
}

/** The bytes of an artefact, at most max of them. */
export async function blob(sha: string, max: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const res = await reach(`/v1/blobs/${encodeURIComponent(sha)}`, { signal: signal ?? null })
  if (!res.ok) throw new CallError(res.status, parseError(res.status, await res.text()))
  const b = new Uint8Array(await res.arrayBuffer())
  if (b.length > max) throw new CallError(413, { code: 'too_large', what: `the artefact has ${b.length} bytes, too many to show here`, hint: 'get it from a terminal' })
  return b
}

/** An artefact as text, piece by piece as it comes, at most max bytes of it; says how much it left out. */
export async function blobText(sha: string, max: number, onPiece: (text: string) => void, signal?: AbortSignal): Promise<number> {
  const res = await reach(`/v1/blobs/${encodeURIComponent(sha)}`, { signal: signal ?? null })
  if (!res.ok || !res.body) throw new CallError(res.status, parseError(res.status, await res.text()))
  const reader = res.body.getReader()
  const dec = new TextDecoder()
  let got = 0
  let left = 0
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    const some = value.subarray(0, Math.max(0, max - got))
    got += some.length
    left += value.length - some.length
    if (some.length) onPiece(dec.decode(some, { stream: true }))
  }
  const rest = dec.decode()
  if (rest) onPiece(rest)
  return left
}

// What proves to `serve` that this page is its own. A cookie goes to every port of
// the computer; this stays with the page's origin. The window needs none.
const STORED = 'glasshouse-key'

/** Takes the key out of the page's address, where `serve` put it, and keeps it. */
export function takeKey(): void {
  const found = /^#key=([0-9a-f]+)$/.exec(location.hash)
  if (!found?.[1]) return
  history.replaceState(null, '', location.pathname + location.search)
  try {
    localStorage.setItem(STORED, found[1])
  } catch {
    // No storage: the page works until it is loaded again.
  }
  held = found[1]
}

let held: string | null = null

function key(): string | null {
  if (held) return held
  try {
    return localStorage.getItem(STORED)
  } catch {
    return null
  }
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  const k = key()
  if (k) init.headers = { ...(init.headers as Record<string, string> | undefined), 'X-Glasshouse-Key': k }
  try {
    return await fetch(path, init)
  } catch (err) {
    if (init.signal?.aborted) throw new CallError(0, { code: 'unavailable', what: 'you gave the call up' })
    throw new CallError(0, { code: 'unavailable', what: `nobody answered: ${err instanceof Error ? err.message : String(err)}`, hint: 'see whether the core runs; the page connects again by itself' })
  }
}

function parseError(status: number, text: string): ApiError {
  try {
    const v = JSON.parse(text) as ApiError
    if (v.what) return v
  } catch {
    // Not of our making: shown as it is.
  }
  return { code: 'internal', what: `the core answered ${status}${text ? `: ${text.slice(0, 200)}` : ''}` }
}

/** Any thrown value in the shape errors are shown in. */
export function asError(err: unknown): ApiError {
  if (err instanceof CallError) return err.api
  return { code: 'internal', what: err instanceof Error ? err.message : String(err) }
}

/**
 * Yields the lines of a stream until it ends or is cut; an empty line is a sign
 * of life. onOpen is called once the stream is there, even if it is quiet.
 */
export async function* lines(path: string, signal: AbortSignal, onOpen?: () => void): AsyncGenerator<string> {
  const res = await reach(path, { signal })
  if (!res.ok || !res.body) throw new CallError(res.status, parseError(res.status, await res.text()))
  onOpen?.()
  const reader = res.body.getReader()
  const dec = new TextDecoder()
  // Parts of a line that is not complete yet: long lines come in many pieces.
  let rest: string[] = []
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    let text = dec.decode(value, { stream: true })
    let at: number
    while ((at = text.indexOf('\n')) >= 0) {
      rest.push(text.slice(0, at))
      yield rest.join('')
      rest = []
      text = text.slice(at + 1)
    }
    if (text) rest.push(text)
  }
}
