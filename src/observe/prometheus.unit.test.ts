import { readFileSync } from 'node:fs'
import * as client from 'prom-client'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type EventMessage, type EventName, events } from './events.ts'
import { type LockstepMetricsOptions, lockstepMetrics } from './prometheus.ts'

const schema = 'lockstep'
let register = new client.Registry()
let stops: (() => void)[] = []

beforeEach(() => void (register = new client.Registry()))
afterEach(() => {
  for (const stop of stops) stop()
  stops = []
  expect(Object.values(events).filter((channel) => channel.hasSubscribers)).toEqual([])
})

function start(options: LockstepMetricsOptions = {}): () => void {
  const stop = lockstepMetrics(client, { register, ...options })
  stops.push(stop)
  return stop
}

function publish<Name extends EventName>(name: Name, message: EventMessage<Name>): void {
  const channel = events[name] as { publish(message: EventMessage<Name>): void }
  channel.publish(message)
}

function acquire(keys: string[], sharedKeys: string[] = [], waitMs = 20): void {
  publish('lock.acquired', { schema, keys, sharedKeys, waitMs, contended: false, attempt: 1 })
}

/** What Prometheus would read: the series of one metric that are not zero, in their order. */
async function series(name: string, from = register): Promise<string[]> {
  const lines = (await from.getSingleMetricAsString(name)).split('\n')
  return lines.filter((line) => line !== '' && !line.startsWith('#') && !line.endsWith(' 0'))
}

