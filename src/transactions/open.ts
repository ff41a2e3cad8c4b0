import { setTimeout as sleep } from 'node:timers/promises'
import { ConnectionLost, LockstepError } from '../errors.ts'
import { cancelBackend, findHolders, type Patience } from '../locks/index.ts'
import { lockContended } from '../observe/index.ts'
import {
  codeOf,
  type Connection,
  incarnationExpression,
  LOCK_NOT_AVAILABLE,
  meansConnectionLost,
  readIncarnation,
  type StatementResult,
  standbyRefused,
} from '../postgres/index.ts'
import { answered, checkout, cleanUpHandOver, isUnusable, rollBack } from './connections.ts'
import type { Grounds } from './grounds.ts'
import type { TransactionPlan } from './options.ts'
import {
  beginTrying,
  beginWaiting,
  freeAnswerIndex,
  handOver,
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
}

/** A waiting statement holds a snapshot, which holds up vacuum and CREATE INDEX CONCURRENTLY: no wait lasts longer than this. */
const SLICE_MS = 2000
/** Behind a pooler an abort cannot cancel the statement, which may be anybody's by then: it waits for the slice to end. */
const POOLED_SLICE_MS = 500
/** Asking again, where all places for waiting at the server are taken. */
const MIN_ASK_AGAIN_MS = 10
const MAX_ASK_AGAIN_MS = 150

/** Opens the transaction with its locks, or throws with nothing held. */
export async function open(grounds: Grounds, plan: TransactionPlan, patience: Patience, queued: boolean): Promise<Opened> {
  const readiness = await grounds.ready()
  const state = { contended: queued }
  for (let round = 0; ; round++) {
    const connection = await checkout(grounds.driver, patience, plan.locks)
    const attempt = new OpeningAttempt(grounds, plan, patience, connection, readiness.checksConnections, state)
    const opened = await attempt.run()
    if (opened !== undefined) return opened
    const delayMs = Math.min(MAX_ASK_AGAIN_MS, MIN_ASK_AGAIN_MS * 2 ** round) * (0.5 + Math.random() / 2)
    await sleep(Math.min(delayMs, Math.max(1, patience.remainingMs())), undefined, { signal: patience.signal }).catch(() => {
      throw patience.failure('server', plan.locks)
    })
  }
}

/** One connection's worth of trying. */
class OpeningAttempt {
  readonly #grounds: Grounds
  readonly #plan: TransactionPlan
  readonly #patience: Patience
  readonly #connection: Connection
  readonly #checksConnections: boolean
  readonly #state: { contended: boolean }
  /** Whether the server has a transaction open for us, be it a failed one. */
  #inTransaction = false

  constructor(
    grounds: Grounds,
    plan: TransactionPlan,
    patience: Patience,
    connection: Connection,
    checksConnections: boolean,
    state: { contended: boolean },
  ) {
    this.#grounds = grounds
    this.#plan = plan
    this.#patience = patience
    this.#connection = connection
    this.#checksConnections = checksConnections
    this.#state = state
  }

  /** Undefined where somebody else holds a lock and there is no place to wait at the server: ask again later. */
  async run(): Promise<Opened | undefined> {
    const { isolation, locks } = this.#plan
    return isolation === 'read committed' || locks.length === 0 ? this.#enterDirectly() : this.#enterByHandOver()
  }

