import * as client from 'prom-client'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type EventMessage, type EventName, events } from './events.ts'
import { type LockstepMetricsOptions, lockstepMetrics } from './prometheus.ts'

const lease = { schema: 'lockstep', key: 'Instance:1', holder: 'here', fence: 7n }
let register = new client.Registry()
let stop = (): void => undefined

beforeEach(() => void (register = new client.Registry()))
afterEach(() => stop())

function start(options: LockstepMetricsOptions = {}): void {
  stop = lockstepMetrics(client, { register, ...options })
}

function publish<Name extends EventName>(name: Name, message: EventMessage<Name>): void {
  const channel = events[name] as { publish(message: EventMessage<Name>): void }
  channel.publish(message)
}

/** What Prometheus would read: the series of one metric that are not zero, without buckets. */
async function series(name: string): Promise<string[]> {
  const lines = (await register.getSingleMetricAsString(name)).split('\n')
  return lines.filter((line) => line !== '' && !/^#| 0$|_bucket\{/.test(line))
}

describe('lease metrics', () => {
  beforeEach(() => start())

  test('count and time lease.acquired', async () => {
    publish('lease.acquired', { ...lease, waitedMs: 500 })
    publish('lease.acquired', { ...lease, key: 'Instance:2', waitedMs: 1000 })
    expect(await series('lockstep_lease_acquired_total')).toEqual([
      'lockstep_lease_acquired_total{operation="Instance"} 2',
    ])
    expect(await series('lockstep_lease_wait_seconds')).toEqual([
      'lockstep_lease_wait_seconds_sum{operation="Instance"} 1.5',
      'lockstep_lease_wait_seconds_count{operation="Instance"} 2',
    ])
  })

  test('count lease.refused, by whether the caller waits', async () => {
    const { fence: _fence, ...asked } = lease
    publish('lease.refused', { ...asked, heldBy: 'there', leftMs: 100, waits: false })
    publish('lease.refused', { ...asked, heldBy: undefined, leftMs: 0, waits: true })
    expect(await series('lockstep_lease_refused_total')).toEqual([
      'lockstep_lease_refused_total{operation="Instance"} 2',
    ])
  })

  test('count lease.slow, and what leases of observed keys would have done', async () => {
    const { fence: _fence, ...asked } = lease
    publish('lease.slow', { ...asked, waitedMs: 100, heldBy: 'there' })
    publish('lease.wouldWait', { ...asked, heldBy: 'there', waitMs: 500, granted: true })
    publish('lease.wouldWait', { ...asked, heldBy: 'there', waitMs: 0, granted: false })
    expect(await series('lockstep_lease_slow_total')).toEqual(['lockstep_lease_slow_total{operation="Instance"} 1'])
    expect(await series('lockstep_lease_would_wait_seconds')).toEqual([
      'lockstep_lease_would_wait_seconds_sum{operation="Instance"} 0.5',
      'lockstep_lease_would_wait_seconds_count{operation="Instance"} 2',
    ])
    expect(await series('lockstep_lease_would_refuse_total')).toEqual([
      'lockstep_lease_would_refuse_total{operation="Instance"} 1',
    ])
  })

  test('count each unanswered request as lease.unreachable', async () => {
    const { fence: _fence, ...asked } = lease
    for (const error of [new Error('away'), 'away']) publish('lease.unreachable', { ...asked, error })
    expect(await series('lockstep_lease_unreachable_total')).toEqual([
      'lockstep_lease_unreachable_total{operation="Instance"} 2',
    ])
  })

  test('count lease.renewed by outcome', async () => {
    for (const outcome of ['renewed', 'renewed', 'unknown'] as const) publish('lease.renewed', { ...lease, outcome })
    expect(await series('lockstep_lease_renewed_total')).toEqual([
      'lockstep_lease_renewed_total{operation="Instance",outcome="renewed"} 2',
      'lockstep_lease_renewed_total{operation="Instance",outcome="unknown"} 1',
    ])
  })

  test('count lease.lost by reason, and end a hold by it and by lease.released', async () => {
    publish('lease.lost', { ...lease, heldMs: 500, reason: 'taken away' })
    publish('lease.lost', { ...lease, heldMs: 500, reason: 'not renewed in time' })
    publish('lease.released', { ...lease, heldMs: 3_000_000 })
    expect(await series('lockstep_lease_lost_total')).toEqual([
      'lockstep_lease_lost_total{operation="Instance",reason="not renewed in time"} 1',
      'lockstep_lease_lost_total{operation="Instance",reason="taken away"} 1',
    ])
    expect(await series('lockstep_lease_hold_seconds')).toEqual([
      'lockstep_lease_hold_seconds_sum{operation="Instance"} 3001',
      'lockstep_lease_hold_seconds_count{operation="Instance"} 3',
    ])
    const text = await register.getSingleMetricAsString('lockstep_lease_hold_seconds')
    expect(text).toContain('lockstep_lease_hold_seconds_bucket{le="900",operation="Instance"} 2')
    expect(text).toContain('lockstep_lease_hold_seconds_bucket{le="3600",operation="Instance"} 3')
  })
})

test('starts the counters of a lease at zero, and none of locks', async () => {
  start()
  publish('lease.acquired', { ...lease, waitedMs: 1 })
  const text = await register.metrics()
  expect(text).toContain('lockstep_lease_refused_total{operation="Instance"} 0')
  expect(text).toContain('lockstep_lease_unreachable_total{operation="Instance"} 0')
  expect(text).toContain('lockstep_lease_renewed_total{operation="Instance",outcome="unknown"} 0')
  for (const reason of ['not renewed in time', 'taken away', 'held too long', 'closed'])
    expect(text).toContain(`lockstep_lease_lost_total{operation="Instance",reason="${reason}"} 0`)
  expect(text).not.toContain('lockstep_lock_timeout_total{')
})

test('starts no counters of leases for a lock, and shares the label limit with them', async () => {
  start({ maxLabelValues: 1 })
  const lock = { schema: 'lockstep', keys: ['Order:1'], sharedKeys: [], waitMs: 1, contended: false, attempt: 1 }
  publish('lock.acquired', lock)
  expect(await register.metrics()).not.toContain('lockstep_lease_acquired_total{')
  publish('lease.acquired', { ...lease, waitedMs: 1 })
  expect(await series('lockstep_lease_acquired_total')).toEqual(['lockstep_lease_acquired_total{operation="other"} 1'])
})

test('has the key as a label with byKey', async () => {
  start({ byKey: true })
  publish('lease.lost', { ...lease, heldMs: 1, reason: 'closed' })
  expect(await series('lockstep_lease_lost_total')).toEqual([
    'lockstep_lease_lost_total{operation="Instance",key="Instance:1",reason="closed"} 1',
  ])
})
