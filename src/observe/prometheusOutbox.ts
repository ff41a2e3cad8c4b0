import type { EventMessage, EventName } from './events.ts'
import type { DispatcherLag } from './outboxLag.ts'

type Labels = Readonly<Record<string, string>>

/** What the metrics of the outbox are made with. */
export interface OutboxMetricsContext {
  readonly counter: (name: string, help: string, labelNames: string[]) => Labelled<{ inc(value?: number): void }>
  readonly gauge: (
    name: string,
    help: string,
    labelNames: string[],
    before?: () => Promise<void>,
  ) => Labelled<{ set(value: number): void }> & { reset(): void }
  readonly histogram: (
    name: string,
    help: string,
    labelNames: string[],
    buckets?: readonly number[],
  ) => Labelled<{ observe(value: number): void }>
  readonly hear: <Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void) => void
  /** Those of the labels: names of dispatchers, and topics. */
  readonly dispatchers: Bound
  readonly topics: Bound
  /** How far behind the dispatchers are, asked of the database. */
  readonly lag: (() => Promise<readonly DispatcherLag[]>) | undefined
}

interface Labelled<Each> {
  labels(labels: Labels): Each
}

interface Bound {
  bounded(value: string): string
}

/** From an event that is sent at once to one that has waited for a sink that was silent for an hour. */
const BUCKETS_LATENCY_SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
]

/** Counts and times what dispatchers do. The label is the topic, never the key: keys are without number. */
export function outboxMetrics(context: OutboxMetricsContext): void {
  const { hear } = context
  const metrics = makeMetrics(context)
  lagMetrics(context)
  const table = new OutboxSeriesTable(metrics, context)

  hear('outbox.delivered', ({ schema, dispatcher, events, tookMs }) => {
    const here = table.dispatcher(schema, dispatcher)
    const now = Date.now()
    metrics.delivery.labels(here.labels).observe(tookMs / 1000)
    for (const { topic, enqueuedAt } of events) {
      const series = table.topic(here, topic)
      series.delivered.inc()
      // The one clock is the database's, the other this machine's.
      series.latency.observe(Math.max(0, now - enqueuedAt.getTime()) / 1000)
    }
    table.sinkIs(here, 'up')
  })
  hear('outbox.parked', ({ schema, dispatcher, topic, state }) => {
    table.topic(table.dispatcher(schema, dispatcher), topic)[state].inc()
  })
  hear('outbox.unparked', ({ schema, dispatcher, topic }) => {
    table.topic(table.dispatcher(schema, dispatcher), topic).unparked.inc()
  })
  hear('outbox.sinkDown', ({ schema, dispatcher }) => table.sinkIs(table.dispatcher(schema, dispatcher), 'down'))
  hear('outbox.sinkUp', ({ schema, dispatcher }) => table.sinkIs(table.dispatcher(schema, dispatcher), 'up'))
  hear('outbox.shardTaken', ({ schema, dispatcher, shard, fence }) => {
    table.shard(table.dispatcher(schema, dispatcher), `${shard}/${fence}`, 'taken')
  })
  hear('outbox.shardLeft', ({ schema, dispatcher, shard, fence }) => {
    table.shard(table.dispatcher(schema, dispatcher), `${shard}/${fence}`, 'left')
  })
  hear('outbox.failed', ({ schema, dispatcher }) => {
    metrics.failures.labels(table.dispatcher(schema, dispatcher).labels).inc()
  })
}

/** Each is read by itself, and all from one answer. Dispatchers of one label are shown together. */
function lagMetrics({ gauge, lag, dispatchers }: OutboxMetricsContext): void {
  const show = (
    name: string,
    help: string,
    valueOf: (lag: DispatcherLag) => number,
    join: (one: number, other: number) => number,
  ): void => {
    const before = async (): Promise<void> => {
      const values = new Map<string, number>()
      for (const each of (await lag?.()) ?? []) {
        const dispatcher = dispatchers.bounded(each.dispatcher)
        values.set(dispatcher, join(values.get(dispatcher) ?? 0, valueOf(each)))
      }
      metric.reset()
      for (const [dispatcher, value] of values) metric.labels({ dispatcher }).set(value)
    }
    const metric = gauge(name, help, ['dispatcher'], before)
  }
  const add = (one: number, other: number): number => one + other
  show(
    'outbox_lag_seconds',
    'The age of the oldest event that is committed and not delivered.',
    (each) => each.seconds,
    Math.max,
  )
  show('outbox_lag_events', 'Events that are committed and not delivered.', (each) => each.events, add)
  show('outbox_parked_streams', 'Streams that wait.', (each) => each.parkedStreams, add)
}

