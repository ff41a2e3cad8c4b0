import { checkFunction, checkOptions } from './checkOptions.ts'
import { combine, type Combined, type CombineOptions, type Combiners } from './combine/index.ts'
import {
  type ConsumedEventOf,
  type Consumer,
  type ConsumerOptions,
  Consumers,
  type EventHandler,
  type ListHandler,
  makeConsumer,
} from './consumers/index.ts'
import { InvalidOptionError } from './errors.ts'
import { checkMilliseconds, checkNames, LOCKSTEP_OPTIONS, type LockstepOptions } from './lockstepOptions.ts'
import { type Guards, guardsPart } from './guards/index.ts'
import { Inbox, type InboxConsumer } from './inbox/index.ts'
import {
  checkKey,
  closedError,
  Closing,
  type Key,
  KeyQueue,
  listLocks,
  lockId,
  lockMethod,
  type Locks,
  NameRegistry,
  QueueLimit,
  RecentContention,
  RecentLockIds,
  ServerWaitSlots,
} from './locks/index.ts'
import { leader, type LeaderOptions, type Lease, type LeaseOptions, Leases } from './leases/index.ts'
import type { EventContracts, EventMap } from './events/index.ts'
import { type Dispatcher, type DispatcherOptions, Outbox, outboxPart } from './outbox/index.ts'
import { PARTS } from './parts.ts'
import { type RolloutInDatabase, rolloutPart } from './rollout/index.ts'
import {
  CreationQueue,
  once,
  onceExternal,
  type OnceExternalOptions,
  type OnceOptions,
  type OnDuplicate,
} from './once/index.ts'
import {
  applyGrants,
  checkSchemaName,
  type Connection,
  DEFAULT_SILENCE_MS,
  diagnose,
  type DoctorOptions,
  driverFor,
  type Finding,
  type GrantOptions,
  migrate,
  type MigrateOptions,
  type MigrateResult,
  type PgPool,
  type Pool,
  type PostgresJs,
  quoteIdentifier,
  refuseForeignOwner,
  SilenceWatch,
  wantedRoles,
  wantsTrial,
} from './postgres/index.ts'
import {
  ambientPool,
  type CheckedJoin,
  type CheckedTransaction,
  detached,
  type JoinOptions,
  joinTransaction,
  type LockstepContext,
  type OnceResult,
  planDefaults,
  planTransaction,
  type PoolOptions,
  refuseInside,
  runTransaction,
  ServerCheck,
  type Transaction,
  type TransactionOptions,
} from './transactions/index.ts'

/** The client of the driver that a Lockstep works with: what `tx.client` is. */
export type ClientOf<P extends Pool> = P extends { reserve(): Promise<infer Client> }
  ? Client
  : P extends { connect: { (): Promise<infer Client>; (...given: never[]): unknown } }
    ? Client
    : unknown

/** What a caller inside a transaction has to use instead. */
const ONCE = { call: 'lockstep.once()', instead: 'tx.once()' }
const DEFAULT_SLOW_WAIT_MS = 100

/**
 * Correct concurrency on the PostgreSQL you already have.
 *
 * @example
 * const lockstep = new Lockstep(new pg.Pool())
 * await lockstep.transaction({ lock: key`Transfer:${id}` }, async (tx) => {
 *   await tx.query('UPDATE accounts SET balance = balance - $1 WHERE id = $2', [amount, id])
 * })
 */
export class Lockstep<
  Events extends object = EventMap,
  P extends Pool = PgPool | PostgresJs,
  Consumed extends object = Events,
