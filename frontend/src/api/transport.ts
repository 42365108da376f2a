// The one way the page speaks to the core: fetch, and a stream of ndjson. The
// same paths work in the window (through its asset handler) and in a browser.

export interface ApiError {
  code: string
  what: string
  hint?: string
  pointer?: string
}

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
  const res = await fetch(path, init)
  const text = await res.text()
  if (!res.ok) throw new CallError(res.status, parseError(res.status, text))
  return (text ? JSON.parse(text) : undefined) as T
}

function parseError(status: number, text: string): ApiError {
  try {
    const v = JSON.parse(text) as ApiError
    if (v.what) return v
  } catch {
    // Not of our making: shown as it is.
  }
  return { code: 'internal', what: `the core answered ${status}: ${text.slice(0, 200)}` }
}

/** Yields the lines of a stream until it ends or is cut. */
export async function* lines(path: string, signal: AbortSignal): AsyncGenerator<string> {
  const res = await fetch(path, { signal })
  if (!res.ok || !res.body) throw new CallError(res.status, parseError(res.status, await res.text()))
  const reader = res.body.getReader()
  const dec = new TextDecoder()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += dec.decode(value, { stream: true })
    let at: number
    while ((at = rest.indexOf('\n')) >= 0) {
      const line = rest.slice(0, at)
      rest = rest.slice(at + 1)
      if (line) yield line
    }
  }
}
