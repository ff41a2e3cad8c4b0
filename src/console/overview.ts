import type { LeaseCountsRow, PulseRow } from './console.sql.ts'
import type { Delivery } from './queries.ts'
import type { OverviewSnapshot } from './wire.ts'

/** Makes rates of counters, from one look to the next. */
export class Overview {
  #pulse: PulseRow | undefined
  #delivery: Delivery | undefined
  #deliveredPerSecond: number | null = null

  take(pulse: PulseRow, leases: LeaseCountsRow, delivery: Delivery): Omit<OverviewSnapshot, 'at'> {
    const before = this.#pulse
    this.#pulse = pulse
    const tookMs = Number(pulse.at) - Number(before?.at)
    // Also null where a counter went back: the statistics were reset, or it is another server by now.
    const rate = (name: 'commits' | 'rollbacks' | 'position'): number | null =>
      perSecond(Number(pulse[name]) - Number(before?.[name]), tookMs)
    const { shards } = delivery.status
    return {
      commitsPerSecond: rate('commits'),
      rollbacksPerSecond: rate('rollbacks'),
      enqueuedPerSecond: rate('position'),
      deliveredPerSecond: this.#delivered(delivery),
      locksHeld: Number(pulse.locks_held),
      lockWaiters: Number(pulse.lock_waiters),
      longestLockWaitMs: Number(pulse.longest_wait ?? 0),
      leasesHeld: Number(leases.held),
      leaseWaiters: Number(leases.waiting),
      outboxLagEvents: sum(shards.map(({ lagEvents }) => lagEvents)),
      outboxLagMs: Math.max(0, ...shards.map(({ lagMs }) => lagMs)),
      parkedStreams: sum(shards.map(({ parkedStreams }) => parkedStreams)),
      shardsWithoutOwner: shards.filter(({ owner }) => owner === undefined).length,
      connections: Number(pulse.connections),
      maxConnections: Number(pulse.max_connections),
    }
  }

  /**
   * Deliveries are not counted: what was enqueued and does not wait any more was delivered, or was parked with its stream. A transaction
   * that rolled back counts as delivered.
   */
  #delivered(delivery: Delivery): number | null {
    const before = this.#delivery
    if (before === delivery) return this.#deliveredPerSecond
    this.#delivery = delivery
    const names = namesOf(delivery)
    if (before === undefined || namesOf(before).join() !== names.join()) return (this.#deliveredPerSecond = null)
    const enqueued = (delivery.position - before.position) * names.length
    const gone = Math.max(0, enqueued - (lagOf(delivery) - lagOf(before)))
    return (this.#deliveredPerSecond = perSecond(gone, delivery.at - before.at))
  }
}

function perSecond(count: number, tookMs: number): number | null {
  if (!(count >= 0 && tookMs > 0)) return null
  return Math.round((count / tookMs) * 10_000) / 10
}

function namesOf({ status }: Delivery): string[] {
  return [...new Set(status.shards.map(({ dispatcher }) => dispatcher))]
}

function lagOf({ status }: Delivery): number {
  return sum(status.shards.map(({ lagEvents }) => lagEvents))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0)
}
