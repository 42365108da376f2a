/** Puts a text into the clipboard; says whether that worked. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyOld(text)
  }
}

/** Where the newer way is forbidden. */
function copyOld(text: string): boolean {
  const focus = document.activeElement
  const t = document.createElement('textarea')
  t.value = text
  t.style.cssText = 'position:fixed;opacity:0'
  document.body.append(t)
  t.select()
  try {
    return document.execCommand('copy')
  } catch {
    return false
  } finally {
    t.remove()
    if (focus instanceof HTMLElement) focus.focus({ preventScroll: true })
  }
}
