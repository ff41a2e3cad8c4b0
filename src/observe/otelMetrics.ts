import type { EventMessage, EventName } from './events.ts'
import { FreshAnswer } from './freshAnswer.ts'
import { GUARD_INACTIVE, GUARD_RESULTS, GUARD_WRITES, type GuardCounts, type GuardsToWatch } from './guardCounts.ts'
import { LabelBound, operationOf, OTHER } from './labelBound.ts'
import type { Attributes, GaugeCallback, OpenTelemetryMeter } from './otelApi.ts'
import { type DispatcherLag, OutboxLag, type OutboxToWatch } from './outboxLag.ts'

/** Listens to one event for as long as the telemetry is on. */
export type Subscribe = <Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void) => void

/** The operation of a transaction that has no key. */
const NONE = 'none'
/** Why an attempt failed where the driver gave no code, which it does only for a lost connection. */
const NO_CODE = 'connection'

// OpenTelemetry's own boundaries are made for milliseconds: in seconds nearly all of these times would be in its first bucket.
/** From a millisecond, about the quickest transaction, to half a minute, the default of `waitMs`. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
/** From a lease of one short request to a leader's of an hour. */
const LEASE_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600]
/** From an event that is sent at once to one that has waited for an hour. */
const LATENCY_SECONDS = [...SECONDS, 60, 300, 900, 3600]
/** From one call, where combining is of no use, to the default of `maxBatch`. */
const CALLS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

/** Counts and times what locks, transactions, leases and the outbox do. */
export function telemetryMetrics(meter: OpenTelemetryMeter, maxValues: number, subscribe: Subscribe): void {
  const metrics = makeMetrics(meter)
  const operations = new LabelBound(maxValues)
  const reasons = new LabelBound(maxValues)
  const prefixes = new LabelBound(maxValues)
  /** Each operation once, however many of the keys are of it. */
  const whose = (keys: readonly string[], sharedKeys: readonly string[] = []): Attributes[] => {
    const all = new Set([...keys, ...sharedKeys].map((key) => operations.bounded(operationOf(key))))
    return (all.size === 0 ? [NONE] : [...all]).map((operation) => ({ 'lockstep.operation': operation }))
  }

  subscribe('lock.acquired', ({ keys, sharedKeys, waitMs }) => {
    for (const who of whose(keys, sharedKeys)) metrics.wait.record(waitMs / 1000, who)
  })
  subscribe('lock.released', ({ keys, sharedKeys, holdMs, outcome }) => {
    for (const who of whose(keys, sharedKeys))
      metrics.hold.record(holdMs / 1000, { ...who, 'lockstep.outcome': outcome })
  })
  subscribe('lock.contended', ({ keys, sharedKeys, where }) => {
    for (const who of whose(keys, sharedKeys)) metrics.contentions.add(1, { ...who, 'lockstep.where': where })
  })
  subscribe('lock.timedOut', ({ keys, sharedKeys, noWait }) => {
    for (const who of whose(keys, sharedKeys)) (noWait ? metrics.busy : metrics.timeouts).add(1, who)
  })
  subscribe('lock.refused', ({ keys, sharedKeys }) => {
    for (const who of whose(keys, sharedKeys)) metrics.lockRefused.add(1, who)
  })
  subscribe('lock.abandoned', ({ keys, sharedKeys }) => {
    for (const who of whose(keys, sharedKeys)) metrics.abandoned.add(1, who)
  })
  subscribe('lock.slow', ({ keys, sharedKeys }) => {
    for (const who of whose(keys, sharedKeys)) metrics.slow.add(1, who)
  })
  subscribe('lock.wouldWait', ({ key, waitMs }) => {
    for (const who of whose([key])) metrics.wouldWait.record(waitMs / 1000, who)
  })
  subscribe('transaction.retried', ({ keys, reason = NO_CODE }) => {
    const shown = reasons.bounded(reason)
    for (const who of whose(keys)) metrics.retries.add(1, { ...who, 'lockstep.reason': shown })
  })
  subscribe('commit.resolved', ({ keys, outcome }) => {
    for (const who of whose(keys)) metrics.resolved.add(1, { ...who, 'lockstep.outcome': outcome })
  })
  subscribe('rollout.switchedBack', ({ prefix, trigger }) =>
    metrics.switchedBack.add(1, { 'lockstep.prefix': prefixes.bounded(prefix), 'lockstep.trigger': trigger }),
  )
  subscribe('rollout.duplicateFound', ({ key, mode }) => {
    for (const who of whose([key])) metrics.duplicates.add(1, { ...who, 'lockstep.mode': mode })
  })
  subscribe('combine.batch', ({ key, size, waitedMs }) => {
    for (const who of whose([key])) {
      metrics.batchSize.record(size, who)
      metrics.batchWait.record(waitedMs / 1000, who)
    }
  })
  subscribe('combine.refused', ({ key }) => {
    for (const who of whose([key])) metrics.combineRefused.add(1, who)
  })
  subscribe('lease.acquired', ({ key, waitedMs }) => {
    for (const who of whose([key])) metrics.leaseWait.record(waitedMs / 1000, who)
  })
  subscribe('lease.refused', ({ key }) => {
    for (const who of whose([key])) metrics.leaseRefused.add(1, who)
  })
  subscribe('lease.slow', ({ key }) => {
    for (const who of whose([key])) metrics.leaseSlow.add(1, who)
  })
  subscribe('lease.wouldWait', ({ key, waitMs, granted }) => {
    for (const who of whose([key])) {
      metrics.leaseWouldWait.record(waitMs / 1000, who)
      if (!granted) metrics.leaseWouldRefuse.add(1, who)
    }
  })
  subscribe('lease.unreachable', ({ key }) => {
    for (const who of whose([key])) metrics.leaseUnreachable.add(1, who)
  })
  subscribe('lease.renewed', ({ key, outcome }) => {
    for (const who of whose([key])) metrics.leaseRenewals.add(1, { ...who, 'lockstep.outcome': outcome })
  })
  subscribe('lease.lost', ({ key, heldMs, reason }) => {
    for (const who of whose([key])) {
      metrics.leaseLost.add(1, { ...who, 'lockstep.reason': reason })
      metrics.leaseHold.record(heldMs / 1000, who)
    }
  })
  subscribe('lease.released', ({ key, heldMs }) => {
    for (const who of whose([key])) metrics.leaseHold.record(heldMs / 1000, who)
  })
  outboxMetrics(metrics, maxValues, subscribe)
  consumerMetrics(metrics, maxValues, subscribe)
  // Not `rows.outOfOrder`: a listener makes every lockRows() ask for more columns.
}

