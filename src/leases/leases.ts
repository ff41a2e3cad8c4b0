import { randomUUID } from 'node:crypto'
import { InvalidOption, LeaseHeld } from '../errors.ts'
import { checkKey, closedError, type Key, Patience } from '../locks/index.ts'
import { leaseAcquired, leaseRefused } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { Grounds, Transaction, TransactionOptions } from '../transactions/index.ts'
import { forceRelease, type ForceReleaseOptions } from './forceRelease.ts'
import { Keeper } from './keeper.ts'
import { type Grant, type GuardedTransaction, HeldLease, type Lease } from './lease.ts'
import { cleanUp } from './leases.sql.ts'
import { givenUp, WaitingLine } from './line.ts'
import { Pending } from './pending.ts'
import { type LeaseOptions, type LeasePlan, planLease } from './options.ts'
import {
  type HistoryEntry,
  historyOf,
  inspect,
  type LeaseDetails,
  type LeaseHistoryOptions,
  type LeaseInfo,
  listLeases,
  type ListLeasesOptions,
} from './seeing.ts'
import { giveBack, leaseHeld, type Obstacle, takeLease } from './take.ts'
import { guardOpen, transactUnder } from './transactUnder.ts'

/** How many ends of leases are remembered, of all keys together. */
const KEEP_HISTORY = 10_000
/** A row that nobody has taken for this long is taken away. */
const IDLE_MS = 24 * 60 * 60 * 1000
/** One of so many releases cleans up. */
const CLEAN_EVERY = 1000

/** The first answer may take a second, however short the wait. */
const FIRST_ANSWER_MS = 1000
/** The clock of the line goes first. */
const GRACE_MS = 250

/** In the way of whoever goes behind others without having asked. */
const NOBODY: Obstacle = { holder: undefined, since: undefined, leftMs: 0 }

/** The leases of one Lockstep. */
export class Leases<Client = unknown> {
  readonly #grounds: Grounds
  readonly #keeper: Keeper
  readonly #line: WaitingLine
  readonly #room
  /** Callers that wait, and ask for the first time just now. */
  readonly #asking = new Map<Key, Promise<void>>()
  readonly #pending = new Pending()

