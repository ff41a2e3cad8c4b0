import { DriverUnsupportedError } from '../errors.ts'
import type { Driver } from './connection.ts'
import type { PgPool } from './pgClient.ts'
import { pgDriver } from './pgDriver.ts'
import { postgresJsDriver, type PostgresJs } from './postgresJsDriver.ts'

/** What `new Lockstep()` takes: a `pg` pool, or the `sql` of postgres.js. */
export type Pool = PgPool | PostgresJs

/** An answer that has not come for this long will not come any more. */
export const DEFAULT_SILENCE_MS = 30_000

/** Recognizes the driver by its methods. */
export function driverFor(pool: unknown, silenceMs: number = DEFAULT_SILENCE_MS): Driver {
  if (isPostgresJs(pool)) return postgresJsDriver(pool, silenceMs)
  if (isPgPool(pool)) return pgDriver(pool, silenceMs)
  throw new DriverUnsupportedError(
    'new Lockstep() was given something that is neither a pg.Pool nor a postgres.js sql.',
    {
      advice:
        'Pass `new pg.Pool(…)` or `postgres(…)`; a single pg.Client cannot serve callers that wait for each other.',
    },
  )
}

/** Whether it hands out clients, and is none itself. */
export function isPool(candidate: unknown): boolean {
  return isPostgresJs(candidate) || isPgPool(candidate)
}

function isPostgresJs(candidate: unknown): candidate is PostgresJs {
  return typeof candidate === 'function' && 'reserve' in candidate && 'unsafe' in candidate
}

/** A single pg.Client has connect() too, but not the pool's counters. */
function isPgPool(candidate: unknown): candidate is PgPool {
  return typeof candidate === 'object' && candidate !== null && 'connect' in candidate && 'totalCount' in candidate
}
