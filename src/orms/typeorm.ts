import type { DataSource, EntityManager, QueryRunner } from 'typeorm'
import { checkDriver, checkIsolation, type OrmTransaction, privateField } from './ormTransaction.ts'

export type { OrmTransaction } from './ormTransaction.ts'

const VERSIONS = 'typeorm 1.0 and 1.1 on pg'

/** What a query runner has beside its public interface. */
interface RunnerFields {
  databaseConnection?: object
  transactionDepth?: number
}

/**
 * TypeORM in a transaction of Lockstep: everything that the entity manager and its repositories send runs under the locks of the
 * transaction, and commits with it. `manager.transaction()` is a savepoint.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const manager = typeorm(tx, dataSource)
 *   const account = await manager.findOneByOrFail(Account, { id })
 *   account.balance += amount
 *   await manager.save(account)
 * })
 */
export function typeorm(tx: OrmTransaction, dataSource: DataSource): EntityManager {
  checkDriver('typeorm()', tx, 'pg', 'TypeORM has no driver for postgres.js. Give Lockstep a pg.Pool.')
  const runner = dataSource.createQueryRunner() as QueryRunner & RunnerFields
  privateField(runner.transactionDepth, { of: 'The query runner', path: 'transactionDepth', versions: VERSIONS })
  const client = tx.client as object
  const { manager } = runner
  Object.assign(runner, {
    connect: () => Promise.resolve(client),
    databaseConnection: client,
    // save() and remove() open a transaction of their own unless one is open; startTransaction() is a savepoint at this depth.
    isTransactionActive: true,
    transactionDepth: 1,
  })
  // TypeORM's own names all savepoints of one depth alike, and siblings that run at once would roll back each other's work.
  manager.transaction = async <T>(...given: unknown[]): Promise<T> => {
    const [isolation, fn] = given.length > 1 ? given : [undefined, ...given]
    checkIsolation('manager.transaction()', tx, isolation as string | undefined)
    return tx.savepoint((inner) => (fn as (inner: EntityManager) => Promise<T>)(typeorm(inner, dataSource)))
  }
  return manager
}

/**
 * The client of a transaction that TypeORM opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await dataSource.transaction(async (manager) => {
 *   await lockstep.outbox.enqueue(clientOf(manager), { topic: 'accounts', key: id, payload: account })
 * })
 */
export function clientOf(manager: EntityManager): object {
  const runner: (QueryRunner & RunnerFields) | undefined = manager.queryRunner
  return privateField(runner?.databaseConnection, {
    of: 'The entity manager that clientOf() was given',
    path: 'queryRunner.databaseConnection',
    versions: VERSIONS,
  })
}
