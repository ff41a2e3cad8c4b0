import { ConnectionLost, LockstepError } from '../errors.ts'
import { AFTER_END_MS, type Patience } from '../locks/index.ts'
import { lockAcquired, lockContended } from '../observe/index.ts'
import {
  codeOf,
  type Connection,
  FEATURE_NOT_SUPPORTED,
  incarnationExpression,
  LOCK_NOT_AVAILABLE,
  meansConnectionLost,
  READ_ONLY_TRANSACTION,
  type Readiness,
  StatementForgotten,
  type StatementResult,
  standbyRefused,
} from '../postgres/index.ts'
import { AnswerWatch, LeftBehind } from './answerWatch.ts'
import { pause } from './askAgain.ts'
import { type Cancel, cancelRunning } from './cancelRunning.ts'
import { checkout, checkoutFailed, isUnusable, lostWhileOpening, patiently, within } from './connections.ts'
import type { Grounds } from './grounds.ts'
import { leave, leaveAndLook } from './leave.ts'
import { nameOf, type StreamNumbers } from './enqueuing.ts'
import type { TransactionPlan } from './options.ts'
import { isKnown } from './serverCheck.ts'
import { placedSliceMs, unplacedSliceMs } from './slices.ts'
import {
  beginKept,
  beginTrying,
  beginWaiting,
  cleanUpHandOver,
  hadToWait,
  handOver,
  incarnationOf,
  KEPT_COLUMNS,
  lastNumbers,
  shadowsOf,
  streamNumbersOf,
  type Opening,
  type OpeningRow,
  ROLLBACK,
} from './transactions.sql.ts'

/** By what the server can be asked later what became of a transaction. */
export interface Trace {
  readonly xid: string
  readonly pid: number
  readonly incarnation: string
}

/** An open transaction whose locks are granted. */
export interface Opened {
  readonly connection: Connection
  /** Undefined where commits are not looked into. */
  readonly trace: Trace | undefined
  readonly contended: boolean
  readonly mark: string
  /** The last numbers of the streams that were declared. */
  readonly numbers?: StreamNumbers | undefined
}

/** How a standby refuses an opening message: no transaction ids, no SERIALIZABLE. */
const STANDBY_STATES: ReadonlySet<string> = new Set([READ_ONLY_TRANSACTION, FEATURE_NOT_SUPPORTED])

/** Opens the transaction with its locks, or throws with nothing held. */
export function open(grounds: Grounds, plan: TransactionPlan, patience: Patience, queued: boolean): Promise<Opened> {
  return new WayIn(grounds, plan, patience, queued).enter()
}

/** A caller's way into its transaction. The quick way is one function: every promise more costs all a percent, with AsyncLocalStorage. */
class WayIn {
  readonly #byHandOver: boolean
  readonly #grounds: Grounds
  readonly #plan: TransactionPlan
  readonly #patience: Patience
  readonly #answers: AnswerWatch
  #connection!: Connection
  #readiness!: Readiness
  #contended: boolean
  /** Whether the server has a transaction open for us, be it a failed one. */
  #inTransaction = false
  /** Whether one of the locks has yet to be made. */
  #isNew = false

  constructor(grounds: Grounds, plan: TransactionPlan, patience: Patience, queued: boolean) {
    this.#byHandOver = plan.isolation !== 'read committed' && plan.locks.length > 0
    this.#grounds = grounds
    this.#plan = plan
    this.#patience = patience
    this.#answers = new AnswerWatch(grounds.silence, patience)
    this.#contended = queued
  }

