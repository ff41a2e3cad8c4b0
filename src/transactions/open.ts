import { ConnectionLostError, LockstepError, StandbyRefusedError } from '../errors.ts'
import { AFTER_END_MS, type WaitBudget } from '../locks/index.ts'
import { lockContended } from '../observe/index.ts'
import {
  codeOf,
  type Connection,
  FEATURE_NOT_SUPPORTED,
  serverEpochExpression,
  LOCK_NOT_AVAILABLE,
  meansConnectionLost,
  READ_ONLY_TRANSACTION,
  type Readiness,
  StatementForgottenError,
  type StatementResult,
  standbyRefused,
} from '../postgres/index.ts'
import { AbandonedOpeningError, AnswerWatch } from './answerWatch.ts'
import { pause } from './retryPause.ts'
import { type Cancel, cancelRunning } from './cancelRunning.ts'
import { checkout, checkoutFailed, isUnusable, lostWhileOpening, within, withinBudget } from './connections.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { abandonAndFindHolders, abandonOpening } from './abandonOpening.ts'
import type { TransactionPlan } from './options.ts'
import { isKnown } from './serverCheck.ts'
import { sliceWithoutSlotMs, sliceWithSlotMs } from './waitSlices.ts'
import {
  beginKept,
  beginTrying,
  beginWaiting,
  canTryHandOver,
  cleanUpHandOver,
  hadToWait,
  handOver,
  handOverKept,
  handOverTrying,
  serverEpochOf,
  KEPT_COLUMNS,
  leaveForgotten,
  type Opening,
  type OpeningRow,
  ROLLBACK,
} from './transactions.sql.ts'

/** By what the server can be asked later for the outcome of a transaction. */
export interface Trace {
  readonly xid: string
  readonly pid: number
  readonly serverEpoch: string
}

/** An open transaction whose locks are granted. */
export interface Opened {
  readonly connection: Connection
  /** Undefined where commits are not looked into. */
  readonly trace: Trace | undefined
  readonly contended: boolean
  readonly mark: string
  /** What the parts of the call have read, in their order. */
  readonly answers: readonly unknown[]
}

const NO_ANSWERS: readonly unknown[] = []

/** How a standby refuses an opening message: no transaction ids, no SERIALIZABLE. */
const STANDBY_STATES: ReadonlySet<string> = new Set([READ_ONLY_TRANSACTION, FEATURE_NOT_SUPPORTED])

/** Opens the transaction with its locks, or throws with nothing held. */
export function open(
  context: LockstepContext,
  plan: TransactionPlan,
  budget: WaitBudget,
  queued: boolean,
): Promise<Opened> {
  return new TransactionOpening(context, plan, budget, queued).enter()
}

/** A caller's way into its transaction. The quick way is one function: every promise more costs all a percent, with AsyncLocalStorage. */
class TransactionOpening {
  readonly #byHandOver: boolean
  readonly #context: LockstepContext
  readonly #plan: TransactionPlan
  readonly #budget: WaitBudget
  readonly #answers: AnswerWatch
  #connection!: Connection
  #readiness!: Readiness
  #contended: boolean
  /** Whether the server has a transaction open for us, be it a failed one. */
  #inTransaction = false
  /** Whether one of the locks has yet to be made. */
  #isNew = false

  constructor(context: LockstepContext, plan: TransactionPlan, budget: WaitBudget, queued: boolean) {
    this.#byHandOver = plan.isolation !== 'read committed' && plan.locks.length > 0
    this.#context = context
    this.#plan = plan
    this.#budget = budget
    this.#answers = new AnswerWatch(context.silence, budget)
    this.#contended = queued
  }

