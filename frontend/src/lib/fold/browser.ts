import type { Envelope } from '../../api/types'
import type { About } from './fold'

/** What the browsers of sessions show. Their pages end with the core that held them. */
export function foldBrowser({ s, put }: About, { type, data: d, at }: Envelope) {
  switch (type) {
    case 'browser.changed':
      put.session({ browser: { ...d, at } })
      break
    case 'core.started':
      for (const x of Object.values(s.sessions)) {
        if (x.browser?.open) s.sessions[x.id] = { ...x, browser: { open: false, tabs: 0, at } }
      }
      break
  }
}
