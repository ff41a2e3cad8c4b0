import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import { LockstepError, TransactionEndedError, TransactionRolledBackError } from '../errors.ts'
import {
  alreadyLost,
  codeOf,
  type Connection,
  findCause,
  IN_FAILED_TRANSACTION,
  isSqlState,
  meansTryAgain,
  type StatementResult,
} from '../postgres/index.ts'
import { calledFromInside, type TurnLimits, TurnQueue } from './turnQueue.ts'
import { releaseSavepoint, rollbackToSavepoint, savepoint as savepointSql } from './transactions.sql.ts'

/** A scope that the current code runs in, and what is around it: perhaps another Lockstep's. */
interface ScopeFrame {
  readonly scope: Scope
  readonly outer: ScopeFrame | undefined
}

const frames = new AsyncLocalStorage<ScopeFrame | undefined>()

/** The innermost one that is still open: a job that starts itself again would otherwise make an endless chain of ended ones. */
function openFrame(): ScopeFrame | undefined {
  let frame = frames.getStore()
  while (frame !== undefined && frame.scope.ended) frame = frame.outer
  return frame
}

/** Runs the function as if it were called from outside of every savepoint. */
export function outsideSavepoints<T>(fn: () => T): T {
  return frames.run(undefined, fn)
}

/** No savepoint of ours has the name of any other. */
const OWN_PREFIX = `lockstep_${randomBytes(4).toString('hex')}_`

/** Whether a savepoint's name is one that this process made. */
export function isOwnSavepoint(name: string): boolean {
  return name.startsWith(OWN_PREFIX)
}

/**
 * A part of a transaction that can be undone by itself: the transaction as a whole, a savepoint of it, or what a client began with
 * BEGIN, which is a savepoint, too. The open ones are a stack on one connection. A statement belongs to the scope that it was sent
 * through. Sent while another one is open inside, it would become a part of that, and be undone with it: so it waits for its turn.
 */
export class Scope {
  readonly root: Scope
  readonly parent: Scope | undefined
  /** What is open inside of it. Undefined: this is the innermost one, and what it sends goes out at once. */
  inner: Scope | undefined
  /** The first error that a statement of this scope met: the reason where COMMIT is answered with ROLLBACK. */
  firstFailure: unknown
  /** How messages call it. */
  readonly label: string
  readonly #limits: TurnLimits
  readonly #name: string
  #turnQueue: TurnQueue | undefined
  #ended = false
  #undone = false
  /** Of the root. Let go of at the end: who keeps an ended transaction alive must not keep all those before it. */
  #held: Connection | undefined
  /** Of the root. */
  #savepoints = 0
  #doubt: { readonly error: unknown } | undefined
  #atEnd: Set<() => void> | undefined
  #settling: Promise<unknown> | undefined

  constructor(parent: Scope | Connection, limits: TurnLimits, label: string) {
    this.label = label
    this.#limits = limits
    if (parent instanceof Scope) {
      this.parent = parent
      this.root = parent.root
      this.#name = `${OWN_PREFIX}${++this.root.#savepoints}`
    } else {
      this.root = this
      this.#held = parent
      this.#name = ''
    }
  }

  /** Whether it, or a savepoint around it, was rolled back. */
  get undone(): boolean {
    return this.#undone || (this.parent?.undone ?? false)
  }

  get ended(): boolean {
    return this.#ended || (this.parent?.ended ?? false)
  }

  end(): void {
    this.#ended = true
    if (this.inner !== undefined) this.#refuseAll(ended)
    if (this.parent !== undefined) return
    for (const cleanUp of this.#atEnd ?? []) cleanUp()
    this.#held = this.#atEnd = undefined
  }

  abandon(): void {
    this.root.#held?.destroy()
  }

  get connection(): Connection {
    this.assertOpen()
    return this.root.#held as Connection
  }

  /** The first failure that the driver made up by itself. It is not known what the server has done: nothing can be committed. */
  get doubt(): { readonly error: unknown } | undefined {
    return this.root.#doubt
  }

  /** What still has to end before the transaction can: clients that were released with a transaction open. */
  get settling(): Promise<unknown> | undefined {
    return this.#settling
  }

  settleBeforeEnd(work: Promise<unknown>): void {
    const { root } = this
    root.#settling = Promise.allSettled([root.#settling, work])
  }

  /** Calls back when the transaction ends. The answer takes it back. */
  onEnd(cleanUp: () => void): () => void {
    const all = (this.root.#atEnd ??= new Set())
    all.add(cleanUp)
    return () => void all.delete(cleanUp)
  }

  assertOpen(): void {
    if (this.ended) throw ended()
  }

  /** Throws where there is no sense in sending anything more. */
  assertUsable(): void {
    this.assertOpen()
    if (this.doubt !== undefined) throw inDoubt(this.doubt.error)
  }

  /** Calls `start` once nothing is open inside: at once where nothing is. Otherwise it waits, and `refuse` says why it was in vain. */
  take(start: () => void, refuse: (error: unknown) => void): void {
    if (this.inner === undefined) return start()
    if (this.#isCalledFromInside()) return refuse(calledFromInside(this.inner))
    const { connection } = this
    if (connection.lost) return refuse(alreadyLost())
    this.#turnQueue ??= new TurnQueue(this, this.#limits)
    connection.onLost = (cause) => this.root.#refuseAll(() => alreadyLost(cause))
    this.#turnQueue.wait(start, refuse)
  }

  /** The same for an async function. */
  whenInnermost<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.take(() => resolve(work()), reject)
    })
  }