  async enter(): Promise<Opened> {
    const { driver, readiness, limit } = this.#grounds
    const { locks, stay } = this.#plan
    const patience = this.#patience
    patience.stage = 'connection'
    for (let round = 0; ; round++) {
      const stays = stay?.holds
      try {
        this.#readiness = readiness ?? (await this.#becomeReady())
        this.#connection = await (stay?.connect(driver, patience, locks) ??
          checkout(driver, patience, locks, round === 0 ? limit : undefined))
      } catch (error) {
        throw checkoutFailed(error, patience, locks)
      }
      this.#inTransaction = false
      this.#isNew = false
      try {
        let opened: Opened | 'unknown life' | undefined
        if (this.#byHandOver) {
          opened = await this.#handOver(round)
        } else if (stays !== true && this.#expectsToWait()) {
          opened = await this.#wait(true, round).finally(() => this.#grounds.places.give())
        } else {
          const hurries = patience.mayHurry
          if (!hurries) this.#answers.start(this.#connection)
          try {
            const answer = this.#try()
            opened = this.#accept(await (hurries ? this.#answers.of(this.#connection, answer, this.#leaving) : answer))
          } catch (error) {
            if (!(error instanceof StatementForgotten)) throw error
            this.#answers.stop()
            opened = this.#accept(await this.#send(`${ROLLBACK}; ${beginTrying(this.#opening())}`))
          } finally {
            this.#answers.stop()
          }
          if (opened === undefined || opened === 'unknown life') opened = await this.#enterSlowly(opened, round)
        }
        if (opened !== undefined) return opened
      } catch (error) {
        if (error instanceof LeftBehind) throw error.failure ?? patience.failure(patience.stage, locks)
        // Nothing ran yet, and the connection is destroyed: the next one may answer.
        if (this.#answers.suggestsAnother) continue
        await this.#abandon(error)
        throw error
      }
      // Only at first: a call that waits already is not refused because of later ones.
      const refusal = round === 0 ? limit.begin(locks[0]?.key, 0) : limit.goOn()
      if (refusal !== undefined) throw refusal
      await pause(round, patience)
      limit.end()
      if (patience.over) throw patience.failure('server', locks)
    }
  }

  /** Before the first answer of the server all wait for one, also while it is away. */
  async #becomeReady(): Promise<Readiness> {
    const { limit } = this.#grounds
    const { locks } = this.#plan
    const refusal = limit.begin(locks[0]?.key, 0)
    if (refusal !== undefined) throw refusal
    try {
      return await patiently(this.#grounds.ready(), this.#patience, locks)
    } finally {
      limit.end()
    }
  }

  /** Rejects with a `StatementForgotten` where the same may be asked once more, after a rollback. */
  #try(): Promise<StatementResult[]> {
    this.#inTransaction = true
    const opening = this.#opening()
    const kept = beginKept(opening)
    return (kept && this.#connection.ask?.(kept, KEPT_COLUMNS)) ?? this.#connection.script(beginTrying(opening))
  }

  /** Whether the quick way would only be refused, and there is a place to wait at the server. */
  #expectsToWait(): boolean {
    const { contention, method, places } = this.#grounds
    if (!contention.expects(this.#plan.locks) || method.name !== 'advisory' || this.#patience.asksOnce) return false
    // On a connection that is not yet known, an abort could not cancel the wait, and a grant might have to be given back to look
    // up in which life of the server it is.
    const { memory } = this.#connection
    return memory?.pooled === false && memory.incarnation !== undefined && places.tryTake()
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
      if (granted === 'unknown life') await this.#learnLife()
      else if (granted !== undefined) return granted
    }
    await this.#leave()
    this.#connection.release()
    return undefined
  }

