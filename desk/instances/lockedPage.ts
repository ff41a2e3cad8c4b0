import type { LeaseInfo } from 'pg-lockstep'
import { page, text } from '../http/page.ts'

/** An instance that is worked on just now. */
export interface Locked {
  readonly id: string
  readonly holder: string
  readonly since: string
  readonly leftMs: number
  readonly fence: string
}

export const PREFIX = 'Instance:'

export function lockedOf(leases: readonly LeaseInfo[]): Locked[] {
  return leases.flatMap(({ key, holders }) =>
    holders.map(({ holder, since, leftMs, fence }) => ({
      id: key.slice(PREFIX.length),
      holder,
      since: since.toISOString(),
      leftMs,
      fence: String(fence),
    })),
  )
}

/** The same for people. */
export function lockedPage(locked: readonly Locked[]): string {
  const rows = locked.map(
    ({ id, holder, since, leftMs, fence }) =>
      `<tr><td><a href="/instances/${encodeURIComponent(id)}">${text(id)}</a></td><td>${text(holder)}</td>` +
      `<td><time>${text(since)}</time></td><td>${leftMs} ms</td><td>${text(fence)}</td></tr>`,
  )
  const table =
    rows.length === 0
      ? '<p>None. A step takes 300 ms at most: reload while one is under way.</p>'
      : `<table><thead><tr><th>instance</th><th>worked on by</th><th>since</th><th>ends, unless renewed, in</th><th>fence</th></tr></thead>
         <tbody>${rows.join('')}</tbody></table>`
  return page(
    'Locked instances',
    `<h1>Instances that are worked on just now</h1>${table}<p><a href="/">The desk</a></p>`,
  )
}
