import { leaseRenewed } from '../observe/index.ts'
import { type Driver, SilenceWatch, withConnection } from '../postgres/index.ts'
import { outsideTransactions } from '../transactions/index.ts'
import { monotonicMs, onClocksMoved, readClocks } from './clock.ts'
import type { HeldLease } from './lease.ts'
import { renew, type RenewRow } from './leases.sql.ts'

/** More in one message would make it long; the rest goes with the next. */
const MAX_TOGETHER = 500
/** A heartbeat that is due so soon goes along. */
const SOON = 0.1
/** How long one try may take, as a part of the ttl: at least three fit into the trust. */
const TRY = 0.2
/** The pause after a try with an unknown outcome. */
const AGAIN = 0.05

/** Keeps the leases of one Lockstep alive: one message for all that are due. */
export class LeaseRenewer {
  readonly #driver: Driver
  readonly #schema: string
  readonly #name: string
  readonly #leases = new Set<HeldLease>()
  #timer: NodeJS.Timeout | undefined
  #dueAt = Infinity
  /** Listens while there are leases: nothing else may keep this object. */
  #unlisten: (() => void) | undefined

  constructor(driver: Driver, schema: string, quotedSchema: string) {
    this.#driver = driver
    this.#name = schema
    this.#schema = quotedSchema
  }

  get leases(): ReadonlySet<HeldLease> {
    return this.#leases
  }

  keep(lease: HeldLease): void {
    this.#leases.add(lease)
    this.#unlisten ??= onClocksMoved(() => this.#clocksMoved())
    this.#schedule()
  }

  forget(lease: HeldLease): void {
    this.#leases.delete(lease)
    if (this.#leases.size > 0) return
    this.#unlisten?.()
    this.#unlisten = undefined
  }

  #clocksMoved(): void {
    for (const lease of this.#leases) lease.clocksMoved()
    clearTimeout(this.#timer)
    this.#dueAt = Infinity
    this.#schedule()
  }

  #schedule(): void {
    let next = Infinity
    for (const lease of this.#leases) next = Math.min(next, lease.renewAt)
    if (next >= this.#dueAt || next === Infinity) return
    clearTimeout(this.#timer)
    this.#dueAt = next
    // It beats for all leases: a transaction in which the first was acquired has nothing to do with it.
    this.#timer = outsideTransactions(() => setTimeout(() => this.#beat(), Math.max(0, next - monotonicMs())))
    // A holder has other reasons to stay; a lease that was forgotten must not keep the process alive.
    this.#timer.unref()
  }

  #beat(): void {
    this.#dueAt = Infinity
    const now = monotonicMs()
    const due = [...this.#leases]
      .filter(({ renewAt, plan }) => renewAt <= now + plan.ttlMs * SOON)
      .slice(0, MAX_TOGETHER)
    if (due.length > 0) {
      const shortest = Math.min(...due.map(({ plan }) => plan.ttlMs))
      // Until the answer says more: the next try, should there be none.
      for (const lease of due) lease.renewAt = now + shortest * TRY + lease.plan.ttlMs * AGAIN
      void this.#renew(due, shortest * TRY)
    }
    this.#schedule()
  }

  async #renew(due: readonly HeldLease[], withinMs: number): Promise<void> {
    const askedAt = readClocks()
    const leases = due.map(({ key, token, fence, plan }) => ({ name: key, token, fence, ttlMs: plan.ttlMs }))
    let rows: readonly RenewRow[]
    try {
      rows = await withConnection(
        this.#driver,
        async (connection) => {
          const results = await connection.script(renew(this.#schema, leases))
          return results.flatMap((result) => result.rows as unknown as RenewRow[])
        },
        new SilenceWatch(withinMs),
      )
    } catch {
      // The next try is set, and the lease's own clock continues.
      for (const lease of due) this.#report(lease, 'unknown')
      return
    }
    const outcomes = new Map(rows.map((row) => [row.token, row.outcome]))
    for (const lease of due) {
      const outcome = outcomes.get(lease.token)
      if (outcome === 'renewed') lease.renewed(askedAt)
      else if (outcome === 'lost') lease.lose('taken away')
      else lease.renewAt = monotonicMs() + lease.plan.ttlMs * AGAIN
      if (outcome !== 'lost') this.#report(lease, outcome ?? 'unknown')
    }
    this.#schedule()
  }

  #report({ key, holder, fence }: HeldLease, outcome: 'renewed' | 'unknown'): void {
    if (!leaseRenewed.hasSubscribers) return
    leaseRenewed.publish({ schema: this.#name, key, holder, fence, outcome })
  }
}