function consumerMetrics(metrics: Metrics, maxValues: number, subscribe: Subscribe): void {
  const consumers = new LabelBound(maxValues)
  const topics = new LabelBound(maxValues)
  const by = (consumer: string, source: string): Attributes => ({
    'lockstep.consumer': consumers.bounded(consumer),
    'lockstep.source': source,
  })
  subscribe('consumer.applied', ({ consumer, source, events }) => {
    for (const { topic } of events)
      metrics.applied.add(1, { ...by(consumer, source), 'lockstep.topic': topics.bounded(topic) })
  })
  subscribe('consumer.stopped', ({ consumer, source, topic, kind }) =>
    metrics.stopped.add(1, { ...by(consumer, source), 'lockstep.topic': topics.bounded(topic), 'lockstep.kind': kind }),
  )
  subscribe('consumer.failed', ({ consumer, source }) => metrics.consumerFailures.add(1, by(consumer, source)))
}

/** The attribute is the topic, never the key: keys are without number. */
function outboxMetrics(metrics: Metrics, maxValues: number, subscribe: Subscribe): void {
  const dispatchers = new LabelBound(maxValues)
  const topics = new LabelBound(maxValues)
  const by = (dispatcher: string): Attributes => ({ 'lockstep.dispatcher': dispatchers.bounded(dispatcher) })
  const of = (dispatcher: string, topic: string): Attributes => ({
    ...by(dispatcher),
    'lockstep.topic': topics.bounded(topic),
  })
  const shards = new CurrentState((change, dispatcher) => metrics.shards.add(change, by(dispatcher)))
  const sinks = new CurrentState((change, dispatcher) => metrics.sinksDown.add(change, by(dispatcher)))

  subscribe('outbox.delivered', ({ schema, dispatcher, events, tookMs }) => {
    const now = Date.now()
    metrics.delivery.record(tookMs / 1000, by(dispatcher))
    for (const { topic, enqueuedAt } of events) {
      const what = of(dispatcher, topic)
      metrics.delivered.add(1, what)
      // The one clock is the database's, the other this machine's.
      metrics.latency.record(Math.max(0, now - enqueuedAt.getTime()) / 1000, what)
    }
    sinks.ends(schema, dispatcher)
  })
  subscribe('outbox.parked', ({ dispatcher, topic, state }) =>
    metrics.parked.add(1, { ...of(dispatcher, topic), 'lockstep.state': state }),
  )
  subscribe('outbox.unparked', ({ dispatcher, topic }) => metrics.unparked.add(1, of(dispatcher, topic)))
  subscribe('outbox.sinkDown', ({ schema, dispatcher }) => sinks.begins(schema, dispatcher))
  subscribe('outbox.sinkUp', ({ schema, dispatcher }) => sinks.ends(schema, dispatcher))
  subscribe('outbox.shardTaken', ({ schema, dispatcher, shard, fence }) =>
    shards.begins(schema, dispatcher, `${shard}/${fence}`),
  )
  subscribe('outbox.shardLeft', ({ schema, dispatcher, shard, fence }) => {
    shards.ends(schema, dispatcher, `${shard}/${fence}`)
    // It is no longer seen here what the sink does.
    if (!shards.has(schema, dispatcher)) sinks.ends(schema, dispatcher)
  })
  subscribe('outbox.failed', ({ dispatcher }) => metrics.failures.add(1, by(dispatcher)))
}

