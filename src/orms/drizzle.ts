import type { ExtractTablesWithRelations } from 'drizzle-orm'
import { type NodePgClient, NodePgSession, NodePgTransaction } from 'drizzle-orm/node-postgres'
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

/** Drizzle's own transaction object on node-postgres, with the types of a schema. */
export type DrizzleTransaction<Schema extends Record<string, unknown> = Record<string, never>> = NodePgTransaction<
  Schema,
  ExtractTablesWithRelations<Schema>
>

/**
 * Drizzle in a transaction of Lockstep on `pg`: every query runs under the locks of the transaction, and commits with it.
 * `db.transaction()` is a savepoint.
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
  checkDriver('drizzle()', tx, 'pg', "With postgres.js, import it from 'pg-lockstep/drizzle-postgres-js'.")
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
  return clientOfSession(transaction, 'node-postgres')
}

class PartOfTransaction<Schema extends Record<string, unknown>> extends NodePgTransaction<
  Schema,
  ExtractTablesWithRelations<Schema>
> {
  readonly #tx: OrmTransaction
  readonly #settings: DrizzleSettings<Schema>

  constructor(tx: OrmTransaction, settings: DrizzleSettings<Schema>) {
    const { dialect, relations, logger } = settings
    super(dialect, new NodePgSession(tx.client as NodePgClient, dialect, relations, { logger }), relations)
    this.#tx = tx
    this.#settings = settings
  }

  /** Drizzle's own would name all savepoints of one depth alike, and siblings that run at once would roll back each other's work. */
  override transaction<T>(fn: (part: DrizzleTransaction<Schema>) => Promise<T>): Promise<T> {
    return this.#tx.savepoint((inner) => fn(new PartOfTransaction(inner, this.#settings)))
  }
}