  #learnContention(waited: boolean): void {
    if (waited) this.#reportContention()
    else this.#grounds.contention.forget(this.#plan.locks)
  }

  /**
   * After the quick way was refused. Undefined where somebody else holds a lock and there is no place to wait at the server: ask
   * again later.
   */
  async #enterSlowly(refusal: 'unknown life' | undefined, round: number): Promise<Opened | undefined> {
    let placed = false
    try {
      for (let opened: Opened | 'unknown life' | undefined = refusal; opened === 'unknown life';) {
        await this.#learnLife()
        opened = this.#accept(await this.#send(beginTrying(this.#opening())))
        if (opened !== undefined && opened !== 'unknown life') return opened
      }
      if (!this.#isNew) this.#reportContention()
      if (this.#patience.over && !this.#isNew) throw await this.#giveUp()
      placed = this.#grounds.places.tryTake()
      return await this.#wait(placed, round)
    } finally {
      if (placed) this.#grounds.places.give()
    }
  }

  /** The way in for isolation levels that take their snapshot with the first statement. */
  async #handOver(round: number): Promise<Opened | undefined> {
    const placed = this.#grounds.places.tryTake()
    try {
      const longest = Math.max(1, this.#longestSlice(placed, round))
      for (;;) {
        const opening = this.#opening()
        let results: StatementResult[] | undefined
        try {
          results = await this.#slice((sliceMs) => handOver(opening, sliceMs), longest)
        } catch (refusal) {
          results = await this.#afterRefusal(refusal)
        }
        if (results === undefined) {
          await this.#leave()
          if (placed) continue
          this.#connection.release()
          return undefined
        }
        if (opening.tellsWaiting && hadToWait(results)) this.#reportContention()
        const granted = this.#accept(results)
        if (granted !== 'unknown life') return granted
        await this.#learnLife()
      }
    } finally {
      if (placed) this.#grounds.places.give()
    }
  }

  /** How long this attempt may wait at the server at a time; 0: not at all. */
  #longestSlice(placed: boolean, round: number): number {
    if (placed) return placedSliceMs(this.#connection.memory?.pooled === false, this.#readiness.longestStatementMs)
    // With one connection for everything nobody ever has a place, and nobody who holds a lock is kept waiting.
    return unplacedSliceMs(round, this.#isNew || this.#grounds.driver.poolSize === 1)
  }

  #opening(): Opening {
    const plan = this.#plan
    const { memory } = this.#connection
    // A driver that does not say beforehand which connection it gives us: where the last one was direct and known, so is most
    // likely this one; if not, it is asked afterwards.
    const known =
      memory === undefined ? this.#grounds.route.direct : memory.pooled === false && memory.incarnation !== undefined
    return {
      isolation: plan.isolation,
      method: this.#grounds.method,
      locks: plan.locks,
      shadows: plan.shadows,
      numbers: plan.streams.length === 0 ? undefined : lastNumbers(this.#grounds.quotedSchema, plan.streams),
      withXid: plan.resolvesCommit,
      incarnation: plan.resolvesCommit && !known ? incarnationExpression(this.#grounds.quotedSchema) : undefined,
      checksConnections: this.#readiness.checksConnections,
      tellsWaiting: lockContended.hasSubscribers || lockAcquired.hasSubscribers,
    }
  }

  /** Reads the answers to an opening message. Undefined: a lock is taken. */
  #accept(results: readonly StatementResult[]): Opened | 'unknown life' | undefined {
    const row = results.at(-1)?.rows[0] as unknown as OpeningRow
    if (row.held === 'standby') throw standbyRefused()
    const pid = Number(row.pid)
    const told = this.#byHandOver ? incarnationOf(results) : row.incarnation
    const { memory, protocolPid } = this.#connection
    if (memory !== undefined && protocolPid !== undefined) {
      memory.pooled = protocolPid !== pid
      this.#grounds.route.direct = !memory.pooled
      if (typeof told === 'string') memory.incarnation = told
    }
    // Null: the first to come after a crash. Undefined: not asked, because this connection was thought to be known.
    const incarnation = told === undefined ? memory?.incarnation : (told ?? undefined)
    if (this.#plan.resolvesCommit && incarnation === undefined) return 'unknown life'
    if (!isKnown(this.#readiness, memory?.pooled, told)) return 'unknown life'
    if (row.held === null) {
      // A row that is not there yet is not somebody else's.
      this.#isNew = row.existing !== undefined && Number(row.existing) < this.#plan.locks.length
      return undefined
    }
    // A wait that was given up can still have been granted.
    if (this.#patience.aborted) throw this.#patience.failure('server', this.#plan.locks)
    const trace =
      incarnation !== undefined && this.#plan.resolvesCommit ? { xid: row.held, pid, incarnation } : undefined
    if (this.#plan.shadows.length > 0) this.#followShadows(results)
    const numbers = this.#numbersIn(results)
    return { connection: this.#connection, trace, contended: this.#contended, mark: row.held, numbers }
  }

  #numbersIn(results: readonly StatementResult[]): StreamNumbers | undefined {
    const { streams } = this.#plan
    if (!this.#byHandOver || streams.length === 0) return undefined
    const lasts = streamNumbersOf(results)
    return new Map(streams.map((stream, index) => [nameOf(stream), lasts[index] ?? 0]))
  }

  #followShadows(results: readonly StatementResult[]): void {
    const { places, began } = shadowsOf(results)
    for (const place of places) {
      const shadow = this.#plan.shadows[place]
      if (shadow !== undefined) this.#grounds.shadows.follow(shadow, began)
    }
  }

  /** Finds out which server this is and in which life, and tries the locks where nobody has; then we start over. */
  async #learnLife(): Promise<void> {
    await this.#leave()
    const learning = this.#grounds.know(this.#connection, this.#readiness)
    this.#readiness = await this.#answers.of(this.#connection, learning, this.#leaving)
    const { memory } = this.#connection
    if (memory !== undefined) memory.incarnation = this.#readiness.incarnation.value
  }

  /** Waits at the server for one slice. */
  #slice(message: (sliceMs: number) => string, longest: number): Promise<StatementResult[]> {
    const sliceMs = Math.max(1, Math.min(longest, this.#patience.remainingMs()))
    const connection = this.#connection
    this.#inTransaction = true
    const answer = connection.script(message(sliceMs))
    const cancel = (): Cancel => cancelRunning(this.#grounds, connection)
    return this.#answers.ofSlice(connection, sliceMs, answer, this.#leaving, cancel)
  }

  /** After a slice that failed: returns where it was not granted in its time, and the transaction has failed; otherwise it throws. */
  async #afterRefusal(refusal: unknown): Promise<undefined> {
    const tookTooLong = codeOf(refusal) === LOCK_NOT_AVAILABLE && !this.#connection.lost
    // One that was cancelled had waited, too.
    if (tookTooLong || this.#patience.aborted) this.#reportContention()
    if (!tookTooLong) throw refusal
    if (this.#patience.over) throw await this.#giveUp()
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
    this.#patience.stage = 'server'
    this.#grounds.contention.note(this.#plan.locks)
    if (this.#contended) return
    this.#contended = true
    if (!lockContended.hasSubscribers) return
    const { keys, sharedKeys } = this.#plan
    lockContended.publish({ schema: this.#grounds.schema, keys, sharedKeys, where: 'server' })
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
  async #giveUp(): Promise<LeftBehind> {
    const look = !this.#patience.aborted
    const looking = leaveAndLook(this.#connection, this.#grounds.silence, this.#leaving, look ? this.#plan.locks : [])
    const holders = await within(looking, AFTER_END_MS)
    return new LeftBehind(this.#patience.failure('server', this.#plan.locks, holders))
  }

  /** Leaves nothing behind. An error that came out of an aborted wait is told as that. */
  async #abandon(error: unknown): Promise<void> {
    const lost = isUnusable(this.#connection, error) || meansConnectionLost(error)
    if (lost) this.#connection.destroy()
    else if (this.#inTransaction)
      await within(leave(this.#connection, this.#grounds.silence, this.#leaving), this.#patience.answerMs())
    else this.#connection.release()
    if (error instanceof LockstepError && !(error instanceof ConnectionLost)) return
    if (this.#patience.aborted) throw this.#patience.failure('server', this.#plan.locks)
    if (this.#answers.outOfTime) throw this.#patience.failure('connection', this.#plan.locks)
    if (STANDBY_STATES.has(codeOf(error) ?? '')) throw standbyRefused()
    if (lost) throw lostWhileOpening(this.#plan, error)
  }
}
