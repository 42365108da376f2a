import type { Component } from 'svelte'
import type { Desk } from '../lib/desk.svelte'
import type { ProjectState, SessionState } from '../lib/state'
import type { Store } from '../lib/store.svelte'
import Browser from './browser/BrowserPane.svelte'
import Changes from './changes/Changes.svelte'
import Files from './files/FilesPane.svelte'
import Network from './network/NetworkPane.svelte'
import Terminal from './terminal/TerminalPane.svelte'

/** What each pane at the right gets. A pane stays mounted once it was shown. */
export interface PaneProps {
  store: Store
  desk: Desk
  project: ProjectState
  session: SessionState | undefined
  /** Whether a person can see it: what is not seen does not stream. */
  visible: boolean
}
export type PaneId = 'changes' | 'browser' | 'terminal' | 'files' | 'network'
export interface PaneDef {
  id: PaneId
  title: string
  key: string
  view: Component<PaneProps>
  /** A short count beside the title; empty: none. */
  badge?: (store: Store, project: ProjectState, session: SessionState | undefined) => string
}

export const panes: PaneDef[] = [
  { id: 'changes', title: 'Changes', key: '1', view: Changes, badge: (_store, _, session) => String(session?.files.size || '') },
  { id: 'browser', title: 'Browser', key: '2', view: Browser, badge: (_store, _, session) => (session?.browser?.open ? String(session.browser.tabs || '') : '') },
  { id: 'terminal', title: 'Terminal', key: '3', view: Terminal },
  { id: 'files', title: 'Files', key: '4', view: Files },
  { id: 'network', title: 'Network', key: '5', view: Network, badge: (_, p) => (p.hosts.length ? `${p.hosts.length}` : '') },
]
