import { createSubscriber } from 'svelte/reactivity'

// One clock for the whole page: it ticks only while somebody looks at it.
const looked = createSubscriber((update) => {
  const t = setInterval(update, 1000)
  return () => clearInterval(t)
})

export const ticking = {
  /** The time now, in Unix milliseconds; a view that reads it is drawn again each second. */
  get now(): number {
    looked()
    return Date.now()
  },
}

/** A span of time as a person says it: "42 s", "2 m 10 s", "1 h 04 m". */
export function span(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, '0')} s`
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')} m`
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`
}

/** The same where there is little room: "42 s", "2 m", "1 h". */
export const brief = (ms: number): string => span(ms).split(' ').slice(0, 2).join(' ')
