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

/** The selected tab. It is part of the address, so a link to it can be shared. */
export const tab = signal<Tab>(fromAddress())

window.addEventListener('hashchange', () => {
  // The skip link goes somewhere on the page, not to another tab.
  if (location.hash !== '#main') tab.value = fromAddress()
})
