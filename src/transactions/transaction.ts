import { InvalidOptionError, TransactionControlError } from '../errors.ts'
import type { Connection, Statement, StatementResult } from '../postgres/index.ts'
import { refuseAfterEnd } from './callersClient.ts'
import { ClientSession } from './clientSession.ts'
import { touchesTransaction } from './controlStatement.ts'
import type { FrameScope } from './frames.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { runInSavepoint, runNested } from './nested.ts'
import type { TransactionPlan } from './options.ts'
import type { KeptWork, PlannedPart } from './plannedPart.ts'
import { isOwnSavepoint, Scope } from './scope.ts'
import type { NestedOptions, Transaction } from './transactionInterface.ts'
import type { Isolation } from './isolation.ts'
import type { TurnLimits } from './turnQueue.ts'

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
  readonly context: LockstepContext
  /** The call that opened it: its locks are held. */
  readonly plan: TransactionPlan
  /** What the parts of the call have read while it was opened. */
  readonly answers: readonly unknown[]
  /** Whether the caller sends COMMIT itself. */
  readonly joined?: boolean
}

/** What of a transaction is the core's. Parts add the rest to the prototype of `OpenTransaction` (partRegistry.ts). */
type CoreTransaction = Pick<
  Transaction,
  'isolation' | 'query' | 'queryAtCommit' | 'savepoint' | 'transaction' | 'client'
>

/** The library's side of a transaction. */
export class OpenTransaction extends Scope implements CoreTransaction {
  readonly isolation: Isolation
  #client: unknown
  /** What is to be sent together with COMMIT. A savepoint's are its own until it is released. */
  readonly #closing: Statement[] = []
  #work: KeptWork[] | undefined
  readonly #setting: TransactionSetting
  /** Of the root. */
  #handedOut = false

  constructor(parent: Connection | OpenTransaction, setting: TransactionSetting, label = 'the transaction') {
    super(parent, setting, label)
    this.isolation = setting.isolation
    this.#setting = setting
  }

  /** The same for all transactions of one Lockstep. */
  get context(): LockstepContext {
    return this.#setting.context
  }

  /** Whether the caller opened it, on a connection of its own (`join`). */
  get isJoined(): boolean {
    return this.#setting.joined === true
  }

  /** Whether it is a transaction of this Lockstep. */
  isOf(context: object): boolean {
    return this.#setting.context === context
  }

  query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>> {
    if (this.inner === undefined) return this.#query(text, values)
    return this.whenInnermost(() => this.#query(text, values))
  }

  /** Whether it is one, and not a proxy of one. */
  static is(tx: object): tx is OpenTransaction {
    return #setting in tx
  }

  /** As `query`, for a statement that is sent in another way. */
  send<T>(text: string, send: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.inner === undefined) return this.#run(text, send)
    return this.whenInnermost(() => this.#run(text, send))
  }

  /** Through here no statement can end the transaction: one statement at a time is sent, and CALL and DO cannot commit in a block. */
  #checkStatement(text: unknown): void {
    this.assertUsable()
    if (typeof text !== 'string') {
      throw new InvalidOptionError(
        `tx.query() was given ${text === null ? 'null' : `a ${typeof text}`} for a statement.`,
        {
          advice: 'Pass the text of one statement, and its values as a list.',
        },
      )
    }
    if (!touchesTransaction(text, isOwnSavepoint)) return
    throw new TransactionControlError(`tx.query() was given ${JSON.stringify(text.trim().slice(0, 30))}.`, {
      advice: 'Return from the function to commit, throw to roll back, use tx.savepoint() for a part.',
    })
  }

