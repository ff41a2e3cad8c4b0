import * as api from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { consumedBrokers } from '../../tools/brokers/consumed.ts'
import { failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import type { BrokerConsumerOptions } from '../consumers/index.ts'
import { LeaseHeldError, LockAbortedError, LockTimeoutError } from '../errors.ts'
import type { Lockstep } from '../lockstep.ts'
import { perEvent } from '../outbox/index.ts'
import { on } from './events.ts'
import { lockstepTelemetry, traceHeaders } from './otel.ts'

const bench = await testBench()

const exporter = new InMemorySpanExporter()
const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 3_600_000 })
const meters = new MeterProvider({ readers: [reader] })

/** As W3C writes it; the real one is in a package that this one does not need. */
const propagator: api.TextMapPropagator = {
  inject(context, carrier, setter) {
    const span = api.trace.getSpanContext(context)
    if (span !== undefined) setter.set(carrier, 'traceparent', `00-${span.traceId}-${span.spanId}-01`)
  },
  extract(context, carrier, getter) {
    const [, traceId, spanId] = String(getter.get(carrier, 'traceparent')).split('-')
    if (traceId === undefined || spanId === undefined) return context
    return api.trace.setSpanContext(context, { traceId, spanId, traceFlags: 1, isRemote: true })
  },
  fields: () => ['traceparent'],
}

let stop = (): void => undefined

// Registered as an SDK does: what is tried is the way that a user goes.
beforeAll(() => {
  expect(api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())).toBe(true)
  expect(api.trace.setGlobalTracerProvider(tracers)).toBe(true)
  expect(api.metrics.setGlobalMeterProvider(meters)).toBe(true)
  expect(api.propagation.setGlobalPropagator(propagator)).toBe(true)
})
afterAll(async () => {
  await Promise.all([tracers.shutdown(), meters.shutdown()])
  for (const each of [api.context, api.trace, api.metrics, api.propagation]) each.disable()
})
beforeEach(() => {
  exporter.reset()
  stop = lockstepTelemetry(api)
})
afterEach(() => stop())

/** Runs it as a request that has a span of its own. */
function inRequest<T>(name: string, work: () => Promise<T>): Promise<T> {
  return tracers.getTracer('test').startActiveSpan(name, async (span) => {
    try {
      return await work()
    } finally {
      span.end()
    }
  })
}

function finished(name: string): ReadableSpan[] {
  return exporter.getFinishedSpans().filter((span) => span.name === name)
}

function one(name: string): ReadableSpan {
  const found = finished(name)
  expect(found, name).toHaveLength(1)
  return found[0] as ReadableSpan
}

const idOf = (span: ReadableSpan): string => span.spanContext().spanId
const parentOf = (span: ReadableSpan): string | undefined => span.parentSpanContext?.spanId
const msOf = ([seconds, nanoseconds]: api.HrTime): number => seconds * 1e3 + nanoseconds / 1e6

test('puts transaction and wait below the span of their caller', async () => {
  const { lockstep } = bench.open('pg', { slowWaitMs: 10 })
  const [held, leave, slow] = [signal(), signal(), signal()]
  const first = inRequest('first', () =>
    lockstep.transaction({ lock: 'Order:1' }, async () => {
      held.give()
      await leave.given
    }),
  )
  await held.given
  const unwatch = on('lock.slow', () => slow.give())
  const second = inRequest('second', () => lockstep.transaction({ lock: 'Order:1' }, async () => undefined))
  await slow.given
  unwatch()
  leave.give()
  await Promise.all([first, second])

  const transactions = finished('lockstep.transaction')
  expect(transactions.map(parentOf)).toEqual([idOf(one('first')), idOf(one('second'))])
  const waits = finished('lockstep.lock.wait')
  expect(waits.map(parentOf)).toEqual(transactions.map(idOf))
  expect(transactions.map(({ attributes }) => attributes['lockstep.contended'])).toEqual([false, true])
  expect(transactions.map(({ attributes }) => attributes['lockstep.outcome'])).toEqual(['committed', 'committed'])
  const [ofFirst, ofSecond] = waits.map(({ events }) => events.map(({ name }) => name))
  expect(ofFirst).not.toContain('lockstep.lock.contended')
  expect(ofSecond).toEqual(['lockstep.lock.contended', 'lockstep.lock.slow'])
  // The second waited for as long as the first held.
  const [firstMs = 0, secondMs = 0] = waits.map(({ duration }) => msOf(duration))
  expect(secondMs).toBeGreaterThan(10)
  expect(firstMs).toBeLessThan(msOf((transactions[0] as ReadableSpan).duration))
})

