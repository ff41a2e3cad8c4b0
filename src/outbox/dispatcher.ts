import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Leases } from '../leases/index.ts'
import { closedError } from '../locks/index.ts'
import { outboxFailed, outboxSinkDown, outboxSinkUp } from '../observe/index.ts'
import { meansNoConnection, onAbort, readServerEpoch, type ServerEpoch } from '../postgres/index.ts'
import { type LockstepContext, outsideTransactions, reportsLostConnection } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { Bell, type Heard } from './bell.ts'
import { Breaker } from './breaker.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { Drain, type Drained, type DrainEnding, type DrainOptions, planDrain } from './drain.ts'
import { DrainLimit } from './drainLimit.ts'
import { cursorsAheadOfServer, cursorsOfAnotherServer, dispatcherRemoved } from './cursorErrors.ts'
import type { CommitListener } from './enqueuer.ts'
import { onPrimary } from './onPrimary.ts'
import { registerDispatcher } from './outbox.sql.ts'
import { Ownership } from './ownership.ts'
import { Reader } from './reader.ts'
import { resultRows } from './resultRows.ts'
import { retain } from './retain.ts'
import { ShardsChanged } from './shardsChanged.ts'
import { requireTopics, subscribe, topicsDiffer, TopicsChanged } from './topics.ts'

/** How often a dispatcher looks who else is there. */
const BALANCE_MS = 1500
/** How often it looks for old segments: this often, or twelve times within the retention. */
const RETAIN_EVERY_MS = 30_000
const RETAIN_EVERY_MS_AT_LEAST = 1000
/** How long a round of it takes at most: meanwhile shards are not balanced. */
const RETAIN_WITHIN_MS = 2000
const LONGEST_PAUSE_MS = 5000
/** A start while the server restarts waits for it; a wrong address is an error. */
const START_WITHIN_MS = 30_000

/** Delivers the outbox. Any number of processes may run one of the same name: they share its shards. */
export interface Dispatcher {
  readonly name: string
  /**
   * Delivers until the signal is aborted. Then it finishes its current batches, moves its cursors and releases its shards.
   * It continues through restarts of the server; one that is away from the start is waited for, for 30 seconds.
   *
   * @example
   * const stop = new AbortController()
   * process.once('SIGTERM', () => stop.abort())
   * await lockstep.outbox.dispatcher({ sink }).run({ signal: stop.signal })
   */
  run(options?: DispatcherRunOptions): Promise<void>
  /**
   * Delivers once, for a serverless function or cron: takes the shards that are free, delivers until there is nothing more or a limit
   * is reached, releases everything and says what is left. Any number of calls at once share the shards, and every stream keeps its order.
   *
   * @example
   * const { delivered, left } = await lockstep.outbox.dispatcher({ sink }).drain({ maxMs: 20_000 })
   */
  drain(options?: DrainOptions): Promise<Drained>
}

/** What `dispatcher.run()` takes. */
export interface DispatcherRunOptions {
  readonly signal?: AbortSignal
}

const RUN_OPTIONS: OptionNames<DispatcherRunOptions> = { signal: true }

/** What a dispatcher needs of its Lockstep. */
export interface DispatcherDependencies {
  readonly context: LockstepContext
  readonly leases: Leases
  /** Calls the listener when events were committed in this process. The returned function removes it. */
  onCommitted(listener: CommitListener): () => void
  /** As whom this process rings for others. */
  readonly ringsAs: string
  /** Runs the work; the end of the Lockstep waits for it. */
  readonly counted: <T>(work: () => Promise<T>) => Promise<T>
}

export class RunningDispatcher implements Dispatcher {
  readonly name: string
  readonly #dependencies: DispatcherDependencies
  readonly #plan: DispatcherPlan
  #running = false

  constructor(dependencies: DispatcherDependencies, plan: DispatcherPlan) {
    this.#dependencies = dependencies
    this.#plan = plan
    this.name = plan.name
  }

  /** It delivers for all: a transaction around the call that started it has nothing to do with it. */
  run(options: DispatcherRunOptions = {}): Promise<void> {
    return outsideTransactions(() => this.#dependencies.counted(() => this.#run(options)))
  }

  async #run(options: DispatcherRunOptions): Promise<void> {
    checkOptions('dispatcher.run()', options, RUN_OPTIONS)
    const { context } = this.#dependencies
    if (context.closing.closed) throw closedError()
    if (this.#running) {
      throw new InvalidOptionError(`The dispatcher ${this.name} runs already.`, {
        advice: 'Make another one for each run().',
      })
    }
    this.#running = true
    const stopping = new AbortController()
    const stop = (): void => stopping.abort()
    const forgetSignal = options.signal && onAbort(options.signal, stop)
    const forget = context.closing.onClose(stop)
    try {
      const registered = await this.#persist(stopping.signal, () => register(this.#dependencies, this.#plan))
      if (registered === undefined) return
      await this.#plan.sink.open?.()
      try {
        await this.#dispatchShards(registered, stopping.signal)
      } finally {
        await this.#plan.sink.close?.()
      }
    } finally {
      forget()
      forgetSignal?.()
      this.#running = false
    }
  }