  constructor(grounds: Grounds) {
    this.#grounds = grounds
    this.#keeper = new Keeper(grounds.driver, grounds.schema, grounds.quotedSchema)
    this.#line = new WaitingLine(grounds, this.#pending)
    this.#room = {
      schema: grounds.schema,
      forget: (lease: HeldLease) => this.#keeper.forget(lease),
      release: (lease: HeldLease) => this.#release(lease),
      transact: <T>(lease: HeldLease, options: TransactionOptions, fn: (tx: Transaction) => Promise<T>) =>
        this.#transact(lease, options, fn),
      guard: (lease: HeldLease, tx: GuardedTransaction) => guardOpen(grounds, lease, tx),
    }
  }

  /**
   * Acquires the lease, or throws `LeaseHeld` when it is not to be had in time. Give it back with `release()`, or hold it with
   * `await using`.
   *
   * @example
   * await using lease = await lockstep.leases.acquire(key`Instance:${id}`, { ttlMs: 30_000 })
   */
  async acquire(key: Key, options: LeaseOptions = {}): Promise<Lease<Client>> {
    return (await this.hold(checkKey(key), planLease(options))) as unknown as Lease<Client>
  }

  /** As `acquire`, with undefined where it is held by somebody else. */
  async tryAcquire(key: Key, options: LeaseOptions = {}): Promise<Lease<Client> | undefined> {
    try {
      return await this.acquire(key, options)
    } catch (error) {
      if (error instanceof LeaseHeld) return undefined
      throw error
    }
  }

  /** Runs the function while the lease is held. If it was lost before the function had ended, that is `LeaseLost`. */
  async run<T>(key: Key, options: LeaseOptions, fn: (lease: Lease<Client>) => Promise<T>): Promise<T> {
    if (typeof fn !== 'function') {
      throw new InvalidOption('lease() was given no function.', {
        advice: 'Call lease(key, { ttlMs }, async (lease) => …).',
      })
    }
    const lease = await this.hold(checkKey(key), planLease(options))
    try {
      const value = await fn(lease as unknown as Lease<Client>)
      if (!lease.isReleased) lease.assertHeld()
      return value
    } finally {
      await lease.release()
    }
  }

  /** Who holds what, and who waits; of all keys, or of those that begin with the prefix. */
  list(options: ListLeasesOptions = {}): Promise<LeaseInfo[]> {
    return listLeases(this.#grounds, options)
  }

  /** Who holds this lease, and who waits for it. */
  inspect(key: Key): Promise<LeaseDetails> {
    return inspect(this.#grounds, checkKey(key))
  }

  /** How this lease was held before, the last first. */
  history(key: Key, options: LeaseHistoryOptions = {}): Promise<HistoryEntry[]> {
    return historyOf(this.#grounds, checkKey(key), options)
  }

  /** Takes the lease away from whoever holds it. What its holder does in `lease.transaction()` can no longer commit. */
  async forceRelease(key: Key, options: ForceReleaseOptions): Promise<{ readonly released: number }> {
    return forceRelease(this.#grounds, checkKey(key), options)
  }

  /** The library's own way to a lease. */
  async hold(key: Key, plan: LeasePlan): Promise<HeldLease> {
    const { closing, schema } = this.#grounds
    if (closing.closed) throw closedError([key])
    const patience = new Patience(plan.waitMs, plan.signal, closing)
    if (patience.aborted) throw givenUp(key, plan.signal)
    const token = randomUUID()
    const grant = await this.#untilGivenUp(key, token, plan, patience)
    const lease = new HeldLease(this.#room, key, token, plan, grant)
    this.#keeper.keep(lease)
    if (leaseAcquired.hasSubscribers) {
      leaseAcquired.publish({ schema, key, holder: plan.holder, fence: grant.fence, waitedMs: patience.waitedMs })
    }
    return lease
  }

  /** Asks, and waits. Whoever gives up is told at once, also where no answer comes; what comes too late is given back. */
  #untilGivenUp(key: Key, token: string, plan: LeasePlan, patience: Patience): Promise<Grant> {
    return new Promise((resolve, reject) => {
      let over = false
      const end = (error: Error): void => {
        over = true
        reject(error)
      }
      const forget = patience.onAbort(() => end(givenUp(key, plan.signal)))
      // Who waits in line has a clock there; who waits for the first answer has this one.
      const late =
        plan.waitMs === false || plan.waitMs === 0 ? undefined : Math.max(plan.waitMs, FIRST_ANSWER_MS) + GRACE_MS
      const timer =
        late === undefined ? undefined : setTimeout(() => end(leaseHeld(key, NOBODY, patience.waitedMs)), late)
      const asking = this.#grounds
        .ready()
        .then(() => (plan.waitMs === 0 ? this.#ask(key, token, plan) : this.#askOrWait(key, token, plan, patience)))
        .then(
          async (grant) => {
            if (over) await giveBack(this.#grounds, key, token, plan.ttlMs)
            else resolve(grant)
          },
          (error: Error) => reject(error),
        )
        .finally(() => {
          clearTimeout(timer)
          forget()
        })
      void this.#pending.track(asking)
    })
  }

  async #ask(key: Key, token: string, plan: LeasePlan): Promise<Grant> {
    const taken = await takeLease(this.#grounds, this.#pending, key, token, plan)
    if (taken.granted) return taken.grant
    this.#tellRefused(key, plan, taken.by)
    throw leaseHeld(key, taken.by, 0)
  }

  /**
   * Only the first caller of a key asks at once. Whoever comes after it, while it asks or waits, goes behind it: the answers to
   * questions on several connections come in any order.
   */
  async #askOrWait(key: Key, token: string, plan: LeasePlan, patience: Patience): Promise<Grant> {
    const first = this.#asking.get(key)
    if (first !== undefined || this.#line.has(key)) {
      await first
      this.#tellRefused(key, plan, NOBODY)
      return this.#line.wait(key, token, plan, patience, NOBODY)
    }
    let waiting: Promise<Grant> | undefined
    const asking = takeLease(this.#grounds, this.#pending, key, token, plan)
      .then((taken) => {
        if (taken.granted) return taken.grant
        this.#tellRefused(key, plan, taken.by)
        waiting = this.#line.wait(key, token, plan, patience, taken.by)
        return undefined
      })
      .finally(() => this.#asking.delete(key))
    this.#asking.set(
      key,
      asking.then(
        () => undefined,
        () => undefined,
      ),
    )
    return (await asking) ?? (waiting as Promise<Grant>)
  }

  #tellRefused(key: Key, plan: LeasePlan, { holder: heldBy, leftMs }: Obstacle): void {
    if (!leaseRefused.hasSubscribers) return
    const { schema } = this.#grounds
    leaseRefused.publish({ schema, key, holder: plan.holder, heldBy, leftMs, waits: plan.waitMs !== 0 })
  }

  get closed(): boolean {
    return this.#grounds.closing.closed
  }

  /** Told when the Lockstep is being closed; the answer takes it back. */
  onClose(listener: () => void): () => void {
    return this.#grounds.closing.onClose(listener)
  }

  /** Leases that are still held are given back, and their holders told. */
  async close(): Promise<void> {
    await this.#pending.settled()
    const held = [...this.#keeper.leases]
    for (const lease of held) lease.lose('closed')
    await Promise.all(held.map((lease) => lease.release()))
    await this.#line.close()
    await this.#pending.settled()
  }

  async #release(lease: HeldLease): Promise<void> {
    await giveBack(this.#grounds, lease.key, lease.token, lease.plan.ttlMs)
    this.#line.released(lease.key)
    // By chance: processes that live for a minute would else never do it.
    if (Math.random() < 1 / CLEAN_EVERY) void this.#pending.track(this.#cleanUp())
  }

  async #cleanUp(): Promise<void> {
    const { driver, quotedSchema, silence } = this.#grounds
    const text = cleanUp(quotedSchema, KEEP_HISTORY, IDLE_MS)
    // Another time, if not now.
    await withConnection(driver, (connection) => connection.script(text), silence).catch(() => undefined)
  }

  #transact<T>(lease: HeldLease, options: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#pending.track(transactUnder(this.#grounds, lease, options, fn))
  }
}
