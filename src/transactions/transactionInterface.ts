import type { OptionNames } from '../checkOptions.ts'
import type { Key } from '../locks/index.ts'
import type { StatementResult } from '../postgres/index.ts'
import { EVENT_OPTIONS, type EventMap, type EventMethods, type EventOptions } from '../events/index.ts'
import type { TransactionOptions } from './options.ts'
import type { Isolation } from './isolation.ts'

/** An open transaction, in the caller's hands. */
export interface Transaction<Client = unknown, Events extends object = EventMap> extends EventMethods<Events> {
  readonly isolation: Isolation
  /**
   * Runs one statement.
   *
   * @example
   * const { rows } = await tx.query<{ balance: string }>('SELECT balance FROM accounts WHERE id = $1', [id])
   */
  query<Row = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>>
  /**
   * Has a statement whose rows are not wanted sent together with COMMIT, after everything else: one round trip less while the locks
   * are held. Where it fails, the transaction fails. In a transaction of the caller's own (`join`) it runs at once.
   *
   * @example
   * await tx.queryAtCommit('UPDATE accounts SET balance = balance + $1 WHERE id = $2', [amount, id])
   */
  queryAtCommit(text: string, values?: readonly unknown[]): Promise<void>
  /** Runs the function in a savepoint: if it throws, what it did is undone and the transaction continues. */
  savepoint<T>(fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
  /**
   * Runs the function as a part of this transaction: a savepoint, whose locks this transaction must hold and whose isolation it must
   * have. Otherwise it is refused with `NestedTransactionError`. It commits with this transaction, not before.
   *
   * @example
   * await tx.transaction({ lock: key`Stock:${item}` }, async (part) => {
   *   await part.query('UPDATE stock SET left = left - 1 WHERE item = $1', [item])
   * })
   */
  transaction<T>(options: NestedOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
  /**
   * Finds a thing or creates it, as a part of this transaction, which must hold the key. `created: true` means: created by this
   * transaction, and undone with it.
   *
   * @example
   * const { value } = await tx.once(key`Position:${symbol}`, { find, create })
   */
  once<Value>(key: Key, options: NestedOnceOptions<Value, Client, Events>): Promise<OnceResult<Value>>
  /**
   * A client of the driver, for query builders and ORMs. On it BEGIN opens a savepoint, COMMIT releases it and ROLLBACK rolls it back.
   * `await tx.client.connect()` (postgres.js: `reserve()`) gives another one, so that it can stand in for a pool. It is good as long as
   * the transaction.
   *
   * @example
   * await drizzle(tx.client).transaction(async (part) => part.insert(orders).values({ id }))
   */
  readonly client: Client
}

/**
 * What `tx.transaction()` takes. It waits for nothing and is never run again by itself: `waitMs`, `signal` and `retry` belong to the
 * outermost transaction.
 */
export type NestedOptions = Pick<TransactionOptions, 'lock' | 'lockShared' | 'isolation' | keyof EventOptions>

export const NESTED_OPTIONS: OptionNames<NestedOptions> = {
  lock: 'never undefined',
  lockShared: 'never undefined',
  ...EVENT_OPTIONS,
  isolation: true,
}

/** What can run a transaction: a Lockstep, which opens one, or a `tx`, of which it becomes a part. */
export interface Transactor<Client = unknown, Events extends object = EventMap> {
  transaction<T>(options: NestedOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
}

/** What `tx.once()` takes beside the key. */
export interface NestedOnceOptions<Value, Client = unknown, Events extends object = EventMap> extends Pick<
  TransactionOptions,
  'isolation'
> {
  /** Looks for the thing. Returns `undefined` or `null` if it does not exist. */
  readonly find: (tx: Transaction<Client, Events>) => Promise<Value | undefined | null>
  /** Creates it, in the same transaction. */
  readonly create: (tx: Transaction<Client, Events>) => Promise<NonNullable<Value>>
}

export const NESTED_ONCE_OPTIONS: OptionNames<NestedOnceOptions<never>> = { find: true, create: true, isolation: true }

/** What there is now, and who made it. */
export interface OnceResult<Value> {
  readonly value: NonNullable<Value>
  /** True for the one caller whose `create` was committed. */
  readonly created: boolean
}
