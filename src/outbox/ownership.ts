import { randomUUID } from 'node:crypto'
import type { Lease, LeaseOptions, Leases } from '../leases/index.ts'
import type { Key } from '../locks/index.ts'
import { onAbort, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { OwnedShards, shareOf } from './ownedShards.ts'
import { endLeasesOfGone, sharesOf } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { SessionMark } from './sessionMark.ts'
import { ShardsChanged } from './shardsChanged.ts'
import type { ShardSetting } from './shardSetting.ts'

/** How often it is looked whether the sessions of other owners are there. One that is not there twice is gone. */
const WATCH_MS = 200
const SETTLED_MS = 3000
/** After a shard has ended, how long until it looks for another one, ahead of the regular time. */
const SHARD_ENDED_MS = 250

/**
 * Then it is looked again who shares the shards, and which are free: of 200 dispatchers that begin at once, each would try all 512 shards one after the
 * other, keep the server busy with refusals, and not see meanwhile that it has more than its share.
 */
const TAKING_LIMITS = { mostTaken: 16, mostRefused: 3 }
/** In one balance. */
const MOST_LOOKS = 64

/** Who shares the shards of a dispatcher. */
interface Shares {
  /** Undefined where it was removed. */
  readonly shards: number | undefined
  readonly members: number
  /** Among these; undefined where it is not one of them. */
  readonly place: number | undefined
  readonly held: ReadonlySet<number>
}

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
  #pausesUntil = 0
  #cutShort: (() => void) | undefined
  /** While everything rests. */
  #rested: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined

  constructor(leases: Leases, setting: ShardSetting) {
    let ended = (): void => undefined
    super(leases, setting, () => ended())
    ended = () => this.#shardEnded()
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

  /** Of itself, or because it was lost: such as those of a dispatcher whose shards are split. */
  #shardEnded(): void {
    this.#pausesUntil = Math.min(this.#pausesUntil, performance.now() + SHARD_ENDED_MS)
    this.#cutShort?.()
  }

  /** Waits for this time, or until shards are free: their owner is gone, or one has ended here. */
  async pause(ms: number, stopping: AbortSignal): Promise<void> {
    this.#pausesUntil = performance.now() + ms
    while (!stopping.aborted && !this.resting && performance.now() < this.#pausesUntil) {
      const leftMs = Math.max(0, this.#pausesUntil - performance.now())
      await this.#sleep(this.#watches ? Math.min(leftMs, WATCH_MS) : leftMs, stopping)
      if (stopping.aborted || this.resting || performance.now() >= this.#pausesUntil) return
      if (this.#watches && (await this.#endGone())) return
    }
  }

  #sleep(ms: number, stopping: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        forget()
        this.#cutShort = undefined
        resolve()
      }
      const timer = setTimeout(end, ms)
      const forget = onAbort(stopping, end)
      this.#cutShort = end
    })
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

  /** Takes free shards up to its share, and releases those above it once they have finished their current batch. */
  async balance(stopping: AbortSignal): Promise<void> {
    this.#balancing = true
    try {
      await this.#balance(stopping)
    } finally {
      this.#balancing = false
    }
  }

  async #balance(stopping: AbortSignal): Promise<void> {
    const { name } = this.#plan
    const me = `Outbox:${name}:member:${this.#me}` as const
    await this.#join(me)
    let shares = await this.#shares(me)
    if (shares.place === undefined) {
      // Ended by another process, which took this one for gone.
      await this.#member?.release()
      this.#member = undefined
      await this.#join(me)
      shares = await this.#shares(me)
    }
    for (let looks = 0; !(await this.#takeShare(shares, stopping)) && looks < MOST_LOOKS; looks++) {
      const before = shares
      shares = await this.#shares(me)
      if (isSame(before, shares)) return
    }
  }

  /** False: it has to be looked again, because others have taken shards meanwhile, or may have come. */
  async #takeShare({ shards: now, members, place = -1, held }: Shares, stopping: AbortSignal): Promise<boolean> {
    const { shards } = this.#plan
    // Not only who takes a shard learns it: the old numbers may all be held under the new one.
    if (now !== undefined && now !== shards) throw new ShardsChanged()
    this.#others = members > 1
    const share = shareOf(shards, place, members)
    this.shrinkTo(share)
    // Not all begin with the same one.
    const start = Math.floor(Math.random() * shards)
    const free = Array.from({ length: shards }, (_, step) => (start + step) % shards).filter(
      (shard) => !held.has(shard),
    )
    return this.take(free, share, { ...TAKING_LIMITS, stopping })
  }

  async #shares(me: Key): Promise<Shares> {
    const { quotedSchema, driver, silence } = this.#context
    const text = sharesOf(quotedSchema, this.#plan.name, me)
    const [row] = resultRows(await withConnection(driver, (connection) => connection.script(text), silence))
    const number = (name: string): number | undefined => (row?.[name] == null ? undefined : Number(row[name]))
    return {
      shards: number('shards'),
      members: Number(row?.['members']),
      place: number('place'),
      held: new Set(JSON.parse(row?.['held'] ?? '[]') as number[]),
    }
  }

  async #join(me: Key): Promise<void> {
    if (this.#member !== undefined && !this.#member.signal.aborted) return
    const options = this.leaseOptions()
    const metadata = { ...options.metadata, shards: this.#plan.shards }
    this.#member = await this.#leases.acquireAlways(me, { ...options, metadata })
  }

  /** Whether it rests: it sends nothing for its shards, and another process can take them. */
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

/**
 * Whether another look has shown nothing new: none was taken, and what was refused is not shown as held. After a failover a lease waits that the old
 * primary may have granted, and no row shows it.
 */
function isSame(one: Shares, other: Shares): boolean {
  return one.members === other.members && one.place === other.place && setsEqual(one.held, other.held)
}

function setsEqual(one: ReadonlySet<number>, other: ReadonlySet<number>): boolean {
  return one.size === other.size && [...one].every((shard) => other.has(shard))
}
