import { expect } from 'vitest'
import { type Key, key, type Lease, type Transaction } from '../../../src/index.ts'
import { on } from '../../../src/observe/index.ts'
import { signal, testBench, type Workbench } from './workbench.ts'

export interface LeaseBench extends Workbench {
  /** Ends the lease's time, as after a step of the database's clock, or where no heartbeat gets through. */
  expire(name: Key): Promise<unknown>
  isHeld(name: Key): Promise<boolean>
  /** Resolves when so many rows wait in the queue. */
  queued(name: Key, count: number): Promise<void>
  /** A transaction under the lease that stays open until the returned function is called. */
  openUnder(lease: Lease, work?: (tx: Transaction) => Promise<unknown>): Promise<() => Promise<void>>
}

let names = 0
/** A lease that no other test of the file uses. */
export const fresh = (): Key => key`Lease:${++names}`

/** Resolves when the lease is lost. */
export const lost = (lease: Lease): Promise<void> =>
  new Promise((resolve) => lease.signal.addEventListener('abort', () => resolve(), { once: true }))

/** Resolves with the next event of that lease. */
export function nextEvent(event: 'lease.renewed' | 'lease.unreachable' | 'lease.refused', name: Key): Promise<void> {
  return new Promise((resolve) => {
    const stop = on(event, (message) => {
      if (message.key !== name) return
      stop()
      resolve()
    })
  })
}

export async function leaseBench(): Promise<LeaseBench> {
  const bench = await testBench()
  const count = async (text: string, name: Key): Promise<number> =>
    (await bench.admin.query(text, [name])).rowCount ?? 0
  return {
    ...bench,
    expire: (name) =>
      bench.admin.query('UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1', [name]),
    isHeld: async (name) =>
      (await count(
        'SELECT FROM lockstep.leases WHERE name = $1 AND token IS NOT NULL AND expires_at > clock_timestamp()',
        name,
      )) > 0,
    queued: (name, wanted) =>
      expect.poll(() => count('SELECT FROM lockstep.lease_waiters WHERE name = $1', name)).toBe(wanted),
    async openUnder(lease, work) {
      const [open, end] = [signal(), signal()]
      const running = lease.transaction({}, async (tx) => {
        open.give()
        await end.given
        await work?.(tx)
      })
      await Promise.race([open.given, running])
      return async () => {
        end.give()
        await running
      }
    },
  }
}
