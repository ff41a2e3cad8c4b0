import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, type Pool } from '../index.ts'
import { moveClocks } from '../leases/index.ts'
import { checkSchemaName, driverFor, quoteIdentifier, withConnection } from '../postgres/index.ts'
import { ageLeases } from './testing.sql.ts'

/** What `advanceLeases()` takes. */
export interface AdvanceLeasesOptions {
  /** The schema of Lockstep's tables. Default `lockstep`. */
  readonly schema?: string
}

const ADVANCE_LEASES_OPTIONS: OptionNames<AdvanceLeasesOptions> = { schema: true }

/**
 * Lets time pass for every lease of the database, at once and without a heartbeat in between, as while a process is frozen. Leases whose
 * time is over are free. Their holders in this process lose them before the call returns: `lease.signal` is aborted. Holders in other
 * processes find out with their next heartbeat. Transactions, wait times and the clock of your own code do not move. The lease clock is that
 * of the process: leases that it holds on other databases age as well.
 *
 * @example
 * const lease = await lockstep.leases.acquire(key`Instance:${id}`, { ttlMs: 30_000 })
 * await advanceLeases(pool, 30_000)
 * assert.equal(lease.signal.aborted, true)
 */
export async function advanceLeases(pool: Pool, ms: number, options: AdvanceLeasesOptions = {}): Promise<void> {
  checkOptions('advanceLeases()', options, ADVANCE_LEASES_OPTIONS)
  if (!Number.isFinite(ms) || ms <= 0) {
    throw new InvalidOptionError(`advanceLeases() was given ${String(ms)}.`, {
      advice: 'Pass a number of milliseconds above 0.',
    })
  }
  const quotedSchema = quoteIdentifier(checkSchemaName(options.schema ?? 'lockstep'))
  await withConnection(driverFor(pool), (connection) => connection.script(ageLeases(quotedSchema, ms)))
  moveClocks(ms)
}
