import { signal } from '@preact/signals'
import type { Tab } from 'pg-lockstep/console'

export const TABS: readonly { readonly id: Tab; readonly title: string }[] = [
  { id: 'overview', title: 'Overview' },
  { id: 'locks', title: 'Locks' },
  { id: 'leases', title: 'Leases' },
  { id: 'outbox', title: 'Outbox' },
]

function fromAddress(): Tab {
  const wanted = location.hash.replace(/^#/, '')
  return TABS.find(({ id }) => id === wanted)?.id ?? 'overview'
}

/** What is looked at: the address says so, and can be sent to somebody. */
export const tab = signal<Tab>(fromAddress())

window.addEventListener('hashchange', () => {
  // The skip link goes somewhere on the page, not to another tab.
  if (location.hash !== '#main') tab.value = fromAddress()
})
