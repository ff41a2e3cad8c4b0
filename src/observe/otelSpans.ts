import type { EventMessage } from './events.ts'
import { operationOf } from './labelBound.ts'
import {
  type Attributes,
  type OpenTelemetryApi,
  type OpenTelemetrySpan,
  type OpenTelemetryTracerProvider,
  SPAN_KIND,
  type SpanLink,
  STATUS_ERROR,
} from './otelApi.ts'
import type { Subscribe } from './otelMetrics.ts'

type Tracer = ReturnType<OpenTelemetryTracerProvider['getTracer']>

/** What SDKs keep of a span's links by default. */
const MAX_LINKS = 128
/** How many leases may be open spans at a time; of those beyond, only the wait is recorded. */
const MAX_OPEN_LEASES = 10_000

/** What is known of a call between its events. */
interface CallSoFar {
  contended?: { readonly at: number; readonly where: string }
  slow?: { readonly at: number; readonly waitedFor: string; readonly pids: readonly string[] }
  /** The attempt that is in progress, and since when it asked. */
  span?: OpenTelemetrySpan
  startedAt?: number
  waitMs?: number
  /** The attempt that failed before. */
  previous?: SpanLink
}

/**
 * Reports what happens as spans.
 *
 * Events are published when something has ended, in the asynchronous context of the caller: so a span is made with a beginning
 * in the past, below the span that is active there. Only leases, and sinks that are down, are open spans meanwhile.
 *
 * The events of one call have the very same list of keys in them; that is how they are put together.
 */
export function telemetrySpans(
  api: OpenTelemetryApi,
  tracer: Tracer,
  withKeys: boolean,
  subscribe: Subscribe,
): () => void {
  const writer = new SpanWriter(api, tracer, withKeys)
  transactionSpans(writer, subscribe)
  const endLeases = leaseSpans(writer, subscribe)
  const endSinks = outboxSpans(writer, subscribe)
  consumerSpans(writer, subscribe)
  return () => {
    endLeases()
    endSinks()
  }
}

