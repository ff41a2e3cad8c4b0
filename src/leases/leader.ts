import { LeaseLost, LockAborted } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import type { Lease } from './lease.ts'
import type { Leases } from './leases.ts'
import type { LeaseOptions } from './options.ts'

/** Options of `lockstep.leader()`: those of a lease, without those of its waiting. */
export type LeaderOptions = Pick<LeaseOptions, 'ttlMs' | 'signal' | 'holder' | 'metadata'>

/**
 * Runs the function in one process at a time. It waits until it is the leader, runs, and stands again when leadership was lost; it
 * comes back with what the function returned, or when the signal is aborted.
 */
export async function leader<T, Client>(
  leases: Leases<Client>,
  key: Key,
  run: (lease: Lease<Client>) => Promise<T>,
  options: LeaderOptions = {},
): Promise<T | undefined> {
  checkKey(key)
  for (;;) {
    try {
      return await leases.run(key, { ...options, waitMs: false }, run)
    } catch (error) {
      if (error instanceof LockAborted && options.signal?.aborted === true) return undefined
      if (!(error instanceof LeaseLost) || error.reason === 'closed') throw error
      if (options.signal?.aborted === true) return undefined
    }
  }
}
