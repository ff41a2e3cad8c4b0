import { DriverUnsupportedError, TransactionControlError } from '../errors.ts'
import { checkTransaction, type Isolation } from '../transactions/index.ts'

/** What an ORM needs of a `tx`: every `Transaction` has it, whatever its events are. */
export interface OrmTransaction<Client = unknown> {
  readonly isolation: Isolation
  readonly client: Client
  savepoint<T>(fn: (tx: OrmTransaction<Client>) => Promise<T>): Promise<T>
}

/** The drivers whose client `tx.client` can be. */
export type OrmDriverName = 'pg' | 'postgres.js'

/** Checks that it is a transaction, and returns the driver of its client. */
export function driverOf(where: string, tx: OrmTransaction): OrmDriverName {
  checkTransaction(where, tx)
  return typeof (tx.client as { unsafe?: unknown }).unsafe === 'function' ? 'postgres.js' : 'pg'
}

/** Refuses a transaction of the other driver, which the ORM could not send a statement with. */
export function checkDriver(where: string, tx: OrmTransaction, needed: OrmDriverName, advice: string): void {
  const driver = driverOf(where, tx)
  if (driver === needed) return
  throw new DriverUnsupportedError(`${where} needs a Lockstep on ${needed}, and this one is on ${driver}.`, { advice })
}

/**
 * Reads a field that an ORM does not publish. `path` is how the field is reached, for the message; `versions` are those in which it was
 * seen to be there.
 */
export function privateField<Value>(
  found: Value | undefined | null,
  { of, path, versions }: { readonly of: string; readonly path: string; readonly versions: string },
): Value {
  if (found !== undefined && found !== null) return found
  throw new DriverUnsupportedError(`${of} has no ${path}.`, {
    advice: `Lockstep works with ${versions}. Check which version is installed, and that the value is a transaction of it.`,
  })
}

/** A nested transaction has the isolation level of the outer one: PostgreSQL has one for each transaction. */
export function checkIsolation(where: string, tx: OrmTransaction, wanted: string | undefined): void {
  if (wanted === undefined) return
  const level = wanted.toLowerCase()
  if (level === tx.isolation || (level === 'read uncommitted' && tx.isolation === 'read committed')) return
  throw new TransactionControlError(`${where} asks for ${level}, and the transaction is ${tx.isolation}.`, {
    advice:
      'Pass the isolation level to lockstep.transaction(). A nested transaction is a savepoint, and has no level of its own.',
  })
}

/** What an ORM's COMMIT and ROLLBACK of the whole transaction do. */
export function refuseToEnd(method: string): never {
  throw new TransactionControlError(`${method} was called on a transaction of Lockstep.`, {
    advice: 'Return from the function to commit, throw to roll back.',
  })
}

/** Whether nothing can be sent through it any more. */
export function hasEnded(tx: OrmTransaction): boolean {
  try {
    return tx.client === undefined
  } catch {
    return true
  }
}