  async #enterDirectly(): Promise<Opened | undefined> {
    let placed = false
    try {
      const [, tried] = await this.#send(beginTrying(this.#opening()), 0)
      const opened = await this.#accept(tried)
      if (opened === 'again') return await this.#enterDirectly()
      if (opened !== undefined) return opened
      this.#reportContention()
      if (this.#patience.over) throw await this.#giveUp()
      placed = this.#grounds.places.tryTake()
      if (!placed) {
        await rollBack(this.#connection, this.#grounds.silenceMs)
        return undefined
      }
      for (;;) {
        const waited = await this.#waitSlice((sliceMs) => beginWaiting(this.#opening(), sliceMs))
        if (waited === undefined) continue
        const granted = await this.#accept(waited.at(-1))
        if (granted === 'again') continue
        return granted
      }
    } catch (error) {
      await this.#abandon(error)
      throw error
    } finally {
      if (placed) this.#grounds.places.give()
    }
  }

  async #enterByHandOver(): Promise<Opened | undefined> {
    const placed = this.#grounds.places.tryTake()
    try {
      for (;;) {
        const opening = this.#opening()
        const startsOver = this.#inTransaction
        const results = await this.#waitSlice((sliceMs) => handOver(opening, placed ? sliceMs : 1, startsOver))
        if (results === undefined) {
          if (placed) continue
          await rollBack(this.#connection, this.#grounds.silenceMs)
          return undefined
        }
        const free = results[freeAnswerIndex(opening)]?.rows[0] as { held: string | null } | undefined
        if (!startsOver && free?.held === null) this.#reportContention()
        const granted = await this.#accept(results.at(-1))
        if (granted !== 'again') return granted
      }
    } catch (error) {
      await this.#abandon(error)
      throw error
    } finally {
      if (placed) this.#grounds.places.give()
    }
  }

  #opening(): Opening {
    const { plan, memory } = { plan: this.#plan, memory: this.#connection.memory }
    const known = memory?.pooled === false && memory.incarnation !== undefined
    return {
      isolation: plan.isolation,
      locks: plan.locks,
      withXid: plan.resolvesCommit,
      incarnation: plan.resolvesCommit && !known ? incarnationExpression(this.#grounds.quotedSchema) : undefined,
      checksConnections: this.#checksConnections,
    }
  }

  /** Reads the last row of an opening message. Undefined: a lock is taken. */
  async #accept(result: StatementResult | undefined): Promise<Opened | 'again' | undefined> {
    const row = result?.rows[0] as unknown as OpeningRow
    if (row.held === 'standby') throw standbyRefused()
    const pid = Number(row.pid)
    const { memory, protocolPid } = this.#connection
    if (memory !== undefined && protocolPid !== undefined) memory.pooled = protocolPid !== pid
    if (row.incarnation === null) {
      // The first to come after a crash: begin the new life in a transaction of its own, then start over.
      await this.#rollBackOnly()
      await answered(readIncarnation(this.#connection, this.#grounds.quotedSchema), this.#grounds.silenceMs)
      return 'again'
    }
    if (row.held === null) return undefined
    if (memory !== undefined && row.incarnation !== undefined) memory.incarnation = row.incarnation
    // A wait that was given up can still have been granted.
    if (this.#patience.aborted) throw this.#patience.failure('server', this.#plan.locks)
    const incarnation = row.incarnation ?? memory?.incarnation
    const trace = this.#plan.resolvesCommit && incarnation !== undefined ? { xid: row.held, pid, incarnation } : undefined
    return { connection: this.#connection, trace, contended: this.#state.contended }
  }

  /** Waits at the server for one slice. Undefined: not granted in this slice, and the transaction has failed. */
  async #waitSlice(message: (sliceMs: number) => string): Promise<StatementResult[] | undefined> {
    const whole = this.#connection.memory?.pooled === false ? SLICE_MS : POOLED_SLICE_MS
    const sliceMs = Math.max(1, Math.min(whole, this.#patience.remainingMs()))
    try {
      return await this.#cancellable(message(sliceMs), sliceMs)
    } catch (error) {
      if (codeOf(error) !== LOCK_NOT_AVAILABLE || this.#connection.lost) throw error
      this.#reportContention()
      if (this.#patience.over) throw await this.#giveUp()
      return undefined
    }
  }

  /** Sends a message that may wait; where the connection is direct, an abort cancels it. */
  async #cancellable(text: string, sliceMs: number): Promise<StatementResult[]> {
    const { signal } = this.#plan
    const pid = this.#connection.memory?.pooled === false ? this.#connection.protocolPid : undefined
    if (signal === undefined || pid === undefined) return this.#send(text, sliceMs)
    let settled = false
    let sending: Promise<unknown> | undefined
    const cancel = async (): Promise<void> => {
      const other = await this.#grounds.driver.connect()
      // Too late, it would hit whatever the connection runs next.
      if (!settled) await (sending = other.script(cancelBackend(pid)))
      other.release()
    }
    const onAbort = (): void => void cancel().catch(() => undefined)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      return await this.#send(text, sliceMs)
    } finally {
      settled = true
      signal.removeEventListener('abort', onAbort)
      await sending?.catch(() => undefined)
    }
  }

  #send(text: string, mayTakeMs: number): Promise<StatementResult[]> {
    this.#inTransaction = true
    return answered(this.#connection.script(text), mayTakeMs + this.#grounds.silenceMs)
  }

  #reportContention(): void {
    if (this.#state.contended) return
    this.#state.contended = true
    if (!lockContended.hasSubscribers) return
    const { keys, sharedKeys } = this.#plan
    lockContended.publish({ schema: this.#grounds.schema, keys, sharedKeys, where: 'server' })
  }

  async #rollBackOnly(): Promise<void> {
    await this.#send(ROLLBACK, 0)
    this.#inTransaction = false
  }

  /** The error for a wait that has ended, with who was in the way. Leaves the transaction rolled back. */
  async #giveUp(): Promise<LockstepError> {
    await this.#rollBackOnly()
    const holders = this.#patience.aborted ? [] : await findHolders(this.#connection, this.#plan.locks).catch(() => [])
    return this.#patience.failure('server', this.#plan.locks, holders)
  }

  /** Leaves nothing behind. An error that came out of an aborted wait is told as that. */
  async #abandon(error: unknown): Promise<void> {
    const { silenceMs } = this.#grounds
    if (error instanceof LockstepError && !isUnusable(this.#connection, error)) {
      return this.#inTransaction ? rollBack(this.#connection, silenceMs) : this.#connection.release()
    }
    const lost = isUnusable(this.#connection, error) || meansConnectionLost(error)
    await cleanUpHandOver(this.#connection, this.#plan.locks, error, silenceMs)
    if (this.#patience.aborted) throw this.#patience.failure('server', this.#plan.locks)
    if (lost) throw lostWhileOpening(this.#plan, error)
  }
}

function lostWhileOpening(plan: TransactionPlan, cause: unknown): ConnectionLost {
  return new ConnectionLost('The connection was lost before the transaction was open.', {
    advice: 'Nothing was written; it can be done again.',
    keys: plan.locks.map((lock) => lock.key),
    cause,
  })
}