/** A histogram in a few words: its sums and counts. */
async function sums(name: string): Promise<string[]> {
  return (await series(name)).filter((line) => /_(sum|count)\{/.test(line))
}

const order = { schema, keys: ['Order:1'], sharedKeys: [] }

describe('metrics', () => {
  beforeEach(() => void start())

  test('count and time lock.acquired', async () => {
    acquire(['Order:1'], [], 20)
    acquire(['Order:2'], [], 480)
    expect(await series('lockstep_lock_acquired_total')).toEqual(['lockstep_lock_acquired_total{operation="Order"} 2'])
    const waits = await series('lockstep_lock_wait_seconds')
    expect(waits).toContain('lockstep_lock_wait_seconds_sum{operation="Order"} 0.5')
    expect(waits).toContain('lockstep_lock_wait_seconds_count{operation="Order"} 2')
    expect(waits).toContain('lockstep_lock_wait_seconds_bucket{le="0.025",operation="Order"} 1')
    expect(waits).toContain('lockstep_lock_wait_seconds_bucket{le="0.5",operation="Order"} 2')
  })

  test('time lock.released', async () => {
    publish('lock.released', { ...order, holdMs: 250, outcome: 'committed' })
    publish('lock.released', { ...order, holdMs: 250, outcome: 'rolledBack' })
    expect(await sums('lockstep_lock_hold_seconds')).toEqual([
      'lockstep_lock_hold_seconds_sum{operation="Order"} 0.5',
      'lockstep_lock_hold_seconds_count{operation="Order"} 2',
    ])
  })

  test('count lock.contended by place', async () => {
    publish('lock.contended', { ...order, where: 'process' })
    publish('lock.contended', { ...order, where: 'server' })
    publish('lock.contended', { ...order, where: 'server' })
    expect(await series('lockstep_lock_contention_total')).toEqual([
      'lockstep_lock_contention_total{operation="Order",where="process"} 1',
      'lockstep_lock_contention_total{operation="Order",where="server"} 2',
    ])
  })

  test('count lock.timedOut, lock.refused, lock.abandoned and lock.slow', async () => {
    publish('lock.timedOut', { ...order, noWait: false, waitedMs: 100, waitedFor: 'server', holders: [] })
    publish('lock.refused', { ...order, waiting: 10_000 })
    publish('lock.abandoned', { ...order, waitedMs: 100 })
    publish('lock.slow', { ...order, waitedMs: 100, waitedFor: 'server', holders: [] })
    for (const what of ['timeout', 'refused', 'abandoned', 'slow']) {
      const name = `lockstep_lock_${what}_total`
      expect(await series(name)).toEqual([`${name}{operation="Order"} 1`])
    }
  })

  test('do not count lock.timedOut of a caller that only tried', async () => {
    publish('lock.timedOut', { ...order, noWait: true, waitedMs: 1, waitedFor: 'server', holders: [] })
    expect(await series('lockstep_lock_timeout_total')).toEqual([])
    expect(await series('lockstep_lock_busy_total')).toEqual(['lockstep_lock_busy_total{operation="Order"} 1'])
  })

  test('count and time lock.wouldWait', async () => {
    publish('lock.wouldWait', { schema, key: 'Order:1', waitMs: 500, granted: true })
    publish('lock.wouldWait', { schema, key: 'Order:2', waitMs: 1000, granted: false })
    expect(await sums('lockstep_lock_would_wait_seconds')).toEqual([
      'lockstep_lock_would_wait_seconds_sum{operation="Order"} 1.5',
      'lockstep_lock_would_wait_seconds_count{operation="Order"} 2',
    ])
  })

  test('count transaction.retried by reason, with or without a code or a key', async () => {
    const retried = { schema, keys: ['Order:1'], attempt: 1, delayMs: 1, error: undefined }
    publish('transaction.retried', { ...retried, reason: '40001' })
    publish('transaction.retried', { ...retried, reason: undefined })
    publish('transaction.retried', { ...retried, keys: [], reason: '40P01' })
    expect(await series('lockstep_transaction_retry_total')).toEqual([
      'lockstep_transaction_retry_total{operation="Order",reason="40001"} 1',
      'lockstep_transaction_retry_total{operation="Order",reason="connection"} 1',
      'lockstep_transaction_retry_total{operation="none",reason="40P01"} 1',
    ])
  })

  test('count commit.resolved by outcome', async () => {
    for (const outcome of ['committed', 'rolledBack', 'unknown'] as const)
      publish('commit.resolved', { schema, keys: ['Order:1'], xid: '7', outcome, tookMs: 3 })
    expect(await series('lockstep_commit_resolved_total')).toEqual([
      'lockstep_commit_resolved_total{operation="Order",outcome="committed"} 1',
      'lockstep_commit_resolved_total{operation="Order",outcome="rolledBack"} 1',
      'lockstep_commit_resolved_total{operation="Order",outcome="unknown"} 1',
    ])
  })

  test('count rollout.switchedBack by prefix and trigger', async () => {
    publish('rollout.switchedBack', { schema, prefix: 'Order:', trigger: 'slowerPercent', reason: 'too slow' })
    expect(await series('lockstep_rollout_switched_back_total')).toEqual([
      'lockstep_rollout_switched_back_total{prefix="Order:",trigger="slowerPercent"} 1',
    ])
  })

  test('count rollout.duplicateFound by operation and mode', async () => {
    for (const mode of ['on', 'observe', 'observe'] as const)
      publish('rollout.duplicateFound', { schema, key: 'Order:1', mode, detail: 'two rows' })
    expect(await series('lockstep_rollout_duplicates_total')).toEqual([
      'lockstep_rollout_duplicates_total{operation="Order",mode="on"} 1',
      'lockstep_rollout_duplicates_total{operation="Order",mode="observe"} 2',
    ])
  })

  test('record the size of combine.batch, and the wait of its first call', async () => {
    const batch = { schema, key: 'Account:hot', waiting: 0, tookMs: 3 } as const
    publish('combine.batch', { ...batch, size: 1, waitedMs: 0, outcome: 'committed' })
    publish('combine.batch', { ...batch, size: 300, waitedMs: 500, outcome: 'halved' })
    const sizes = await series('lockstep_combine_batch_size')
    expect(sizes).toContain('lockstep_combine_batch_size_sum{operation="Account"} 301')
    expect(sizes).toContain('lockstep_combine_batch_size_bucket{le="1",operation="Account"} 1')
    expect(sizes).toContain('lockstep_combine_batch_size_bucket{le="200",operation="Account"} 1')
    expect(sizes).toContain('lockstep_combine_batch_size_bucket{le="500",operation="Account"} 2')
    expect(await sums('lockstep_combine_wait_seconds')).toEqual([
      'lockstep_combine_wait_seconds_sum{operation="Account"} 0.5',
      'lockstep_combine_wait_seconds_count{operation="Account"} 2',
    ])
  })

  test('count combine.refused', async () => {
    for (const key of ['Account:hot', 'Account:hotter']) publish('combine.refused', { schema, key, waiting: 9 })
    expect(await series('lockstep_combine_refused_total')).toEqual([
      'lockstep_combine_refused_total{operation="Account"} 2',
    ])
  })

  test('do not subscribe to rows.outOfOrder, which would enable its guard', () => {
    expect(events['lock.acquired'].hasSubscribers).toBe(true)
    expect(events['rows.outOfOrder'].hasSubscribers).toBe(false)
  })

  test('ignore other events', async () => {
    publish('lock.requested', order)
    publish('migration.applied', { schema, version: 1, name: 'lock_ids' })
    expect(await register.metrics()).not.toContain('} ')
  })
})

test('starts the counters of an operation at zero, so that the first timeout is an increase', async () => {
  start()
  acquire(['Order:1'])
  const text = await register.metrics()
  for (const what of ['timeout', 'abandoned', 'slow'])
    expect(text).toContain(`lockstep_lock_${what}_total{operation="Order"} 0`)
  expect(text).toContain('lockstep_combine_refused_total{operation="Order"} 0')
  expect(text).toContain('lockstep_lock_contention_total{operation="Order",where="server"} 0')
  expect(text).toContain('lockstep_commit_resolved_total{operation="Order",outcome="unknown"} 0')
})

test('counts from zero after a reset of the registry', async () => {
  start()
  acquire(['Order:1'])
  await register.metrics()
  register.resetMetrics()
  acquire(['Order:1'])
  expect(await series('lockstep_lock_acquired_total')).toEqual(['lockstep_lock_acquired_total{operation="Order"} 1'])
})

test('includes buffered times in every read', async () => {
  start()
  for (let number = 1; number <= 100; number++) {
    acquire([`Order:${number}`], [], 1000)
    publish('lock.released', { ...order, holdMs: 500, outcome: 'committed' })
  }
  expect(await sums('lockstep_lock_hold_seconds')).toEqual([
    'lockstep_lock_hold_seconds_sum{operation="Order"} 50',
    'lockstep_lock_hold_seconds_count{operation="Order"} 100',
  ])
  acquire(['Order:1'], [], 1000)
  const json = await register.getMetricsAsJSON()
  expect(json.find(({ name }) => name === 'lockstep_lock_acquired_total')?.values).toMatchObject([{ value: 101 }])
  expect(await sums('lockstep_lock_wait_seconds')).toEqual([
    'lockstep_lock_wait_seconds_sum{operation="Order"} 101',
    'lockstep_lock_wait_seconds_count{operation="Order"} 101',
  ])
})

test('counts each operation of several keys once, exclusive or shared', async () => {
  start()
  acquire(['Transfer:1', 'Transfer:2', 'Wallet:1'], ['Transfer:3', 'Ledger:2026:05'])
  acquire([], ['Ledger:2026:05'])
  expect(await series('lockstep_lock_acquired_total')).toEqual([
    'lockstep_lock_acquired_total{operation="Transfer"} 1',
    'lockstep_lock_acquired_total{operation="Wallet"} 1',
    'lockstep_lock_acquired_total{operation="Ledger"} 2',
  ])
  expect((await sums('lockstep_lock_wait_seconds')).filter((line) => line.includes('_sum'))).toEqual([
    'lockstep_lock_wait_seconds_sum{operation="Transfer"} 0.02',
    'lockstep_lock_wait_seconds_sum{operation="Wallet"} 0.02',
    'lockstep_lock_wait_seconds_sum{operation="Ledger"} 0.04',
  ])
})

describe('label limits', () => {
  test('record other operations as `other`, also one of that name', async () => {
    start({ maxLabelValues: 2 })
    for (const key of ['A:1', 'B:1', 'C:1', 'D:1', 'A:2', 'C:2', 'other:1']) acquire([key])
    acquire(['C:1', 'D:1', 'B:1'])
    expect(await series('lockstep_lock_acquired_total')).toEqual([
      'lockstep_lock_acquired_total{operation="A"} 2',
      'lockstep_lock_acquired_total{operation="B"} 2',
      'lockstep_lock_acquired_total{operation="other"} 5',
    ])
  })

  test('are 200 by default', async () => {
    start()
    for (let number = 0; number < 1000; number++) acquire([`Operation${number}:1`])
    const found = await series('lockstep_lock_acquired_total')
    expect(found).toHaveLength(201)
    expect(found.at(-1)).toBe('lockstep_lock_acquired_total{operation="other"} 800')
  })

  test('apply to reasons and prefixes separately', async () => {
    start({ maxLabelValues: 2 })
    const retried = { schema, keys: ['A:1'], attempt: 1, delayMs: 1, error: undefined }
    for (const reason of ['40001', '40P01', 'X1', 'X2']) publish('transaction.retried', { ...retried, reason })
    for (const prefix of ['A:', 'B:', 'C:', 'D:'])
      publish('rollout.switchedBack', { schema, prefix, trigger: 'waitMs', reason: '' })
    expect(await series('lockstep_transaction_retry_total')).toEqual([
      'lockstep_transaction_retry_total{operation="A",reason="40001"} 1',
      'lockstep_transaction_retry_total{operation="A",reason="40P01"} 1',
      'lockstep_transaction_retry_total{operation="A",reason="other"} 2',
    ])
    expect(await series('lockstep_rollout_switched_back_total')).toEqual([
      'lockstep_rollout_switched_back_total{prefix="A:",trigger="waitMs"} 1',
      'lockstep_rollout_switched_back_total{prefix="B:",trigger="waitMs"} 1',
      'lockstep_rollout_switched_back_total{prefix="other",trigger="waitMs"} 2',
    ])
  })

  test('reject an invalid limit, and register nothing', () => {
    for (const maxLabelValues of [0, -1, 1.5, Number.NaN, Infinity])
      expect(() => start({ maxLabelValues })).toThrow(RangeError)
    expect(register.getMetricsAsArray()).toEqual([])
  })
})

describe('by key', () => {
  test('has each key once, with its operation', async () => {
    start({ byKey: true })
    acquire(['Transfer:1', 'Transfer:2'], ['Ledger:open'])
    acquire(['Transfer:1'])
    publish('transaction.retried', { schema, keys: [], attempt: 1, delayMs: 1, error: undefined, reason: '40001' })
    expect(await series('lockstep_lock_acquired_total')).toEqual([
      'lockstep_lock_acquired_total{operation="Transfer",key="Transfer:1"} 2',
      'lockstep_lock_acquired_total{operation="Transfer",key="Transfer:2"} 1',
      'lockstep_lock_acquired_total{operation="Ledger",key="Ledger:open"} 1',
    ])
    expect(await series('lockstep_transaction_retry_total')).toEqual([
      'lockstep_transaction_retry_total{operation="none",key="none",reason="40001"} 1',
    ])
  })

  test('keeps the operation of keys over the limit, but not operations over the limit', async () => {
    start({ byKey: true, maxLabelValues: 2 })
    for (const key of ['A:1', 'A:2', 'A:3', 'B:1', 'C:1', 'D:1', 'A:4']) acquire([key])
    expect(await series('lockstep_lock_acquired_total')).toEqual([
      'lockstep_lock_acquired_total{operation="A",key="A:1"} 1',
      'lockstep_lock_acquired_total{operation="A",key="A:2"} 1',
      'lockstep_lock_acquired_total{operation="A",key="other"} 2',
      'lockstep_lock_acquired_total{operation="B",key="other"} 1',
      'lockstep_lock_acquired_total{operation="other",key="other"} 2',
    ])
  })

  test('escapes keys for Prometheus', async () => {
    start({ byKey: true })
    acquire(['A:"\\\n'])
    expect(await series('lockstep_lock_acquired_total')).toEqual([
      String.raw`lockstep_lock_acquired_total{operation="A",key="A:\"\\\n"} 1`,
    ])
  })
})

test('ends counting on stop()', async () => {
  const stop = start()
  acquire(['Order:1'])
  stop()
  stop()
  expect(Object.values(events).some((channel) => channel.hasSubscribers)).toBe(false)
  acquire(['Order:1'])
  expect(await series('lockstep_lock_acquired_total')).toEqual(['lockstep_lock_acquired_total{operation="Order"} 1'])
})

test('counts in two registries separately, which stop separately', async () => {
  const second = new client.Registry()
  const stopFirst = start()
  start({ register: second, byKey: true })
  acquire(['Order:1'])
  stopFirst()
  acquire(['Order:1'])
  expect(await series('lockstep_lock_acquired_total')).toEqual(['lockstep_lock_acquired_total{operation="Order"} 1'])
  expect(await series('lockstep_lock_acquired_total', second)).toEqual([
    'lockstep_lock_acquired_total{operation="Order",key="Order:1"} 2',
  ])
  expect(client.register.getMetricsAsArray()).toEqual([])
})

test('uses the default registry of prom-client, and rejects a second set there', async () => {
  stops.push(lockstepMetrics(client))
  try {
    expect(() => lockstepMetrics(client)).toThrow('already been registered')
    acquire(['Order:1'])
    expect(await series('lockstep_lock_acquired_total', client.register)).toEqual([
      'lockstep_lock_acquired_total{operation="Order"} 1',
    ])
  } finally {
    client.register.clear()
  }
})

describe('docs/reference/prometheus.md', () => {
  const page = readFileSync(new URL('../../docs/reference/prometheus.md', import.meta.url), 'utf8')

  interface Described {
    readonly name: string
    readonly type: string
    readonly labels: readonly string[]
  }

  const documented = [...page.matchAll(/^\| `(lockstep_\w+)` \| (\w+) \| ([^|]*) \|/gm)].map(
    ([, name = '', type = '', labels = '']): Described => ({
      name,
      type,
      labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label),
    }),
  )

  async function registered(): Promise<Described[]> {
    const text = await register.metrics()
    return [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => {
      // prom-client keeps them, but its types do not say so.
      const { labelNames } = register.getSingleMetric(name) as unknown as { labelNames: string[] }
      return { name, type, labels: labelNames }
    })
  }

  test('lists what is registered, with type and labels, and nothing else', async () => {
    start()
    expect(documented).toHaveLength(43)
    expect(await registered()).toEqual(documented)
  })

  test('documents the label `key` of byKey for every metric with an operation', async () => {
    start({ byKey: true })
    const wanted = documented.map((each) => ({
      ...each,
      labels: each.labels.flatMap((label) => (label === 'operation' ? ['operation', 'key'] : [label])),
    }))
    expect(await registered()).toEqual(wanted)
  })

  test('has queries of metrics and labels that exist', () => {
    const names = documented.flatMap(({ name, type }) =>
      type === 'histogram' ? ['_bucket', '_sum', '_count'].map((suffix) => name + suffix) : [name],
    )
    const labels = new Set([...documented.flatMap((each) => each.labels), 'le'])
    const queries = [...page.matchAll(/^```promql\n([^]*?)^```$/gm)].map(([, query = '']) => query)
    expect(queries.length).toBeGreaterThan(3)
    for (const query of queries) {
      for (const [name] of query.matchAll(/lockstep_\w+/g)) expect(names).toContain(name)
      for (const [, by = ''] of query.matchAll(/\b(?:by|on) \(([^)]*)\)/g))
        for (const label of by.split(', ')) expect(labels).toContain(label)
    }
  })
})
