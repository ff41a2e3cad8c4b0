import { InvalidOption, StreamNotDeclared, TransactionControl } from '../errors.ts'
import type { Connection, Statement, StatementResult } from '../postgres/index.ts'
import { ClientSession } from './clientSession.ts'
import { touchesTransaction } from './controlStatement.ts'
import {
  type Enqueuing,
  type EventMap,
  type EventOf,
  type EventToEnqueue,
  nameOf,
  type PreparedEvent,
  type StreamNumbers,
} from './enqueuing.ts'
import { isOwnSavepoint, Scope, type TurnLimits } from './scope.ts'
import type { Isolation } from './transactions.sql.ts'

/** An open transaction, in the caller's hands. */
export interface Transaction<Client = unknown, Events extends object = EventMap> {
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
  /**
   * Puts an event into the outbox, with the transaction or not at all. It gets the next number of its stream (topic and key) right
   * before COMMIT; in a transaction of the caller's own (`join`) at once.
   *
   * @example
   * await tx.enqueue({ topic: 'trades', key: portfolioId, payload: { id: 101, quantity: 5 } })
   */
  enqueue(event: EventOf<Events>): Promise<void>
  /** The same for many events, in their order. */
  enqueueMany(events: readonly EventOf<Events>[]): Promise<void>
  /** Runs the function in a savepoint: if it throws, what it did is undone and the transaction goes on. */
  savepoint<T>(fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
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

/** Where each statement has a snapshot of its own. In PostgreSQL the two are the same; a joined transaction may be either. */
const READS_FRESH: ReadonlySet<string> = new Set(['read committed', 'read uncommitted'])

/** Texts that were to be sent with COMMIT of late. More than that would be texts with values in them, of which each comes once. */
const recentTexts = new Set<string>()
const MAX_RECENT_TEXTS = 200

/** Whether the text came before, not long ago. */
function recurs(text: string): boolean {
  if (recentTexts.has(text)) return true
  if (recentTexts.size >= MAX_RECENT_TEXTS) recentTexts.clear()
  recentTexts.add(text)
  return false
}

/** What a transaction and all its savepoints have in common. */
export interface TransactionSetting extends TurnLimits {
  readonly isolation: Isolation
  readonly enqueuing: Enqueuing
  /** Of the streams that were declared; undefined where numbers can be read when they are needed. */
  readonly numbers?: StreamNumbers | undefined
  /** Whether the caller sends COMMIT itself. */
  readonly joined?: boolean
}

/** The library's side of a transaction. */
export class OpenTransaction extends Scope implements Transaction {
  readonly isolation: Isolation
  #client: unknown
  /** What is to be sent together with COMMIT. A savepoint's are its own until it is released. */
  readonly #closing: Statement[] = []
  readonly #events: PreparedEvent[] = []
  readonly #setting: TransactionSetting
  /** Of the root. */
  #handedOut = false

  constructor(parent: Connection | OpenTransaction, setting: TransactionSetting, label = 'the transaction') {
    super(parent, setting, label)
    this.isolation = setting.isolation
    this.#setting = setting
  }

  query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>> {
    if (this.inner === undefined) return this.#run(text, values)
    return this.whenInnermost(() => this.#run<Row>(text, values))
  }

  /** Through here no statement can end the transaction: one statement at a time is sent, and CALL and DO cannot commit in a block. */
  #checkStatement(text: unknown): void {
    this.assertUsable()
    if (typeof text !== 'string') {
      throw new InvalidOption(`tx.query() was given ${text === null ? 'null' : `a ${typeof text}`} for a statement.`, {
        advice: 'Pass the text of one statement, and its values as a list.',
      })
    }
    if (!touchesTransaction(text, isOwnSavepoint)) return
    throw new TransactionControl(`tx.query() was given ${JSON.stringify(text.trim().slice(0, 30))}.`, {
      advice: 'Return from the function to commit, throw to roll back, use tx.savepoint() for a part.',
    })
  }

  async #run<Row>(text: string, values: readonly unknown[] | undefined): Promise<StatementResult<Row>> {
    this.#checkStatement(text)
    const { connection } = this
    try {
      const result = await connection.query<Row>(text, values)
      this.succeeded()
      return result
    } catch (error) {
      throw this.failed(connection, error, () => !connection.neverSent(error, values ?? []))
    }
  }

  async queryAtCommit(text: string, values: readonly unknown[] = []): Promise<void> {
    this.#checkStatement(text)
    if (this.#setting.joined === true) await this.query(text, values)
    else await this.#keep(() => this.#closing.push({ text, values: [...values], recurs: recurs(text) }))
  }

  enqueue(event: EventToEnqueue): Promise<void> {
    return this.enqueueMany([event])
  }

  async enqueueMany(events: readonly EventToEnqueue[]): Promise<void> {
    this.assertUsable()
    const { enqueuing, isolation, numbers, joined } = this.#setting
    if (!Array.isArray(events)) {
      throw new InvalidOption('enqueueMany() was given no list.', { advice: 'Pass a list of { topic, key, payload }.' })
    }
    const prepared = events.map((event: EventToEnqueue) => enqueuing.prepare(event))
    const undeclared = READS_FRESH.has(isolation) ? undefined : prepared.find((each) => !numbers?.has(nameOf(each)))
    if (undeclared !== undefined) throw streamNotDeclared(undeclared, isolation)
    if (joined === true) {
      for (const { text, values } of enqueuing.flush(prepared, undefined)) await this.query(text, values)
    } else {
      await this.#keep(() => prepared.forEach((event) => this.#events.push(event)))
    }
  }

  /** Keeps something for COMMIT, in the same turn in which a statement would be sent. */
  #keep(keep: () => void): Promise<void> | void {
    if (this.inner === undefined) return keep()
    return this.whenInnermost(async () => keep())
  }

  /** How many events are to be written. */
  get eventCount(): number {
    return this.#events.length
  }

  /** What is to be sent together with COMMIT: the caller's statements, then the events, whose streams are locked from then on. */
  closing(): readonly Statement[] {
    if (this.#events.length === 0) return this.#closing
    return [...this.#closing, ...this.#setting.enqueuing.flush(this.#events, this.#setting.numbers)]
  }

  protected override released(): void {
    const outer = this.parent as OpenTransaction
    outer.#closing.push(...this.#closing)
    for (const event of this.#events) outer.#events.push(event)
  }

  savepoint<T>(fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.nest(fn)
  }

  /** As `savepoint`, with the library's own class. */
  async nest<T>(fn: (tx: OpenTransaction) => Promise<T>, label = 'a savepoint', modes = ''): Promise<T> {
    this.assertUsable()
    return this.whenInnermost(() => this.#runSavepoint(fn, label, modes))
  }

  async #runSavepoint<T>(fn: (tx: OpenTransaction) => Promise<T>, label: string, modes: string): Promise<T> {
    const inner = await this.begin(label, modes)
    let value: T
    try {
      value = await inner.run(() => fn(inner))
    } catch (error) {
      await inner.rollBack()
      throw inner.reasonOf(error)
    }
    await inner.release()
    return value
  }

  /** Opens a savepoint inside of this one, whose turn it is. */
  async begin(label: string, modes = ''): Promise<OpenTransaction> {
    const inner = new OpenTransaction(this, this.#setting, label)
    await this.open(inner, modes)
    return inner
  }

  /** Whether everything in it has ended, and nothing is in doubt. */
  get isComplete(): boolean {
    return this.inner === undefined && this.doubt === undefined
  }

  /** Whether the driver's client was in the caller's hands, who may have sent anything through it. */
  get handedOut(): boolean {
    return this.#handedOut
  }

  get client(): unknown {
    this.assertOpen()
    if (this.#client === undefined) {
      ;(this.root as OpenTransaction).#handedOut = true
      this.#client = this.connection.virtualClient(new ClientSession(this))
    }
    return this.#client
  }

  override end(): void {
    super.end()
    this.#client = undefined
  }
}

/** Whether what was done through it was rolled back: a savepoint whose function threw. */
export function isUndone(tx: Transaction): boolean {
  return tx instanceof OpenTransaction && tx.undone
}

/**
 * Gives up an open transaction that does not answer: its connection is destroyed, and what waits for it fails. COMMIT, once sent, is
 * left alone.
 */
export function abandon(tx: Transaction): void {
  if (tx instanceof OpenTransaction) tx.abandon()
}

/** What is one and the same for a transaction and all savepoints in it. */
export function rootOf(tx: Transaction): object {
  return tx instanceof OpenTransaction ? tx.root : tx
}

function streamNotDeclared({ topic, key }: PreparedEvent, isolation: Isolation): StreamNotDeclared {
  return new StreamNotDeclared(
    `The stream ${topic}/${key} was not declared: at ${isolation.toUpperCase()} its number must be read before the snapshot.`,
    { advice: 'Add streams: [{ topic, key }] to the options of the transaction, or use READ COMMITTED.' },
  )
}
