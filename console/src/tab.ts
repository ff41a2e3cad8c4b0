import { signal } from '@preact/signals'
import type { Tab } from 'pg-lockstep/console'
import { restoreAddress, stateAddress } from './address.ts'

/** The tabs that the server streams, and those that ask on request. */
export type PageTab = Tab | 'events' | 'records'

export const TABS: readonly { readonly id: PageTab; readonly title: string }[] = [
  { id: 'overview', title: 'Overview' },
  { id: 'locks', title: 'Locks' },
  { id: 'leases', title: 'Leases' },
  { id: 'outbox', title: 'Outbox' },
  { id: 'events', title: 'Events' },
  { id: 'records', title: 'Records' },
]

function fromAddress(): PageTab {
  const wanted = location.hash.replace(/^#/, '').split('?', 1)[0]
  return TABS.find(({ id }) => id === wanted)?.id ?? 'overview'
}

/** The selected tab. It is part of the address, so a link to it can be shared. */
export const tab = signal<PageTab>(fromAddress())

window.addEventListener('hashchange', () => {
  // The skip link goes somewhere on the page, not to another tab.
  if (location.hash === '#main') return
  tab.value = fromAddress()
  if (location.hash.includes('?')) restoreAddress(tab.value)
  // Back on a tab, its filters are as they were.
  else stateAddress(tab.value)
})