  drain(options: DrainOptions = {}): Promise<Drained> {
    return outsideTransactions(() => this.#dependencies.counted(() => this.#drain(options)))
  }

  async #drain(options: DrainOptions): Promise<Drained> {
    const { maxMs, maxEvents, signal } = planDrain(options)
    const { context } = this.#dependencies
    if (context.closing.closed) throw closedError()
    const limit = new DrainLimit(maxMs, maxEvents)
    const stopping = new AbortController()
    const stop = (ending: DrainEnding): void => stopping.abort(ending)
    const forgetSignal = signal && onAbort(signal, () => stop('stopped'))
    const forget = context.closing.onClose(() => stop('stopped'))
    const timer = setTimeout(() => stop('maxMs'), maxMs)
    try {
      let registered = await register(this.#dependencies, this.#plan)
      await requireTopics(context, this.#plan)
      await this.#plan.sink.open?.()
      try {
        for (;;) {
          try {
            return await this.#drainShards({ ...this.#plan, shards: registered.shards }, limit, stopping.signal)
          } catch (error) {
            if (!(error instanceof ShardsChanged)) throw error
            registered = await register(this.#dependencies, this.#plan, registered.begun)
          }
        }
      } catch (error) {
        throw error instanceof TopicsChanged ? topicsDiffer(this.#plan) : error
      } finally {
        await this.#plan.sink.close?.()
      }
    } finally {
      clearTimeout(timer)
      forget()
      forgetSignal?.()
    }
  }

  async #drainShards(plan: DispatcherPlan, limit: DrainLimit, stopping: AbortSignal): Promise<Drained> {
    const { context, leases } = this.#dependencies
    let failure: unknown
    const failed = (error: unknown): void => this.#failed((failure = error))
    const batch = Math.min(plan.batch, Math.max(1, limit.eventsLeft))
    const rest = { begin: () => false, end: () => Promise.resolve() }
    const reader = new Reader(context, { ...plan, batch, dispatcher: plan.name, failed }, this.#bell, rest)
    const breaker = this.#breaker()
    const setting = { context, plan, reader, breaker, failed, limit, stopping, failure: () => failure }
    return await new Drain(leases, setting).run()
  }

  readonly #bell = (heard: Heard): Bell => {
    const { context, leases, ringsAs } = this.#dependencies
    return new Bell(context, leases.listener, ringsAs, heard)
  }

  #breaker(): Breaker {
    const { schema } = this.#dependencies.context
    return new Breaker((open, reason) => {
      const channel = open ? outboxSinkDown : outboxSinkUp
      if (!channel.hasSubscribers) return
      channel.publish({ schema, dispatcher: this.name, sink: this.#plan.sink.name, reason })
    })
  }

  #failed(error: unknown): void {
    const { schema } = this.#dependencies.context
    if (outboxFailed.hasSubscribers) outboxFailed.publish({ schema, dispatcher: this.name, error })
  }

  /** Undefined if it was stopped before the database was there. */
  async #persist<T>(
    stopping: AbortSignal,
    start: () => Promise<T>,
    withinMs = START_WITHIN_MS,
  ): Promise<T | undefined> {
    const until = performance.now() + withinMs
    for (let failures = 1; ; failures++) {
      try {
        return await start()
      } catch (error) {
        if (!(reportsLostConnection(error) || meansNoConnection(error)) || performance.now() > until) throw error
        this.#failed(error)
        const pauseMs = backoffMs(failures, BALANCE_MS / 10, LONGEST_PAUSE_MS)
        await sleep(pauseMs, undefined, { signal: stopping }).catch(() => undefined)
        if (stopping.aborted) return undefined
      }
    }
  }

  /** As often as the dispatcher's shards are split. */
  async #dispatchShards(registered: Registered, stopping: AbortSignal): Promise<void> {
    for (let { shards } = registered; ;) {
      try {
        return await this.#dispatchTopics({ ...this.#plan, shards }, stopping)
      } catch (error) {
        if (!(error instanceof ShardsChanged)) throw error
        const again = (): Promise<Registered> => register(this.#dependencies, this.#plan, registered.begun)
        const now = await this.#persist(stopping, again, Infinity)
        if (now === undefined) return
        ;({ shards } = now)
      }
    }
  }

  /** As often as the topics of the dispatcher come to be those of this process. */
  async #dispatchTopics(plan: DispatcherPlan, stopping: AbortSignal): Promise<void> {
    const persist = <T>(work: () => Promise<T>): Promise<T | undefined> => this.#persist(stopping, work, Infinity)
    while (await subscribe(this.#dependencies.context, plan, stopping, persist)) {
      try {
        return await this.#dispatch(plan, stopping)
      } catch (error) {
        if (!(error instanceof TopicsChanged)) throw error
      }
    }
  }

  async #dispatch(plan: DispatcherPlan, stopping: AbortSignal): Promise<void> {
    const { context, leases } = this.#dependencies
    const failed = (error: unknown): void => this.#failed(error)
    const reader = new Reader(context, { ...plan, dispatcher: plan.name, failed }, this.#bell, {
      begin: (shards) => !ending.aborted && owned.rest(shards),
      end: () => owned.revive(),
    })
    const owned = new Ownership(leases, { context, plan, reader, breaker: this.#breaker(), failed })
    const ending = AbortSignal.any([stopping, owned.refused])
    const unlisten = this.#dependencies.onCommitted((groups, topics) => reader.committed(groups, topics))
    const retainEveryMs = retentionPauseMs(plan.retainMs)
    let [failures, retainAt] = [0, performance.now() + retainEveryMs * Math.random()]
    try {
      await owned.begin()
      while (!ending.aborted) {
        if (owned.resting) {
          await owned.awake(ending)
          // The other dispatchers woke up as well: each takes its own shards again before any of them looks for more.
          await sleep(Math.min(BALANCE_MS, plan.ttlMs / 4), undefined, { signal: ending }).catch(() => undefined)
          continue
        }
        try {
          await owned.balance(ending)
          failures = 0
          if (ending.aborted) break
          // By now it is known whether there is a pooler in between.
          reader.listen()
          if (plan.retainMs !== false && performance.now() >= retainAt && owned.has(0)) {
            retainAt = performance.now() + retainEveryMs
            const { more } = await retain(context, 'as registered', RETAIN_WITHIN_MS)
            if (more) retainAt = 0
          }
        } catch (error) {
          // A ttl that the schema does not allow; or there are other shards.
          if (error instanceof InvalidOptionError || error instanceof ShardsChanged) throw error
          failed(error)
          failures++
        }
        const pauseMs = failures === 0 ? BALANCE_MS : backoffMs(failures, BALANCE_MS / 10, LONGEST_PAUSE_MS)
        await owned.pause(Math.min(pauseMs, plan.ttlMs / 4), ending).catch(failed)
      }
    } finally {
      await owned.leave()
      unlisten()
      await reader.close()
    }
    owned.refused.throwIfAborted()
  }
}

function retentionPauseMs(retainMs: number | false): number {
  if (retainMs === false) return RETAIN_EVERY_MS
  return Math.min(RETAIN_EVERY_MS, Math.max(RETAIN_EVERY_MS_AT_LEAST, retainMs / 12))
}

/** How many shards the dispatcher has, and when it was written down: under the same name there can be another one later. */
interface Registered {
  readonly shards: number
  readonly begun: string
}

/** Writes the dispatcher down, or finds the one that is `known`, and refuses cursors that were made elsewhere. */
async function register(
  { context }: DispatcherDependencies,
  plan: DispatcherPlan,
  known?: string,
): Promise<Registered> {
  await context.ready()
  return onPrimary(context, async (connection) => {
    const here = await readServerEpoch(connection, context.quotedSchema)
    const [row] = resultRows(await connection.script(registerDispatcher(context.quotedSchema, plan, here, known)))
    const there = row as unknown as Readonly<
      Record<'system' | 'database' | 'timeline' | 'begun' | 'was_split', string> & { shards: string | null }
    >
    if (known !== undefined && there.system === here.system && there.shards === null) throw dispatcherRemoved(plan.name)
    refuseAnotherServer(plan.name, here, there)
    const shards = Number(there.shards)
    const wasSplit = there.was_split === 'true' && plan.shards < shards
    if (plan.shardsStated && shards !== plan.shards && !wasSplit) {
      throw new InvalidOptionError(`The dispatcher ${plan.name} has ${shards} shards, not ${plan.shards}.`, {
        advice: `Leave \`shards\` out, or use another name. \`npx pg-lockstep outbox split ${plan.name}\` makes more shards of it.`,
      })
    }
    return { shards, begun: there.begun }
  })
}

function refuseAnotherServer(
  name: string,
  here: ServerEpoch,
  there: { system: string; database: string; timeline: string },
): void {
  if (here.system !== there.system || here.database !== there.database) throw cursorsOfAnotherServer(name)
  if (parseInt(here.timeline, 16) < Number(there.timeline)) throw cursorsAheadOfServer(name)
}
