// What a user's compiler refuses, also one that is less strict than ours: see `exactOptionalPropertyTypes` in consumer.ts.
import pg from 'pg'
import { type Key, Lockstep, type TransactionOptions } from 'pg-lockstep'

const lockstep = new Lockstep(new pg.Pool({ connectionString: 'postgres://127.0.0.1:1/x' }))
const nothing = async (): Promise<void> => undefined

export function refused(found: Key | undefined): void {
  // @ts-expect-error without the key it would run unlocked
  void lockstep.transaction({ lock: found }, nothing)
  // @ts-expect-error the same
  void lockstep.transaction({ lockShared: undefined }, nothing)
  // @ts-expect-error the same
  void lockstep.join({}, { lock: found })
  // @ts-expect-error the same, under a lease
  void lockstep.lease('Job:1', {}, (lease) => lease.transaction({ lock: found }, nothing))
  // @ts-expect-error nothing would be found or created once
  void lockstep.once(found, { find: nothing, create: async () => 1 })
  // @ts-expect-error it is called lock
  void lockstep.transaction({ locks: 'Transfer:1' }, nothing)
  const misspelled = { locks: 'Transfer:1', waitMs: 5 }
  // @ts-expect-error the same in a variable
  void lockstep.transaction(misspelled, nothing)
}

export function accepted(options: TransactionOptions, signal: AbortSignal): void {
  void lockstep.transaction(options, nothing)
  void lockstep.transaction({ ...options, lock: 'Transfer:1', signal }, nothing)
  void lockstep.transaction<void>({ lock: ['Transfer:1', 'Transfer:2'] }, nothing)
}