  async enter(): Promise<Opened> {
    const { driver, readiness, limit } = this.#context
    const { locks, source } = this.#plan
    const budget = this.#budget
    budget.stage = 'connection'
    for (let round = 0; ; round++) {
      const hasLocks = source?.holds
      try {
        this.#readiness = readiness ?? (await this.#becomeReady())
        this.#connection = await (source?.connect(driver, budget, locks) ??
          checkout(driver, budget, locks, round === 0 ? limit : undefined))
      } catch (error) {
        throw checkoutFailed(error, budget, locks)
      }
      this.#inTransaction = false
      this.#isNew = false
      try {
        let opened: Opened | 'unknown epoch' | undefined
        if (this.#byHandOver && !this.#triesHandOver(round, hasLocks === true)) {
          opened = await this.#handOver(round)
        } else if (!this.#byHandOver && hasLocks !== true && this.#expectsToWait()) {
          opened = await this.#wait(true, round).finally(() => this.#context.waitSlots.release())
        } else {
          const hurries = budget.mayHurry
          if (!hurries) this.#answers.start(this.#connection)
          try {
            const answer = this.#try()
            opened = this.#accept(await (hurries ? this.#answers.of(this.#connection, answer, this.#leaving) : answer))
          } catch (error) {
            if (!(error instanceof StatementForgottenError)) throw error
            this.#answers.stop()
            await this.#send(leaveForgotten(locks, this.#byHandOver))
            const opening = this.#opening()
            opened = this.#accept(await this.#send(this.#byHandOver ? handOverTrying(opening) : beginTrying(opening)))
          } finally {
            this.#answers.stop()
          }
          if (opened === undefined || opened === 'unknown epoch') {
            opened = await (this.#byHandOver ? this.#handOverSlowly(opened) : this.#openSlowly(opened, round))
          }
        }
        if (opened !== undefined) return opened
      } catch (error) {
        if (error instanceof AbandonedOpeningError) throw error.failure ?? budget.failure(budget.stage, locks)
        // Nothing ran yet, and the connection is destroyed: the next one may answer.
        if (this.#answers.suggestsAnother) continue
        await this.#abandon(error)
        throw error
      }
      // Only at first: a call that waits already is not refused because of later ones.
      const refusal = round === 0 ? limit.begin(locks[0]?.key, 0) : limit.goOn()
      if (refusal !== undefined) throw refusal
      await pause(round, budget)
      limit.end()
      if (budget.over) throw budget.failure('server', locks)
    }
  }

  /** Before the first answer of the server all wait for one, also while it is away. */
  async #becomeReady(): Promise<Readiness> {
    const { limit } = this.#context
    const { locks } = this.#plan
    const refusal = limit.begin(locks[0]?.key, 0)
    if (refusal !== undefined) throw refusal
    try {
      return await withinBudget(this.#context.ready(), this.#budget, locks)
    } finally {
      limit.end()
    }
  }

  /** Rejects with a `StatementForgottenError` where the same may be asked once more, after a rollback. */
  #try(): Promise<StatementResult[]> {
    this.#inTransaction = true
    const opening = this.#opening()
    const kept = this.#byHandOver ? handOverKept(opening) : beginKept(opening)
    const asked = kept && this.#connection.ask(kept, KEPT_COLUMNS)
    return asked ?? this.#connection.script(this.#byHandOver ? handOverTrying(opening) : beginTrying(opening))
  }

