import { randomUUID } from 'node:crypto'
import { checkFunction } from '../checkOptions.ts'
import { LeaseHeldError, type LeaseLostReason, LockstepError, type LockstepErrorCode } from '../errors.ts'
import { checkKey, closedError, type Key, WaitBudget } from '../locks/index.ts'
import { leaseAcquired, leaseSlow } from '../observe/index.ts'
import { LONGEST_TIMER_MS, withConnection } from '../postgres/index.ts'
import type { LeaseAdmission, LockstepContext, Transaction, TransactionOptions } from '../transactions/index.ts'
import { forceRelease, type ForceReleaseOptions } from './forceRelease.ts'
import { LeaseRenewer } from './leaseRenewer.ts'
import { Listener } from './listener.ts'
import { type Grant, type GuardedTransaction, HeldLease, type Lease, type LeaseEnded } from './lease.ts'
import { readClocks } from './clock.ts'
import { cleanUp, revive } from './leases.sql.ts'
import { AcquireProgress, leaseHeld } from './acquireProgress.ts'
import { NonExclusiveLease } from './nonExclusiveLease.ts'
import { ObservedLeases } from './observedLeases.ts'
import { LeaseWaitQueue, waitAborted } from './waitQueue.ts'
import { BackgroundTasks } from './backgroundTasks.ts'
import { checkLeaseKey, defaultHolder, type LeaseOptions, type LeasePlan, planLease } from './options.ts'
import {
  type HistoryEntry,
  historyOf,
  inspect,
  type LeaseDetails,
  type LeaseHistoryOptions,
  type LeaseInfo,
  listLeases,
  type ListLeasesOptions,
} from './inspect.ts'
import { ONE_TRY_MS, releaseLease, takeLease, TRIES } from './take.ts'
import { guardTransaction, transactionUnderLease } from './leaseTransaction.ts'

/** How many ends of leases are remembered, of all keys together. */
const KEEP_HISTORY = 10_000
/** A row that was unused for this time is deleted. */
const IDLE_MS = 24 * 60 * 60 * 1000
/** One in this many releases cleans up. */
const CLEAN_EVERY = 1000

/** The first answer may take a second, however short the wait. */
const FIRST_ANSWER_MS = 1000
/** At the end of a wait in the queue, the database may be asked once more. */
const GRACE_MS = 100

/** How the rollout counts the end of a lease: what its holder lost was not done under it. */
const LOSS_OUTCOMES: Readonly<Record<LeaseLostReason, 'done' | 'failed' | 'harmed'>> = {
  released: 'done',
  closed: 'failed',
  'taken away': 'harmed',
  'not renewed in time': 'harmed',
  'held too long': 'harmed',
}

/** Failures that asking for leases can bring about. */
const HARM: ReadonlySet<LockstepErrorCode> = new Set([
  'LOCKSTEP_LEASE_HELD',
  'LOCKSTEP_LOCK_TIMEOUT',
  'LOCKSTEP_QUEUE_FULL',
  'LOCKSTEP_CONNECTION_LOST',
])

/** One call that asks for a lease. */
interface Call {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly budget: WaitBudget
  readonly progress: AcquireProgress
}

/** The leases of one Lockstep. */
export class Leases<Client = unknown> {
  readonly #context: LockstepContext
  readonly #renewer: LeaseRenewer
  readonly #listener: Listener
  readonly #queue: LeaseWaitQueue
  readonly #dependencies
  /** Callers that wait, and ask for the first time just now. */
  readonly #asking = new Map<Key, { readonly progress: AcquireProgress; readonly settled: Promise<void> }>()
  readonly #background = new BackgroundTasks()
  /** Calls that ask or wait, by key. */
  readonly #calls = new Map<Key, number>()
  readonly #observed: ObservedLeases
  readonly #nonExclusive = new Set<NonExclusiveLease>()

