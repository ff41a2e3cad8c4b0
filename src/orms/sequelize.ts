import type { Sequelize, Transaction } from 'sequelize'
import { openSavepoint } from './openSavepoint.ts'
import { checkDriver, type OrmTransaction, privateField, refuseToEnd } from './ormTransaction.ts'
import { type Query, withParsers, withQuery } from './parsingClient.ts'

export type { OrmTransaction } from './ormTransaction.ts'

const VERSIONS = 'sequelize 6 on pg'

/** What a transaction has beside its public interface. */
interface TransactionFields {
  connection?: object
  savepoints?: Transaction[]
}

const REFRESH = '_refreshDynamicOIDs'

/** What a Sequelize knows of the types of its database, once it has asked. */
interface ConnectionManager {
  readonly nameOidMap?: Readonly<Record<string, unknown>>
  getTypeParser?(oid: number, format?: string): (value: string) => unknown
  /** Asks the server through this client. */
  [REFRESH]?(client: object): Promise<void>
}

/**
 * Sequelize in a transaction of Lockstep: pass the result as `transaction` to every call. The call then runs under the locks of the
 * transaction, and commits with it. `instance.transaction({ transaction }, fn)` is a savepoint.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const transaction = sequelize(tx, instance)
 *   const account = await Account.findByPk(id, { transaction, rejectOnEmpty: true })
 *   await account.increment('balance', { by: amount, transaction })
 * })
 */
export function sequelize(tx: OrmTransaction, instance: Sequelize): Transaction {
  checkDriver('sequelize()', tx, 'pg', 'Sequelize has no driver for postgres.js. Give Lockstep a pg.Pool.')
  // The instance's own class: Sequelize refuses a transaction of another copy of itself.
  const { Transaction: OwnTransaction } = instance.constructor as unknown as Partial<
    Record<'Transaction', new (instance: Sequelize, options: object) => Transaction>
  >
  const Class = privateField(OwnTransaction, { of: 'Sequelize', path: 'Transaction', versions: VERSIONS })
  const transaction = new Class(instance, {})
  onScope(transaction, tx, instance)
  return Object.assign(transaction, {
    commit: async () => refuseToEnd('transaction.commit()'),
    rollback: async () => refuseToEnd('transaction.rollback()'),
    afterCommit: refuseAfterCommit,
  })
}

/** It would never be called. What comes after COMMIT comes after lockstep.transaction(). */
const refuseAfterCommit = (): never => refuseToEnd('transaction.afterCommit()')

/**
 * The client of a transaction that Sequelize opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await instance.transaction(async (transaction) => {
 *   await lockstep.outbox.enqueue(clientOf(transaction), { topic: 'accounts', key: id, payload: account })
 * })
 */
export function clientOf(transaction: Transaction): object {
  return privateField((transaction as TransactionFields).connection, {
    of: 'The transaction that clientOf() was given',
    path: 'connection',
    versions: VERSIONS,
  })
}

/** Sends what belongs to this transaction of Sequelize through a scope of Lockstep. */
function onScope(transaction: Transaction & TransactionFields, tx: OrmTransaction, instance: Sequelize): void {
  transaction.connection = clientFor(tx.client as object, instance)
  const savepoints = privateField(transaction.savepoints, {
    of: 'The transaction',
    path: 'savepoints',
    versions: VERSIONS,
  })
  // Sequelize announces a nested transaction here, and here alone. It would send SAVEPOINT, and nothing at its commit.
  savepoints.push = (...nested) => {
    for (const each of nested) nestIn(each, tx, instance)
    return Array.prototype.push.apply(savepoints, nested)
  }
}

/**
 * Makes a nested transaction of Sequelize a savepoint of Lockstep, which waits for its turn beside its siblings. One without a function stays
 * a savepoint of Sequelize's own: findOrCreate() opens such a one, and never ends it.
 */
function nestIn(nested: Transaction & TransactionFields, tx: OrmTransaction, instance: Sequelize): void {
  const { prepareEnvironment } = nested as { prepareEnvironment?: (hasFunction: boolean) => Promise<void> }
  const prepare = privateField(prepareEnvironment?.bind(nested), {
    of: 'A transaction',
    path: PREPARE,
    versions: VERSIONS,
  })
  Object.assign(nested, {
    afterCommit: refuseAfterCommit,
    async [PREPARE](hasFunction: boolean) {
      if (!hasFunction) {
        onScope(nested, tx, instance)
        return prepare(hasFunction)
      }
      const savepoint = await openSavepoint(tx)
      onScope(nested, savepoint.tx, instance)
      return Object.assign(nested, { commit: savepoint.release, rollback: savepoint.rollBack })
    },
  })
}

const PREPARE = 'prepareEnvironment'

/** The client with Sequelize's parsers. It learns the numbers of the types when it connects; if it has not yet, it asks through ours. */
function clientFor(client: object, instance: Sequelize): object {
  const manager = (instance as unknown as { connectionManager: ConnectionManager }).connectionManager
  const path = 'connectionManager.getTypeParser'
  const getTypeParser = privateField(manager.getTypeParser?.bind(manager), {
    of: 'Sequelize',
    path,
    versions: VERSIONS,
  })
  const parsing = withParsers(client, { getTypeParser })
  if (knowsTypes(manager)) return parsing
  let asked: Promise<void> | undefined
  return withQuery(parsing, (query, given) => {
    if (knowsTypes(manager)) return query(...given)
    asked ??= manager[REFRESH]?.(parsing) ?? Promise.resolve()
    return queryAfter(asked, query, given)
  })
}

async function queryAfter(ready: Promise<void>, query: Query, given: readonly unknown[]): Promise<unknown> {
  // If it fails, the answer to the statement itself says what is wrong.
  await ready.catch(() => undefined)
  const callback = given.at(-1)
  if (typeof callback !== 'function') return query(...given)
  try {
    return query(...given)
  } catch (error) {
    return process.nextTick(callback, error)
  }
}

function knowsTypes({ nameOidMap = {} }: ConnectionManager): boolean {
  return Object.keys(nameOidMap).length > 0
}
