import { setTimeout as sleep } from 'node:timers/promises'
import { checkFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import { LockAbortedError, QueueFullError } from '../errors.ts'
import { closedError, type Key } from '../locks/index.ts'
import type { HeldLease, Lease } from './lease.ts'
import type { Leases } from './leases.ts'
import { checkLeaseKey, type LeaseOptions, planLease } from './options.ts'
import { isUnreachable } from './acquireProgress.ts'

/** Options of `lockstep.leader()`: those of a lease, except `waitMs`: a candidate waits without limit, because it stands by for the leader. */
export type LeaderOptions = Pick<LeaseOptions, 'ttlMs' | 'signal' | 'holder' | 'metadata'>

const LEADER_OPTIONS: OptionNames<LeaderOptions> = { ttlMs: true, signal: true, holder: true, metadata: true }

/** While the database is away, it is asked this often. */
const AWAY_MS = 1000

/**
 * Runs the function in one process at a time. It waits until it is the leader, runs, and stands again when leadership was lost,
 * whatever the function returned or threw after that, and also while the database is away. It comes back with what the function
 * returned, or when the signal is aborted.
 */
export async function leader<T, Client>(
  leases: Leases<Client>,
  key: Key,
  options: LeaderOptions,
  run: (lease: Lease<Client>) => Promise<T>,
): Promise<T | undefined> {
  checkLeaseKey(key)
  checkOptions('leader()', options, LEADER_OPTIONS)
  checkFunction('leader()', run)
  const plan = planLease({ ...options, waitMs: false })
  for (;;) {
    let lease: HeldLease
    try {
      lease = await leases.hold(key, plan)
    } catch (error) {
      if (error instanceof LockAbortedError) return undefined
      // Too many wait in this process just now: that passes, as a database does that is away.
      if (!isUnreachable(error) && !(error instanceof QueueFullError)) throw error
      await sleep(AWAY_MS * (0.5 + Math.random()))
      continue
    }
    // Otherwise it would continue forever, and `close()` would wait for it.
    if (leases.closed) {
      await lease.release()
      throw closedError([key])
    }
    const forget = leases.onClose(() => lease.lose('closed'))
    try {
      const value = await run(lease as unknown as Lease<Client>)
      // One that ends because it has lost the lead stands again.
      if (lease.loss === undefined || mustEnd(lease, plan.signal)) return value
    } catch (error) {
      // What its own signal ended is the function's error, whether or not the lease was lost.
      if (plan.signal?.aborted === true) throw error
      if (lease.loss === undefined || lease.loss.reason === 'closed') throw lease.explain(error)
    } finally {
      forget()
      await lease.release()
    }
  }
}

function mustEnd(lease: HeldLease, signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true || lease.loss?.reason === 'closed'
}
