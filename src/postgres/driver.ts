import { DriverUnsupported } from '../errors.ts'
import type { Driver } from './connection.ts'
import { pgDriver, type PgPool } from './pgDriver.ts'
import { postgresJsDriver, type PostgresJs } from './postgresJsDriver.ts'

/** What `new Lockstep()` takes: a `pg` pool, or the `sql` of postgres.js. */
export type Pool = PgPool | PostgresJs

/** Tells the two drivers apart by what they can do. */
export function driverFor(pool: unknown): Driver {
  if (typeof pool === 'function' && 'reserve' in pool && 'unsafe' in pool)
    return postgresJsDriver(pool as unknown as PostgresJs)
  // A single pg.Client has connect() too, but not the pool's counters.
  if (typeof pool === 'object' && pool !== null && 'connect' in pool && 'totalCount' in pool)
    return pgDriver(pool as PgPool)
  throw new DriverUnsupported('new Lockstep() was given something that is neither a pg.Pool nor a postgres.js sql.', {
    advice: 'Pass `new pg.Pool(…)` or `postgres(…)`; a single pg.Client cannot serve callers that wait for each other.',
  })
}
