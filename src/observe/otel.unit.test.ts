import { readFileSync } from 'node:fs'
import * as api from '@opentelemetry/api'
import {
  AggregationTemporality,
  DataPointType,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type EventMessage, type EventName, events } from './events.ts'
import { type LockstepTelemetryOptions, lockstepTelemetry } from './otel.ts'

const schema = 'lockstep'
const order = { schema, keys: ['Order:1'], sharedKeys: [] }
let spans = new InMemorySpanExporter()
let metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
let reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 3_600_000 })
let stops: (() => unknown)[] = []

beforeEach(() => {
  spans = new InMemorySpanExporter()
  metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 3_600_000 })
})
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
  expect(Object.values(events).filter((channel) => channel.hasSubscribers)).toEqual([])
})

function start(options: LockstepTelemetryOptions = {}): () => void {
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] })
  const meterProvider = new MeterProvider({ readers: [reader] })
  const stop = lockstepTelemetry(api, { tracerProvider, meterProvider, ...options })
  stops.push(
    stop,
    () => meterProvider.shutdown(),
    () => tracerProvider.shutdown(),
  )
  return stop
}

function lagOf(
  dispatcher: string,
  lagEvents: number,
  lagMs: number,
  parkedStreams: number,
): { dispatcher: string; lagEvents: number; lagMs: number; parkedStreams: number } {
  return { dispatcher, lagEvents, lagMs, parkedStreams }
}

function publish<Name extends EventName>(name: Name, message: EventMessage<Name>): void {
  const channel = events[name] as { publish(message: EventMessage<Name>): void }
  channel.publish(message)
}

interface Point {
  readonly name: string
  readonly type: string
  readonly unit: string
  readonly attributes: api.Attributes
  /** Of a histogram: how many, and their sum. */
  readonly value: number | { readonly count: number; readonly sum: number | undefined }
  readonly boundaries: readonly number[] | undefined
}

/** What an exporter gets at this moment. */
async function points(name?: string): Promise<Point[]> {
  const { resourceMetrics } = await reader.collect()
  return resourceMetrics.scopeMetrics.flatMap(({ scope, metrics }) => {
    expect(scope.name).toBe('pg-lockstep')
    return metrics.flatMap(({ descriptor, dataPointType, dataPoints, ...metric }) => {
      if (name !== undefined && descriptor.name !== name) return []
      const monotonic = 'isMonotonic' in metric && metric.isMonotonic ? 'counter' : 'updowncounter'
      const type =
        { [DataPointType.HISTOGRAM]: 'histogram', [DataPointType.GAUGE]: 'gauge' }[dataPointType as number] ?? monotonic
      return dataPoints.map(({ attributes, value }): Point => {
        const { name: own, unit } = descriptor
        if (typeof value === 'number') return { name: own, type, unit, attributes, value, boundaries: undefined }
        if (!('buckets' in value) || !('boundaries' in value.buckets))
          throw new Error('an unexpected kind of histogram')
        const { count, sum, buckets } = value
        return { name: own, type, unit, attributes, value: { count, sum }, boundaries: buckets.boundaries }
      })
    })
  })
}

/** One metric in short: its attributes and values. */
async function seen(name: string): Promise<[api.Attributes, Point['value']][]> {
  return (await points(name)).map(({ attributes, value }) => [attributes, value])
}

