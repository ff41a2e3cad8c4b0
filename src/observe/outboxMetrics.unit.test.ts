import * as client from 'prom-client'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type EventMessage, type EventName, events } from './events.ts'
import { type LockstepMetricsOptions, lockstepMetrics } from './prometheus.ts'

const here = { schema: 'lockstep', dispatcher: 'default' }
const stream = { ...here, topic: 'trades', key: 'portfolio 7' }
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

function deliver(topics: readonly string[], agoMs = 1000, who = here, tookMs = 250): void {
  const enqueuedAt = new Date(Date.now() - agoMs)
  const sent = topics.map((topic, index) => ({ topic, key: `key ${index}`, seq: index + 1, enqueuedAt, headers: {} }))
  publish('outbox.delivered', { ...who, shard: 0, events: sent, tookMs })
}

function park(state: 'parked' | 'blocked', topic = 'trades'): void {
  publish('outbox.parked', { ...stream, topic, seq: 1, attempts: 1, reason: 'no', state })
}

/** The series of one metric as Prometheus would read them, without buckets. */
async function series(name: string): Promise<string[]> {
  const lines = (await register.getSingleMetricAsString(name)).split('\n')
  return lines.filter((line) => line !== '' && !/^#|_bucket\{/.test(line))
}

const gauge = async (name: string): Promise<string[]> => series(`lockstep_outbox_${name}`)

describe('outbox metrics', () => {
  beforeEach(() => start())

  test('count outbox.delivered by topic, with the time in the sink and the age', async () => {
    deliver(['trades', 'trades', 'mails'])
    deliver(['trades'])
    expect(await series('lockstep_outbox_delivered_total')).toEqual([
      'lockstep_outbox_delivered_total{dispatcher="default",topic="trades"} 3',
      'lockstep_outbox_delivered_total{dispatcher="default",topic="mails"} 1',
    ])
    expect(await series('lockstep_outbox_delivery_seconds')).toEqual([
      'lockstep_outbox_delivery_seconds_sum{dispatcher="default"} 0.5',
      'lockstep_outbox_delivery_seconds_count{dispatcher="default"} 2',
    ])
    const latency = await register.getSingleMetricAsString('lockstep_outbox_latency_seconds')
    expect(latency).toContain('lockstep_outbox_latency_seconds_count{dispatcher="default",topic="trades"} 3')
    expect(latency).toContain('_bucket{le="0.5",dispatcher="default",topic="trades"} 0')
    expect(latency).toContain('_bucket{le="2.5",dispatcher="default",topic="trades"} 3')
  })

  test('record an age of zero for an event from the future', async () => {
    deliver(['trades'], -5000)
    expect(await series('lockstep_outbox_latency_seconds')).toEqual([
      'lockstep_outbox_latency_seconds_sum{dispatcher="default",topic="trades"} 0',
      'lockstep_outbox_latency_seconds_count{dispatcher="default",topic="trades"} 1',
    ])
  })

  test('count outbox.parked by state, and outbox.unparked', async () => {
    for (const state of ['parked', 'parked', 'blocked'] as const) park(state)
    publish('outbox.unparked', stream)
    expect(await series('lockstep_outbox_parked_total')).toEqual([
      'lockstep_outbox_parked_total{dispatcher="default",topic="trades",state="parked"} 2',
      'lockstep_outbox_parked_total{dispatcher="default",topic="trades",state="blocked"} 1',
    ])
    expect(await series('lockstep_outbox_unparked_total')).toEqual([
      'lockstep_outbox_unparked_total{dispatcher="default",topic="trades"} 1',
    ])
  })

  test('count outbox.failed', async () => {
    publish('outbox.failed', { ...here, error: new Error('no database') })
    expect(await series('lockstep_outbox_failures_total')).toEqual([
      'lockstep_outbox_failures_total{dispatcher="default"} 1',
    ])
  })

  test('have no key as a label, whatever the options', async () => {
    stop()
    register = new client.Registry()
    start({ byKey: true })
    deliver(['trades'])
    park('blocked')
    expect(await register.metrics()).not.toMatch(/portfolio|key 0/)
  })
})

describe('gauges', () => {
  const shard = (number: number, fence = 1n, who = here): EventMessage<'outbox.shardTaken'> => {
    return { ...who, shard: number, fence }
  }
  const sink = { ...here, sink: 'kafka', reason: 'no route' }
  const down = (value: number): string[] => [`lockstep_outbox_sink_down{dispatcher="default"} ${value}`]
  const shards = (value: number): string[] => [`lockstep_outbox_shards{dispatcher="default"} ${value}`]

  beforeEach(() => start())

  test('count owned shards by outbox.shardTaken and outbox.shardLeft', async () => {
    for (const number of [0, 1, 2]) publish('outbox.shardTaken', shard(number))
    expect(await gauge('shards')).toEqual(shards(3))
    publish('outbox.shardLeft', shard(1))
    expect(await gauge('shards')).toEqual(shards(2))
  })

  test('stay at zero for a shard that was taken before the subscription', async () => {
    publish('outbox.shardLeft', shard(7))
    expect(await gauge('shards')).toEqual(shards(0))
    publish('outbox.shardTaken', shard(0))
    expect(await gauge('shards')).toEqual(shards(1))
  })

  test('add dispatchers of one name in two schemas, and report a sink as down if one is', async () => {
    const elsewhere = { ...here, schema: 'other' }
    publish('outbox.shardTaken', shard(0))
    publish('outbox.shardTaken', shard(0, 1n, elsewhere))
    expect(await gauge('shards')).toEqual(shards(2))
    publish('outbox.sinkDown', { ...sink, schema: 'other' })
    deliver(['trades'])
    expect(await gauge('sink_down')).toEqual(down(1))
  })

  test('follow outbox.sinkDown and outbox.sinkUp, and a delivery as a sign of up', async () => {
    publish('outbox.shardTaken', shard(0))
    expect(await gauge('sink_down')).toEqual(down(0))
    publish('outbox.sinkDown', sink)
    expect(await gauge('sink_down')).toEqual(down(1))
    publish('outbox.sinkUp', sink)
    expect(await gauge('sink_down')).toEqual(down(0))
    publish('outbox.sinkDown', sink)
    deliver(['trades'])
    expect(await gauge('sink_down')).toEqual(down(0))
  })

  test('ignore the sink state of a dispatcher without shards', async () => {
    publish('outbox.shardTaken', shard(0))
    publish('outbox.sinkDown', sink)
    publish('outbox.shardLeft', shard(0))
    expect(await gauge('sink_down')).toEqual(down(0))
    publish('outbox.shardTaken', shard(0, 2n))
    expect(await gauge('sink_down')).toEqual(down(1))
  })

  test('report a sink as down if its shards were taken before the subscription', async () => {
    publish('outbox.sinkDown', sink)
    expect(await gauge('sink_down')).toEqual(down(1))
  })
})

describe('the lag, which is read from the database', () => {
  const shard = (dispatcher: string, lagEvents: number, lagMs: number, parkedStreams: number) => ({
    dispatcher,
    lagEvents,
    lagMs,
    parkedStreams,
  })

  test('is read once per scrape for all dispatchers, over all shards', async () => {
    let asked = 0
    const shards = [shard('default', 3, 1500, 1), shard('default', 4, 500, 2), shard('mails', 0, 0, 0)]
    start({ outbox: { status: async () => (asked++, { shards }) } })
    const text = await register.metrics()
    expect(asked).toBe(1)
    for (const line of [
      'lockstep_outbox_lag_seconds{dispatcher="default"} 1.5',
      'lockstep_outbox_lag_seconds{dispatcher="mails"} 0',
      'lockstep_outbox_lag_events{dispatcher="default"} 7',
      'lockstep_outbox_parked_streams{dispatcher="default"} 3',
    ])
      expect(text).toContain(line)
  })

  test('has no value, instead of an old one, if the database does not answer', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    try {
      let away = false
      start({
        outbox: {
          status: async () => {
            if (away) throw new Error('away')
            return { shards: [shard('default', 3, 1500, 0)] }
          },
        },
      })
      expect(await gauge('lag_seconds')).toEqual(['lockstep_outbox_lag_seconds{dispatcher="default"} 1.5'])
      away = true
      vi.advanceTimersByTime(2000)
      expect(await gauge('lag_seconds')).toEqual([])
      away = false
      vi.advanceTimersByTime(2000)
      expect(await gauge('lag_events')).toEqual(['lockstep_outbox_lag_events{dispatcher="default"} 3'])
    } finally {
      vi.useRealTimers()
    }
  })

  test('is not queried again while a query is unanswered', async () => {
    let asked = 0
    start({ outbox: { status: () => (asked++, new Promise<never>(() => undefined)) } })
    const reads = [gauge('lag_seconds'), gauge('lag_events')]
    expect(await Promise.all(reads)).toEqual([[], []])
    expect(await gauge('lag_seconds')).toEqual([])
    expect(asked).toBe(1)
  })

  test('is not queried without the outbox, nor after stop()', async () => {
    let asked = 0
    start()
    expect(await gauge('lag_seconds')).toEqual([])
    stop()
    register = new client.Registry()
    start({ outbox: { status: async () => (asked++, { shards: [] }) } })
    stop()
    await register.metrics()
    expect(asked).toBe(0)
    expect(() => start({ outbox: {} as never })).toThrow('Pass `lockstep.outbox`')
  })
})