type Metrics = ReturnType<typeof makeMetrics>

// Documented in docs/reference/prometheus.md, which a test compares with this list.
function makeMetrics({ counter, gauge, histogram }: OutboxMetricsContext) {
  const who = ['dispatcher']
  const what = ['dispatcher', 'topic']
  return {
    delivered: counter('outbox_delivered_total', 'Events that the sink accepted.', what),
    delivery: histogram('outbox_delivery_seconds', 'Time that the sink took for a batch.', who),
    latency: histogram(
      'outbox_latency_seconds',
      'Time from enqueuing an event to its delivery.',
      what,
      BUCKETS_LATENCY_SECONDS,
    ),
    parked: counter('outbox_parked_total', 'Events that were not sent, by the state of their stream.', [
      ...what,
      'state',
    ]),
    unparked: counter('outbox_unparked_total', 'Streams that had waited and have caught up.', what),
    sinkDown: gauge('outbox_sink_down', 'Whether the sink is down.', who),
    shards: gauge('outbox_shards', 'Shards that this process owns.', who),
    failures: counter('outbox_failures_total', 'Times that a dispatcher could not read or maintain its shards.', who),
  }
}

/** One dispatcher of one schema. */
interface DispatcherHere {
  readonly labels: { readonly dispatcher: string }
  readonly shards: Set<string>
  /** The last word on its sink. */
  down: boolean
  /** It had shards and has none: what its sink does is no longer seen here. */
  left: boolean
}

class TopicSeries {
  readonly delivered: { inc(value?: number): void }
  readonly latency: { observe(value: number): void }
  readonly parked: { inc(value?: number): void }
  readonly blocked: { inc(value?: number): void }
  readonly unparked: { inc(value?: number): void }

  constructor(metrics: Metrics, labels: Labels) {
    this.delivered = metrics.delivered.labels(labels)
    this.latency = metrics.latency.labels(labels)
    this.parked = metrics.parked.labels({ ...labels, state: 'parked' })
    this.blocked = metrics.parked.labels({ ...labels, state: 'blocked' })
    this.unparked = metrics.unparked.labels(labels)
    // The first one that is parked is to be a rise.
    for (const counter of [this.delivered, this.parked, this.blocked, this.unparked]) counter.inc(0)
  }
}

class OutboxSeriesTable {
  readonly #metrics: Metrics
  readonly #bounds: { readonly dispatchers: Bound; readonly topics: Bound }
  readonly #dispatchers = new Map<string, DispatcherHere>()
  /** By the two labels. */
  readonly #topics = new Map<string, TopicSeries>()

  constructor(metrics: Metrics, bounds: { readonly dispatchers: Bound; readonly topics: Bound }) {
    this.#metrics = metrics
    this.#bounds = bounds
  }

  dispatcher(schema: string, name: string): DispatcherHere {
    const known = this.#dispatchers.get(`${schema}\0${name}`)
    if (known !== undefined) return known
    const labels = { dispatcher: this.#bounds.dispatchers.bounded(name) }
    const here: DispatcherHere = { labels, shards: new Set(), down: false, left: false }
    this.#dispatchers.set(`${schema}\0${name}`, here)
    this.#metrics.failures.labels(labels).inc(0)
    this.#show(here)
    return here
  }

  topic({ labels }: DispatcherHere, topic: string): TopicSeries {
    const shown = { ...labels, topic: this.#bounds.topics.bounded(topic) }
    const name = `${shown.dispatcher}\0${shown.topic}`
    let series = this.#topics.get(name)
    if (series === undefined) this.#topics.set(name, (series = new TopicSeries(this.#metrics, shown)))
    return series
  }

  sinkIs(here: DispatcherHere, state: 'up' | 'down'): void {
    if (here.down === (state === 'down')) return
    here.down = state === 'down'
    this.#show(here)
  }

  shard(here: DispatcherHere, shard: string, change: 'taken' | 'left'): void {
    if (change === 'taken') here.shards.add(shard)
    else here.shards.delete(shard)
    here.left = here.shards.size === 0
    this.#show(here)
  }

  /** Dispatchers of one label are shown together: of several schemas, or over the bound. */
  #show({ labels }: DispatcherHere): void {
    const alike = [...this.#dispatchers.values()].filter((each) => each.labels.dispatcher === labels.dispatcher)
    this.#metrics.shards.labels(labels).set(alike.reduce((sum, { shards }) => sum + shards.size, 0))
    this.#metrics.sinkDown.labels(labels).set(alike.some(({ down, left }) => down && !left) ? 1 : 0)
  }
}
