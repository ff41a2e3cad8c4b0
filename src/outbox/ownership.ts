import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease, LeaseOptions, Leases } from '../leases/index.ts'
import type { Key } from '../locks/index.ts'
import { onAbort, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { OwnedShards, shareOf } from './ownedShards.ts'
import { endLeasesOfGone } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { SessionMark } from './sessionMark.ts'
import type { ShardSetting } from './shardSetting.ts'

/** How often it is looked whether the sessions of other owners are there. One that is not there twice is gone. */
const WATCH_MS = 200
const SETTLED_MS = 3000

/** The shards of a dispatcher that runs, and its share of them. */
export class Ownership extends OwnedShards {
  readonly #leases: Leases
  readonly #plan: DispatcherPlan
  readonly #context: LockstepContext
  readonly #me = randomUUID()
  #member: Lease | undefined
  /** Shows that this process is there. Undefined where the sink would take what it sends too late. */
  readonly #mark: SessionMark | undefined
  /** Sessions that were not there at the last look. */
  #suspects: readonly string[] = []
  /** Whether other processes run this dispatcher. */
  #others = false
  #balancing = false
  /** While everything rests. */
  #rested: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined

  constructor(leases: Leases, setting: ShardSetting) {
    super(leases, setting)
    this.#leases = leases
    this.#plan = setting.plan
    this.#context = setting.context
    if (setting.plan.sink.enforcesFences === true) this.#mark = SessionMark.of(setting.context)
  }

  /** Before the first shard is taken: its lease names the session. */
  async begin(): Promise<void> {
    await this.#mark?.want()
  }

  override leaseOptions(): LeaseOptions {
    const options = super.leaseOptions()
    return this.#mark?.held === true ? { ...options, metadata: { session: this.#mark.id } } : options
  }

  /** Waits for so long, or until shards are free whose owner is gone. */
  async pause(ms: number, signal: AbortSignal): Promise<void> {
    const until = performance.now() + ms
    for (;;) {
      const leftMs = Math.max(0, until - performance.now())
      const pauseMs = this.#watches ? Math.min(leftMs, WATCH_MS) : leftMs
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      if (signal.aborted || this.resting || performance.now() >= until) return
      if (this.#watches && (await this.#endGone())) return
    }
  }

  /** One that has just connected itself does not judge others: after a restart of the server none of them is connected yet. */
  get #watches(): boolean {
    return this.#others && this.#mark !== undefined && this.#mark.heldMs > SETTLED_MS
  }

  /** Whether shards are free now that were not: ended here, or by another process that has seen the same. */
  async #endGone(): Promise<boolean> {
    const { quotedSchema, driver, silence } = this.#context
    const { name, shards } = this.#plan
    const text = endLeasesOfGone(quotedSchema, name, shards, this.#suspects, this.#member?.holder ?? name)
    const [row] = resultRows(await withConnection(driver, (connection) => connection.script(text), silence))
    const absent = JSON.parse(row?.['absent'] ?? '[]') as string[]
    const freed = Number(row?.['ended']) > 0 || this.#suspects.some((suspect) => !absent.includes(suspect))
    this.#suspects = freed ? [] : absent
    return freed
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
    await this.#join(me)
    let held = await this.held()
    if (!held.has(me)) {
      // Ended by another process, which took this one for gone.
      await this.#member?.release()
      this.#member = undefined
      await this.#join(me)
      held = await this.held()
    }
    const members = [...held.keys()].filter((key) => key.startsWith(`Outbox:${name}:member:`)).toSorted()
    this.#others = members.length > 1
    const share = shareOf(shards, members.indexOf(me), members.length)
    this.shrinkTo(share)
    // Not all begin with the same one.
    const start = Math.floor(Math.random() * shards)
    const free = Array.from({ length: shards }, (_, step) => (start + step) % shards).filter(
      (shard) => !held.has(this.keyOf(shard)),
    )
    await this.take(free, share)
  }

  async #join(me: Key): Promise<void> {
    if (this.#member !== undefined && !this.#member.signal.aborted) return
    this.#member = await this.#leases.acquireAlways(me, this.leaseOptions())
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
    await this.#mark?.leave()
  }
}
