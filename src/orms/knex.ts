import type { Knex } from 'knex'
import { DriverUnsupportedError } from '../errors.ts'
import { KNEX_BEGIN, readOnly } from './orms.sql.ts'
import {
  checkDriver,
  checkIsolation,
  hasEnded,
  type OrmTransaction,
  privateField,
  refuseToEnd,
} from './ormTransaction.ts'

export type { OrmTransaction } from './ormTransaction.ts'

const VERSIONS = 'knex 3.3 on pg'

/**
 * Knex in a transaction of Lockstep on `pg`: every query runs under the locks of the transaction, and commits with it.
 * `trx.transaction()` is a savepoint. Of the instance, only the settings are used, not its pool.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const trx = await knex(tx, instance)
 *   const account = await trx('accounts').where({ id }).first()
 * })
 */
export async function knex<TRecord extends object, TResult>(
  tx: OrmTransaction,
  instance: Knex<TRecord, TResult>,
): Promise<Knex.Transaction<TRecord, TResult>> {
  checkDriver('knex()', tx, 'pg', 'Knex works with pg: give Lockstep a pool of pg.')
  return (await openPart(tx, instance as unknown as Knex)) as unknown as Knex.Transaction<TRecord, TResult>
}

/**
 * The client of a transaction that Knex opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await instance.transaction(async (trx) => {
 *   await lockstep.outbox.enqueue(await clientOf(trx), { topic: 'accounts', key: id, payload: account })
 * })
 */
export async function clientOf(transaction: Knex.Transaction): Promise<object> {
  const { client, isTransaction } = transaction as { client?: { acquireConnection?: () => Promise<object> } } & Knex
  const acquire = isTransaction === true ? client?.acquireConnection : undefined
  return privateField(acquire, {
    of: 'What clientOf() was given',
    path: 'client.acquireConnection of a transaction',
    versions: VERSIONS,
  }).call(client)
}

/** The methods of Knex's transaction that end it, and the one that begins another in it. */
interface Ends {
  commit: (value?: unknown) => Promise<unknown>
  rollback: (error?: unknown) => Promise<unknown>
  isCompleted: () => boolean
  executionPromise: Promise<unknown>
  parentTransaction?: object
  /** Where `transaction()`, `savepoint()` and `batchInsert()` lead to. */
  readonly context: { transaction: Nest }
}

type Part = Omit<Knex.Transaction, keyof Ends> & Ends
type Container = (part: Part) => unknown
type Nest = (container?: Container | NestedConfig, config?: NestedConfig) => Promise<unknown>
type NestedConfig = Pick<Knex.TransactionConfig, 'isolationLevel' | 'readOnly' | 'doNotRejectOnRollback'>

async function openPart(tx: OrmTransaction, instance: Knex, outer?: Part): Promise<Part> {
  const part = (await instance.transaction({ connection: withoutBegin(tx.client as PgClient) })) as unknown as Part
  const context = privateField(part.context, { of: 'A transaction of Knex', path: 'context', versions: VERSIONS })
  part.commit = async () => refuseToEnd('commit()')
  part.rollback = async () => refuseToEnd('rollback()')
  part.isCompleted = () => hasEnded(tx)
  if (outer !== undefined) part.parentTransaction = outer
  context.transaction = (container, config) => {
    const open = (inner: OrmTransaction): Promise<Part> => openPart(inner, instance, part)
    if (typeof container === 'function') return runNested(tx, open, container, config)
    // Without a function, the caller ends it by commit() or rollback().
    return new Promise((resolve, reject) => {
      runNested(tx, open, resolve as Container, container ?? config).catch(reject)
    })
  }
  return part
}

/** The error of a rollback() without one. */
class RolledBack extends Error {}

function runNested(
  tx: OrmTransaction,
  open: (inner: OrmTransaction) => Promise<Part>,
  container: Container,
  config: NestedConfig = {},
): Promise<unknown> {
  checkIsolation('trx.transaction()', tx, config.isolationLevel)
  const running = tx.savepoint(async (inner) => {
    const part = await open(inner)
    if (config.readOnly === true) await part.raw(readOnly())
    return new Promise<unknown>((resolve, reject) => {
      part.executionPromise = ended
      part.commit = (value) => {
        resolve(value)
        return ended
      }
      part.rollback = (reason = new RolledBack('Transaction rejected with non-error: undefined')) => {
        reject(reason instanceof Error ? reason : new Error(String(reason), { cause: reason }))
        return undone
      }
      const result = container(part)
      if (isThenable(result)) result.then(resolve, reject)
    })
  })
  const ended = running.catch((error: unknown) => {
    // As Knex does: asked for without a reason, it is no failure.
    if (error instanceof RolledBack && config.doNotRejectOnRollback !== false) return undefined
    throw error
  })
  const undone = ended.catch(() => undefined)
  return ended
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
}

type Callback = (error: unknown, result: object) => void

interface PgClient {
  query(config: { readonly text: string }, callback: Callback): unknown
}

/** The client, but for BEGIN, which Knex sends first: the transaction is open already. */
function withoutBegin(client: PgClient): object {
  let begun = false
  const query = (config: { readonly text: string }, callback: Callback): unknown => {
    if (begun) return client.query(config, callback)
    begun = true
    if (config.text === KNEX_BEGIN) return process.nextTick(callback, null, { rows: [], rowCount: null })
    const error = new DriverUnsupportedError(`Knex began a transaction with ${JSON.stringify(config.text)}.`, {
      advice: `Lockstep works with ${VERSIONS}. Check which version is installed.`,
    })
    return process.nextTick(callback, error)
  }
  return Object.create(client, { query: { value: query } }) as object
}
