import { checkFunction, checkOptions } from '../checkOptions.ts'
import {
  CommitOutcomeUnknownError,
  InvalidOptionError,
  LeaseLostError,
  LeaseTransactionTooLongError,
  NestedTransactionError,
} from '../errors.ts'
import { Closing } from '../locks/index.ts'
import { findCause, meansSessionTimedOut } from '../postgres/index.ts'
import {
  belongsTo,
  type LockstepContext,
  planTransaction,
  readText,
  refuseInside,
  runTransaction,
  type Transaction,
  TRANSACTION_OPTIONS,
  type TransactionOptions,
} from '../transactions/index.ts'
import { isUnreachable } from './acquireProgress.ts'
import { monotonicMs } from './clock.ts'
import type { GuardedTransaction, HeldLease, Lease } from './lease.ts'
import { guard, SEES_LEASE } from './leases.sql.ts'

/** Who holds a lease is served to its end, also while its Lockstep is being closed. */
const NEVER = new Closing()

/** What a caller inside a transaction has to use instead. */
const TRANSACTION = { call: 'lease.transaction()', instead: 'lease.guard(tx)' }

/** A transaction that cannot commit once another caller has the lease. */
export async function transactionUnderLease<T>(
  context: LockstepContext,
  lease: HeldLease,
  options: TransactionOptions,
  fn: (tx: Transaction) => Promise<T>,
): Promise<T> {
  checkOptions('lease.transaction()', options, TRANSACTION_OPTIONS)
  checkFunction('lease.transaction()', fn)
  lease.assertHeld()
  const plan = planTransaction(context, options, NEVER)
  refuseInside(context, [lease.key], TRANSACTION)
  let endsAt = Infinity
  try {
    return await runTransaction(context, plan, async (tx) => {
      lease.assertHeld()
      // The last attempt was ended by the server's bound: the next would take as long.
      if (performance.now() >= endsAt) throw tooLong(lease)
      endsAt = performance.now() + boundMsOf(lease)
      await lockRow(context, lease, tx)
      return fn(tx)
    })
  } catch (error) {
    if (error instanceof LeaseLostError || error instanceof CommitOutcomeUnknownError || !endedByServer(error))
      throw error
    // What the server has ended at the end of our trust is the lease's end, whatever the driver calls it.
    if (lease.trustedMs <= 0) lease.assertHeld()
    throw performance.now() >= endsAt ? tooLong(lease) : error
  }
}

/** A transaction of a lease that does not exclude: without the guard, which would have no row to lock. */
export async function transactionWithoutGuard<T>(
  context: LockstepContext,
  lease: Pick<Lease, 'key' | 'assertHeld'>,
  options: TransactionOptions,
  fn: (tx: Transaction) => Promise<T>,
): Promise<T> {
  checkOptions('lease.transaction()', options, TRANSACTION_OPTIONS)
  checkFunction('lease.transaction()', fn)
  lease.assertHeld()
  const plan = planTransaction(context, options, NEVER)
  refuseInside(context, [lease.key], TRANSACTION)
  return runTransaction(context, plan, fn)
}

/** Guards an open transaction of the caller's: from here on it cannot commit once another holder has the lease. */
export async function guardTransaction(
  context: LockstepContext,
  lease: HeldLease,
  tx: GuardedTransaction,
): Promise<void> {
  refuseOtherTransactions(context, lease, tx)
  lease.assertHeld()
  await lockRow(context, lease, tx)
}

/** Refuses what is no open transaction of the lease's Lockstep. */
export function refuseOtherTransactions(
  context: LockstepContext,
  lease: Pick<Lease, 'key'>,
  tx: GuardedTransaction,
): void {
  if (!belongsTo(tx, context)) {
    throw new InvalidOptionError('lease.guard() was given no transaction of the Lockstep that the lease is of.', {
      advice: 'Pass the `tx` of lockstep.transaction(), or what lockstep.join(client) gives.',
      keys: [lease.key],
    })
  }
}

/** Keeps the next holder out to the end of the transaction, and has the server end that with our trust. */
async function lockRow({ quotedSchema }: LockstepContext, lease: HeldLease, tx: GuardedTransaction): Promise<void> {
  const values = [lease.key, lease.token, String(boundMsOf(lease)), String(lease.fence)]
  const { rowCount } = await readText(tx, guard(quotedSchema), values)
  if (rowCount === 0) {
    const heldForMs = monotonicMs() - lease.since.monotonic
    const { rowCount: seen } = await readText(tx, SEES_LEASE, [String(heldForMs)])
    if (seen === 0) throw acquiredLater(lease)
    lease.lose('taken away')
  }
  lease.assertHeld()
}

function boundMsOf(lease: HeldLease): number {
  return Math.max(1, Math.ceil(lease.trustedMs))
}

function acquiredLater({ key }: HeldLease): NestedTransactionError {
  return new NestedTransactionError(
    `The lease on ${key} was acquired after the snapshot of this transaction was taken.`,
    {
      advice: 'It cannot be seen there. Acquire it before the transaction begins, or use READ COMMITTED.',
      keys: [key],
    },
  )
}

function endedByServer(error: unknown): boolean {
  return findCause(error, (cause) => meansSessionTimedOut(cause) || isUnreachable(cause)) !== undefined
}

function tooLong(lease: HeldLease): LeaseTransactionTooLongError {
  return new LeaseTransactionTooLongError(
    `A transaction under the lease on ${lease.key} took longer than the lease was certain when it began, and the server ended it.`,
    { advice: 'Nothing was written. Make it shorter, or the ttlMs longer.', keys: [lease.key] },
  )
}
