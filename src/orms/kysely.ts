import {
  type AccessMode,
  type ConnectionProvider,
  type ControlledTransactionBuilder,
  type DatabaseConnection,
  DefaultQueryExecutor,
  type Driver,
  type IsolationLevel,
  Kysely,
  type KyselyConfig,
  type KyselyPlugin,
  type KyselyProps,
  type LogConfig,
  PostgresAdapter,
  type PostgresCursorConstructor,
  PostgresDialect,
  PostgresQueryCompiler,
  Transaction,
  TransactionBuilder,
} from 'kysely'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { KyselyClient } from './kyselyJoin.ts'
import { poolOfCheckouts, poolOfOne, postgresJsCursor } from './kyselyClient.ts'
import { readOnly } from './orms.sql.ts'
import { checkIsolation, driverOf, type OrmDriverName, type OrmTransaction } from './ormTransaction.ts'

export type { OrmTransaction } from './ormTransaction.ts'

/** What `kysely(tx, options)` takes: as `new Kysely()`, without a dialect. */
export interface KyselyOptions {
  readonly plugins?: readonly KyselyPlugin[]
  readonly log?: LogConfig
  /** The class of pg-cursor, for `stream()` on `pg`. postgres.js needs none. */
  readonly cursor?: PostgresCursorConstructor
}

const KYSELY_OPTIONS: OptionNames<KyselyOptions> = { plugins: true, log: true, cursor: true }

/**
 * Kysely in a transaction of Lockstep, on `pg` or postgres.js: every query runs under the locks of the transaction, and commits with it.
 * `db.transaction().execute()` is a savepoint.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const db = kysely<Database>(tx)
 *   const account = await db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow()
 * })
 */
export function kysely<DB>(tx: OrmTransaction, options: KyselyOptions = {}): Transaction<DB> {
  const driver = driverOf('kysely()', tx)
  checkOptions('kysely()', options, KYSELY_OPTIONS)
  return openPart(tx, { ...options, driver })
}

/**
 * A client for a transaction that Kysely opened on `pg`, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await db.transaction().execute(async (trx) => {
 *   await lockstep.outbox.enqueue(clientOf(trx), { topic: 'accounts', key: id, payload: account })
 * })
 */
export function clientOf<DB>(transaction: Transaction<DB>): object {
  return new KyselyClient(transaction)
}

interface Setting extends KyselyOptions {
  readonly driver: OrmDriverName
}

function openPart<DB>(tx: OrmTransaction, setting: Setting): PartOfTransaction<DB> {
  const dialect = dialectOf(setting, poolOfOne(tx.client, setting.driver))
  const driver = dialect.createDriver()
  const plugins = [...(setting.plugins ?? [])]
  const config = { dialect, plugins, ...logOf(setting) }
  const connection = new PinnedConnection(() => (setting.log === undefined ? connect(driver) : connectLogged(config)))
  const executor = new DefaultQueryExecutor(COMPILER, ADAPTER, connection, plugins)
  return new PartOfTransaction<DB>(tx, setting, { config, dialect, driver, executor })
}

/** They keep nothing of a transaction. */
const COMPILER = new PostgresQueryCompiler()
const ADAPTER = new PostgresAdapter()

/** One connection for all queries of a transaction: to take and release it for each cost a tenth of the transaction. */
class PinnedConnection implements ConnectionProvider {
  readonly #connect: () => Promise<DatabaseConnection>
  #connection: Promise<DatabaseConnection> | undefined

  constructor(take: () => Promise<DatabaseConnection>) {
    this.#connect = take
  }

  async provideConnection<T>(consumer: (connection: DatabaseConnection) => Promise<T>): Promise<T> {
    return consumer(await (this.#connection ??= this.#connect()))
  }
}

async function connect(driver: Driver): Promise<DatabaseConnection> {
  await driver.init()
  return driver.acquireConnection()
}

/** Kysely adds its log to connections where it takes them from the driver. The pool of one has only this, and never gives it away. */
function connectLogged(config: KyselyConfig): Promise<DatabaseConnection> {
  return new Kysely(config).getExecutor().provideConnection(async (connection) => connection)
}

function dialectOf({ driver, cursor }: Setting, pool: ReturnType<typeof poolOfOne>): PostgresDialect {
  const own = driver === 'postgres.js' ? postgresJsCursor : cursor
  return new PostgresDialect({ pool, ...(own === undefined ? {} : { cursor: own }) })
}

const logOf = ({ log }: Setting): { log?: LogConfig } => (log === undefined ? {} : { log })

class PartOfTransaction<DB> extends Transaction<DB> {
  readonly #tx: OrmTransaction
  readonly #setting: Setting
  readonly #props: KyselyProps

  constructor(tx: OrmTransaction, setting: Setting, props: KyselyProps) {
    super(props)
    this.#tx = tx
    this.#setting = setting
    this.#props = props
  }

  /** The plugins may have changed since: `withSchema()` adds one. */
  get #current(): Setting {
    return { ...this.#setting, plugins: this.getExecutor().plugins }
  }

  override transaction(): TransactionBuilder<DB> {
    return new SavepointBuilder<DB>(this.#tx, this.#current, this.#props)
  }

  override startTransaction(): ControlledTransactionBuilder<DB> {
    const setting = this.#current
    const dialect = dialectOf(setting, poolOfCheckouts(this.#tx.client, setting.driver))
    return new Kysely<DB>({ dialect, plugins: [...(setting.plugins ?? [])], ...logOf(setting) }).startTransaction()
  }

  #with<Other>(changed: Transaction<Other>): PartOfTransaction<Other> {
    return new PartOfTransaction<Other>(this.#tx, this.#setting, { ...this.#props, executor: changed.getExecutor() })
  }

  override withPlugin(plugin: KyselyPlugin): Transaction<DB> {
    return this.#with(super.withPlugin(plugin))
  }

  override withoutPlugins(): Transaction<DB> {
    return this.#with(super.withoutPlugins())
  }

  override withSchema(schema: string): Transaction<DB> {
    return this.#with(super.withSchema(schema))
  }

  override withTables: Transaction<DB>['withTables'] = () => this.#with(super.withTables())
}

/** A nested transaction: Kysely itself has none. */
class SavepointBuilder<DB> extends TransactionBuilder<DB> {
  readonly #tx: OrmTransaction
  readonly #setting: Setting
  readonly #props: KyselyProps
  readonly #accessMode: AccessMode | undefined

  constructor(tx: OrmTransaction, setting: Setting, props: KyselyProps, accessMode?: AccessMode) {
    super(props)
    this.#tx = tx
    this.#setting = setting
    this.#props = props
    this.#accessMode = accessMode
  }

  override setAccessMode(accessMode: AccessMode): TransactionBuilder<DB> {
    return new SavepointBuilder<DB>(this.#tx, this.#setting, this.#props, accessMode)
  }

  override setIsolationLevel(isolationLevel: IsolationLevel): TransactionBuilder<DB> {
    checkIsolation('db.transaction()', this.#tx, isolationLevel)
    return this
  }

  override execute<T>(callback: (part: Transaction<DB>) => Promise<T>): Promise<T> {
    return this.#tx.savepoint(async (inner) => {
      const part = openPart<DB>(inner, this.#setting)
      if (this.#accessMode === 'read only')
        await poolOfOne(inner.client, this.#setting.driver)
          .connect()
          .then((client) => client.query(readOnly(), []))
      return callback(part)
    })
  }
}
