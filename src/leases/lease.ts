import { LeaseLostError, type LeaseLostReason } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { leaseLost, leaseReleased } from '../observe/index.ts'
import {
  type CheckedTransaction,
  type LeaseMode,
  outsideTransactions,
  type Transaction,
  type TransactionOptions,
} from '../transactions/index.ts'
import { type ClockReading, elapsedMs, readClocks } from './clock.ts'
import type { LeasePlan } from './options.ts'

/** An open transaction of the Lockstep that the lease is of: what `transaction()` and `join()` give. */
export type GuardedTransaction = Pick<Transaction, 'isolation' | 'query' | 'queryAtCommit'>

/** A lease in the holder's hands. */
export interface Lease<Client = unknown> {
  readonly key: Key
  readonly holder: string
  /** `on`: it excludes others. `observe` and `off`: it does not, because the rollout has its key observed or left alone. */
  readonly mode: LeaseMode
  /** Larger than that of every holder before. Give it to whatever must be able to refuse a late one. `0n` where the database was not asked. */
  readonly fence: bigint
  /** Aborted when the lease is lost; the reason is a `LeaseLostError`. */
  readonly signal: AbortSignal
  /** For how long it is certain that no other caller has it. 0 when it is lost. */
  readonly trustedMs: number
  /** Throws `LeaseLostError` if it is not certain any more that the lease is held. */
  assertHeld(): void
  /**
   * A transaction that cannot commit once another holder has the lease.
   *
   * @example
   * await lease.transaction({}, (tx) => tx.query('UPDATE instances SET state = $1 WHERE id = $2', ['done', id]))
   */
  transaction<T, Given extends TransactionOptions = TransactionOptions>(
    options: CheckedTransaction<Given>,
    fn: (tx: Transaction<Client>) => Promise<T>,
  ): Promise<T>
  /**
   * The same for a transaction that is open: from here on it cannot commit once another holder has the lease. In a savepoint that is
   * rolled back the guard is undone.
   *
   * @example
   * await lockstep.transaction({ lock: key`Ledger:${id}` }, async (tx) => {
   *   await lease.guard(tx)
   *   await tx.query('UPDATE ledger SET state = $1 WHERE id = $2', ['closed', id])
   * })
   */
  guard(tx: GuardedTransaction): Promise<void>
  /** Releases it. May be called again, and after it was lost. */
  release(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** What a lease needs of its Lockstep. */
export interface LeaseDependencies {
  readonly schema: string
  forget(lease: HeldLease): void
  release(lease: HeldLease): Promise<void>
  transact<T>(lease: HeldLease, options: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T>
  guard(lease: HeldLease, tx: GuardedTransaction): Promise<void>
}

/** The part of the ttl that is not trusted: it covers late timers and the way of the abort to its listeners. */
export const MARGIN = 0.1
/** Three tries fit into a ttl. */
const RENEWALS_PER_TTL = 3

/** Hears how a lease ended, once. */
export type LeaseEnded = (reason: LeaseLostReason) => void

/** What was granted, and when it was asked for. */
export interface Grant {
  readonly fence: bigint
  readonly askedAt: ClockReading
}

/** The library's side of a lease. */
export class HeldLease implements Lease {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly fence: bigint
  readonly mode = 'on'
  readonly since = readClocks()
  /** When the next heartbeat is due, by the monotonic clock. */
  renewAt: number
  readonly #dependencies: LeaseDependencies
  readonly #ended: LeaseEnded | undefined
  readonly #controller = new AbortController()
  #trustedFrom: ClockReading
  #timer: NodeJS.Timeout | undefined
  #maxHold: NodeJS.Timeout | undefined
  #state: 'held' | 'resting' | 'lost' | 'released' = 'held'
  #releasing: Promise<void> | undefined

  constructor(
    dependencies: LeaseDependencies,
    key: Key,
    token: string,
    plan: LeasePlan,
    grant: Grant,
    ended?: LeaseEnded,
  ) {
    this.#dependencies = dependencies
    this.#ended = ended
    this.key = key
    this.token = token
    this.plan = plan
    this.fence = grant.fence
    this.#trustedFrom = grant.askedAt
    this.renewAt = grant.askedAt.monotonic + plan.ttlMs / RENEWALS_PER_TTL
    this.#watchTrust()
    this.#watchMaxHold()
  }

  get holder(): string {
    return this.plan.holder
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get trustedMs(): number {
    if (this.#state !== 'held') return 0
    return Math.max(0, this.plan.ttlMs * (1 - MARGIN) - elapsedMs(this.#trustedFrom))
  }

  assertHeld(): void {
    const { loss } = this
    if (loss !== undefined) throw loss
    if (this.#state === 'released') throw this.#error('released')
  }

  /** How it was lost; undefined while it is held, and where its holder released it. */
  get loss(): LeaseLostError | undefined {
    // A process that was stopped may come here before its timers.
    if (this.#state === 'held' && this.trustedMs <= 0) this.lose('not renewed in time')
    return this.#state === 'lost' ? (this.signal.reason as LeaseLostError) : undefined
  }

  /** After a loss, whatever the holder's function threw comes of it: the loss, with that error as its cause. */
  explain(error: unknown): unknown {
    const { loss } = this
    if (loss === undefined || (error instanceof LeaseLostError && error.fence === this.fence)) return error
    return this.#error(loss.reason, error)
  }

  transaction<T>(options: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#dependencies.transact(this, options, fn)
  }

  guard(tx: GuardedTransaction): Promise<void> {
    return this.#dependencies.guard(this, tx)
  }

  /** The database has confirmed it, in answer to what was asked at that moment. */
  renewed(askedAt: ClockReading): void {
    // The answer to an earlier question may come later.
    if (this.#state !== 'held' || askedAt.monotonic < this.#trustedFrom.monotonic) return
    this.#trustedFrom = askedAt
    this.renewAt = askedAt.monotonic + this.plan.ttlMs / RENEWALS_PER_TTL
  }

  /**
   * Is renewed and trusted no more, and not lost: its time ends, and the next caller gets it. While it rests its holder does nothing
   * that needs it. `revived()` or `lose()` ends that.
   */
  rest(): void {
    if (this.loss !== undefined || this.#state !== 'held') return
    this.#state = 'resting'
    this.#stopWatching()
  }

  get resting(): boolean {
    return this.#state === 'resting'
  }

  /** No other caller has taken it meanwhile, as the database has said in answer to what was asked at that moment. */
  revived(askedAt: ClockReading): void {
    if (this.#state !== 'resting') return
    this.#state = 'held'
    this.#trustedFrom = askedAt
    this.renewAt = askedAt.monotonic + this.plan.ttlMs / RENEWALS_PER_TTL
    this.#watchTrust()
    this.#watchMaxHold()
  }

  /** A test has moved the clocks: what the timers wait for may be over. */
  clocksMoved(): void {
    if (this.#state !== 'held' || this.loss !== undefined) return
    clearTimeout(this.#timer)
    clearTimeout(this.#maxHold)
    this.#watchTrust()
    this.#watchMaxHold()
  }

  lose(reason: LeaseLostReason): void {
    if (this.#state !== 'held' && this.#state !== 'resting') return
    this.#state = 'lost'
    this.#end(reason)
    if (leaseLost.hasSubscribers) {
      const { schema } = this.#dependencies
      leaseLost.publish({
        schema,
        key: this.key,
        holder: this.holder,
        fence: this.fence,
        heldMs: elapsedMs(this.since),
        reason,
      })
    }
    // A listener can open a transaction: it does not belong to the one in which the loss was noticed.
    outsideTransactions(() => this.#controller.abort(this.#error(reason)))
  }

  /** Not stopped by a signal: releasing must always be tried. */
  release(): Promise<void> {
    this.#releasing ??= this.#release()
    return this.#releasing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  async #release(): Promise<void> {
    if (this.loss === undefined) {
      this.#state = 'released'
      this.#end('released')
      if (leaseReleased.hasSubscribers) {
        const { schema } = this.#dependencies
        leaseReleased.publish({
          schema,
          key: this.key,
          holder: this.holder,
          fence: this.fence,
          heldMs: elapsedMs(this.since),
        })
      }
    }
    // Also one that was lost: it may only have been our trust that ended.
    await this.#dependencies.release(this)
  }

  #end(reason: LeaseLostReason): void {
    this.#ended?.(reason)
    this.#stopWatching()
  }

  #stopWatching(): void {
    clearTimeout(this.#timer)
    clearTimeout(this.#maxHold)
    this.#dependencies.forget(this)
  }

  #watchTrust(): void {
    this.#timer = setTimeout(() => {
      if (this.trustedMs <= 0) this.lose('not renewed in time')
      else this.#watchTrust()
    }, this.trustedMs)
    this.#timer.unref()
  }

  #watchMaxHold(): void {
    const { maxHoldMs } = this.plan
    if (maxHoldMs === undefined) return
    this.#maxHold = setTimeout(() => this.lose('held too long'), Math.max(0, maxHoldMs - elapsedMs(this.since)))
    this.#maxHold.unref()
  }

  #error(reason: LeaseLostReason, cause?: unknown): LeaseLostError {
    return leaseLostError(this, reason, cause)
  }
}

export function leaseLostError(
  { key, fence }: Pick<Lease, 'key' | 'fence'>,
  reason: LeaseLostReason,
  cause?: unknown,
): LeaseLostError {
  return new LeaseLostError(`The lease on ${key} is lost: ${EXPLAINED[reason]}.`, {
    advice: 'Stop the work that needs it: no lease.transaction() can begin any more. Acquire it again to continue.',
    keys: [key],
    reason,
    fence,
    cause,
  })
}

const EXPLAINED: Readonly<Record<LeaseLostReason, string>> = {
  'not renewed in time': 'it could not be renewed before the end of its time',
  'taken away': 'it expired, or an operator took it away',
  'held too long': 'it was held longer than maxHoldMs',
  closed: 'its Lockstep was closed',
  released: 'it was released',
}
