import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { DispatcherRemovedError, InvalidOptionError, LeaseHeldError, OutboxRebaseNeededError } from '../errors.ts'
import type { Lease, Leases } from '../leases/index.ts'
import { closedError, type Key } from '../locks/index.ts'
import {
  outboxFailed,
  outboxHistoryChanged,
  outboxShardLeft,
  outboxShardTaken,
  outboxSinkDown,
  outboxSinkUp,
} from '../observe/index.ts'
import { meansNoConnection, onAbort, readServerEpoch, type ServerEpoch } from '../postgres/index.ts'
import { type LockstepContext, outsideTransactions, reportsLostConnection } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { Bell } from './bell.ts'
import { Breaker } from './breaker.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { cursorsAheadOfServer, cursorsOfAnotherServer } from './cursorErrors.ts'
import { Generations } from './generations.ts'
import type { Groups } from './groups.ts'
import { onPrimary } from './onPrimary.ts'
import { registerDispatcher } from './outbox.sql.ts'
import { Reader } from './reader.ts'
import { resultRows } from './resultRows.ts'
import { retain } from './retain.ts'
import { type History, Shard } from './shard.ts'
import type { ShardSetting } from './shardSetting.ts'
import { subscribe, TopicsChanged } from './topics.ts'

/** How often a dispatcher looks who else is there. */
const BALANCE_MS = 1500
/** How often old segments are looked for: so often, or twelve times in as long as they stay. */
const RETAIN_EVERY_MS = 30_000
const RETAIN_EVERY_MS_AT_LEAST = 1000
/** How long a round of it takes at the most: meanwhile shards are not balanced. */
const RETAIN_WITHIN_MS = 2000
const LONGEST_PAUSE_MS = 5000
/** Who starts while the server restarts waits for it; who has the wrong address is told. */
const START_WITHIN_MS = 30_000