  /** Whether a hand-over tries the locks before it waits for them: not where it has tried, or would only be refused. */
  #triesHandOver(round: number, hasLocks: boolean): boolean {
    const { locks, parts } = this.#plan
    if (round > 0 || !canTryHandOver(locks, parts)) return false
    return hasLocks || this.#budget.triesOnce || !this.#context.contention.expects(locks)
  }

  /** Whether the quick way would only be refused, and there is a place to wait at the server. */
  #expectsToWait(): boolean {
    const { contention, method, waitSlots } = this.#context
    if (!contention.expects(this.#plan.locks) || !method.heldBySession || this.#budget.triesOnce) return false
    // On a connection that is not yet known, an abort could not cancel the wait, and a grant might have to be released to look
    // up the server epoch.
    const { memory } = this.#connection
    return memory?.pooled === false && memory.serverEpoch !== undefined && waitSlots.tryTake()
  }

  /** Waits at the server, slice after slice where there is a place for that. Undefined: not granted, and no place. */
  async #wait(placed: boolean, round: number): Promise<Opened | undefined> {
    const longest = this.#longestSlice(placed, round)
    for (let goesOn = longest > 0; goesOn; goesOn = placed) {
      const begun = this.#inTransaction
      const results = await this.#slice((sliceMs) => beginWaiting(this.#opening(), sliceMs, begun), longest).catch(
        (refusal: unknown) => this.#afterRefusal(refusal),
      )
      if (results === undefined) continue
      // Who has asked before knows that it was taken.
      if (!begun) this.#learnContention(hadToWait(results))
      const granted = this.#accept(results)
      if (granted === 'unknown epoch') await this.#readServerEpoch()
      else if (granted !== undefined) return granted
    }
    await this.#leave()
    this.#connection.release()
    return undefined
  }

  #learnContention(waited: boolean): void {
    if (waited) this.#reportContention()
    else this.#context.contention.forget(this.#plan.locks)
  }

  /**
   * After the quick way was refused. Undefined if another session holds a lock and there is no place to wait at the server: ask
   * again later.
   */
  async #openSlowly(refusal: 'unknown epoch' | undefined, round: number): Promise<Opened | undefined> {
    let placed = false
    try {
      for (let opened: Opened | 'unknown epoch' | undefined = refusal; opened === 'unknown epoch';) {
        await this.#readServerEpoch()
        opened = this.#accept(await this.#send(beginTrying(this.#opening())))
        if (opened !== undefined && opened !== 'unknown epoch') return opened
      }
      if (!this.#isNew) this.#reportContention()
      if (this.#budget.over && !this.#isNew) throw await this.#giveUp()
      placed = this.#context.waitSlots.tryTake()
      return await this.#wait(placed, round)
    } finally {
      if (placed) this.#context.waitSlots.release()
    }
  }

  /** After the quick hand-over was refused. Undefined as in `#handOver`. */
  async #handOverSlowly(refusal: 'unknown epoch' | undefined): Promise<Opened | undefined> {
    if (refusal === 'unknown epoch') {
      await this.#readServerEpoch()
    } else {
      this.#reportContention()
      if (this.#budget.over) throw await this.#giveUp()
    }
    return this.#handOver(0)
  }

  /**
   * Opens a transaction at isolation levels that take their snapshot with the first statement, and waits for the locks. Undefined if another
   * session holds one and there is no place to wait at the server.
   */
  async #handOver(round: number): Promise<Opened | undefined> {
    const placed = this.#context.waitSlots.tryTake()
    try {
      const longest = Math.max(1, this.#longestSlice(placed, round))
      for (;;) {
        const begun = this.#inTransaction
        const opening = this.#opening()
        let results: StatementResult[] | undefined
        try {
          results = await this.#slice((sliceMs) => handOver(opening, sliceMs, begun), longest)
        } catch (refusal) {
          results = await this.#afterRefusal(refusal)
        }
        if (results === undefined) {
          await this.#leave()
          if (placed) continue
          this.#connection.release()
          return undefined
        }
        if (!begun) this.#learnContention(hadToWait(results))
        const granted = this.#accept(results)
        if (granted !== 'unknown epoch') return granted
        await this.#readServerEpoch()
      }
    } finally {
      if (placed) this.#context.waitSlots.release()
    }
  }

  /** How long this attempt may wait at the server at a time; 0: not at all. */
  #longestSlice(placed: boolean, round: number): number {
    if (placed) return sliceWithSlotMs(this.#connection.memory?.pooled === false, this.#readiness.longestStatementMs)
    // With one connection for everything no caller ever has a place, and no holder of a lock is kept waiting.
    return sliceWithoutSlotMs(round, this.#isNew || this.#context.driver.poolSize === 1)
  }

  #opening(): Opening {
    const plan = this.#plan
    const { memory } = this.#connection
    // A driver that does not say beforehand which connection it gives us: where the last one was direct and known, so is most
    // likely this one; if not, it is asked afterwards.
    const known =
      memory === undefined ? this.#context.route.direct : memory.pooled === false && memory.serverEpoch !== undefined
    return {
      isolation: plan.isolation,
      method: this.#context.method,
      locks: plan.locks,
      parts: plan.parts,
      withXid: plan.resolvesCommit,
      serverEpoch: plan.resolvesCommit && !known ? serverEpochExpression(this.#context.quotedSchema) : undefined,
      checksConnections: this.#readiness.checksConnections,
    }
  }

  /** Reads the answers to an opening message. Undefined: a lock is taken. */
  #accept(results: readonly StatementResult[]): Opened | 'unknown epoch' | undefined {
    const row = results.at(-1)?.rows[0] as unknown as OpeningRow
    if (row.held === 'standby') throw standbyRefused()
    const pid = Number(row.pid)
    const told = this.#byHandOver ? serverEpochOf(results) : row.incarnation
    const { memory, protocolPid } = this.#connection
    if (memory !== undefined && protocolPid !== undefined) {
      memory.pooled = protocolPid !== pid
      this.#context.route.direct = !memory.pooled
      if (typeof told === 'string') memory.serverEpoch = told
    }
    // Null: the first to come after a crash. Undefined: not asked, because this connection was thought to be known.
    const serverEpoch = told === undefined ? memory?.serverEpoch : (told ?? undefined)
    if (this.#plan.resolvesCommit && serverEpoch === undefined) return 'unknown epoch'
    if (!isKnown(this.#readiness, memory?.pooled, told)) return 'unknown epoch'
    if (row.held === null) {
      this.#isNew = this.#context.method.missing?.isIn(row, this.#plan.locks) === true
      return undefined
    }
    // A wait that was given up can still have been granted.
    if (this.#budget.aborted) throw this.#budget.failure('server', this.#plan.locks)
    const trace =
      serverEpoch !== undefined && this.#plan.resolvesCommit ? { xid: row.held, pid, serverEpoch } : undefined
    const { parts } = this.#plan
    const answers = parts.length === 0 ? NO_ANSWERS : parts.map((part) => part.accept?.(results))
    return { connection: this.#connection, trace, contended: this.#contended, mark: row.held, answers }
  }

  /** Finds out which server this is and its epoch, and tries the locks if that was not done. Then the attempt starts again. */
  async #readServerEpoch(): Promise<void> {
    await this.#leave()
    const learning = this.#context.know(this.#connection, this.#readiness)
    this.#readiness = await this.#answers.of(this.#connection, learning, this.#leaving)
    const { memory } = this.#connection
    if (memory !== undefined) memory.serverEpoch = this.#readiness.serverEpoch.value
  }

  /** Waits at the server for one slice. */
  #slice(message: (sliceMs: number) => string, longest: number): Promise<StatementResult[]> {
    const sliceMs = Math.max(1, Math.min(longest, this.#budget.remainingMs()))
    const connection = this.#connection
    this.#inTransaction = true
    const answer = connection.script(message(sliceMs))
    const cancel = (): Cancel => cancelRunning(this.#context, connection)
    return this.#answers.ofSlice(connection, sliceMs, answer, this.#leaving, cancel)
  }

  /** After a slice that failed: returns where it was not granted in its time, and the transaction has failed; otherwise it throws. */
  async #afterRefusal(refusal: unknown): Promise<undefined> {
    const tookTooLong = codeOf(refusal) === LOCK_NOT_AVAILABLE && !this.#connection.lost
    // One that was cancelled had waited, too.
    if (tookTooLong || this.#budget.aborted) this.#reportContention()
    if (!tookTooLong) throw refusal
    if (this.#budget.over) throw await this.#giveUp()
  }

  async #send(text: string): Promise<StatementResult[]> {
    this.#inTransaction = true
    this.#answers.start(this.#connection)
    try {
      return await this.#connection.script(text)
    } finally {
      this.#answers.stop()
    }
  }

  #reportContention(): void {
    this.#budget.stage = 'server'
    this.#context.contention.note(this.#plan.locks)
    if (this.#contended) return
    this.#contended = true
    if (!lockContended.hasSubscribers) return
    const { keys, sharedKeys } = this.#plan
    lockContended.publish({ schema: this.#context.schema, keys, sharedKeys, where: 'server' })
  }

  /** The message that leaves the server without a transaction and without a lock of ours. */
  get #leaving(): string {
    return this.#byHandOver ? cleanUpHandOver(this.#plan.locks) : ROLLBACK
  }

  async #leave(): Promise<void> {
    await this.#send(this.#leaving)
    this.#inTransaction = false
  }

  /** The error for a wait that has ended, with who was in the way, where that is quickly seen. The connection is seen to. */
  async #giveUp(): Promise<AbandonedOpeningError> {
    const look = !this.#budget.aborted
    const looking = abandonAndFindHolders(
      this.#connection,
      this.#context.silence,
      this.#leaving,
      look ? this.#plan.locks : [],
    )
    const holders = await within(looking, AFTER_END_MS)
    return new AbandonedOpeningError(this.#budget.failure('server', this.#plan.locks, holders))
  }

  /** Leaves nothing behind. An error that came out of an aborted wait is reported as that. */
  async #abandon(error: unknown): Promise<void> {
    const lost = isUnusable(this.#connection, error) || meansConnectionLost(error)
    // To a standby: the address or the list of hosts may lead to the primary by now, and only a new connection asks.
    if (lost || isStandby(error)) this.#connection.destroy()
    else if (this.#inTransaction)
      await within(abandonOpening(this.#connection, this.#context.silence, this.#leaving), this.#budget.answerMs())
    else this.#connection.release()
    if (error instanceof LockstepError && !(error instanceof ConnectionLostError)) return
    if (this.#budget.aborted) throw this.#budget.failure('server', this.#plan.locks)
    if (this.#answers.outOfTime) throw this.#budget.failure('connection', this.#plan.locks)
    if (isStandby(error)) throw standbyRefused()
    if (lost) throw lostWhileOpening(this.#plan, error)
  }
}

function isStandby(error: unknown): boolean {
  return error instanceof StandbyRefusedError || STANDBY_STATES.has(codeOf(error) ?? '')
}