  /** Without an async function: it would cost every statement a promise more. */
  #query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>> {
    // A wrong call is rejected, it does not throw.
    try {
      const connection = this.#connectionFor(text)
      return connection.query<Row>(text, values, {
        succeeded: () => this.succeeded(),
        failed: (error) => this.failed(connection, error, () => !connection.neverSent(error, values ?? [])),
      })
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new Error('It could not be sent.', { cause: error }))
    }
  }

  async #run<T>(text: string, send: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = this.#connectionFor(text)
    try {
      const result = await send(connection)
      this.succeeded()
      return result
    } catch (error) {
      throw this.failed(connection, error)
    }
  }

  #connectionFor(text: string): Connection {
    this.#checkStatement(text)
    const { connection } = this
    if (this.isJoined) refuseAfterEnd(connection)
    return connection
  }

  override failed(connection: Connection, error: unknown, wasSent?: () => boolean): unknown {
    return this.context.parts.explain(super.failed(connection, error, wasSent))
  }

  async queryAtCommit(text: string, values: readonly unknown[] = []): Promise<void> {
    this.#checkStatement(text)
    if (this.#setting.joined === true) await this.query(text, values)
    else await this.keep(() => this.#closing.push({ text, values: [...values], recurs: recurs(text) }))
  }

  /** Keeps something for COMMIT, in the same turn in which a statement would be sent. */
  keep(keep: () => void): Promise<void> | void {
    if (this.inner === undefined) return keep()
    return this.whenInnermost(async () => keep())
  }

  /** What a part of the call has read while the transaction was opened. Undefined where the call has no such part, and in `join`. */
  answerOf<Answer>(kind: abstract new (...given: never[]) => PlannedPart<Answer>): Answer | undefined {
    const { plan, answers } = this.#setting
    if (answers.length === 0) return undefined
    return answers[plan.parts.findIndex((part) => part instanceof kind)] as Answer | undefined
  }

  /** What a part keeps for COMMIT. `keep()` says when that can be changed. */
  workOf<Work extends KeptWork>(kind: abstract new (...given: never[]) => Work, create: () => Work): Work {
    const known = this.#work?.find((work): work is Work => work instanceof kind)
    if (known !== undefined) return known
    const created = create()
    ;(this.#work ??= []).push(created)
    return created
  }

  /** What all parts keep for COMMIT. */
  get work(): readonly KeptWork[] | undefined {
    return this.#work
  }

  /** What is to be sent together with COMMIT: the caller's statements, then those of the parts. */
  closing(): readonly Statement[] {
    if (this.#work === undefined) return this.#closing
    // Mostly there is one of them.
    if (this.#closing.length === 0 && this.#work.length === 1) return (this.#work[0] as KeptWork).statements()
    return [...this.#closing, ...this.#work.flatMap((work) => work.statements())]
  }

  protected override released(): void {
    const outer = this.parent as OpenTransaction
    outer.#closing.push(...this.#closing)
    for (const work of this.#work ?? []) {
      const same = outer.#work?.find((each) => each.constructor === work.constructor)
      if (same === undefined) (outer.#work ??= []).push(work)
      else same.append(work)
    }
  }

  savepoint<T>(fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return runInSavepoint(this.#scope, fn)
  }

  transaction<T>(options: NestedOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return runNested(this.#scope, options, fn)
  }

  get #scope(): FrameScope {
    return { context: this.#setting.context, plan: this.#setting.plan, tx: this }
  }

  /** As `savepoint`, without telling the code inside where it is. */
  async nest<T>(fn: (tx: OpenTransaction & Transaction) => Promise<T>, label = 'a savepoint', modes = ''): Promise<T> {
    this.assertUsable()
    return this.whenInnermost(() => this.#runSavepoint(fn, label, modes))
  }

  async #runSavepoint<T>(
    fn: (tx: OpenTransaction & Transaction) => Promise<T>,
    label: string,
    modes: string,
  ): Promise<T> {
    const inner = await this.begin(label, modes)
    let value: T
    try {
      value = await inner.run(() => fn(withParts(inner)))
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

/** The same object, with the methods of the parts. */
export function withParts(tx: OpenTransaction): OpenTransaction & Transaction {
  return tx as OpenTransaction & Transaction
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

/** Whether it is an open transaction of this Lockstep. */
export function belongsTo(tx: unknown, context: object): boolean {
  return tx instanceof OpenTransaction && tx.isOf(context)
}

/** Calls back when the transaction has ended that it is of. False for one that was joined: its end is not known. */
export function onEndOf(tx: object, cleanUp: () => void): boolean {
  if (!(tx instanceof OpenTransaction) || tx.isJoined) return false
  tx.onEnd(cleanUp)
  return true
}

/** What is one and the same for a transaction and all savepoints in it. */
export function rootOf(tx: Transaction): object {
  return tx instanceof OpenTransaction ? tx.root : tx
}