  /** @internal */
  constructor(context: LockstepContext) {
    this.#context = context
    this.#renewer = new LeaseRenewer(context.driver, context.schema, context.quotedSchema)
    this.#listener = new Listener(context)
    this.#queue = new LeaseWaitQueue(context, this.#background, this.#listener)
    this.#observed = new ObservedLeases(context, (key, plan) => this.hold(key, plan))
    this.#dependencies = {
      schema: context.schema,
      forget: (lease: HeldLease) => this.#renewer.forget(lease),
      release: (lease: HeldLease) => this.#release(lease),
      transact: <T>(lease: HeldLease, options: TransactionOptions, fn: (tx: Transaction) => Promise<T>) =>
        this.#transact(lease, options, fn),
      guard: (lease: HeldLease, tx: GuardedTransaction) => guardTransaction(context, lease, tx),
    }
  }

  /**
   * Acquires the lease, or throws `LeaseHeldError` when it is not granted in time; where the database could not be asked, `LockTimeoutError` or
   * `ConnectionLostError`. Release it with `release()`, or hold it with `await using`.
   *
   * @example
   * await using lease = await lockstep.leases.acquire(key`Instance:${id}`, { ttlMs: 30_000 })
   */
  async acquire(key: Key, options: LeaseOptions = {}): Promise<Lease<Client>> {
    return (await this.#enter(checkLeaseKey(key), planLease(options))) as unknown as Lease<Client>
  }

  /** As `acquire`, with undefined if the database says that another caller holds it. */
  async tryAcquire(key: Key, options: LeaseOptions = {}): Promise<Lease<Client> | undefined> {
    try {
      return await this.acquire(key, options)
    } catch (error) {
      if (error instanceof LeaseHeldError) return undefined
      throw error
    }
  }

  /**
   * Runs the function while the lease is held, and releases it. If the lease was lost before the function had ended, that is
   * `LeaseLostError`, whatever the function returned; what it threw is the `cause`. One that the function released is not lost.
   */
  run<T>(key: Key, options: LeaseOptions, fn: (lease: Lease<Client>) => Promise<T>): Promise<T> {
    return this.runAfter({ waited: false }, key, options, fn)
  }

  /**
   * As `run`, for a caller that has waited already, whatever its `waitMs` is now: a refusal is then a wait that failed.
   *
   * @internal
   */
  async runAfter<T>(
    { waited }: { readonly waited: boolean },
    key: Key,
    options: LeaseOptions,
    fn: (lease: Lease<Client>) => Promise<T>,
  ): Promise<T> {
    const plan = planLease(options, 'lease()')
    checkFunction('lease()', fn)
    const lease = await this.#enter(checkLeaseKey(key), plan, waited)
    try {
      const value = await fn(lease as unknown as Lease<Client>)
      if (lease.loss !== undefined) throw lease.loss
      return value
    } catch (error) {
      throw lease.explain(error)
    } finally {
      await lease.release()
    }
  }

  /** Who holds what, and who waits; of all keys, or of those that begin with the prefix. */
  list(options: ListLeasesOptions = {}): Promise<LeaseInfo[]> {
    return listLeases(this.#context, options)
  }

  /** Who holds this lease, and who waits for it. */
  inspect(key: Key): Promise<LeaseDetails> {
    return inspect(this.#context, checkKey(key))
  }

  /** How this lease was held before, the last first. */
  history(key: Key, options: LeaseHistoryOptions = {}): Promise<HistoryEntry[]> {
    return historyOf(this.#context, checkKey(key), options)
  }

  /** Takes the lease away from its holder. What its holder does in `lease.transaction()` can no longer commit. */
  async forceRelease(key: Key, options: ForceReleaseOptions): Promise<{ readonly released: number }> {
    return forceRelease(this.#context, checkKey(key), options)
  }

  /**
   * Holds a lease for another part of the library, whatever the rollout says: two leaders, or two owners of a shard, would break what they promise.
   *
   * @internal
   */
  hold(key: Key, plan: LeasePlan): Promise<HeldLease> {
    return this.#hold(key, plan, this.#budget(key, plan))
  }

  /**
   * As `acquire`, whatever the rollout says, and also for a name that is reserved for dispatchers.
   *
   * @internal
   */
  async acquireAlways(key: Key, options: LeaseOptions): Promise<Lease<Client>> {
    return (await this.hold(checkKey(key), planLease(options))) as unknown as Lease<Client>
  }

  /** Gives a caller its lease, as the rollout has it: held, observed, or not asked for. */
  async #enter(key: Key, plan: LeasePlan, waited = false): Promise<HeldLease | NonExclusiveLease> {
    const budget = this.#budget(key, plan)
    const startedAt = performance.now()
    const admission = await this.admit(key, budget)
    if (admission !== undefined && admission.mode !== 'on') {
      return this.#withoutExclusion(key, plan, admission.mode, () => {
        admission.sawEnd(performance.now() - startedAt, 'done')
      })
    }
    const ended: LeaseEnded | undefined =
      admission && ((reason) => admission.sawEnd(performance.now() - startedAt, LOSS_OUTCOMES[reason]))
    const progress = new AcquireProgress(this.#context.schema, key, plan)
    const stopWatching = plan.waitMs === 0 ? undefined : this.watchWait(key, plan.holder, admission, progress)
    try {
      return await this.#hold(key, plan, budget, progress, ended)
    } catch (error) {
      admission?.sawEnd(performance.now() - startedAt, isHarm(error, waited || plan.waitMs !== 0) ? 'harmed' : 'failed')
      throw error
    } finally {
      stopWatching?.()
    }
  }

  async #withoutExclusion(
    key: Key,
    plan: LeasePlan,
    mode: 'observe' | 'off',
    ended: () => void,
  ): Promise<NonExclusiveLease> {
    const mark = mode === 'observe' ? await this.#observed.mark(key, plan) : undefined
    const lease = new NonExclusiveLease(this.#context, {
      key,
      plan,
      mode,
      mark,
      ended: (each) => {
        this.#nonExclusive.delete(each)
        ended()
      },
    })
    this.#nonExclusive.add(lease)
    if (this.closed) lease.close()
    return lease
  }

  #budget(key: Key, plan: LeasePlan): WaitBudget {
    const { closing } = this.#context
    if (closing.closed) throw closedError([key])
    const budget = new WaitBudget(plan.waitMs, plan.signal, closing)
    if (budget.aborted) throw waitAborted(key, plan.signal)
    return budget
  }

  /**
   * How the rollout has a lease held. Undefined without a rollout: exclusively.
   *
   * @internal
   */
  admit(key: Key, budget: WaitBudget): LeaseAdmission | Promise<LeaseAdmission> | undefined {
    return this.#context.parts.leases?.admit(key, budget)
  }

  /**
   * Reports a wait that is slow, and to the rollout one that is too long. The function that it returns stops it.
   *
   * @internal
   */
  watchWait(
    key: Key,
    holder = defaultHolder(),
    admission?: LeaseAdmission,
    progress?: Pick<AcquireProgress, 'heldBy'>,
  ): () => void {
    const { schema, slowWaitMs } = this.#context
    const startedAt = performance.now()
    const slow = setTimeout(
      () => {
        if (!leaseSlow.hasSubscribers) return
        const waitedMs = performance.now() - startedAt
        leaseSlow.publish({ schema, key, holder, waitedMs, heldBy: progress?.heldBy })
      },
      Math.min(slowWaitMs, LONGEST_TIMER_MS),
    )
    slow.unref()
    const longWaitMs = admission?.longWaitMs ?? Infinity
    const long = longWaitMs <= LONGEST_TIMER_MS ? setTimeout(() => admission?.sawLongWait(), longWaitMs) : undefined
    long?.unref()
    return () => {
      clearTimeout(slow)
      clearTimeout(long)
    }
  }

  async #hold(
    key: Key,
    plan: LeasePlan,
    budget: WaitBudget,
    progress = new AcquireProgress(this.#context.schema, key, plan),
    ended?: LeaseEnded,
  ): Promise<HeldLease> {
    const token = randomUUID()
    const grant = await this.#counted(key, () => this.#untilAborted({ key, token, plan, budget, progress }))
    const lease = new HeldLease(this.#dependencies, key, token, plan, grant, ended)
    this.#renewer.keep(lease)
    if (leaseAcquired.hasSubscribers) {
      const { schema } = this.#context
      leaseAcquired.publish({ schema, key, holder: plan.holder, fence: grant.fence, waitedMs: budget.waitedMs })
    }
    return lease
  }

  /** Each call asks through a connection and may wait in the queue: both have an end, and so has their number. */
  async #counted(key: Key, ask: () => Promise<Grant>): Promise<Grant> {
    const { limit } = this.#context
    const ahead = this.#calls.get(key) ?? 0
    const refusal = limit.begin(key, ahead)
    if (refusal !== undefined) throw refusal
    this.#calls.set(key, ahead + 1)
    try {
      return await ask()
    } finally {
      limit.end()
      const left = (this.#calls.get(key) ?? 1) - 1
      if (left > 0) this.#calls.set(key, left)
      else this.#calls.delete(key)
    }
  }

  /** How long the database may take to answer at all: as long as the caller waits; where it does not, or without an end, a few tries. */
  #firstAnswerMs({ waitMs }: LeasePlan): number {
    if (waitMs === 0 || waitMs === false) return TRIES * Math.min(this.#context.silence.silenceMs, ONE_TRY_MS)
    return Math.min(Math.max(waitMs, FIRST_ANSWER_MS) + GRACE_MS, LONGEST_TIMER_MS)
  }

  /** Asks, and waits. A caller that gives up returns at once, also if no answer comes; a grant that comes too late is released. */
  #untilAborted(call: Call): Promise<Grant> {
    const { key, token, plan, budget, progress } = call
    return new Promise((resolve, reject) => {
      const forget = budget.onAbort(() => {
        progress.end()
        reject(waitAborted(key, plan.signal))
      })
      // A wait without an end has this clock for the first answer alone.
      const timer = setTimeout(() => {
        if (plan.waitMs !== false || !progress.isAnswered) reject(progress.giveUp(budget.waitedMs))
      }, this.#firstAnswerMs(plan))
      const asking = (plan.waitMs === 0 ? this.#ask(call) : this.#askOrWait(call))
        .then(
          async (grant) => {
            if (progress.ended) await releaseLease(this.#context, key, token, plan.ttlMs)
            else resolve(grant)
          },
          (error: Error) => reject(error),
        )
        .finally(() => {
          clearTimeout(timer)
          forget()
        })
      void this.#background.track(asking)
    })
  }

  async #ask(call: Call): Promise<Grant> {
    const taken = await takeLease(this.#context, this.#background, { ...call, tries: TRIES })
    if (taken.granted) return taken.grant
    throw leaseHeld(call.key, taken.by, 0)
  }

  /**
   * Only the first caller of a key asks at once. A caller that comes after it, while it asks or waits, goes behind it: the answers to
   * questions on several connections come in any order.
   */
  async #askOrWait(call: Call): Promise<Grant> {
    const { key, plan, progress } = call
    const first = this.#asking.get(key)
    if (first !== undefined || this.#queue.has(key)) {
      if (first !== undefined) {
        progress.goBehind(first.progress)
        await first.settled
      }
      return this.#queue.wait(call)
    }
    let waiting: Promise<Grant> | undefined
    const tries = plan.waitMs === false ? TRIES : Infinity
    const asking = takeLease(this.#context, this.#background, { ...call, tries })
      .then((taken) => {
        if (taken.granted) return taken.grant
        waiting = this.#queue.wait(call)
        return undefined
      })
      .finally(() => this.#asking.delete(key))
    const settled = asking.then(
      () => undefined,
      () => undefined,
    )
    this.#asking.set(key, { progress, settled })
    return (await asking) ?? (waiting as Promise<Grant>)
  }

  /** @internal */
  get closed(): boolean {
    return this.#context.closing.closed
  }

  /**
   * Calls the listener when the Lockstep is closed. The function that it returns removes the listener.
   *
   * @internal
   */
  onClose(listener: () => void): () => void {
    return this.#context.closing.onClose(listener)
  }

  /**
   * Lets leases rest: nothing is sent for them until `revive()`, and every caller can take them once their time is over. For another part of
   * the library, which does nothing under them meanwhile.
   *
   * @internal
   */
  rest(leases: readonly Lease[]): void {
    for (const lease of leases) (lease as unknown as HeldLease).rest()
  }

  /**
   * Holds those again that were not taken, in one message; the others are lost. Where the answer does not come, all rest as before.
   *
   * @internal
   */
  async revive(leases: readonly Lease[]): Promise<void> {
    const resting = (leases as unknown as readonly HeldLease[]).filter((lease) => lease.resting)
    if (resting.length === 0) return
    const { driver, quotedSchema, silence } = this.#context
    const given = resting.map(({ key, token, fence, plan }) => ({ name: key, token, fence, ttlMs: plan.ttlMs }))
    let askedAt = readClocks()
    const results = await withConnection(
      driver,
      (connection) => {
        askedAt = readClocks()
        return connection.script(revive(quotedSchema, given))
      },
      silence,
    )
    const revived = new Set(results.flatMap(({ rows }) => rows.map((row) => row['token'])))
    for (const lease of resting) {
      if (revived.has(lease.token)) {
        lease.revived(askedAt)
        this.#renewer.keep(lease)
      } else lease.lose('taken away')
    }
  }

  /**
   * Hears what is called on the connection that listens, for another part of the library.
   *
   * @internal
   */
  get listener(): Listener {
    return this.#listener
  }

  /**
   * Releases the leases that are still held, and reports it to their holders.
   *
   * @internal
   */
  async close(): Promise<void> {
    await this.#background.settled()
    const held = [...this.#renewer.leases]
    for (const lease of held) lease.lose('closed')
    const others = [...this.#nonExclusive]
    for (const lease of others) lease.close()
    await Promise.all(others.map((lease) => lease.release()))
    this.#observed.close()
    await Promise.all(held.map((lease) => lease.release()))
    this.#queue.close()
    await this.#listener.close()
    await this.#background.settled()
  }

  async #release(lease: HeldLease): Promise<void> {
    await releaseLease(this.#context, lease.key, lease.token, lease.plan.ttlMs)
    this.#queue.released(lease.key)
    // By chance: processes that live for a minute would else never do it.
    if (Math.random() < 1 / CLEAN_EVERY) void this.#background.track(this.#cleanUp())
  }

  async #cleanUp(): Promise<void> {
    const { driver, quotedSchema, silence } = this.#context
    const text = cleanUp(quotedSchema, KEEP_HISTORY, IDLE_MS)
    // Another time, if not now.
    await withConnection(driver, (connection) => connection.script(text), silence).catch(() => undefined)
  }

  #transact<T>(lease: HeldLease, options: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#background.track(transactionUnderLease(this.#context, lease, options, fn))
  }
}

/** For a caller that does not wait, a lease that is held is no failure. */
function isHarm(error: unknown, waited: boolean): boolean {
  if (!(error instanceof LockstepError) || !HARM.has(error.code)) return false
  return waited || error.code !== 'LOCKSTEP_LEASE_HELD'
}