/** Everything that moves a metric, once. */
function publishEverything(): void {
  const lease = { schema, key: 'Lease:1', holder: 'me', fence: 7n }
  const retried = { schema, keys: ['Order:1'], attempt: 1, delayMs: 5, error: undefined }
  publish('lock.requested', order)
  publish('lock.contended', { ...order, where: 'server' })
  publish('lock.slow', { ...order, waitedMs: 100, waitedFor: 'server', holders: [] })
  publish('lock.acquired', { ...order, waitMs: 20, contended: true, attempt: 1 })
  publish('lock.released', { ...order, holdMs: 30, outcome: 'rolledBack' })
  publish('transaction.retried', { ...retried, reason: '40001' })
  publish('lock.timedOut', { ...order, noWait: false, waitedMs: 100, waitedFor: 'server', holders: [] })
  publish('lock.timedOut', { ...order, noWait: true, waitedMs: 1, waitedFor: 'server', holders: [] })
  publish('lock.refused', { ...order, waiting: 10_000 })
  publish('lock.abandoned', { ...order, waitedMs: 100 })
  publish('lock.wouldWait', { schema, key: 'Order:1', waitMs: 500, granted: true })
  publish('commit.resolved', { schema, keys: ['Order:1'], xid: '7', outcome: 'unknown', tookMs: 3 })
  publish('rollout.switchedBack', { schema, prefix: 'Order:', trigger: 'waitMs', reason: 'slow' })
  publish('rollout.duplicateFound', { schema, key: 'Order:1', mode: 'on', detail: '' })
  const batch = { schema, key: 'Account:1', size: 3, waiting: 0, waitedMs: 10, tookMs: 20 }
  publish('combine.batch', { ...batch, outcome: 'committed' })
  publish('combine.refused', { schema, key: 'Account:1', waiting: 9 })
  publish('lease.refused', { ...lease, heldBy: 'other', leftMs: 10, waits: true })
  publish('lease.slow', { ...lease, waitedMs: 100, heldBy: 'other' })
  publish('lease.wouldWait', { ...lease, heldBy: 'other', waitMs: 10, granted: false })
  publish('lease.unreachable', { ...lease, error: new Error('away') })
  publish('lease.acquired', { ...lease, waitedMs: 10 })
  publish('lease.renewed', { ...lease, outcome: 'unknown' })
  publish('lease.lost', { ...lease, heldMs: 10, reason: 'taken away' })
  const dispatcher = { schema, dispatcher: 'default' }
  const stream = { ...dispatcher, topic: 'trades', key: '42' }
  publish('outbox.shardTaken', { ...dispatcher, shard: 0, fence: 1n })
  publish('outbox.parked', { ...stream, seq: 3, attempts: 2, reason: 'Ann is unknown', state: 'blocked' })
  publish('outbox.unparked', stream)
  publish('outbox.failed', { ...dispatcher, error: new Error('away') })
  const consumer = { schema: dispatcher.schema, consumer: 'billing', source: 'redis' }
  publish('consumer.applied', {
    ...consumer,
    events: [{ topic: 'trades', key: 'ann', seq: 1, enqueuedAt: new Date(), headers: {} }],
    tookMs: 5,
  })
  const refused = { topic: 'trades', key: 'ann', seq: 2, attempts: 1, reason: 'Ann is unknown' }
  publish('consumer.stopped', { ...consumer, ...refused, kind: 'failed' })
  publish('consumer.failed', { ...consumer, error: new Error('away') })
  const event = { topic: 'trades', key: '42', seq: 1, enqueuedAt: new Date(), headers: {} }
  publish('outbox.delivered', { ...dispatcher, shard: 0, events: [event], tookMs: 5 })
  publish('outbox.sinkDown', { ...dispatcher, sink: 'kafka', reason: 'refused' })
}

describe('metrics', () => {
  test('records times in seconds, and counts each operation of a call once', async () => {
    start()
    const keys = ['Order:1', 'Order:2']
    publish('lock.acquired', { schema, keys, sharedKeys: ['Book:1'], waitMs: 20, contended: false, attempt: 1 })
    publish('lock.released', { ...order, holdMs: 250, outcome: 'committed' })
    expect(await seen('lockstep.lock.wait.duration')).toEqual([
      [{ 'lockstep.operation': 'Order' }, { count: 1, sum: 0.02 }],
      [{ 'lockstep.operation': 'Book' }, { count: 1, sum: 0.02 }],
    ])
    expect(await seen('lockstep.lock.hold.duration')).toEqual([
      [
        { 'lockstep.operation': 'Order', 'lockstep.outcome': 'committed' },
        { count: 1, sum: 0.25 },
      ],
    ])
    const [wait] = await points('lockstep.lock.wait.duration')
    expect(wait?.boundaries?.slice(0, 2)).toEqual([0.001, 0.0025])
  })

  test('records a retry without a key or a code under fixed names', async () => {
    start()
    publish('transaction.retried', { schema, keys: [], attempt: 1, delayMs: 5, error: undefined, reason: undefined })
    expect(await seen('lockstep.transaction.retries')).toEqual([
      [{ 'lockstep.operation': 'none', 'lockstep.reason': 'connection' }, 1],
    ])
  })

  test('keeps the state of shards and sinks over repeated events', async () => {
    start()
    const dispatcher = { schema, dispatcher: 'default' }
    const shards = async (): Promise<unknown> => (await seen('lockstep.outbox.shards'))[0]?.[1]
    const down = async (): Promise<unknown> => (await seen('lockstep.outbox.sinks_down'))[0]?.[1]
    for (const shard of [0, 1, 1]) publish('outbox.shardTaken', { ...dispatcher, shard, fence: 1n })
    for (const reason of ['a', 'b']) publish('outbox.sinkDown', { ...dispatcher, sink: 'kafka', reason })
    expect([await shards(), await down()]).toEqual([2, 1])
    publish('outbox.sinkUp', { ...dispatcher, sink: 'kafka', reason: '' })
    publish('outbox.sinkUp', { ...dispatcher, sink: 'kafka', reason: '' })
    expect(await down()).toBe(0)
    publish('outbox.sinkDown', { ...dispatcher, sink: 'kafka', reason: 'c' })
    for (const shard of [0, 1]) publish('outbox.shardLeft', { ...dispatcher, shard, fence: 1n })
    expect([await shards(), await down()]).toEqual([0, 0])
  })

  test('limits attribute values, and records the rest as `other`', async () => {
    start({ maxAttributeValues: 2 })
    for (const name of ['A', 'B', 'C', 'D']) publish('lock.timedOut', { ...timedOut(`${name}:1`) })
    expect(await seen('lockstep.lock.timeouts')).toEqual([
      [{ 'lockstep.operation': 'A' }, 1],
      [{ 'lockstep.operation': 'B' }, 1],
      [{ 'lockstep.operation': 'other' }, 2],
    ])
    for (const maxAttributeValues of [0, 1.5, Number.NaN])
      expect(() => lockstepTelemetry(api, { maxAttributeValues })).toThrow(RangeError)
  })

  test('never records a key as an attribute', async () => {
    start({ keys: true })
    publishEverything()
    for (const { attributes } of await points()) expect(Object.values(attributes)).not.toContain('Order:1')
  })
})

