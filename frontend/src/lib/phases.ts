import type { Progress } from './state'

// What the parts of making a project are called, in the order they come in.
const WORDS: Record<string, string> = {
  image: 'Building the guest image', fetch: 'Fetching the repository', import: 'Reading the source', source: 'Reading the source', mirror: 'Reading the source',
  create: 'Making the machine', machine: 'Making the machine', start: 'Starting the machine', boot: 'Starting the machine', fill: 'Filling the workspace', workspace: 'Filling the workspace', checkout: 'Filling the workspace', clone: 'Filling the workspace',
}
/** "part 2 of 5", where the words of the progress say which part it is. */
const PART = /\bpart (\d+) of (\d+)\b/

export function phaseWord(p: Pick<Progress, 'phase' | 'text'>): string {
  const word = WORDS[p.phase] ?? (p.text ? p.text.charAt(0).toUpperCase() + p.text.slice(1, 80) : 'Working')
  const part = PART.exec(p.text)
  return part ? `${word}, part ${part[1]} of ${part[2]}` : word
}

/** The share that is done, from 0 to 1; undefined where nobody knows it. */
export function share(p: Pick<Progress, 'done' | 'total'>): number | undefined {
  return p.total > 0 ? Math.min(1, Math.max(0, p.done / p.total)) : undefined
}
