import { DriverUnsupportedError } from '../errors.ts'
import { checkTransaction } from '../transactions/index.ts'

/** What an ORM needs of a `tx`: every `Transaction` has it, whatever its events are. */
export interface OrmTransaction<Client = unknown> {
  readonly client: Client
  savepoint<T>(fn: (tx: OrmTransaction<Client>) => Promise<T>): Promise<T>
}

/** The drivers whose client `tx.client` can be. */
export type OrmDriverName = 'pg' | 'postgres.js'

/** Checks that it is a transaction, and tells which driver its client is of. */
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