> {
  /** The rules in the database: read, set and removed here, followed by every Lockstep with `rollout: 'database'`. */
  readonly rollout: RolloutInDatabase
  /** Tables that can be written only under a lock: the database enforces that, for every writer. */
  readonly guards: Guards
  /** Who holds what, who waits, and who blocks whom. */
  readonly locks: Locks
  /** Exclusive for longer than a transaction: acquire, see, and take away. */
  readonly leases: Leases<ClientOf<P>>
  /** Events that go out in strict order: dispatchers, what is in it, and what operators do with it. */
  readonly outbox: Outbox<Events>
  /** Events that come in: each consumer applies every event once, in order, and reports a gap. */
  readonly inbox: Inbox<ClientOf<P>, Events>
  /** What receives events: how far each consumer is, and what waits. */
  readonly consumers: Consumers
  readonly #names: NameRegistry | undefined
  readonly #context: LockstepContext
  readonly #closing = new Closing()
  readonly #combiners: Combiners = new Set()
  readonly #creations: CreationQueue
  readonly #contracts: EventContracts | undefined
  #running = 0
  #idle: Promise<void> | undefined
  #whenIdle: (() => void) | undefined
  readonly #check: ServerCheck

  constructor(pool: P, options: LockstepOptions<Events, Consumed> = {}) {
    checkOptions('new Lockstep()', options, LOCKSTEP_OPTIONS)
    this.#contracts = options.events as EventContracts | undefined
    const silenceMs = checkMilliseconds('silenceMs', options.silenceMs ?? DEFAULT_SILENCE_MS)
    const driver = driverFor(pool, silenceMs)
    const schema = checkSchemaName(options.schema ?? 'lockstep')
    const quotedSchema = quoteIdentifier(schema)
    const defaults = planDefaults(options)
    const method = lockMethod(options.strategy, quotedSchema)
    const silence = new SilenceWatch(silenceMs)
    // Rows in a table have no number in the lock list that a name could stand for.
    const named = checkNames(options.names) && method.heldBySession
    const names = named
      ? new NameRegistry(driver, quotedSchema, silence, () => this.#check.readiness !== undefined)
      : undefined
    const limit = new QueueLimit(options.maxQueue)
    const queue = new KeyQueue(limit)
    this.#creations = new CreationQueue({ limit })
    const parts = PARTS.install(
      { driver, schema, quotedSchema, method, silence, closing: this.#closing },
      options as LockstepOptions,
    )
    this.rollout = parts.of(rolloutPart).inDatabase
    this.guards = parts.of(guardsPart).guards
    const check = new ServerCheck({ driver, schema, method, silence, closing: this.#closing })
    this.#check = check
    this.#names = names
    let trusted = false
    // Once: the console lists locks every second or two.
    const trust = async (connection: Connection): Promise<void> => {
      if (!trusted) await refuseForeignOwner(connection, schema)
      trusted = true
    }
    this.locks = {
      list: async (wanted = {}) => {
        if (this.#closing.closed) throw closedError()
        return listLocks({ driver, schema: quotedSchema, silence, queue, trust }, wanted)
      },
    }
    this.#context = {
      pool,
      driver,
      schema,
      quotedSchema,
      lockIds: new RecentLockIds(schema, names && ((id, key) => names.note(id, key))),
      queue,
      limit,
      waitSlots: ServerWaitSlots.of(pool, driver.poolSize),
      contention: new RecentContention(),
      defaults,
      silence,
      closing: this.#closing,
      route: { direct: false },
      method,
      parts,
      slowWaitMs: checkMilliseconds('slowWaitMs', options.slowWaitMs ?? DEFAULT_SLOW_WAIT_MS),
      get readiness() {
        return check.readiness
      },
      ready: () => check.ready(),
      know: (connection, known) => check.know(connection, known),
    }
    this.leases = new Leases(this.#context)
    this.outbox = new Outbox(this.#context, this.leases, parts.of(outboxPart), (work) => this.#counted(work))
    this.inbox = new Inbox(this.#context, (wanted, fn) => this.transaction(wanted, fn))
    this.consumers = new Consumers({ outbox: this.outbox, inbox: this.inbox })
  }

  /** The schema that this Lockstep works with. */
  get schema(): string {
    return this.#context.schema
  }

  /**
   * Runs the function in a transaction whose locks were granted before its first read. It commits when the function returns and
   * rolls back when it throws. Inside the function of another transaction of this Lockstep it is refused: use `tx.transaction()`.
   *
   * @example
   * await lockstep.transaction({ lock: key`Wallet:${id}`, isolation: 'serializable' }, async (tx) => {
   *   const { rows } = await tx.query<{ balance: number }>('SELECT balance FROM wallets WHERE id = $1', [id])
   *   await tx.query('UPDATE wallets SET balance = $1 WHERE id = $2', [rows[0]!.balance + 1, id])
   * })
   */
  async transaction<T, Given extends TransactionOptions = TransactionOptions>(
    options: CheckedTransaction<Given>,
    fn: (tx: Transaction<ClientOf<P>, Events>) => Promise<T>,
  ): Promise<T> {
    const plan = planTransaction(this.#context, options)
    checkFunction('transaction()', fn)
    // Not through #counted: one function more would cost every transaction a percent.
    this.#running++
    try {
      return await runTransaction(this.#context, plan, fn as unknown as (tx: Transaction) => Promise<T>)
    } finally {
      if (--this.#running === 0) this.#whenIdle?.()
    }
  }

  /** `close()` waits for what runs in here. */
  async #counted<T>(work: () => Promise<T>): Promise<T> {
    this.#running++
    try {
      return await work()
    } finally {
      if (--this.#running === 0) this.#whenIdle?.()
    }
  }

  /**
   * Takes locks inside a transaction that the caller opened on a client of its own, READ COMMITTED. What is read after it is
   * guarded; what was read before is not.
   *
   * @example
   * await client.query('BEGIN')
   * const tx = await lockstep.join(client, { lock: key`Transfer:${id}` })
   */
  async join<Given extends JoinOptions = JoinOptions>(
    client: object,
    options: CheckedJoin<Given> = {} as CheckedJoin<Given>,
  ): Promise<Transaction<ClientOf<P>, Events>> {
    if (this.#closing.closed) throw closedError()
    return (await joinTransaction(this.#context, client, options)) as unknown as Transaction<ClientOf<P>, Events>
  }

  /**
   * The pool, for code that knows nothing else: inside a transaction of this Lockstep it is a client of that transaction. The async context
   * decides, so all code that uses it inside a transaction must belong to that transaction: see docs/reference/transactions.md.
   *
   * @example
   * const repository = new LegacyRepository(lockstep.pool({ ambient: true }))
   * await lockstep.transaction({ lock: key`Order:${id}` }, () => repository.cancelOrder(id))
   */
  pool(options: PoolOptions): P {
    return ambientPool(this.#context, this.#context.pool as P, options)
  }

  /**
   * Runs the function outside of every transaction that the calling code runs in, and returns what it returns. For work that does not
   * belong to that transaction: what it commits stays when that one rolls back. Do not wait in it for what that transaction holds.
   *
   * @example
   * // A queue that requests share starts the job of one request in the async context of another.
   * queue.add(() => lockstep.detached(() => lockstep.transaction({}, (tx) => tx.query('INSERT INTO visits VALUES ($1)', [id]))))
   */
  detached<T>(fn: () => T): T {
    if (typeof fn === 'function') return detached(fn)
    throw new InvalidOptionError('detached() was given no function.', { advice: 'Call lockstep.detached(() => …).' })
  }

  /**
   * Finds a thing or creates it, under the key's lock: of all callers, in all processes, exactly one creates it.
   *
   * @example
   * const { value, created } = await lockstep.once(key`Position:${symbol}:${exchange}`, {
   *   find: async (tx) => (await tx.query('SELECT * FROM positions WHERE symbol = $1', [symbol])).rows[0],
   *   create: async (tx) => (await tx.query('INSERT INTO positions … RETURNING *', [symbol])).rows[0]!,
   * })
   */
  once<Value>(key: Key, options: OnceOptions<Value, ClientOf<P>>): Promise<OnceResult<Value>> {
    const transact = <T>(wanted: TransactionOptions, fn: (tx: Transaction<ClientOf<P>>) => Promise<T>): Promise<T> => {
      refuseInside(this.#context, [key], ONCE)
      return this.#transact(wanted, fn)
    }
    return once(transact, key, options, this.#onDuplicate)
  }

  /**
   * Finds a thing, or creates it outside the database, at an exchange for example: under a lease, in steps that the next caller can take
   * over after a crash. It holds no connection while it acts.
   *
   * @example
   * await lockstep.onceExternal(key`Position:${symbol}`, { find, begin, act, finish, abandon, ttlMs: 10_000 })
   */
  onceExternal<Value, Pending, Outcome>(
    key: Key,
    options: OnceExternalOptions<Value, Pending, Outcome, ClientOf<P>>,
  ): Promise<OnceResult<Value>> {
    const transact = <T>(wanted: TransactionOptions, fn: (tx: Transaction<ClientOf<P>>) => Promise<T>): Promise<T> =>
      this.#transact(wanted, fn)
    const { leases } = this
    const onDuplicate = this.#onDuplicate
    const creating = { transact, leases, queue: this.#creations, closing: this.#closing, onDuplicate }
    return this.#counted(() => onceExternal(creating, key, options))
  }

  readonly #onDuplicate: OnDuplicate = (key, detail) => this.rollout.reportDuplicate(key, { detail })

  /** For code that knows no event types. */
  #transact<T>(options: TransactionOptions, fn: (tx: Transaction<ClientOf<P>>) => Promise<T>): Promise<T> {
    return this.transaction(options, fn as unknown as (tx: Transaction<ClientOf<P>, Events>) => Promise<T>)
  }

  /**
   * Runs the function while it holds the lease, longer than a transaction and without a connection. If another holder has it:
   * `LeaseHeldError`, at once or after `waitMs`.
   *
   * @example
   * await lockstep.lease(key`Instance:${id}`, { ttlMs: 30_000 }, async (lease) => {
   *   await callTheExchange({ signal: lease.signal })
   *   await lease.transaction({}, (tx) => tx.query('UPDATE instances SET state = $1 WHERE id = $2', ['done', id]))
   * })
   */
  lease<T>(key: Key, options: LeaseOptions, fn: (lease: Lease<ClientOf<P>>) => Promise<T>): Promise<T> {
    return this.#counted(() => this.leases.run(key, options, fn))
  }

  /**
   * Runs the function in one process at a time, and in another when that one is gone.
   *
   * @example
   * await lockstep.leader(key`Leader:reconciler`, { signal }, async (lease) => reconcileUntil(lease.signal))
   */
  leader<T>(key: Key, options: LeaderOptions, fn: (lease: Lease<ClientOf<P>>) => Promise<T>): Promise<T | undefined> {
    return this.#counted(() => leader(this.leases, key, options, fn))
  }

  /**
   * Makes a function that serves many callers of one key by one transaction.
   *
   * @example
   * const deposit = lockstep.combine({
   *   key: (item: { to: string; amount: number }) => key`Account:${item.to}`,
   *   run: async (tx, items) => { … return items.map(() => 'done') },
   * })
   * await deposit({ to: 'alice', amount: 10 })
   */
  combine<Item, Result>(options: CombineOptions<Item, Result, ClientOf<P>>): Combined<Item, Exclude<Result, Error>> {
    return combine(this.#context, this.#combiners, options as CombineOptions<Item, Result>)
  }

  /**
   * Makes a consumer of this database's outbox: it handles every event exactly once, in order per key, keys in parallel. The effect and the
   * consumer's position are one transaction. With `lists: true` the handler takes consecutive events of one key. Its name is also that of
   * its dispatcher: status, parked streams, retry and skip are the outbox's.
   *
   * @example
   * const billing = lockstep.consumer('billing', { topics: ['orders'], concurrency: 8 }, async (event, tx) => {
   *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
   * })
   * await billing.run({ signal })
   */
  consumer<Topic extends (keyof Consumed & string) | `${string}*` = keyof Consumed & string>(
    name: string,
    options: ConsumerOptions<Topic, ConsumedEventOf<Consumed, Topic>> & { readonly lists: true },
    handler: ListHandler<ConsumedEventOf<Consumed, Topic>, ClientOf<P>, Events>,
  ): Consumer
  consumer<Topic extends (keyof Consumed & string) | `${string}*` = keyof Consumed & string>(
    name: string,
    options: ConsumerOptions<Topic, ConsumedEventOf<Consumed, Topic>>,
    handler: EventHandler<ConsumedEventOf<Consumed, Topic>, ClientOf<P>, Events>,
  ): Consumer
  consumer(name: string, options: object, handler: unknown): Consumer {
    const dependencies = {
      transaction: <T>(wanted: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> =>
        this.transaction(wanted, fn as unknown as (tx: Transaction<ClientOf<P>, Events>) => Promise<T>),
      inbox: this.inbox.consumer(name) as unknown as InboxConsumer,
      contracts: this.#contracts,
      dispatcher: (wanted: DispatcherOptions): Dispatcher => this.outbox.dispatcher(wanted),
    }
    return makeConsumer(dependencies, name, options, handler as EventHandler<never>)
  }

  /** The number that PostgreSQL locks for a key; `lock_id('lock', key)` in the schema gives the same. */
  lockId(key: Key): bigint {
    return lockId(this.#context.schema, 'lock', checkKey(key))
  }

  /**
   * Creates the schema or brings it up to date. Safe at every start-up, in ten processes at once.
   *
   * @example
   * await lockstep.migrate()
   */
  async migrate(options: MigrateOptions = {}): Promise<MigrateResult> {
    if (this.#closing.closed) throw closedError()
    const { driver, schema } = this.#context
    const result = await migrate(driver, schema, lockId(schema, 'migrate', 'Migrate:global'), options)
    await this.#check.migrated()
    return result
  }

  /**
   * Grants a role of the database exactly what a role of docs/operating/roles.md needs, in one transaction; what it was granted in the
   * schema before is revoked. Gives the statements. The connection's role must own the schema.
   *
   * @example
   * await lockstep.grant({ to: 'shop', as: ['application', 'producer'] })
   */
  async grant(options: GrantOptions): Promise<string[]> {
    if (this.#closing.closed) throw closedError()
    return applyGrants(this.#context.driver, this.#context.schema, options)
  }

  /**
   * Tries the locks, and looks for what would weaken the promises here: pooler, standby, clock, settings. Each finding says what to do.
   *
   * @example
   * const failed = (await lockstep.doctor()).filter(({ level }) => level === 'fail')
   */
  async doctor(options: DoctorOptions = {}): Promise<Finding[]> {
    const trial = wantsTrial(options)
    const roles = wantedRoles(options)
    if (this.#closing.closed) throw closedError()
    const { driver, schema } = this.#context
    const probe = 'Doctor:lock-id'
    const tryLocks = trial ? (): Promise<boolean> => this.#check.tryAgain() : undefined
    return diagnose(driver, schema, { key: probe, id: lockId(schema, 'lock', probe), roles, tryLocks })
  }

  /**
   * Refuses new calls, refuses those that wait, and waits for those that run; combined calls that wait are served, leases that
   * are held are released. The pool stays the caller's to close.
   */
  async close(): Promise<void> {
    this.#closing.close()
    await Promise.all([...this.#combiners].map((combiner) => combiner.idle()))
    const written = this.#names?.close()
    if (this.#running > 0) {
      this.#idle ??= new Promise<void>((resolve) => (this.#whenIdle = resolve))
      await this.#idle
    }
    await this.#context.parts.settled()
    await this.leases.close()
    await this.#check.close()
    await written
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
