import type { ExtractTablesWithRelations } from 'drizzle-orm'
import { drizzle as drizzleOn, PostgresJsSession, PostgresJsTransaction } from 'drizzle-orm/postgres-js'
import type { Sql, TransactionSql } from 'postgres'
import {
  clientOfSession,
  type DrizzleOptions,
  type DrizzleSettings,
  drizzleSettings,
  type SessionHolder,
} from './drizzleSettings.ts'
import { checkDriver, type OrmTransaction } from './ormTransaction.ts'

export type { DrizzleOptions, SessionHolder } from './drizzleSettings.ts'
export type { OrmTransaction } from './ormTransaction.ts'

/** Drizzle's own transaction object on postgres.js, with the types of a schema. */
export type DrizzleTransaction<Schema extends Record<string, unknown> = Record<string, never>> = PostgresJsTransaction<
  Schema,
  ExtractTablesWithRelations<Schema>
>

/** Options of postgres.js in which Drizzle has put its parsers. */
const prepared = new WeakSet<object>()

/**
 * Drizzle in a transaction of Lockstep on postgres.js: every query runs under the locks of the transaction, and commits with it.
 * `db.transaction()` is a savepoint. As Drizzle's own `drizzle()`, it changes the parsers of the pool: dates arrive as text.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const db = drizzle(tx, { schema })
 *   const [account] = await db.select().from(accounts).where(eq(accounts.id, id))
 * })
 */
export function drizzle<Schema extends Record<string, unknown> = Record<string, never>>(
  tx: OrmTransaction,
  options: DrizzleOptions<Schema> = {},
): DrizzleTransaction<Schema> {
  checkDriver('drizzle()', tx, 'postgres.js', "With pg, import it from 'pg-lockstep/drizzle'.")
  const sql = tx.client as Sql
  if (!prepared.has(sql.options)) {
    drizzleOn(sql)
    prepared.add(sql.options)
  }
  return new PartOfTransaction<Schema>(tx, drizzleSettings(options))
}

/**
 * The client of a transaction that Drizzle opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await db.transaction(async (part) => {
 *   await lockstep.outbox.enqueue(clientOf(part), { topic: 'accounts', key: id, payload: account })
 * })
 */
export function clientOf(transaction: SessionHolder): object {
  return clientOfSession(transaction, 'postgres-js')
}

/** `tx.client` has the methods of both. */
type VirtualSql = Sql & TransactionSql

class PartOfTransaction<Schema extends Record<string, unknown>> extends PostgresJsTransaction<
  Schema,
  ExtractTablesWithRelations<Schema>
> {
  readonly #tx: OrmTransaction
  readonly #settings: DrizzleSettings<Schema>

  constructor(tx: OrmTransaction, settings: DrizzleSettings<Schema>) {
    const { dialect, relations, logger } = settings
    super(dialect, new PostgresJsSession(tx.client as VirtualSql, dialect, relations, { logger }), relations)
    this.#tx = tx
    this.#settings = settings
  }

  override transaction<T>(fn: (part: DrizzleTransaction<Schema>) => Promise<T>): Promise<T> {
    return this.#tx.savepoint((inner) => fn(new PartOfTransaction(inner, this.#settings)))
  }
}