function timedOut(key: string): EventMessage<'lock.timedOut'> {
  return { schema, keys: [key], sharedKeys: [], noWait: false, waitedMs: 1, waitedFor: 'server', holders: [] }
}

describe('spans', () => {
  const names = (): string[] => spans.getFinishedSpans().map(({ name }) => name)

  test('contain neither keys nor messages of the sink without `keys`', () => {
    start()
    publishEverything()
    const said = JSON.stringify(spans.getFinishedSpans().map(({ attributes, events: told }) => [attributes, told]))
    for (const secret of ['Order:1', 'Account:1', 'Lease:1', '"42"', 'Ann']) expect(said).not.toContain(secret)
    expect(said).toContain('"lockstep.operations":["Order"]')
  })

  test('contain keys and messages of the sink with `keys`', () => {
    start({ keys: true })
    publishEverything()
    const said = JSON.stringify(spans.getFinishedSpans().map(({ attributes }) => attributes))
    for (const wanted of ['Order:1', 'Account:1', 'Lease:1', '"42"', 'Ann']) expect(said).toContain(wanted)
  })

  test('end on stop(), and no new ones begin', () => {
    const stop = start()
    const lease = { schema, key: 'Lease:1', holder: 'me', fence: 7n }
    publish('lease.acquired', { ...lease, waitedMs: 0 })
    publish('outbox.sinkDown', { schema, dispatcher: 'default', sink: 'kafka', reason: 'refused' })
    expect(names()).toEqual(['lockstep.lease.wait'])
    stop()
    stop()
    expect(names()).toEqual(['lockstep.lease.wait', 'lockstep.lease.hold', 'lockstep.outbox.sink_down'])
    publish('lease.acquired', { ...lease, waitedMs: 0 })
    expect(names()).toHaveLength(3)
  })

  test('mark a lost lease as failed, but not a released one', () => {
    start()
    for (const [fence, reason] of [
      [1n, 'taken away'],
      [2n, 'closed'],
    ] as const) {
      const lease = { schema, key: 'Lease:1', holder: 'me', fence }
      publish('lease.acquired', { ...lease, waitedMs: 0 })
      publish('lease.lost', { ...lease, heldMs: 1, reason })
    }
    const held = spans.getFinishedSpans().filter(({ name }) => name === 'lockstep.lease.hold')
    expect(held.map(({ attributes, status }) => [attributes['lockstep.reason'], status.code])).toEqual([
      ['taken away', api.SpanStatusCode.ERROR],
      ['closed', api.SpanStatusCode.UNSET],
    ])
  })

  test('records no metrics or no spans if disabled', async () => {
    start({ tracerProvider: false })
    publishEverything()
    expect(names()).toEqual([])
    expect(await seen('lockstep.lock.timeouts')).toHaveLength(1)
  })

  test('does not subscribe to rows.outOfOrder, which would enable its guard', () => {
    start()
    expect(events['lock.acquired'].hasSubscribers).toBe(true)
    expect(events['rows.outOfOrder'].hasSubscribers).toBe(false)
  })
})