test('links a retry with the attempt before', async () => {
  const { lockstep } = bench.open('pg')
  await bench.admin.query(`INSERT INTO notes VALUES ('a')`)
  let attempts = 0
  await inRequest('request', () =>
    lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async (tx) => {
      await tx.query('SELECT count(*) FROM notes')
      // Changed by another session after the snapshot: 40001.
      if (++attempts === 1) await bench.admin.query(`UPDATE notes SET id = 'b'`)
      await tx.query(`UPDATE notes SET id = 'c'`)
    }),
  )
  const [failed, succeeded] = finished('lockstep.transaction') as [ReadableSpan, ReadableSpan]
  expect(failed).toMatchObject({
    status: { code: api.SpanStatusCode.ERROR },
    attributes: { 'lockstep.attempt': 1, 'lockstep.outcome': 'rolledBack', 'error.type': 'rolledBack' },
    links: [],
  })
  expect(succeeded.attributes).toMatchObject({ 'lockstep.attempt': 2, 'lockstep.outcome': 'committed' })
  expect(succeeded.links.map(({ context }) => context.spanId)).toEqual([idOf(failed)])
  const request = one('request')
  expect([parentOf(failed), parentOf(succeeded)]).toEqual([idOf(request), idOf(request)])
  expect(request.events).toMatchObject([
    { name: 'lockstep.transaction.retried', attributes: { 'lockstep.attempt': 1, 'lockstep.reason': '40001' } },
  ])
})

test('records a timeout, and a wait that its caller gives up', async () => {
  const [holder, waiter] = [bench.open('pg'), bench.open('pg')]
  const [held, leave] = [signal(), signal()]
  const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  // Warm, so that the time is spent at the server and not on connecting.
  await waiter.lockstep.transaction({}, async () => undefined)
  // The holder's own wait.
  exporter.reset()
  const late = inRequest('late', () =>
    failureOf(waiter.lockstep.transaction({ lock: 'Order:1', waitMs: 50 }, async () => undefined)),
  )
  expect(await late).toBeInstanceOf(LockTimeoutError)
  expect(one('lockstep.transaction')).toMatchObject({
    status: { code: api.SpanStatusCode.ERROR },
    attributes: { 'error.type': 'LOCKSTEP_LOCK_TIMEOUT', 'lockstep.waited_for': 'server' },
  })
  expect(parentOf(one('lockstep.transaction'))).toBe(idOf(one('late')))
  expect(msOf(one('lockstep.lock.wait').duration)).toBeGreaterThan(45)
  exporter.reset()
  const abort = new AbortController()
  const given = { lock: 'Order:1', signal: abort.signal } as const
  const impatient = inRequest('impatient', () => failureOf(waiter.lockstep.transaction(given, async () => undefined)))
  await bench.waiters(1)
  abort.abort()
  expect(await impatient).toBeInstanceOf(LockAbortedError)
  expect(one('lockstep.lock.wait').attributes['error.type']).toBe('LOCKSTEP_LOCK_ABORTED')
  expect(parentOf(one('lockstep.transaction'))).toBe(idOf(one('impatient')))
  leave.give()
  await first
})

test('records a COMMIT whose answer is lost', async () => {
  const proxy = await bench.proxy()
  const { lockstep } = bench.open('pg', { url: proxy.url(bench.url) })
  await inRequest('request', () =>
    lockstep.transaction({ lock: 'Order:1' }, async () => {
      proxy.onServerData((chunk) => {
        if (!chunk.includes('COMMIT\0')) return 'forward'
        proxy.onServerData(undefined)
        return 'cut-before'
      })
    }),
  )
  expect(one('lockstep.transaction').attributes['lockstep.outcome']).toBe('unknown')
  expect(one('lockstep.commit.resolve').attributes['lockstep.outcome']).toBe('committed')
  expect(parentOf(one('lockstep.commit.resolve'))).toBe(idOf(one('request')))
})

test('puts a lease below the span of its caller, also when a timer finds it lost', async () => {
  const [holder, other] = [bench.open('pg').lockstep, bench.open('pg').lockstep]
  const lease = await inRequest('taker', () => holder.leases.acquire('Instance:1', { ttlMs: 3000 }))
  const refused = inRequest('refused', () => failureOf(other.leases.acquire('Instance:1')))
  expect(await refused).toBeInstanceOf(LeaseHeldError)
  expect(one('refused').events).toMatchObject([{ name: 'lockstep.lease.refused' }])
  await other.leases.forceRelease('Instance:1', { by: 'the test', reason: 'to see it told' })
  await expect.poll(() => finished('lockstep.lease.hold')).toHaveLength(1)
  const held = one('lockstep.lease.hold')
  expect(held).toMatchObject({
    status: { code: api.SpanStatusCode.ERROR },
    attributes: {
      'error.type': 'LOCKSTEP_LEASE_LOST',
      'lockstep.reason': 'taken away',
      'lockstep.operations': ['Instance'],
    },
  })
  expect(parentOf(held)).toBe(idOf(one('taker')))
  await lease.release()
  await inRequest('orderly', () => other.lease('Instance:1', {}, async () => Promise.resolve()))
  const [, second] = finished('lockstep.lease.hold')
  expect(second).toMatchObject({ status: { code: api.SpanStatusCode.UNSET } })
  expect(parentOf(second as ReadableSpan)).toBe(idOf(one('orderly')))
})

