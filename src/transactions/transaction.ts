import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import {
  InvalidOption,
  StreamNotDeclared,
  TransactionControl,
  TransactionEnded,
  TransactionRolledBack,
} from '../errors.ts'
import {
  alreadyLost,
  codeOf,
  type Connection,
  IN_FAILED_TRANSACTION,
  meansTryAgain,
  type OwnValue,
  type Statement,
  type StatementResult,
} from '../postgres/index.ts'
import {
  type Enqueuing,
  type EventMap,
  type EventOf,
  type EventToEnqueue,
  nameOf,
  type PreparedEvent,
  type StreamNumbers,
} from './enqueuing.ts'
import { guardClient } from './guardClient.ts'
import {
  type Isolation,
  isTransactionControl,
  releaseSavepoint,
  rollbackToSavepoint,
  savepoint as savepointSql,
} from './transactions.sql.ts'

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
  /** The driver's own client, for query builders. It is good as long as the transaction. */
  readonly client: Client
}

/** A savepoint that the current code runs in, and what is around it: perhaps another Lockstep's. */
interface SavepointFrame {
  readonly tx: OpenTransaction
  readonly outer: SavepointFrame | undefined
}

const savepoints = new AsyncLocalStorage<SavepointFrame | undefined>()

/** The innermost one that is still open: a job that starts itself anew would else make an endless chain of ended ones. */
function openSavepoint(): SavepointFrame | undefined {
  let frame = savepoints.getStore()
  while (frame !== undefined && frame.tx.ended) frame = frame.outer
  return frame
}

/** Runs the function as if it were called from outside of every savepoint. */
export function outsideSavepoints(fn: () => void): void {
  savepoints.run(undefined, fn)
}

/** No savepoint of ours has the name of anybody else's. */
const PROCESS = randomBytes(4).toString('hex')

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
export interface TransactionSetting {
  readonly isolation: Isolation
  readonly enqueuing: Enqueuing
  /** Of the streams that were declared; undefined where numbers can be read when they are needed. */
  readonly numbers?: StreamNumbers | undefined
  /** Whether somebody else sends COMMIT. */
  readonly joined?: boolean
}

/** The library's side of a transaction. */
export class OpenTransaction implements Transaction {
  readonly isolation: Isolation
  /** Let go of at the end: whoever keeps an ended transaction alive must not keep all those before it. */
  #held: Connection | undefined
  readonly #parent: OpenTransaction | undefined
  /** Savepoints of one transaction nest; two that ran side by side would undo each other, and what runs beside them. */
  #turns: Promise<unknown> | undefined
  #pending = 0
  #savepointCount = 0
  #ended = false
  #undone = false
  #client: unknown
  /** What is to be sent together with COMMIT. A savepoint's are its own until it is released. */
  readonly #closing: Statement[] = []
  readonly #events: PreparedEvent[] = []
  /** The first error that a statement of this transaction met: the reason if COMMIT is answered with ROLLBACK. */
  firstFailure: unknown

  readonly #setting: TransactionSetting

  constructor(connection: Connection, setting: TransactionSetting, parent?: OpenTransaction) {
    this.#held = connection
    this.isolation = setting.isolation
    this.#setting = setting
    this.#parent = parent
  }

  /** The transaction that this one is a savepoint of, or itself. */
  get root(): OpenTransaction {
    return this.#parent?.root ?? this
  }

  /** Whether it, or a savepoint around it, was rolled back. */
  get undone(): boolean {
    return this.#undone || (this.#parent?.undone ?? false)
  }

  get ended(): boolean {
    return this.#ended || (this.#parent?.ended ?? false)
  }

  end(): void {
    this.#ended = true
    this.#held = undefined
    this.#client = undefined
  }

  abandon(): void {
    this.#held?.destroy()
  }