/** How far behind the dispatchers are, asked of the database when metrics are collected. The answer stops it. */
export function lagMetrics(meter: OpenTelemetryMeter, maxValues: number, outbox: OutboxToWatch): () => void {
  const lag = new OutboxLag(outbox)
  const dispatchers = new LabelBound(maxValues)
  const stops: (() => void)[] = []
  const show = (name: string, unit: string, description: string, valueOf: (lag: DispatcherLag) => number): void => {
    const gauge = meter.createObservableGauge(`lockstep.${name}`, { unit, description })
    const callback: GaugeCallback = async (result) => {
      for (const each of await lag.read())
        result.observe(valueOf(each), { 'lockstep.dispatcher': dispatchers.bounded(each.dispatcher) })
    }
    gauge.addCallback(callback)
    stops.push(() => gauge.removeCallback(callback))
  }
  show('outbox.lag', 's', 'The age of the oldest event that is committed and not delivered.', ({ seconds }) => seconds)
  show('outbox.lag.events', '{event}', 'Events that are committed and not delivered.', ({ events }) => events)
  show('outbox.parked_streams', '{stream}', 'Streams that wait.', ({ parkedStreams }) => parkedStreams)
  return () => {
    for (const stop of stops) stop()
  }
}

/** What guards have counted, the same way. */
export function guardMetrics(meter: OpenTelemetryMeter, maxValues: number, guards: GuardsToWatch): () => void {
  const counts = new FreshAnswer(() => guards.list())
  const tables = new LabelBound(maxValues)
  const stops: (() => void)[] = []
  const show = (name: string, unit: string, description: string, observe: Observe): void => {
    const gauge = meter.createObservableGauge(`lockstep.${name}`, { unit, description })
    const callback: GaugeCallback = async (result) => {
      for (const each of await counts.read()) {
        const table = tables.bounded(each.table)
        if (table === OTHER) continue
        observe(each, (value, more) =>
          result.observe(value, { 'lockstep.table': table, 'lockstep.guard': each.key, ...more }),
        )
      }
    }
    gauge.addCallback(callback)
    stops.push(() => gauge.removeCallback(callback))
  }
  show('guard.writes', '{row}', GUARD_WRITES, (each, tell) => {
    for (const result of GUARD_RESULTS) tell(each[result], { 'lockstep.result': result })
  })
  show('guard.inactive', '{guard}', GUARD_INACTIVE, ({ state }, tell) => tell(state === 'active' ? 0 : 1, {}))
  return () => {
    for (const stop of stops) stop()
  }
}

type Observe = (each: GuardCounts, tell: (value: number, more: Readonly<Record<string, string>>) => void) => void

/** What is so at present, of which each beginning and each end may be published more than once. */
class CurrentState {
  readonly #report: (change: 1 | -1, dispatcher: string) => void
  readonly #standing = new Map<string, Set<string>>()

  constructor(report: (change: 1 | -1, dispatcher: string) => void) {
    this.#report = report
  }

  has(schema: string, dispatcher: string): boolean {
    return this.#of(schema, dispatcher).size > 0
  }

  begins(schema: string, dispatcher: string, what = ''): void {
    const standing = this.#of(schema, dispatcher)
    if (standing.has(what)) return
    standing.add(what)
    this.#report(1, dispatcher)
  }

  ends(schema: string, dispatcher: string, what = ''): void {
    if (this.#of(schema, dispatcher).delete(what)) this.#report(-1, dispatcher)
  }

  #of(schema: string, dispatcher: string): Set<string> {
    const name = `${schema}\0${dispatcher}`
    let standing = this.#standing.get(name)
    if (standing === undefined) this.#standing.set(name, (standing = new Set()))
    return standing
  }
}

type Metrics = ReturnType<typeof makeMetrics>

