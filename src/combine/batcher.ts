import { AsyncResource } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { BatchMismatchError, LockTimeoutError } from '../errors.ts'
import { Closing, type Key } from '../locks/index.ts'
import { combineBatch } from '../observe/index.ts'
import {
  type Isolation,
  type LockstepContext,
  outsideTransactions,
  planTransaction,
  runTransaction,
  type Transaction,
} from '../transactions/index.ts'
import { isItemError } from './itemErrors.ts'
import { LockRetention } from './lockRetention.ts'
import { type Call, CallQueue, type QueueTotals } from './callQueue.ts'

/** The combined functions of one Lockstep that have callers: `close()` waits for them. */
export type Combiners = Set<{ idle(): Promise<void> }>

interface Settings<Item, Result> {
  readonly run: (tx: Transaction, items: readonly Item[]) => Promise<readonly (Result | Error)[]>
  readonly maxBatch: number
  readonly waitMs: number | false
  readonly isolation: Isolation | undefined
}

/** Those who wait while `lockstep.close()` has been called are still served. */
const NEVER = new Closing()

/** Serves the queues of one combined function: each queue by one batch after the other, all queues in parallel. */
export class Batcher<Item, Result> {
  /** How many calls wait, for all keys together. */
  get waiting(): number {
    return this.#totals.waiting
  }
  readonly #context: LockstepContext
  readonly #combiners: Combiners
  readonly #settings: Settings<Item, Result>
  readonly #queues = new Map<Key, CallQueue<Item, Result>>()
  readonly #totals: QueueTotals = {
    waiting: 0,
    setTimer: (fn, ms) => this.#scope.runInAsyncScope(() => setTimeout(fn, ms)),
  }
  /** Batches belong to no request: they run in the context in which the function was made, not in that of a call. */
  readonly #scope = new AsyncResource('lockstep.combine')
  #idle: Promise<void> | undefined
  #whenIdle: (() => void) | undefined

  constructor(context: LockstepContext, combiners: Combiners, settings: Settings<Item, Result>) {
    this.#context = context
    this.#combiners = combiners
    this.#settings = settings
  }

  waitingFor(key: Key): number {
    return this.#queues.get(key)?.waiting ?? 0
  }

  /** Comes back when no call waits and nothing runs. */
  async idle(): Promise<void> {
    if (this.#queues.size === 0) return
    this.#idle ??= new Promise<void>((resolve) => (this.#whenIdle = resolve))
    await this.#idle
  }

  enter(key: Key, item: Item, signal: AbortSignal | undefined): Promise<Result> {
    const open = this.#queues.get(key)
    if (open !== undefined) return open.enter(item, signal)
    const queue = new CallQueue<Item, Result>(key, this.#settings.waitMs, this.#totals)
    this.#queues.set(key, queue)
    this.#combiners.add(this)
    const result = queue.enter(item, signal)
    this.#scope.runInAsyncScope(() => outsideTransactions(() => void this.#serve(queue)))
    return result
  }

  async #serve(queue: CallQueue<Item, Result>): Promise<void> {
    const retention = new LockRetention(this.#context)
    for (;;) {
      while (queue.waiting > 0) await this.#serveNext(queue, retention)
      if (!retention.holds) break
      // Those who were just answered may call again at once.
      await nextTurn()
      if (queue.waiting === 0) await retention.leave()
    }
    queue.end()
    this.#queues.delete(queue.key)
    if (this.#queues.size > 0) return
    this.#combiners.delete(this)
    this.#whenIdle?.()
    this.#idle = undefined
  }

  /** One batch: the calls that wait when its transaction is open. */
  async #serveNext(queue: CallQueue<Item, Result>, retention: LockRetention): Promise<void> {
    const emptied = new AbortController()
    queue.onEmpty = () => emptied.abort()
    let batch: Call<Item, Result>[] | undefined
    const error = await this.#transact(queue, retention, emptied.signal, () => {
      queue.onEmpty = undefined
      return (batch ??= queue.take(this.#settings.maxBatch))
    })
    queue.onEmpty = undefined
    if (error === undefined) return
    if (batch !== undefined) return this.#afterFailure(queue, retention, batch, error)
    // A second attempt that waited long: those in the queue have clocks of their own.
    if (error instanceof LockTimeoutError) return
    // No transaction could be opened: there is none for any call of this queue.
    if (!emptied.signal.aborted) queue.rejectAll(error)
  }

  /** Rejects the callers of a failed batch, or runs its halves. */
  async #afterFailure(
    queue: CallQueue<Item, Result>,
    retention: LockRetention,
    batch: Call<Item, Result>[],
    error: unknown,
  ): Promise<void> {
    if (batch.length < 2 || !isItemError(error)) {
      for (const call of batch) call.reject(error)
      return
    }
    const middle = Math.ceil(batch.length / 2)
    for (const half of [batch.slice(0, middle), batch.slice(middle)]) {
      const failure = await this.#transact(queue, retention, undefined, () => half)
      if (failure !== undefined) await this.#afterFailure(queue, retention, half, failure)
    }
  }

  /** Runs a batch and gives its callers their results, or returns what it failed with: then nothing was written. */
  async #transact(
    queue: CallQueue<Item, Result>,
    retention: LockRetention,
    signal: AbortSignal | undefined,
    takeBatch: () => Call<Item, Result>[],
  ): Promise<unknown> {
    const { isolation, waitMs, run } = this.#settings
    let batch: Call<Item, Result>[] = []
    let results: readonly (Result | Error)[] = []
    let beganAt = 0
    try {
      const plan = planTransaction(
        this.#context,
        {
          lock: queue.key,
          waitMs,
          ...(isolation === undefined ? {} : { isolation }),
          ...(signal === undefined ? {} : { signal }),
        },
        NEVER,
      )
      // A call that waits for a batch to begin has a clock of its own; a batch that was taken, and is tried again, has none but this.
      const patient = signal === undefined ? plan : { ...plan, firstWaitMs: false as const }
      const retaining = retention.suits(plan) ? { ...patient, source: retention } : patient
      await runTransaction(this.#context, retaining, async (tx) => {
        batch = takeBatch()
        beganAt ||= performance.now()
        if (batch.length === 0) return
        results = await run(
          tx,
          batch.map((call) => call.item),
        )
        if (!Array.isArray(results) || results.length !== batch.length) throw mismatch(queue.key, batch.length, results)
      })
    } catch (error) {
      if (batch.length > 0) this.#report(queue, batch, beganAt, error)
      return error ?? new Error('The batch failed without a reason.')
    }
    if (batch.length > 0) this.#report(queue, batch, beganAt, undefined)
    batch.forEach((call, index) => {
      const result = results[index] as Result | Error
      if (result instanceof Error) call.reject(result)
      else call.resolve(result)
    })
    return undefined
  }

  #report(queue: CallQueue<Item, Result>, batch: readonly Call<Item, Result>[], beganAt: number, error: unknown): void {
    if (!combineBatch.hasSubscribers) return
    const failed = batch.length > 1 && isItemError(error) ? 'halved' : 'failed'
    combineBatch.publish({
      schema: this.#context.schema,
      key: queue.key,
      size: batch.length,
      waiting: queue.waiting,
      waitedMs: beganAt - (batch[0]?.enqueuedAt ?? beganAt),
      tookMs: performance.now() - beganAt,
      outcome: error === undefined ? 'committed' : failed,
    })
  }
}

function mismatch(key: Key, items: number, results: unknown): BatchMismatchError {
  const given = Array.isArray(results) ? `${results.length} results` : 'no list'
  return new BatchMismatchError(`The function of combine() gave ${given} for ${items} items of ${key}.`, {
    advice: 'Return one entry for each item, in their order: a result, or an Error. Nothing was written.',
    keys: [key],
  })
}