  get #connection(): Connection {
    this.assertOpen()
    return this.#held as Connection
  }

  query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>> {
    return this.send(text, (connection) => connection.query<Row>(text, values))
  }

  /** Whether it is one, and not a proxy of one. */
  static is(tx: object): tx is OpenTransaction {
    return #held in tx
  }

  /** As `query`, for a statement that is sent in another way. */
  send<T>(text: string, send: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#pending === 0 || this.#isCalledFromInside()) return this.#run(text, send)
    // Beside an open savepoint it would become part of it, and be undone with it.
    return this.#inTurn(() => this.#run(text, send))
  }

  #checkStatement(text: unknown): void {
    this.assertOpen()
    if (typeof text !== 'string') {
      throw new InvalidOption(`tx.query() was given ${text === null ? 'null' : `a ${typeof text}`} for a statement.`, {
        advice: 'Pass the text of one statement, and its values as a list.',
      })
    }
    if (isTransactionControl(text)) {
      throw new TransactionControl(`tx.query() was given ${JSON.stringify(text.trim().slice(0, 30))}.`, {
        advice: 'Return from the function to commit, throw to roll back, use tx.savepoint() for a part.',
      })
    }
  }

  async #run<T>(text: string, send: (connection: Connection) => Promise<T>): Promise<T> {
    this.#checkStatement(text)
    const connection = this.#connection
    try {
      const result = await send(connection)
      // A statement that succeeds proves that an earlier failure was undone.
      this.firstFailure = undefined
      return result
    } catch (error) {
      this.firstFailure ??= error
      // pg's lost connection has no code of its own.
      if (connection.lost && codeOf(error) === undefined) throw alreadyLost(error)
      throw error
    }
  }

  async queryAtCommit(text: string, values: readonly unknown[] = []): Promise<void> {
    this.#checkStatement(text)
    if (this.#setting.joined === true) await this.query(text, values)
    else this.#innermost().#closing.push({ text, values: [...values], recurs: recurs(text) })
  }

  enqueue(event: EventToEnqueue): Promise<void> {
    return this.enqueueMany([event])
  }

  async enqueueMany(events: readonly EventToEnqueue[]): Promise<void> {
    this.assertOpen()
    const { enqueuing, isolation, numbers, joined } = this.#setting
    if (!Array.isArray(events)) {
      throw new InvalidOption('enqueueMany() was given no list.', { advice: 'Pass a list of { topic, key, payload }.' })
    }
    const prepared = events.map((event: EventToEnqueue) => enqueuing.prepare(event))
    const undeclared = READS_FRESH.has(isolation) ? undefined : prepared.find((each) => !numbers?.has(nameOf(each)))
    if (undeclared !== undefined) throw streamNotDeclared(undeclared, isolation)
    if (joined === true) {
      for (const { text, values } of enqueuing.flush(prepared, undefined)) {
        await this.send(text, (connection) => connection.read(text, values as readonly OwnValue[]))
      }
    } else {
      const buffer = this.#innermost().#events
      for (const event of prepared) buffer.push(event)
    }
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

  savepoint<T>(fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.nest(fn)
  }

  /** As `savepoint`, with the library's own class. */
  async nest<T>(fn: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    this.assertOpen()
    // Called from inside one of its own savepoints it would wait for itself: there it is a savepoint of that savepoint.
    const inner = this.#innermost()
    if (inner !== this) return inner.nest(fn)
    return this.#inTurn(() => this.#runSavepoint(fn))
  }

  /** Whether a savepoint, or something that waits for its end, is not over yet. */
  get hasOpenSavepoint(): boolean {
    return this.#pending > 0
  }

  /** The savepoint of this transaction that the calling code runs in, or itself: what is done there is undone with it. */
  #innermost(): OpenTransaction {
    for (let frame = savepoints.getStore(); frame !== undefined; frame = frame.outer) {
      if (frame.tx === this) break
      if (!frame.tx.ended && frame.tx.#isInside(this)) return frame.tx
    }
    return this
  }

  #isCalledFromInside(): boolean {
    for (let frame = savepoints.getStore(); frame !== undefined; frame = frame.outer) {
      if (!frame.tx.ended && frame.tx.#isInside(this)) return true
    }
    return false
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#pending++
    const turn = this.#turns === undefined ? work() : this.#turns.then(work)
    const over = (): void => {
      // A promise remembers the transaction that it was made in: one that is kept would keep that alive.
      if (--this.#pending === 0) this.#turns = undefined
    }
    this.#turns = turn.then(over, over)
    return turn
  }

  get client(): unknown {
    this.assertOpen()
    this.#client ??= guardClient(this.#connection.client, () => this.#assertUsable())
    return this.#client
  }

  assertOpen(): void {
    if (!this.ended) return
    throw new TransactionEnded('The transaction of this tx has ended.', {
      advice: 'Await every query inside the function; start a new transaction for what comes after it.',
    })
  }

  /** postgres.js may have given a lost connection to a stranger by now. */
  #assertUsable(): void {
    this.assertOpen()
    if (this.#connection.lost) throw alreadyLost()
  }

  async #runSavepoint<T>(fn: (tx: OpenTransaction) => Promise<T>): Promise<T> {
    this.assertOpen()
    const name = `lockstep_${PROCESS}_${this.#nextSavepoint()}`
    await this.#connection.script(savepointSql(name))
    const inner = new OpenTransaction(this.#connection, this.#setting, this)
    try {
      this.assertOpen()
      const value = await savepoints.run({ tx: inner, outer: openSavepoint() }, () => fn(inner))
      inner.end()
      // A savepoint that was not awaited: by now the connection may serve a stranger, who has a savepoint of the same name.
      this.assertOpen()
      await this.#connection.script(releaseSavepoint(name)).catch((error: unknown) => {
        throw codeOf(error) === IN_FAILED_TRANSACTION ? savepointRolledBack(inner.firstFailure) : error
      })
      this.#closing.push(...inner.#closing)
      for (const event of inner.#events) this.#events.push(event)
      return value
    } catch (error) {
      inner.end()
      inner.#undone = true
      if (!this.ended && !this.#connection.lost) await this.#connection.script(rollbackToSavepoint(name))
      throw inner.reasonOf(error)
    }
  }

  /** The error by which a failure is judged: of a caught conflict, later statements only say that something had failed. */
  reasonOf(error: unknown): unknown {
    return codeOf(error) === IN_FAILED_TRANSACTION && meansTryAgain(this.firstFailure) ? this.firstFailure : error
  }

  #isInside(outer: OpenTransaction): boolean {
    return this.#parent !== undefined && (this.#parent === outer || this.#parent.#isInside(outer))
  }

  #nextSavepoint(): number {
    return this.#parent === undefined ? ++this.#savepointCount : this.#parent.#nextSavepoint()
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
  if (tx instanceof OpenTransaction) tx.root.abandon()
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

function savepointRolledBack(cause: unknown): TransactionRolledBack {
  return new TransactionRolledBack(
    'The savepoint was rolled back: a statement in it had failed and its error was caught.',
    {
      advice:
        'Let errors of statements out of the function. What the savepoint did is undone; the transaction goes on.',
      cause,
    },
  )
}
