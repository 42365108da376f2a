// A tool's answer as lines a person reads: matches as in a search, lists as lines,
// and whatever else as JSON.
export function fieldsOf(result: unknown): [string, string][] {
  if (result === undefined || result === null) return []
  if (typeof result !== 'object' || Array.isArray(result)) return [['result', words(result)]]
  return Object.entries(result)
    .filter(([, v]) => v !== '' && v !== null && v !== undefined && !(Array.isArray(v) && v.length === 0))
    .map(([k, v]) => [k, words(v)])
}

function words(v: unknown): string {
  if (typeof v === 'string') return v
  if (Array.isArray(v)) {
    const lines = v.map(one)
    if (lines.every((l) => l !== undefined)) return lines.join('\n')
  }
  return JSON.stringify(v, null, typeof v === 'object' ? 2 : 0)
}

function one(v: unknown): string | undefined {
  if (typeof v === 'string') return v
  if (typeof v !== 'object' || v === null) return undefined
  const o = v as { path?: unknown; line?: unknown; text?: unknown; name?: unknown; type?: unknown }
  if (typeof o.path === 'string' && typeof o.line === 'number' && typeof o.text === 'string') return `${o.path}:${o.line}: ${o.text}`
  if (typeof o.name === 'string' && typeof o.type === 'string') return o.type === 'dir' ? `${o.name}/` : o.name
  return undefined
}
