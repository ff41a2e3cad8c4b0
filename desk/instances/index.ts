/**
 * Instances: one request at a time moves a process on, with a slow step in it.
 *
 * **What goes wrong without.** Two requests to `process/next` come close together, from a double click or an impatient retry. Both read
 * "reserve", both do it, and the instance ends in a state that no process has. A database lock would help, but it holds a connection
 * for as long as the slow step takes, and a dozen such requests leave none for others. A lock in a table helps until its holder is
 * stopped, comes back after the lock has expired, and writes all the same.
 *
 * **The pattern.** A lease on the instance, held without a connection while the request works (`exclusive`). The second request receives
 * 409 at once, with the request, the task and since when it is worked on; or it waits for its turn (`Prefer: wait=5`). A request can say which
 * step it means (`If-Match`, `{"from": "reserve"}`); where the instance is elsewhere it gets 412 and moves nothing. Cancelling is under
 * the same lease. What the request writes, it writes through the lease: a holder that has lost it cannot commit. Every step has the fence of its
 * lease. A retried request gets the first one's answer (`idempotent`), and a step carries its request's key, so that one whose answer was
 * lost in a crash is not taken again.
 *
 * **What is promised.** Each step is taken once, in the order of the process, with rising fences. A request takes one step at most, however
 * often it is repeated. After a crash the instance is free again when the lease has ended.
 *
 * The border: the slow task itself is outside the database. After a crash in the middle of it it is run again, with the same id: the provider
 * of payments makes one charge of it (`payments.ts`). One that does not honor an id charges twice.
 */
import type { System } from '../desk.ts'
import { findingsOf } from '../findings.ts'
import { CHARGES_DIFFER, FENCES_FALL, OUT_OF_ORDER, REQUEST_TWICE, SCHEMA, STEPS_DIFFER } from './instances.sql.ts'
import { instanceRoutes } from './routes.ts'

export const instances: System = {
  name: 'instances',
  schema: SCHEMA,
  routes: instanceRoutes,
  check: (pool) =>
    findingsOf(pool, {
      'each step is taken once, in order': OUT_OF_ORDER,
      'an instance has as many steps as it counts': STEPS_DIFFER,
      'fences rise from step to step': FENCES_FALL,
      'a request takes one step at most': REQUEST_TWICE,
      'what was charged is what the instances say': CHARGES_DIFFER,
    }),
}