/** Delivers the outbox. Any number of processes may run one of the same name: they share its shards. */
export interface Dispatcher {
  readonly name: string
  /**
   * Delivers until the signal says stop; then delivers what it has in hand, moves its cursors and gives its shards to the others.
   * It goes on through restarts of the server; one that is away from the start is waited for, for 30 seconds.
   *
   * @example
   * const stop = new AbortController()
   * process.once('SIGTERM', () => stop.abort())
   * await lockstep.outbox.dispatcher({ sink }).run({ signal: stop.signal })
   */
  run(options?: DispatcherRunOptions): Promise<void>
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
  /** Told when events were committed in this process; the answer takes it back. */
  onCommitted(listener: (groups: Groups) => void): () => void
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
      const shards = await this.#persist(stopping.signal, () => register(this.#dependencies, this.#plan))
      if (shards === undefined) return
      await this.#plan.sink.open?.()
      try {
        await this.#dispatchTopics({ ...this.#plan, shards }, stopping.signal)
      } finally {
        await this.#plan.sink.close?.()
      }
    } finally {
      forget()
      forgetSignal?.()
      this.#running = false
    }
  }

  #failed(error: unknown): void {
    const { schema } = this.#dependencies.context
    if (outboxFailed.hasSubscribers) outboxFailed.publish({ schema, dispatcher: this.name, error })
  }

  /** Undefined if it was stopped before the database was there. */
  async #persist<T>(stopping: AbortSignal, start: () => Promise<T>): Promise<T | undefined> {
    const until = performance.now() + START_WITHIN_MS
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

  /** As often as the topics of the dispatcher come to be those of this process. */
  async #dispatchTopics(plan: DispatcherPlan, stopping: AbortSignal): Promise<void> {
    while (await this.#persist(stopping, () => subscribe(this.#dependencies.context, plan, stopping))) {
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
    const reader = new Reader(
      context,
      { ...plan, dispatcher: plan.name, failed },
      (heard) => new Bell(context, leases.listener, this.#dependencies.ringsAs, heard),
      { begin: (shards) => !ending.aborted && owned.rest(shards), end: () => owned.revive() },
    )
    const breaker = new Breaker((open, reason) => {
      const channel = open ? outboxSinkDown : outboxSinkUp
      if (!channel.hasSubscribers) return
      channel.publish({ schema: context.schema, dispatcher: plan.name, sink: plan.sink.name, reason })
    })
    const owned = new Ownership(leases, plan, { context, plan, reader, breaker })
    const ending = AbortSignal.any([stopping, owned.refused])
    const unlisten = this.#dependencies.onCommitted((groups) => reader.committed(groups))
    const retainEveryMs = retentionPauseMs(plan.retainMs)
    let [failures, retainAt] = [0, performance.now() + retainEveryMs * Math.random()]
    try {
      while (!ending.aborted) {
        if (owned.resting) {
          await owned.awake(ending)
          // Others have heard the same: each has its own shards back before anybody looks for more.
          await sleep(Math.min(BALANCE_MS, plan.ttlMs / 4), undefined, { signal: ending }).catch(() => undefined)
          continue
        }
        try {
          await owned.balance()
          failures = 0
          // By now it is known whether there is a pooler in between.
          reader.listen()
          if (plan.retainMs !== false && performance.now() >= retainAt && owned.has(0)) {
            retainAt = performance.now() + retainEveryMs
            const { more } = await retain(context, 'as registered', RETAIN_WITHIN_MS)
            if (more) retainAt = 0
          }
        } catch (error) {
          // A ttl that the schema does not allow.
          if (error instanceof InvalidOptionError) throw error
          failed(error)
          failures++
        }
        const pauseMs = failures === 0 ? BALANCE_MS : backoffMs(failures, BALANCE_MS / 10, LONGEST_PAUSE_MS)
        await sleep(Math.min(pauseMs, plan.ttlMs / 4), undefined, { signal: ending }).catch(() => undefined)
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

/** Writes the dispatcher down, and refuses cursors that were made elsewhere. Gives the number of its shards. */
async function register({ context }: DispatcherDependencies, plan: DispatcherPlan): Promise<number> {
  await context.ready()
  return onPrimary(context, async (connection) => {
    const here = await readServerEpoch(connection, context.quotedSchema)
    const [row] = resultRows(await connection.script(registerDispatcher(context.quotedSchema, plan, here)))
    const there = row as unknown as { shards: string; system: string; database: string; timeline: string }
    refuseAnotherServer(plan.name, here, there)
    const shards = Number(there.shards)
    if (plan.shardsStated && shards !== plan.shards) {
      throw new InvalidOptionError(`The dispatcher ${plan.name} has ${shards} shards, not ${plan.shards}.`, {
        advice: 'Leave `shards` out, or use another name: cursors of another number of shards cannot be read.',
      })
    }
    return shards
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

/** The shards that this process has, and its share of them. */
class Ownership {
  readonly #leases: Leases
  readonly #plan: DispatcherPlan
  readonly #setting: ShardSetting
  readonly #shards = new Map<number, Shard>()
  /** Those, and the ones whose lease is lost and that have not ended yet. */
  readonly #running = new Set<Shard>()
  readonly #me = randomUUID()
  readonly #refused = new AbortController()
  #member: Lease | undefined
  #balancing = false
  /** While everything rests. */
  #rested: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined
  /** The history in which shards were last taken. */
  #known: { readonly history: string; readonly generation: bigint } | undefined

  constructor(leases: Leases, plan: DispatcherPlan, setting: ShardSetting) {
    this.#leases = leases
    this.#plan = plan
    this.#setting = setting
  }

  /** Aborted, with the error, once the server turns out to be another than that of the cursors, or the dispatcher was removed. */
  get refused(): AbortSignal {
    return this.#refused.signal
  }

  has(shard: number): boolean {
    return this.#shards.has(shard)
  }

  /** Takes what is free up to its share, and lets go of what is above it once that has delivered what it has in hand. */
  async balance(): Promise<void> {
    this.#balancing = true
    try {
      await this.#balance()
    } finally {
      this.#balancing = false
    }
  }

  async #balance(): Promise<void> {
    const { name, shards } = this.#plan
    if (this.#member === undefined || this.#member.signal.aborted) {
      this.#member = await this.#leases.acquireAlways(`Outbox:${name}:member:${this.#me}`, this.#options())
    }
    const all = (await this.#leases.list({ prefix: `Outbox:${name}:`, limit: 1000 })).map(({ key }) => key)
    const members = all.filter((key) => key.startsWith(`Outbox:${name}:member:`))
    const place = members.toSorted().indexOf(`Outbox:${name}:member:${this.#me}`)
    const count = Math.max(1, members.length)
    const share = Math.floor(shards / count) + (place >= 0 && place < shards % count ? 1 : 0)
    const taken = new Set(all)
    for (const shard of [...this.#shards.values()].slice(share)) shard.stop()
    // Not all begin with the same one.
    const start = Math.floor(Math.random() * shards)
    let history: History | undefined
    for (let step = 0; step < shards && this.#shards.size < share; step++) {
      const number = (start + step) % shards
      if (this.#shards.has(number) || taken.has(this.#keyOf(number))) continue
      // Before the lease: if the history is still the same when the shard is taken, the fence was given out in it.
      history ??= await this.#history()
      await this.#take(number, history)
    }
  }

  /** Whether nothing is sent for its shards, which anybody can take meanwhile. */
  get resting(): boolean {
    return this.#rested !== undefined
  }

  /** Lets everything rest, unless there are other shards than those that wait. */
  rest(waiting: number): boolean {
    if (
      this.#balancing ||
      this.#running.size !== waiting ||
      this.#shards.size !== waiting ||
      this.#member === undefined
    )
      return false
    let resolve = (): void => undefined
    const promise = new Promise<void>((ended) => (resolve = ended))
    this.#rested = { promise, resolve }
    this.#leases.rest(this.#restable())
    return true
  }

  async revive(): Promise<void> {
    await this.#leases.revive(this.#restable())
    this.#rested?.resolve()
    this.#rested = undefined
  }

  /** Until the rest has ended, or the signal says stop. */
  async awake(signal: AbortSignal): Promise<void> {
    if (this.#rested === undefined || signal.aborted) return
    const { promise, resolve } = this.#rested
    const forget = onAbort(signal, resolve)
    await promise
    forget()
  }

  #restable(): Lease[] {
    return [...this.#shards.values()].map(({ lease }) => lease).concat(this.#member ?? [])
  }

  #keyOf(shard: number): Key {
    return `Outbox:${this.#plan.name}:shard:${shard}`
  }

  #options(): { ttlMs: number; history: false; holder?: string } {
    const { ttlMs, holder } = this.#plan
    return { ttlMs, history: false, ...(holder === undefined ? {} : { holder }) }
  }

  async #history(): Promise<History> {
    const { context, plan } = this.#setting
    const { epoch, generations } = await onPrimary(context, async (connection) => ({
      epoch: await readServerEpoch(connection, context.quotedSchema),
      generations: await Generations.read(connection, context.quotedSchema),
    }))
    const { value: history, epoch: generation, timeline } = epoch
    const before = this.#known
    this.#known = { history, generation }
    if (before !== undefined && before.generation !== generation && outboxHistoryChanged.hasSubscribers) {
      const from = { history: before.history, generation: Number(before.generation) }
      const to = { history, generation: Number(generation), timeline: parseInt(timeline, 16) }
      outboxHistoryChanged.publish({ schema: context.schema, dispatcher: plan.name, from, to })
    }
    return { history, generations }
  }

  async #take(number: number, history: History): Promise<void> {
    const { context, plan } = this.#setting
    const lease = await this.#leases.acquireAlways(this.#keyOf(number), this.#options()).catch(unlessHeld)
    if (lease === undefined) return
    const shard = new Shard(this.#setting, number, lease, history)
    this.#shards.set(number, shard)
    this.#running.add(shard)
    // What it still sends is up to it; the shard can be had again, here or elsewhere.
    onAbort(lease.signal, () => this.#forget(shard))
    const message = { schema: context.schema, dispatcher: plan.name, shard: number, fence: lease.fence }
    if (outboxShardTaken.hasSubscribers) outboxShardTaken.publish(message)
    void shard.ended
      .catch((error: unknown) => {
        if ([OutboxRebaseNeededError, DispatcherRemovedError, TopicsChanged].some((each) => error instanceof each))
          this.#refused.abort(error)
        else if (outboxFailed.hasSubscribers)
          outboxFailed.publish({ schema: context.schema, dispatcher: plan.name, error })
      })
      .finally(() => {
        this.#forget(shard)
        this.#running.delete(shard)
        if (outboxShardLeft.hasSubscribers) outboxShardLeft.publish(message)
      })
  }

  #forget(shard: Shard): void {
    if (this.#shards.get(shard.number) === shard) this.#shards.delete(shard.number)
  }

  /** Lets go of everything. */
  async leave(): Promise<void> {
    const shards = [...this.#running]
    for (const shard of shards) shard.stop()
    await Promise.allSettled(shards.map((shard) => shard.ended))
    await this.#member?.release()
  }
}

/** Another process has the shard. */
function unlessHeld(error: unknown): undefined {
  if (!(error instanceof LeaseHeldError)) throw error
}
