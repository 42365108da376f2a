/**
 * Makes a question one that is asked one at a time, however often it is called for: an
 * older answer never comes after a newer one, and what was called for meanwhile is asked
 * once more, while more says so. Resolves when the last of them is answered. ask itself
 * does not fail.
 */
export function oneByOne(ask: () => Promise<void>, more: () => boolean = () => true): () => Promise<void> {
  let going: Promise<void> | undefined
  let again = false
  const all = async () => {
    do {
      again = false
      await ask()
    } while (again && more())
    going = undefined
  }
  return () => {
    again = true
    return (going ??= all())
  }
}
