import { CommitOutcomeUnknown, InvalidOption, LeaseLost, LeaseTransactionTooLong } from '../errors.ts'
import { Closing } from '../locks/index.ts'
import { findCause, meansSessionTimedOut } from '../postgres/index.ts'
import {
  type Grounds,
  planTransaction,
  readText,
  runTransaction,
  type Transaction,
  type TransactionOptions,
} from '../transactions/index.ts'
import type { HeldLease } from './lease.ts'
import { guard } from './leases.sql.ts'
import { isLost } from './take.ts'

/** Who holds a lease is served to its end, also while its Lockstep is being closed. */
const NEVER = new Closing()

/** A transaction that cannot commit once somebody else has the lease. */
export async function transactUnder<T>(
  grounds: Grounds,
  lease: HeldLease,
  options: TransactionOptions,
  fn: (tx: Transaction) => Promise<T>,
): Promise<T> {
  if (typeof fn !== 'function') {
    throw new InvalidOption('lease.transaction() was given no function.', {
      advice: 'Call lease.transaction(async (tx) => …), or with options before it.',
    })
  }
  lease.assertHeld()
  const text = guard(grounds.quotedSchema)
  const plan = planTransaction(grounds, options, NEVER)
  let endsAt = Infinity
  try {
    return await runTransaction(grounds, plan, async (tx) => {
      lease.assertHeld()
      // The last attempt was ended by the server's bound: the next would take as long.
      if (performance.now() >= endsAt) throw tooLong(lease)
      const boundMs = Math.max(1, Math.ceil(lease.trustedMs))
      endsAt = performance.now() + boundMs
      const { rowCount } = await readText(tx, text, [lease.key, lease.token, String(boundMs), String(lease.fence)])
      if (rowCount === 0) lease.lose('taken away')
      lease.assertHeld()
      return fn(tx)
    })
  } catch (error) {
    if (error instanceof LeaseLost || error instanceof CommitOutcomeUnknown || !endedByServer(error)) throw error
    // What the server has ended at the end of our trust is the lease's end, whatever the driver calls it.
    if (lease.trustedMs <= 0) lease.assertHeld()
    throw performance.now() >= endsAt ? tooLong(lease) : error
  }
}

function endedByServer(error: unknown): boolean {
  return findCause(error, (cause) => meansSessionTimedOut(cause) || isLost(cause)) !== undefined
}

function tooLong(lease: HeldLease): LeaseTransactionTooLong {
  return new LeaseTransactionTooLong(
    `A transaction under the lease on ${lease.key} took longer than the lease was certain when it began, and the server ended it.`,
    { advice: 'Nothing was written. Make it shorter, or the ttlMs longer.', keys: [lease.key] },
  )
}