test('queries the lag of all dispatchers once per collection, and not after stop()', async () => {
  let asked = 0
  const shards = [lagOf('default', 3, 1500, 1), lagOf('default', 4, 500, 2), lagOf('mails', 0, 0, 0)]
  const stop = start({
    outbox: {
      status: async () => {
        asked++
        return { shards }
      },
    },
  })
  const dispatcher = (name: string): api.Attributes => ({ 'lockstep.dispatcher': name })
  const found = await points()
  const of = (name: string): unknown =>
    found.filter((each) => each.name === name).map(({ attributes, value }) => [attributes, value])
  expect(of('lockstep.outbox.lag')).toEqual([
    [dispatcher('default'), 1.5],
    [dispatcher('mails'), 0],
  ])
  expect(of('lockstep.outbox.lag.events')).toEqual([
    [dispatcher('default'), 7],
    [dispatcher('mails'), 0],
  ])
  expect(of('lockstep.outbox.parked_streams')).toEqual([
    [dispatcher('default'), 3],
    [dispatcher('mails'), 0],
  ])
  expect(asked).toBe(1)
  stop()
  await points()
  expect(asked).toBe(1)
})

const GUARD = { table: 'public.accounts', key: 'Account:{id}', state: 'disabled', unlocked: 3, listed: 2, refused: 1 }

test('queries what guards have counted, and not after stop()', async () => {
  let asked = 0
  const list = async (): Promise<(typeof GUARD)[]> => (asked++, [GUARD])
  const stop = start({ guards: { list } })
  const found = (await points()).filter(({ name }) => name.startsWith('lockstep.guard.'))
  const which = { 'lockstep.table': 'public.accounts', 'lockstep.guard': 'Account:{id}' }
  expect(found.map(({ attributes, value }) => [attributes, value])).toEqual([
    [{ ...which, 'lockstep.result': 'unlocked' }, 3],
    [{ ...which, 'lockstep.result': 'listed' }, 2],
    [{ ...which, 'lockstep.result': 'refused' }, 1],
    [which, 1],
  ])
  expect(asked).toBe(1)
  stop()
  await points()
  expect(asked).toBe(1)
})

describe('docs/reference/otel.md', () => {
  const page = readFileSync(new URL('../../docs/reference/otel.md', import.meta.url), 'utf8')

  test('lists the metrics with type, unit and attributes, and no others', async () => {
    start({
      outbox: { status: async () => ({ shards: [lagOf('default', 3, 1500, 1)] }) },
      guards: { list: async () => [GUARD] },
    })
    publishEverything()
    const told = [...page.matchAll(/^\| `(lockstep\.[\w.]+)` \| (\w+) \| `([^`]+)` \| ([^|]*) \|/gm)].map(
      ([, name, type, unit, attributes = '']) => ({ name, type, unit, attributes: namesIn(attributes) }),
    )
    expect(told).toHaveLength(41)
    const made = (await points()).map(({ name, type, unit, attributes }) => ({
      name,
      type,
      unit,
      attributes: Object.keys(attributes),
    }))
    // A metric is there as soon as it has a value, in the order of their making. Some have several.
    const names = made.map(({ name }) => name)
    expect(made.filter(({ name }, place) => names.indexOf(name) === place)).toEqual(told)
  })

  test('lists the spans and their attributes, and no others', () => {
    const stop = start({ keys: true })
    publishEverything()
    stop()
    const finished = spans.getFinishedSpans()
    const section = page.slice(page.indexOf('## The spans'), page.indexOf('## From the writer'))
    const [spanTable = '', table = ''] = section.split('| attribute |')
    const told = [...spanTable.matchAll(/^\| `(lockstep\.[\w.]+)` \|/gm)].map(([, name]) => name)
    expect(told).toHaveLength(12)
    expect(new Set(finished.map(({ name }) => name))).toEqual(new Set(told))
    const toldAttributes = [...table.matchAll(/^\| ([^|]*) \|/gm)].flatMap(([, cell = '']) => namesIn(cell))
    const used = new Set(finished.flatMap(({ attributes }) => Object.keys(attributes)))
    used.delete('error.type')
    expect(used).toEqual(new Set(toldAttributes))
  })

  test('names the failures', () => {
    start()
    publishEverything()
    const types = spans.getFinishedSpans().flatMap(({ attributes }) => attributes['error.type'] ?? [])
    expect(types.length).toBeGreaterThan(5)
    for (const type of types) expect(page).toContain(`\`${type as string}\``)
  })
})

function namesIn(cell: string): string[] {
  return [...cell.matchAll(/`([\w.]+)`/g)].map(([, name = '']) => name)
}
