import { calls } from '../api/calls'
import { CallError } from '../api/transport'
import type { Notes } from './notes.svelte'
import { count, upper } from './words'

const mib = (bytes: number) => `${Math.round(bytes / 1024 / 1024).toLocaleString('en-US')} MiB`

/** Says how full the disk of this computer is as long as it is, with what makes room. */
export function tellDisk(notes: Notes) {
  let said = ''
  // What is acted on is closed; this is so until there is space.
  const say = () => notes.fail(new CallError(0, { code: 'unavailable', what: said }), { name: 'Look into the trash', run: () => { say(); void look(notes) } })
  return (state: string, text: string) => {
    const words = upper(text)
    if (said) notes.drop(said)
    said = ''
    if (state === 'ok') {
      notes.tell(words || 'The disk of this computer has space again.')
      return
    }
    said = words
    say()
  }
}

/** What deleted projects left is removed only after its size was seen. */
async function look(notes: Notes) {
  try {
    const t = await calls.trash()
    const n = t.entries?.length ?? 0
    if (!n) {
      notes.tell('The trash is empty: delete projects, or remove other files on that disk.')
      return
    }
    const words = `The trash holds ${count(n, 'thing')} of deleted projects, ${mib(t.bytes)}.`
    notes.tell(words, { name: 'Remove for good', run: () => void empty(notes) })
  } catch (err) {
    notes.fail(err)
  }
}

async function empty(notes: Notes) {
  try {
    notes.tell(`The trash is empty, ${mib((await calls.emptyTrash()).bytes)} were freed.`)
  } catch (err) {
    notes.fail(err)
  }
}