test('starts counters of failures at zero, and none of locks', async () => {
  start()
  deliver(['trades'])
  const text = await register.metrics()
  expect(text).toContain('lockstep_outbox_failures_total{dispatcher="default"} 0')
  expect(text).toContain('lockstep_outbox_unparked_total{dispatcher="default",topic="trades"} 0')
  for (const state of ['parked', 'blocked'])
    expect(text).toContain(`lockstep_outbox_parked_total{dispatcher="default",topic="trades",state="${state}"} 0`)
  expect(text).not.toContain('lockstep_lock_timeout_total{')
})

test('limits topics and dispatchers separately', async () => {
  start({ maxLabelValues: 2 })
  deliver(['a', 'b', 'c', 'd', 'a'])
  for (const dispatcher of ['second', 'third', 'fourth']) deliver(['a'], 0, { ...here, dispatcher })
  publish('outbox.shardTaken', { ...here, dispatcher: 'third', shard: 0, fence: 1n })
  publish('outbox.shardTaken', { ...here, dispatcher: 'fourth', shard: 0, fence: 1n })
  expect(await series('lockstep_outbox_delivered_total')).toEqual([
    'lockstep_outbox_delivered_total{dispatcher="default",topic="a"} 2',
    'lockstep_outbox_delivered_total{dispatcher="default",topic="b"} 1',
    'lockstep_outbox_delivered_total{dispatcher="default",topic="other"} 2',
    'lockstep_outbox_delivered_total{dispatcher="second",topic="a"} 1',
    'lockstep_outbox_delivered_total{dispatcher="other",topic="a"} 2',
  ])
  expect(await gauge('shards')).toContain('lockstep_outbox_shards{dispatcher="other"} 2')
})

test('subscribes to nothing if a metric name is taken in the registry', () => {
  const taken = new client.Gauge({ name: 'lockstep_outbox_shards', help: 'Of another library.', registers: [register] })
  expect(() => start()).toThrow('already been registered')
  expect(Object.values(events).filter((channel) => channel.hasSubscribers)).toEqual([])
  expect(taken).toBeDefined()
})