// What each of them means is in docs/reference/otel.md, which a test compares with this list.
function makeMetrics(meter: OpenTelemetryMeter) {
  const counter = (name: string, unit: string, description: string) =>
    meter.createCounter(`lockstep.${name}`, { unit, description })
  const upDown = (name: string, unit: string, description: string) =>
    meter.createUpDownCounter(`lockstep.${name}`, { unit, description })
  const histogram = (name: string, unit: string, description: string, boundaries: readonly number[]) =>
    meter.createHistogram(`lockstep.${name}`, {
      unit,
      description,
      advice: { explicitBucketBoundaries: [...boundaries] },
    })
  return {
    wait: histogram('lock.wait.duration', 's', 'Time from the request of a lock to its grant.', SECONDS),
    hold: histogram('lock.hold.duration', 's', 'Time from the grant of a lock to the end of its transaction.', SECONDS),
    contentions: counter('lock.contentions', '{lock}', 'Locks that were not free at once.'),
    timeouts: counter('lock.timeouts', '{lock}', 'Locks that were not granted within waitMs.'),
    busy: counter('lock.busy', '{lock}', 'Locks that were only tried, and that another session held.'),
    lockRefused: counter('lock.refused', '{call}', 'Calls that were refused because too many waited.'),
    abandoned: counter('lock.abandoned', '{lock}', 'Waits that the caller gave up.'),
    slow: counter('lock.slow', '{lock}', 'Waits longer than the threshold for slow waits.'),
    wouldWait: histogram(
      'lock.would_wait.duration',
      's',
      'Time that a call would have waited for the lock of an observed key.',
      SECONDS,
    ),
    retries: counter('transaction.retries', '{attempt}', 'Attempts that failed and were retried.'),
    resolved: counter('commit.resolved', '{commit}', 'COMMITs whose answer was lost, by outcome.'),
    switchedBack: counter('rollout.switched_back', '{prefix}', 'Prefixes that a trigger switched back to observe.'),
    duplicates: counter('rollout.duplicates', '{duplicate}', 'Duplicates that were found.'),
    batchSize: histogram('combine.batch.size', '{call}', 'How many calls a batch served.', CALLS),
    batchWait: histogram(
      'combine.wait.duration',
      's',
      'How long the first call of a batch had waited for it to begin.',
      SECONDS,
    ),
    combineRefused: counter('combine.refused', '{call}', 'Combined calls that were refused because too many waited.'),
    leaseWait: histogram('lease.wait.duration', 's', 'Time from the request of a lease to its grant.', SECONDS),
    leaseHold: histogram('lease.hold.duration', 's', 'Time from the grant of a lease to its end.', LEASE_SECONDS),
    leaseRefused: counter('lease.refused', '{lease}', 'Requests for a lease that another caller held.'),
    leaseSlow: counter('lease.slow', '{lease}', 'Waits for a lease longer than the threshold for slow waits.'),
    leaseWouldWait: histogram(
      'lease.would_wait.duration',
      's',
      'Time that a call would have waited for the lease of an observed key.',
      SECONDS,
    ),
    leaseWouldRefuse: counter('lease.would_refuse', '{lease}', 'Observed calls that a lease would have refused.'),
    leaseUnreachable: counter(
      'lease.unreachable',
      '{question}',
      'Requests for a lease without an answer of the database.',
    ),
    leaseRenewals: counter('lease.renewals', '{heartbeat}', 'Heartbeats that were answered.'),
    leaseLost: counter('lease.lost', '{lease}', 'Leases that were lost.'),
    delivered: counter('outbox.delivered', '{event}', 'Events that the sink accepted.'),
    delivery: histogram('outbox.delivery.duration', 's', 'Time that the sink took for a batch.', SECONDS),
    latency: histogram('outbox.latency', 's', 'Time from enqueuing an event to its delivery.', LATENCY_SECONDS),
    parked: counter('outbox.parked', '{event}', 'Events that were not sent, by the state of their stream.'),
    unparked: counter('outbox.unparked', '{stream}', 'Streams that had waited and have caught up.'),
    sinksDown: upDown('outbox.sinks_down', '{sink}', 'Sinks that are down.'),
    shards: upDown('outbox.shards', '{shard}', 'Shards that this process owns.'),
    failures: counter('outbox.failures', '{failure}', 'Times that a dispatcher could not read or maintain its shards.'),
    applied: counter('consumer.applied', '{event}', 'Events that a consumer of a broker has applied.'),
    stopped: counter('consumer.stopped', '{event}', 'Events that a consumer could not apply, by reason.'),
    consumerFailures: counter('consumer.failures', '{failure}', 'Times that a consumer could not read or acknowledge.'),
  }
}
