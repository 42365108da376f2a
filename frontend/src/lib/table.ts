/**
 * A record by names that somebody else chose: a file may be called "constructor" or
 * "__proto__", which every plain object has already.
 */
export const table = <T>(of: Record<string, T> = {}): Record<string, T> => Object.assign(Object.create(null) as Record<string, T>, of)
