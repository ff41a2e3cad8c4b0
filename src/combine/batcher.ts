import { AsyncResource } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { BatchMismatch, LockTimeout } from '../errors.ts'
import { Closing, type Key } from '../locks/index.ts'
import { combineBatch } from '../observe/index.ts'
import {
  type Grounds,
  type Isolation,
  outsideTransactions,
  planTransaction,
  runTransaction,
  Stay,
  type Transaction,
} from '../transactions/index.ts'
import { isFaultOfItems } from './fault.ts'
import { type Call, type Crowd, Line } from './line.ts'

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

/** Serves the lines of one combined function: each line by one batch after the other, lines side by side. */
export class Batcher<Item, Result> {
  /** How many calls wait, for all keys together. */
  get waiting(): number {
    return this.#crowd.waiting
  }
  readonly #grounds: Grounds
  readonly #combiners: Combiners
  readonly #settings: Settings<Item, Result>
  readonly #lines = new Map<Key, Line<Item, Result>>()
  readonly #crowd: Crowd = {
    waiting: 0,
    setTimer: (fn, ms) => this.#scope.runInAsyncScope(() => setTimeout(fn, ms)),
  }
  /** Batches belong to nobody's request: they run where the function was made, not where somebody happened to call it. */
  readonly #scope = new AsyncResource('lockstep.combine')
  #idle: Promise<void> | undefined
  #whenIdle: (() => void) | undefined

  constructor(grounds: Grounds, combiners: Combiners, settings: Settings<Item, Result>) {
    this.#grounds = grounds
    this.#combiners = combiners
    this.#settings = settings
  }

  waitingFor(key: Key): number {
    return this.#lines.get(key)?.waiting ?? 0
  }

  /** Comes back when nobody waits and nothing runs. */
  async idle(): Promise<void> {
    if (this.#lines.size === 0) return
    this.#idle ??= new Promise<void>((resolve) => (this.#whenIdle = resolve))
    await this.#idle
  }

  enter(key: Key, item: Item, signal: AbortSignal | undefined): Promise<Result> {
    const open = this.#lines.get(key)
    if (open !== undefined) return open.enter(item, signal)
    const line = new Line<Item, Result>(key, this.#settings.waitMs, this.#crowd)
    this.#lines.set(key, line)
    this.#combiners.add(this)
    const result = line.enter(item, signal)
    this.#scope.runInAsyncScope(() => outsideTransactions(() => void this.#serve(line)))
    return result
  }

  async #serve(line: Line<Item, Result>): Promise<void> {
    const stay = new Stay(this.#grounds)
    for (;;) {
      while (line.waiting > 0) await this.#serveNext(line, stay)
      if (!stay.holds) break
      // Those who were just answered may call again at once.
      await nextTurn()
      if (line.waiting === 0) await stay.leave()
    }
    line.end()
    this.#lines.delete(line.key)
    if (this.#lines.size > 0) return
    this.#combiners.delete(this)
    this.#whenIdle?.()
    this.#idle = undefined
  }

  /** One batch: whoever waits when its transaction is open. */
  async #serveNext(line: Line<Item, Result>, stay: Stay): Promise<void> {
    const deserted = new AbortController()
    line.onDeserted = () => deserted.abort()
    let batch: Call<Item, Result>[] | undefined
    const error = await this.#transact(line, stay, deserted.signal, () => {
      line.onDeserted = undefined
      return (batch ??= line.take(this.#settings.maxBatch))
    })
    line.onDeserted = undefined
    if (error === undefined) return
    if (batch !== undefined) return this.#afterFailure(line, stay, batch, error)
    // A second attempt that waited long: those in line have clocks of their own.
    if (error instanceof LockTimeout) return
    // No transaction could be opened: there is none to be had for anybody of this line.
    if (!deserted.signal.aborted) line.turnAllAway(error)
  }

  /** Tells the callers of a failed batch, or tries its halves. */
  async #afterFailure(
    line: Line<Item, Result>,
    stay: Stay,
    batch: Call<Item, Result>[],
    error: unknown,
  ): Promise<void> {
    if (batch.length < 2 || !isFaultOfItems(error)) {
      for (const call of batch) call.reject(error)
      return
    }
    const middle = Math.ceil(batch.length / 2)
    for (const half of [batch.slice(0, middle), batch.slice(middle)]) {
      const failure = await this.#transact(line, stay, undefined, () => half)
      if (failure !== undefined) await this.#afterFailure(line, stay, half, failure)
    }
  }

  /** Runs a batch and gives its callers their results, or gives back what it failed with: then nothing was written. */
  async #transact(
    line: Line<Item, Result>,
    stay: Stay,
    signal: AbortSignal | undefined,
    takeBatch: () => Call<Item, Result>[],
  ): Promise<unknown> {
    const { isolation, waitMs, run } = this.#settings
    let batch: Call<Item, Result>[] = []
    let results: readonly (Result | Error)[] = []
    let beganAt = 0
    try {
      const plan = planTransaction(
        this.#grounds,
        {
          lock: line.key,
          waitMs,
          ...(isolation === undefined ? {} : { isolation }),
          ...(signal === undefined ? {} : { signal }),
        },
        NEVER,
      )
      // Whoever waits for a batch to begin has a clock of its own; a batch that was taken, and is tried again, has none but this.
      const patient = signal === undefined ? plan : { ...plan, firstWaitMs: false as const }
      const staying = stay.suits(plan) ? { ...patient, stay } : patient
      await runTransaction(this.#grounds, staying, async (tx) => {
        batch = takeBatch()
        beganAt ||= performance.now()
        if (batch.length === 0) return
        results = await run(
          tx,
          batch.map((call) => call.item),
        )
        if (!Array.isArray(results) || results.length !== batch.length) throw mismatch(line.key, batch.length, results)
      })
    } catch (error) {
      if (batch.length > 0) this.#tell(line, batch, beganAt, error)
      return error ?? new Error('The batch failed without a reason.')
    }
    if (batch.length > 0) this.#tell(line, batch, beganAt, undefined)
    batch.forEach((call, index) => {
      const result = results[index] as Result | Error
      if (result instanceof Error) call.reject(result)
      else call.resolve(result)
    })
    return undefined
  }

  #tell(line: Line<Item, Result>, batch: readonly Call<Item, Result>[], beganAt: number, error: unknown): void {
    if (!combineBatch.hasSubscribers) return
    const failed = batch.length > 1 && isFaultOfItems(error) ? 'halved' : 'failed'
    combineBatch.publish({
      schema: this.#grounds.schema,
      key: line.key,
      size: batch.length,
      waiting: line.waiting,
      waitedMs: beganAt - (batch[0]?.cameAt ?? beganAt),
      tookMs: performance.now() - beganAt,
      outcome: error === undefined ? 'committed' : failed,
    })
  }
}

function mismatch(key: Key, items: number, results: unknown): BatchMismatch {
  const given = Array.isArray(results) ? `${results.length} results` : 'no list'
  return new BatchMismatch(`The function of combine() gave ${given} for ${items} items of ${key}.`, {
    advice: 'Return one entry for each item, in their order: a result, or an Error. Nothing was written.',
    keys: [key],
  })
}
