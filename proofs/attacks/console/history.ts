import type { Lab } from '../lab.ts'
import { ADD_EVENTS, ADD_LEASES } from '../console.sql.ts'

const AT_ONCE = 10_000

/** What has gathered in a database over time: events that were delivered and are retained, and leases that are held. */
export async function addHistory({ admin }: Lab, events: number, leases: number): Promise<void> {
  for (let added = 0; added < events; added += AT_ONCE) {
    await admin.query(ADD_EVENTS, [added + 1, Math.min(events, added + AT_ONCE)])
  }
  await admin.query(ADD_LEASES, [leases])
}
