import { randomUUID } from 'node:crypto'
import type { Lease, Leases } from '../leases/index.ts'
import { onAbort } from '../postgres/index.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { OwnedShards, shareOf } from './ownedShards.ts'
import type { ShardSetting } from './shardSetting.ts'

/** The shards of a dispatcher that runs, and its share of them. */
export class Ownership extends OwnedShards {
  readonly #leases: Leases
  readonly #plan: DispatcherPlan
  readonly #me = randomUUID()
  #member: Lease | undefined
  #balancing = false
  /** While everything rests. */
  #rested: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined

  constructor(leases: Leases, setting: ShardSetting) {
    super(leases, setting)
    this.#leases = leases
    this.#plan = setting.plan
  }

  has(shard: number): boolean {
    return this.shards.has(shard)
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
    const me = `Outbox:${name}:member:${this.#me}` as const
    if (this.#member === undefined || this.#member.signal.aborted) {
      this.#member = await this.#leases.acquireAlways(me, this.leaseOptions())
    }
    const held = await this.held()
    const members = [...held.keys()].filter((key) => key.startsWith(`Outbox:${name}:member:`)).toSorted()
    const share = shareOf(shards, members.indexOf(me), members.length)
    this.shrinkTo(share)
    // Not all begin with the same one.
    const start = Math.floor(Math.random() * shards)
    const free = Array.from({ length: shards }, (_, step) => (start + step) % shards).filter(
      (shard) => !held.has(this.keyOf(shard)),
    )
    await this.take(free, share)
  }

  /** Whether nothing is sent for its shards, which anybody can take meanwhile. */
  get resting(): boolean {
    return this.#rested !== undefined
  }

  /** Lets everything rest, unless there are other shards than those that wait. */
  rest(waiting: number): boolean {
    if (this.#balancing || this.running.size !== waiting || this.shards.size !== waiting || this.#member === undefined)
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
    return [...this.shards.values()].map(({ lease }) => lease).concat(this.#member ?? [])
  }

  override async leave(): Promise<void> {
    await super.leave()
    await this.#member?.release()
  }
}
