import { DispatcherRemovedError, LeaseHeldError, OutboxRebaseNeededError } from '../errors.ts'
import type { LeaseOptions, Leases } from '../leases/index.ts'
import type { Key } from '../locks/index.ts'
import { outboxHistoryChanged, outboxShardLeft, outboxShardTaken } from '../observe/index.ts'
import { onAbort, readServerEpoch } from '../postgres/index.ts'
import { Generations } from './generations.ts'
import { onPrimary } from './onPrimary.ts'
import { type History, Shard } from './shard.ts'
import type { ShardSetting } from './shardSetting.ts'
import { ShardsChanged } from './shardsChanged.ts'
import { TopicsChanged } from './topics.ts'

/** All leases of a dispatcher: its shards, the processes that run it, and those that drain. */
const MOST_LEASES = 10_000

/** How many shards are taken, and how many found to be held by others, before the list of free ones is asked for again. */
interface TakingLimits {
  /** No more are taken once it is aborted. */
  readonly stopping: AbortSignal
  readonly mostTaken?: number
  readonly mostRefused?: number
}

/** The shards that one call of `run()` or `drain()` has. */
export class OwnedShards {
  readonly #leases: Leases
  readonly #setting: ShardSetting
  readonly #ended: (shard: Shard) => void
  readonly #shards = new Map<number, Shard>()
  /** Those, and the ones whose lease is lost and that have not ended yet. */
  readonly #running = new Set<Shard>()
  readonly #refused = new AbortController()
  /** The history in which shards were last taken. */
  #known: { readonly history: string; readonly generation: bigint } | undefined

  /** `ended` hears of each shard that has ended. */
  constructor(leases: Leases, setting: ShardSetting, ended: (shard: Shard) => void = () => undefined) {
    this.#leases = leases
    this.#setting = setting
    this.#ended = ended
  }

  /** Aborted, with the error, once the server turns out to be another than that of the cursors, or the dispatcher was removed, or has other topics or shards. */
  get refused(): AbortSignal {
    return this.#refused.signal
  }

  /** Those whose lease is held. */
  get shards(): ReadonlyMap<number, Shard> {
    return this.#shards
  }

  get running(): ReadonlySet<Shard> {
    return this.#running
  }

  /** Everything of this dispatcher that is held, by any process. */
  async held(): Promise<Map<string, readonly { readonly fence: bigint; readonly slot: number }[]>> {
    const prefix = `Outbox:${this.#setting.plan.name}:`
    const all = await this.#leases.list({ prefix, limit: MOST_LEASES })
    return new Map(all.map(({ key, holders }) => [key, holders]))
  }

  keyOf(shard: number): Key {
    return `Outbox:${this.#setting.plan.name}:shard:${shard}`
  }

  leaseOptions(): LeaseOptions {
    const { ttlMs, holder } = this.#setting.plan
    return { ttlMs, history: false, ...(holder === undefined ? {} : { holder }) }
  }

  /** Takes free ones of these shards, until it has this number. False: it reached a limit, and the list can be out of date. */
  async take(candidates: Iterable<number>, most: number, limits: TakingLimits): Promise<boolean> {
    const { stopping, mostTaken = Infinity, mostRefused = Infinity } = limits
    let history: History | undefined
    let [taken, refused] = [0, 0]
    for (const number of candidates) {
      if (stopping.aborted || this.#shards.size >= most) return true
      if (this.#shards.has(number)) continue
      if (taken >= mostTaken || refused >= mostRefused) return false
      // Before the lease: if the history is still the same when the shard is taken, the fence was given out in it.
      history ??= await this.#history()
      if (await this.#take(number, history)) taken++
      else refused++
    }
    return true
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

  /** False: another process has it. */
  async #take(number: number, history: History): Promise<boolean> {
    const { context, plan } = this.#setting
    const lease = await this.#leases.acquireAlways(this.keyOf(number), this.leaseOptions()).catch(unlessHeld)
    if (lease === undefined) return false
    const shard = new Shard(this.#setting, number, lease, history)
    this.#shards.set(number, shard)
    this.#running.add(shard)
    // What it still sends is up to it; the shard can be had again, here or elsewhere.
    onAbort(lease.signal, () => this.#forget(shard))
    const message = { schema: context.schema, dispatcher: plan.name, shard: number, fence: lease.fence }
    if (outboxShardTaken.hasSubscribers) outboxShardTaken.publish(message)
    void shard.ended
      .catch((error: unknown) => {
        if (
          [OutboxRebaseNeededError, DispatcherRemovedError, TopicsChanged, ShardsChanged].some(
            (each) => error instanceof each,
          )
        )
          this.#refused.abort(error)
        else this.#setting.failed(error)
      })
      .finally(() => {
        this.#forget(shard)
        this.#running.delete(shard)
        if (outboxShardLeft.hasSubscribers) outboxShardLeft.publish(message)
        this.#ended(shard)
      })
    return true
  }

  #forget(shard: Shard): void {
    if (this.#shards.get(shard.number) === shard) this.#shards.delete(shard.number)
  }

  /** Makes shards above this number finish their current batch, and end. */
  shrinkTo(share: number): void {
    for (const shard of [...this.#shards.values()].slice(share)) shard.stop()
  }

  /** Lets go of all shards. */
  async leave(): Promise<void> {
    const shards = [...this.#running]
    for (const shard of shards) shard.stop()
    await Promise.allSettled(shards.map((shard) => shard.ended))
  }
}

/** Which part of the shards one of several has, in their order. */
export function shareOf(shards: number, place: number, count: number): number {
  const among = Math.max(1, count)
  return Math.floor(shards / among) + (place >= 0 && place < shards % among ? 1 : 0)
}

/** Another process has the shard. */
function unlessHeld(error: unknown): undefined {
  if (!(error instanceof LeaseHeldError)) throw error
}
