import { native } from '../api/native'

const KEEP = 'glasshouse.notify'

function kept(): boolean {
  try {
    return localStorage.getItem(KEEP) !== 'off'
  } catch {
    return true
  }
}

let on = $state(kept())
/** The window tells through the system, and keeps the wish itself; a browser has to be allowed to. */
const inWindow = (): boolean => native() !== undefined
void native()?.Notices().then((v) => (on = v), () => {})
const can = (): boolean => inWindow() || 'Notification' in window

/** Whether a person is told of a question while the window is not in front. */
export const notifications = {
  get on(): boolean {
    return on && can()
  },
  /** Why there can be none; empty: there can. */
  get why(): string {
    return can() ? '' : 'This browser has no notifications.'
  },
  set(v: boolean) {
    on = v
    void native()?.SetNotices(v).catch(() => {})
    try {
      localStorage.setItem(KEEP, v ? 'on' : 'off')
    } catch {
      // It lasts as long as the page, then.
    }
    if (v && !inWindow() && 'Notification' in window && Notification.permission === 'default') void Notification.requestPermission()
  },
  /** Tells of something, unless the page is looked at. */
  tell(title: string, body: string) {
    if (!this.on || document.hasFocus() || inWindow()) return
    if (!('Notification' in window) || Notification.permission !== 'granted') return
    const n = new Notification(title, { body })
    n.onclick = () => window.focus()
  },
}