  #refuseAll(reason: () => LockstepError): void {
    const { inner } = this
    this.#turnQueue?.refuse(reason)
    if (inner !== undefined) inner.#refuseAll(reason)
  }

  /** Whether the calling code runs in a scope inside of this one: waiting for that would be waiting for itself. */
  #isCalledFromInside(): boolean {
    for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
      if (!frame.scope.ended && frame.scope.isInside(this)) return true
    }
    return false
  }

  isInside(outer: Scope): boolean {
    return this.parent !== undefined && (this.parent === outer || this.parent.isInside(outer))
  }

  /** Opens a savepoint for a scope inside of this one, whose turn it is. From the first moment on, all others wait for its end. */
  async open(inner: Scope, modes = ''): Promise<void> {
    this.assertUsable()
    this.inner = inner
    try {
      await this.#script(savepointSql(inner.#name) + modes)
      this.assertOpen()
    } catch (error) {
      // The savepoint may be there, and a mode refused.
      if (modes !== '' && codeOf(error) !== IN_FAILED_TRANSACTION) await inner.rollBack().catch(() => undefined)
      inner.end()
      this.#closed(inner)
      throw error
    }
  }

  /** Runs a function inside it. What it calls of an outer scope is refused, because it would wait for the function's own end. */
  run<T>(fn: () => Promise<T>): Promise<T> {
    return frames.run({ scope: this, outer: openFrame() }, fn)
  }

  /** Ends it well: what was done in it is a part of the scope around it. Where that cannot be, it is rolled back and throws. */
  async release(): Promise<void> {
    const outer = this.parent as Scope
    try {
      if (this.root.#settling !== undefined) await this.root.#settling
      if (this.inner !== undefined) throw leftOpen()
      this.assertUsable()
      this.end()
      // A savepoint that was not awaited: by now the connection may serve another caller.
      await outer.#script(releaseSavepoint(this.#name)).catch((error: unknown) => {
        throw codeOf(error) === IN_FAILED_TRANSACTION ? savepointRolledBack(this.firstFailure) : error
      })
      this.released()
      outer.#closed(this)
    } catch (error) {
      await this.rollBack()
      throw this.reasonOf(error)
    }
  }

  /** What is done with what it has kept until now. */
  protected released(): void {}

  /** Undoes what was done in it. */
  async rollBack(): Promise<void> {
    const outer = this.parent as Scope
    this.end()
    this.#undone = true
    try {
      const sendable = !outer.ended && !outer.connection.lost && this.doubt === undefined
      if (sendable) await outer.#script(rollbackToSavepoint(this.#name))
    } catch {
      // Then the whole transaction has failed, and its end says so.
    } finally {
      outer.#closed(this)
    }
  }

  #closed(inner: Scope): void {
    if (this.inner !== inner) return
    this.inner = undefined
    this.#turnQueue?.next()
  }

  async #script(text: string): Promise<StatementResult[]> {
    const { connection } = this
    try {
      const results = await connection.script(text)
      this.succeeded()
      return results
    } catch (error) {
      throw this.failed(connection, error)
    }
  }

  /**
   * Notes a failed statement, and returns the error for the caller. One without a SQLSTATE is the driver's own, as of a timeout: the
   * server may have executed the statement. Rolling back to a savepoint does not help: it may be executed after that.
   */
  failed(connection: Connection, error: unknown, wasSent: () => boolean = () => true): unknown {
    this.firstFailure ??= error
    if (connection.lost) return codeOf(error) === undefined ? alreadyLost(error) : error
    if (!isSqlState(error) && !(error instanceof LockstepError) && wasSent()) this.root.#doubt ??= { error }
    return error
  }

  /** A statement that succeeds proves that an earlier failure was undone. */
  succeeded(): void {
    this.firstFailure = undefined
  }

  /** The error by which a failure is judged: of a caught conflict, later statements only say that something had failed. */
  reasonOf(error: unknown): unknown {
    if (!meansTryAgain(this.firstFailure)) return error
    const isLater = findCause(error, (each) => codeOf(each) === IN_FAILED_TRANSACTION) !== undefined
    return isLater ? this.firstFailure : error
  }
}

function ended(): TransactionEndedError {
  return new TransactionEndedError('The transaction of this tx has ended.', {
    advice: 'Await every query inside the function; start a new transaction for what comes after it.',
  })
}

/** The error for everything after a failure that the server has not answered. */
export function inDoubt(cause: unknown, keys: readonly string[] = []): TransactionRolledBackError {
  const said = cause instanceof Error ? cause.message : String(cause)
  return new TransactionRolledBackError(
    `A statement failed in the driver, without an answer of the server (${said}). The server may have executed it.`,
    {
      advice:
        'Nothing of this transaction is written, whatever savepoint the statement was in. Run the transaction again, or allow the statement more time.',
      keys,
      cause,
    },
  )
}

/** The error for a function that returned while a part of its transaction was still open. */
export function leftOpen(keys: readonly string[] = []): TransactionRolledBackError {
  return new TransactionRolledBackError(
    'The function returned while a savepoint or an inner transaction was still open.',
    {
      advice:
        'Await every tx.savepoint(), tx.transaction() and tx.once() inside the function, and end what was begun on tx.client. Nothing was written.',
      keys,
    },
  )
}

function savepointRolledBack(cause: unknown): TransactionRolledBackError {
  return new TransactionRolledBackError(
    'The savepoint was rolled back: a statement in it had failed and its error was caught.',
    {
      advice:
        'Let errors of statements out of the function. What the savepoint did is undone; the transaction goes on.',
      cause,
    },
  )
}