function transactionSpans(writer: SpanWriter, subscribe: Subscribe): void {
  const calls = new WeakMap<readonly string[], CallSoFar>()
  const callOf = (keys: readonly string[]): CallSoFar => {
    let call = calls.get(keys)
    if (call === undefined) calls.set(keys, (call = {}))
    return call
  }

  /** The span of an attempt that began to wait this long ago, with the wait in it. */
  const begin = (
    message: EventMessage<'lock.requested'>,
    waitMs: number,
    more: Attributes,
    failure?: string,
  ): OpenTelemetrySpan => {
    const { keys, sharedKeys } = message
    const call = callOf(keys)
    const now = Date.now()
    const startedAt = now - waitMs
    const attributes = { ...writer.who(message.schema, keys, sharedKeys), ...more }
    const span = writer.start('lockstep.transaction', attributes, {
      startedAt,
      links: call.previous === undefined ? [] : [call.previous],
    })
    const wait = writer.start('lockstep.lock.wait', attributes, { startedAt, below: span })
    if (call.contended !== undefined)
      wait.addEvent('lockstep.lock.contended', { 'lockstep.where': call.contended.where }, call.contended.at)
    if (call.slow !== undefined) {
      const { at, waitedFor, pids } = call.slow
      wait.addEvent('lockstep.lock.slow', { 'lockstep.waited_for': waitedFor, 'lockstep.holder.pids': [...pids] }, at)
    }
    if (failure !== undefined) writer.fail(wait, failure)
    wait.end(now)
    calls.set(keys, { span, startedAt, waitMs })
    return span
  }
  const end = (message: EventMessage<'lock.requested'>, waitedMs: number, code: string, more: Attributes): void => {
    const span = begin(message, waitedMs, more, code)
    writer.fail(span, code)
    span.end()
    calls.delete(message.keys)
  }

  subscribe('lock.contended', ({ keys, where }) => void (callOf(keys).contended = { at: Date.now(), where }))
  subscribe('lock.slow', ({ keys, waitedFor, holders }) => {
    const call = callOf(keys)
    // It is published after the holders were asked for: the wait may be over by now.
    if (call.span !== undefined) return
    const pids = holders.flatMap(({ pid }) => (pid === undefined ? [] : [String(pid)]))
    call.slow = { at: Date.now(), waitedFor, pids }
  })
  subscribe('lock.acquired', (message) => {
    const { waitMs, contended, attempt } = message
    begin(message, waitMs, { 'lockstep.contended': contended, 'lockstep.attempt': attempt })
  })
  subscribe('lock.timedOut', (message) => {
    end(message, message.waitedMs, 'LOCKSTEP_LOCK_TIMEOUT', { 'lockstep.waited_for': message.waitedFor })
  })
  subscribe('lock.refused', (message) => end(message, 0, 'LOCKSTEP_QUEUE_FULL', {}))
  subscribe('lock.abandoned', (message) => end(message, message.waitedMs, 'LOCKSTEP_LOCK_ABORTED', {}))
  subscribe('lock.released', ({ keys, holdMs, outcome }) => {
    const { span, startedAt = 0, waitMs = 0 } = callOf(keys)
    if (span === undefined) return
    span.setAttribute('lockstep.outcome', outcome)
    if (outcome !== 'committed') writer.fail(span, outcome)
    span.end(startedAt + waitMs + holdMs)
    // Another attempt may follow; without one, the list of keys goes, and this with it.
    calls.set(keys, { previous: { context: span.spanContext() } })
  })
  subscribe('transaction.retried', ({ attempt, delayMs, reason }) => {
    const attributes: Attributes = { 'lockstep.attempt': attempt, 'lockstep.delay_ms': delayMs }
    if (reason !== undefined) attributes['lockstep.reason'] = reason
    writer.reportOnActiveSpan('lockstep.transaction.retried', attributes)
  })
  subscribe('commit.resolved', ({ schema, keys, outcome, tookMs }) => {
    const span = writer.start(
      'lockstep.commit.resolve',
      { ...writer.who(schema, keys), 'lockstep.outcome': outcome },
      { startedAt: Date.now() - tookMs },
    )
    if (outcome === 'unknown') writer.fail(span, 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN')
    span.end()
  })
  subscribe('combine.batch', ({ schema, key, size, waiting, tookMs, outcome }) => {
    const counts = { 'lockstep.batch.size': size, 'lockstep.batch.waiting': waiting, 'lockstep.outcome': outcome }
    const attributes = { ...writer.who(schema, [key]), ...counts }
    const span = writer.start('lockstep.combine.batch', attributes, { startedAt: Date.now() - tookMs })
    if (outcome !== 'committed') writer.fail(span, outcome)
    span.end()
  })
}

/** The answer ends those that are open. */
function leaseSpans(writer: SpanWriter, subscribe: Subscribe): () => void {
  // A lease may be lost in a timer without a context: its span is begun where it was granted.
  const open = new Map<string, OpenTelemetrySpan>()
  const nameOf = ({ schema, key, fence }: { schema: string; key: string; fence: bigint }): string =>
    `${schema}\0${key}\0${fence}`
  const take = (lease: { schema: string; key: string; fence: bigint }): OpenTelemetrySpan | undefined => {
    const span = open.get(nameOf(lease))
    open.delete(nameOf(lease))
    return span
  }
  const about = (schema: string, key: string, holder: string): Attributes => ({
    ...writer.who(schema, [key]),
    'lockstep.holder': holder,
  })

  subscribe('lease.acquired', (lease) => {
    const { schema, key, holder, fence, waitedMs } = lease
    const attributes = { ...about(schema, key, holder), 'lockstep.fence': String(fence) }
    const now = Date.now()
    writer.start('lockstep.lease.wait', attributes, { startedAt: now - waitedMs }).end(now)
    if (open.size < MAX_OPEN_LEASES)
      open.set(nameOf(lease), writer.start('lockstep.lease.hold', attributes, { startedAt: now }))
  })
  subscribe('lease.refused', ({ schema, key, holder, heldBy, leftMs, waits }) => {
    const attributes = { ...about(schema, key, holder), 'lockstep.left_ms': leftMs, 'lockstep.waits': waits }
    writer.reportOnActiveSpan(
      'lockstep.lease.refused',
      heldBy === undefined ? attributes : { ...attributes, 'lockstep.held_by': heldBy },
    )
  })
  subscribe('lease.renewed', (lease) => {
    // Those that went well would fill the span of a long lease, and say nothing.
    if (lease.outcome === 'unknown') open.get(nameOf(lease))?.addEvent('lockstep.lease.heartbeat_unanswered')
  })
  subscribe('lease.lost', (lease) => {
    const span = take(lease)
    if (span === undefined) return
    span.setAttribute('lockstep.reason', lease.reason)
    // A process that goes down in good order loses what it has: that is no failure.
    if (lease.reason !== 'closed') writer.fail(span, 'LOCKSTEP_LEASE_LOST')
    span.end()
  })
  subscribe('lease.released', (lease) => take(lease)?.end())
  return () => {
    for (const span of open.values()) span.end()
    open.clear()
  }
}

/** The answer ends those that are open. */
function outboxSpans(writer: SpanWriter, subscribe: Subscribe): () => void {
  const down = new Map<string, OpenTelemetrySpan>()
  const by = (schema: string, dispatcher: string): Attributes => ({
    'db.system.name': 'postgresql',
    'lockstep.schema': schema,
    'lockstep.dispatcher': dispatcher,
  })
  const isUp = ({ schema, dispatcher }: { schema: string; dispatcher: string }): void => {
    down.get(`${schema}\0${dispatcher}`)?.end()
    down.delete(`${schema}\0${dispatcher}`)
  }

  subscribe('outbox.delivered', (message) => {
    const { schema, dispatcher, shard, events, tookMs } = message
    const attributes: Attributes = {
      ...by(schema, dispatcher),
      'lockstep.shard': shard,
      'messaging.operation.type': 'send',
      'messaging.batch.message_count': events.length,
    }
    const topics = new Set(events.map(({ topic }) => topic))
    if (topics.size === 1) attributes['messaging.destination.name'] = [...topics].join('')
    const links = writer.linksTo(events)
    const how = { startedAt: Date.now() - tookMs, links, kind: SPAN_KIND.producer }
    writer.start('lockstep.outbox.deliver', attributes, how).end()
    isUp(message)
  })
  subscribe('outbox.parked', ({ schema, dispatcher, topic, key, seq, attempts, reason, state }) => {
    const attributes: Attributes = {
      ...by(schema, dispatcher),
      'messaging.destination.name': topic,
      'lockstep.attempts': attempts,
      'lockstep.state': state,
      ...writer.stream(key, seq, reason),
    }
    const span = writer.start('lockstep.outbox.parked', attributes, { startedAt: Date.now() })
    writer.fail(span, state)
    span.end()
  })
  subscribe('outbox.unparked', ({ schema, dispatcher, topic, key }) => {
    const attributes = { ...by(schema, dispatcher), 'messaging.destination.name': topic, ...writer.stream(key) }
    writer.start('lockstep.outbox.unparked', attributes, { startedAt: Date.now() }).end()
  })
  subscribe('outbox.sinkDown', ({ schema, dispatcher, sink }) => {
    const name = `${schema}\0${dispatcher}`
    if (down.has(name)) return
    const attributes = { ...by(schema, dispatcher), 'lockstep.sink': sink }
    const span = writer.start('lockstep.outbox.sink_down', attributes, { startedAt: Date.now() })
    writer.fail(span, 'sink_down')
    down.set(name, span)
  })
  subscribe('outbox.sinkUp', isUp)
  return () => {
    for (const span of down.values()) span.end()
    down.clear()
  }
}

/** A span for each event, below the span in which it was enqueued: the producer's trace continues. */
function consumerSpans(writer: SpanWriter, subscribe: Subscribe): void {
  const by = (schema: string, consumer: string, source: string): Attributes => ({
    'db.system.name': 'postgresql',
    'lockstep.schema': schema,
    'lockstep.consumer': consumer,
    'lockstep.source': source,
  })
  subscribe('consumer.applied', ({ schema, consumer, source, events, tookMs }) => {
    const now = Date.now()
    for (const event of events) {
      const attributes: Attributes = {
        ...by(schema, consumer, source),
        'messaging.operation.type': 'process',
        'messaging.destination.name': event.topic,
        'messaging.batch.message_count': events.length,
        ...writer.stream(event.key, event.seq),
      }
      writer.continueTrace('lockstep.consumer.apply', attributes, event.headers, now - tookMs).end(now)
    }
  })
  subscribe('consumer.stopped', ({ schema, consumer, source, topic, key, seq, kind, reason, attempts }) => {
    const attributes: Attributes = {
      ...by(schema, consumer, source),
      'messaging.destination.name': topic,
      'lockstep.attempts': attempts,
      ...writer.stream(key, seq, reason),
    }
    const span = writer.start('lockstep.consumer.stopped', attributes, { startedAt: Date.now() })
    writer.fail(span, kind)
    span.end()
  })
}

interface SpanDetails {
  readonly startedAt: number
  readonly below?: OpenTelemetrySpan
  readonly links?: SpanLink[]
  readonly kind?: number
}

/** Makes spans, and knows what may be said in them. */
class SpanWriter {
  readonly #api: OpenTelemetryApi
  readonly #tracer: Tracer
  readonly #withKeys: boolean

  constructor(api: OpenTelemetryApi, tracer: Tracer, withKeys: boolean) {
    this.#api = api
    this.#tracer = tracer
    this.#withKeys = withKeys
  }

  start(
    name: string,
    attributes: Attributes,
    { startedAt, below, links = [], kind = SPAN_KIND.internal }: SpanDetails,
  ): OpenTelemetrySpan {
    const { context, trace } = this.#api
    const parent = below === undefined ? context.active() : trace.setSpan(context.active(), below)
    return this.#tracer.startSpan(name, { kind, attributes, links, startTime: startedAt }, parent)
  }

  /** A span below the one that the headers name. */
  continueTrace(
    name: string,
    attributes: Attributes,
    headers: Readonly<Record<string, string>>,
    startedAt: number,
  ): OpenTelemetrySpan {
    const { context, propagation, trace } = this.#api
    const parent = propagation.extract(trace.deleteSpan(context.active()), headers)
    return this.#tracer.startSpan(
      name,
      { kind: SPAN_KIND.consumer, attributes, links: [], startTime: startedAt },
      parent,
    )
  }

  /** Whose locks they are: by their operations, and by their keys where that is wanted. */
  who(schema: string, keys: readonly string[], sharedKeys: readonly string[] = []): Attributes {
    const all = [...keys, ...sharedKeys]
    const who: Attributes = {
      'db.system.name': 'postgresql',
      'lockstep.schema': schema,
      'lockstep.operations': [...new Set(all.map(operationOf))],
    }
    if (this.#withKeys) who['lockstep.keys'] = all
    return who
  }

  stream(key: string, seq?: number, reason?: string): Attributes {
    if (!this.#withKeys) return {}
    const stream: Attributes = { 'lockstep.key': key }
    if (seq !== undefined) stream['lockstep.seq'] = seq
    if (reason !== undefined) stream['lockstep.reason'] = reason
    return stream
  }

  fail(span: OpenTelemetrySpan, type: string): void {
    span.setAttribute('error.type', type)
    span.setStatus({ code: STATUS_ERROR })
  }

  /** Records it in the span of the caller, if there is one. */
  reportOnActiveSpan(name: string, attributes: Attributes): void {
    this.#api.trace.getSpan(this.#api.context.active())?.addEvent(name, attributes)
  }

  /** To the spans in which the events were enqueued, as far as their headers tell. */
  linksTo(events: EventMessage<'outbox.delivered'>['events']): SpanLink[] {
    const { context: contexts, propagation, trace } = this.#api
    const nobody = trace.deleteSpan(contexts.active())
    const links = new Map<string, SpanLink>()
    for (const { headers } of events) {
      if (links.size >= MAX_LINKS) break
      const context = trace.getSpanContext(propagation.extract(nobody, headers))
      if (context !== undefined) links.set(`${context.traceId}/${context.spanId}`, { context })
    }
    return [...links.values()]
  }
}