test('links a delivery with the span that enqueued the event', async () => {
  const { lockstep } = bench.open('pg', { max: 6, eventHeaders: () => traceHeaders(api) })
  await inRequest('writer', () =>
    lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: 1 })
      await tx.enqueue({ topic: 'trades', key: 'b', payload: 2 })
    }),
  )
  const stopping = new AbortController()
  const sink = perEvent({}, ({ key }) => {
    if (key === 'b') throw new Error('not this one')
  })
  const run = lockstep.outbox.dispatcher({ sink, shards: 1, attempts: 2, backoffMs: { first: 5 } })
  const running = run.run({ signal: stopping.signal })
  await expect.poll(() => finished('lockstep.outbox.parked').length).toBeGreaterThan(1)
  const delivery = one('lockstep.outbox.deliver')
  expect(delivery).toMatchObject({
    kind: api.SpanKind.PRODUCER,
    attributes: { 'messaging.batch.message_count': 1, 'messaging.destination.name': 'trades' },
  })
  expect(delivery.links.map(({ context }) => context.spanId)).toEqual([idOf(one('writer'))])
  const states = finished('lockstep.outbox.parked').map(({ attributes }) => attributes['lockstep.state'])
  expect(states).toEqual(['parked', 'blocked'])
  stopping.abort()
  await running
})

/** Two events, each in a trace of its own. */
async function enqueueInTwoTraces(lockstep: Lockstep, topic: string): Promise<void> {
  for (const key of ['a', 'b']) {
    await inRequest(`writer ${key}`, () =>
      lockstep.transaction({}, (tx) => tx.enqueue({ topic, key, payload: 1, headers: traceHeaders(api) })),
    )
  }
}

async function expectContinuedTraces(source: string): Promise<void> {
  await expect.poll(() => finished('lockstep.consumer.apply').length).toBe(2)
  const spans = finished('lockstep.consumer.apply')
  const writers = spans.map(({ attributes }) => one(`writer ${String(attributes['lockstep.key'])}`))
  expect(new Set(writers.map(idOf)).size).toBe(2)
  expect(spans.map(parentOf)).toEqual(writers.map(idOf))
  const traceOf = (span: ReadableSpan): string => span.spanContext().traceId
  expect(spans.map(traceOf)).toEqual(writers.map(traceOf))
  for (const span of spans) {
    expect(span).toMatchObject({ kind: api.SpanKind.CONSUMER, attributes: { 'lockstep.source': source } })
    // Another process has enqueued it.
    expect(span.parentSpanContext?.isRemote).toBe(true)
  }
}

test('links what lockstep.consumer() handles with the spans that enqueued it', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  await enqueueInTwoTraces(lockstep, 'traced')
  await using consumer = lockstep.consumer('traced', { topics: ['traced'], shards: 1 }, async () => undefined)
  const running = consumer.run()
  const links = (): ReadableSpan['links'] => finished('lockstep.outbox.deliver').flatMap((span) => span.links)
  await expect.poll(() => links().length).toBe(2)
  await consumer.stop()
  await running
  for (const { kind, attributes } of finished('lockstep.outbox.deliver')) {
    expect(kind).toBe(api.SpanKind.PRODUCER)
    expect(attributes).toMatchObject({ 'lockstep.dispatcher': 'traced', 'messaging.destination.name': 'traced' })
  }
  const name = ({ traceId, spanId }: api.SpanContext): string => `${traceId}/${spanId}`
  const writers = ['writer a', 'writer b'].map((writer) => name(one(writer).spanContext()))
  expect(new Set(links().map(({ context }) => name(context)))).toEqual(new Set(writers))
})

test('continues the trace of the producer in a consumer of a broker', async () => {
  stop()
  stop = lockstepTelemetry(api, { keys: true })
  const tested = consumedBrokers.redis
  const redis = await tested.broker.run()
  bench.cleanUp(() => redis.stop())
  const connected = await tested.broker.connect(redis.address, { timeoutMs: 10_000 })
  bench.cleanUp(() => connected.end())
  const { lockstep } = bench.open('pg', { max: 8 })
  await enqueueInTwoTraces(lockstep, 'sent')
  const stopping = new AbortController()
  const dispatching = lockstep.outbox
    .dispatcher({ sink: connected.sink, shards: 1, topics: ['sent'] })
    .run({ signal: stopping.signal })
  const options = { lockstep } as unknown as BrokerConsumerOptions
  const consumer = await tested.open(redis.address, 'traced', 'sent', options, async () => undefined)
  bench.cleanUp(() => consumer.end?.())
  const running = consumer.run({ signal: stopping.signal })
  await expectContinuedTraces('redis')
  stopping.abort()
  await Promise.all([dispatching, running])
})

test('sends metrics to the registered meter', async () => {
  const { lockstep } = bench.open('pg')
  await lockstep.transaction({ lock: 'Metric:1' }, async () => undefined)
  const { resourceMetrics } = await reader.collect()
  const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  const counts = ['lockstep.lock.wait.duration', 'lockstep.lock.hold.duration'].map((name) => {
    const points = metrics.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []
    const ours = points.find(({ attributes }) => attributes['lockstep.operation'] === 'Metric')
    return (ours?.value as { count: number } | undefined)?.count
  })
  expect(counts).toEqual([1, 1])
})
