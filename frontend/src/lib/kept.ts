/** What a storage holds under a key, if it is a record; what a storage holds may be anybody's. */
export function keptRecord(store: 'localStorage' | 'sessionStorage', key: string): Record<string, unknown> {
  try {
    return record(JSON.parse(globalThis[store].getItem(key) ?? '{}'))
  } catch {
    return {} // broken, or the storage is shut
  }
}

export const record = (v: unknown): Record<string, unknown> => (typeof v === 'object' && v !== null && !Array.isArray(v) ? (v as Record<string, unknown>) : {})

/** The values of a record that are of a kind. */
export function only<T>(v: unknown, is: (x: unknown) => x is T): Record<string, T> {
  return Object.fromEntries(Object.entries(record(v)).filter((e): e is [string, T] => e[0] !== '__proto__' && is(e[1])))
}

export const isText = (v: unknown): v is string => typeof v === 'string'
