import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import {
  InvalidOption,
  StreamNotDeclared,
  TransactionControl,
  TransactionEnded,
  TransactionRolledBack,
} from '../errors.ts'
import type { Key } from '../locks/index.ts'
import {
  alreadyLost,
  codeOf,
  type Connection,
  meansTryAgain,
  type Statement,
  type StatementResult,
} from '../postgres/index.ts'
import { refuseAfterEnd, writeInCallersTransaction } from './callersClient.ts'
import { type Enqueuing, type EventToEnqueue, nameOf, type PreparedEvent, type StreamNumbers } from './enqueuing.ts'
import type { Place } from './frames.ts'
import type { Grounds } from './grounds.ts'
import { guardClient } from './guardClient.ts'
import { runInSavepoint, runNested } from './nested.ts'
import { readsFresh, type TransactionPlan } from './options.ts'
import type { NestedOnceOptions, NestedOptions, OnceResult, Transaction } from './transactionInterface.ts'
import {
  type Isolation,
  isTransactionControl,
  releaseSavepoint,
  rollbackToSavepoint,
  savepoint as savepointSql,
} from './transactions.sql.ts'

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
export function outsideSavepoints<T>(fn: () => T): T {
  return savepoints.run(undefined, fn)
}

/** No savepoint of ours has the name of anybody else's. */
const PROCESS = randomBytes(4).toString('hex')

/** Every statement after a failed one, until the transaction or its savepoint is rolled back. */
const IN_FAILED_TRANSACTION = '25P02'

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
  readonly grounds: Grounds
  /** The call that opened it: its locks are held. */
  readonly plan: TransactionPlan
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

  /** The same for all transactions of one Lockstep. */
  readonly home: object

  constructor(connection: Connection, setting: TransactionSetting, parent?: OpenTransaction) {
    this.#held = connection
    this.home = setting.enqueuing
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

  /** Whether the caller opened it, on a connection of its own (`join`). */
  get isJoined(): boolean {
    return this.#setting.joined === true
  }

  /** Whether it is a transaction of this Lockstep. */
  isOf(grounds: object): boolean {
    return this.#setting.grounds === grounds
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
    return this.#besideSavepoints(() => this.#run<Row>(text, values))
  }

  #besideSavepoints<T>(work: () => Promise<T>): Promise<T> {
    if (this.#pending === 0 || this.#isCalledFromInside()) return work()
    // Beside an open savepoint it would become part of it, and be undone with it.
    return this.#inTurn(work)
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

  async #run<Row>(text: string, values: readonly unknown[] | undefined): Promise<StatementResult<Row>> {
    this.#checkStatement(text)
    const connection = this.#connection
    if (this.#setting.joined === true) refuseAfterEnd(connection)
    try {
      const result = await connection.query<Row>(text, values)
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
    const undeclared = readsFresh(isolation) ? undefined : prepared.find((each) => !numbers?.has(nameOf(each)))
    if (undeclared !== undefined) throw streamNotDeclared(undeclared, isolation)
    if (joined === true) {
      const statements = enqueuing.flush(prepared, undefined)
      await this.#besideSavepoints(() => writeInCallersTransaction(this.#connection, statements, 'join()'))
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
    return runInSavepoint(this.#place, fn)
  }

  transaction<T>(options: NestedOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return runNested(this.#place, options, fn)
  }

  once<Value>(key: Key, options: NestedOnceOptions<Value>): Promise<OnceResult<Value>> {
    return this.#setting.grounds.once(this, key, options)
  }

  get #place(): Place {
    return { grounds: this.#setting.grounds, plan: this.#setting.plan, tx: this }
  }

  /** As `savepoint`, without telling the code inside where it is. */
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

/** Whether it is an open transaction of this Lockstep. */
export function isOf(tx: unknown, grounds: object): boolean {
  return tx instanceof OpenTransaction && tx.isOf(grounds)
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
