import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { type EventMessage, type EventName, on } from './events.ts'
import { FreshAnswer } from './freshAnswer.ts'
import { GUARD_INACTIVE, GUARD_RESULTS, GUARD_WRITES, type GuardCounts, type GuardsToWatch } from './guardCounts.ts'
import { DEFAULT_MAX_VALUES, LabelBound, operationOf, OTHER } from './labelBound.ts'
import { OutboxLag, type OutboxToWatch } from './outboxLag.ts'
import { consumerMetrics } from './prometheusConsumers.ts'
import { outboxMetrics } from './prometheusOutbox.ts'

export type { GuardsToWatch } from './guardCounts.ts'
export type { OutboxToWatch } from './outboxLag.ts'

type Labels = Readonly<Record<string, string>>

interface Counter {
  inc(value?: number): void
}

interface Gauge {
  set(value: number): void
}

interface Histogram {
  observe(value: number): void
}

interface MetricConfiguration {
  name: string
  help: string
  labelNames: string[]
  /** Called before the metric is read. */
  collect?: () => void | Promise<void>
  /** Registries of prom-client's own class, which cannot be named here without depending on it: anything takes a `never`. */
  registers?: never[]
}

/** The part of prom-client that is used. Pass the module itself: the library does not import it. */
export interface PrometheusClient {
  readonly Counter: new (configuration: MetricConfiguration) => { labels(labels: Labels): Counter }
  readonly Gauge: new (configuration: MetricConfiguration) => { labels(labels: Labels): Gauge; reset(): void }
  readonly Histogram: new (configuration: MetricConfiguration & { buckets: number[] }) => {
    labels(labels: Labels): Histogram
  }
}

/** A `Registry` of prom-client. */
export interface PrometheusRegistry {
  registerMetric(metric: never): void
  getSingleMetric(name: string): unknown
}

/** Options of `lockstepMetrics()`. */
export interface LockstepMetricsOptions {
  /** Where the metrics are registered. Default: prom-client's own registry. */
  readonly register?: PrometheusRegistry
  /** Whether to label by whole key as well. Each key is a separate time series, so use it for a few keys only. Default false. */
  readonly byKey?: boolean
  /** How many different values each label can have. All others count as `other`. Default 200. */
  readonly maxLabelValues?: number
  /** `lockstep.outbox`, for metrics of its lag. The database is queried whenever the metrics are read. */
  readonly outbox?: OutboxToWatch
  /** `lockstep.guards`, for metrics of the counts of guards, queried in the same way. */
  readonly guards?: GuardsToWatch
}

const METRICS_OPTIONS: OptionNames<LockstepMetricsOptions> = {
  register: true,
  byKey: true,
  maxLabelValues: true,
  outbox: true,
  guards: true,
}

/** The operation of a transaction that has no key. */
const NONE = 'none'
/** Why an attempt failed where the driver gave no code, which it does only for a lost connection. */
const NO_CODE = 'connection'
/** How many times are kept before prom-client is given them. */
const BATCH = 32
/** From a millisecond, about the quickest transaction, to half a minute, the default of `waitMs`. */
const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
/** From a lease of one short request to a leader's of an hour. */
const BUCKETS_LEASE_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600]
/** From one call, where combining is of no use, to the default of `maxBatch`. */
const BUCKETS_CALLS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

/**
 * Counts and times what locks, leases and the outbox do, for Prometheus. The answer stops it; the metrics stay in their registry.
 *
 * @example
 * import * as client from 'prom-client'
 * const stop = lockstepMetrics(client)
 */
export function lockstepMetrics(client: PrometheusClient, options: LockstepMetricsOptions = {}): () => void {
  checkOptions('lockstepMetrics()', options, METRICS_OPTIONS)
  const { byKey = false, maxLabelValues = DEFAULT_MAX_VALUES } = options
  if (!Number.isInteger(maxLabelValues) || maxLabelValues < 1)
    throw new RangeError(`maxLabelValues is ${maxLabelValues}. Use a whole number above 0.`)
  if (options.outbox !== undefined && typeof options.outbox?.status !== 'function')
    throw new TypeError('`outbox` has no status(). Pass `lockstep.outbox`.')
  if (options.guards !== undefined && typeof options.guards?.list !== 'function')
    throw new TypeError('`guards` has no list(). Pass `lockstep.guards`.')
  const maker = metricMaker(client, options.register, () => table.flush())
  const metrics = makeMetrics(maker, byKey ? ['operation', 'key'] : ['operation'])
  const bounds = { operations: new LabelBound(maxLabelValues), keys: new LabelBound(maxLabelValues) }
  const table = new LockSeriesTable(metrics, byKey, bounds)
  // By themselves: an operation that has only locks, or only leases, has no zeros of the other kind.
  const leases = new SeriesTable((labels) => new LeaseSeries(metrics, labels), byKey, bounds)
  const duplicates = new SeriesTable((labels) => ({ labels }), byKey, bounds)
  const reasons = new LabelBound(maxLabelValues)
  const prefixes = new LabelBound(maxLabelValues)
  const stops: (() => void)[] = []
  let stopped = false
  const hear = <Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void): void =>
    void stops.push(on(name, listener))

  // First, because it registers metrics: where one is refused, nothing is heard.
  const lag = options.outbox && new OutboxLag(options.outbox)
  const watching = { lag: lag && (() => (stopped ? Promise.resolve([]) : lag.read())) }
  const bounded = { dispatchers: new LabelBound(maxLabelValues), topics: new LabelBound(maxLabelValues) }
  const context = { ...maker, ...watching, ...bounded, hear }
  outboxMetrics(context)
  consumerMetrics(context)
  const { guards } = options
  const counts = guards && new FreshAnswer(() => guards.list())
  guardMetrics(maker, counts && (() => (stopped ? Promise.resolve([]) : counts.read())), maxLabelValues)
  hear('lock.acquired', ({ keys, sharedKeys, waitMs }) => {
    for (const series of table.of(keys, sharedKeys)) series.waits.add(waitMs / 1000)
  })
  hear('lock.released', ({ keys, sharedKeys, holdMs }) => {
    for (const series of table.of(keys, sharedKeys)) series.holds.add(holdMs / 1000)
  })
  hear('lock.contended', ({ keys, sharedKeys, where }) => {
    for (const { labels } of table.of(keys, sharedKeys)) metrics.contention.labels({ ...labels, where }).inc()
  })
  hear('lock.timedOut', ({ keys, sharedKeys, noWait }) => {
    for (const series of table.of(keys, sharedKeys)) (noWait ? series.busy : series.timeout).inc()
  })
  hear('lock.refused', ({ keys, sharedKeys }) => {
    for (const series of table.of(keys, sharedKeys)) series.lockRefused.inc()
  })
  hear('lock.abandoned', ({ keys, sharedKeys }) => {
    for (const series of table.of(keys, sharedKeys)) series.abandoned.inc()
  })
  hear('lock.slow', ({ keys, sharedKeys }) => {
    for (const series of table.of(keys, sharedKeys)) series.slow.inc()
  })
  hear('lock.wouldWait', ({ key, waitMs }) => {
    for (const { labels } of table.of([key])) metrics.wouldWait.labels(labels).observe(waitMs / 1000)
  })
  hear('transaction.retried', ({ keys, reason = NO_CODE }) => {
    const shown = reasons.bounded(reason)
    for (const { labels } of table.of(keys)) metrics.retry.labels({ ...labels, reason: shown }).inc()
  })
  hear('commit.resolved', ({ keys, outcome }) => {
    for (const { labels } of table.of(keys)) metrics.resolved.labels({ ...labels, outcome }).inc()
  })
  hear('rollout.switchedBack', ({ prefix, trigger }) =>
    metrics.switchedBack.labels({ prefix: prefixes.bounded(prefix), trigger }).inc(),
  )
  hear('rollout.duplicateFound', ({ key, mode }) => {
    for (const { labels } of duplicates.of([key])) metrics.duplicates.labels({ ...labels, mode }).inc()
  })
  hear('combine.batch', ({ key, size, waitedMs }) => {
    for (const { labels } of table.of([key])) {
      metrics.batchSize.labels(labels).observe(size)
      metrics.batchWait.labels(labels).observe(waitedMs / 1000)
    }
  })
  hear('combine.refused', ({ key }) => {
    for (const series of table.of([key])) series.refused.inc()
  })
  hear('lease.acquired', ({ key, waitedMs }) => {
    for (const { acquired, wait } of leases.of([key])) {
      acquired.inc()
      wait.observe(waitedMs / 1000)
    }
  })
  hear('lease.refused', ({ key }) => {
    for (const { refused } of leases.of([key])) refused.inc()
  })
  hear('lease.slow', ({ key }) => {
    for (const { slow } of leases.of([key])) slow.inc()
  })
  hear('lease.wouldWait', ({ key, waitMs, granted }) => {
    for (const { wouldRefuse, labels } of leases.of([key])) {
      metrics.leaseWouldWait.labels(labels).observe(waitMs / 1000)
      if (!granted) wouldRefuse.inc()
    }
  })
  hear('lease.unreachable', ({ key }) => {
    for (const { unreachable } of leases.of([key])) unreachable.inc()
  })
  hear('lease.renewed', ({ key, outcome }) => {
    for (const { labels } of leases.of([key])) metrics.leaseRenewed.labels({ ...labels, outcome }).inc()
  })
  hear('lease.lost', ({ key, heldMs, reason }) => {
    for (const { labels, hold } of leases.of([key])) {
      metrics.leaseLost.labels({ ...labels, reason }).inc()
      hold.observe(heldMs / 1000)
    }
  })
  hear('lease.released', ({ key, heldMs }) => {
    for (const { hold } of leases.of([key])) hold.observe(heldMs / 1000)
  })
  // Not `rows.outOfOrder`: a listener makes every lockRows() ask for more columns.

  return () => {
    stopped = true
    for (const stop of stops) stop()
    table.flush()
  }
}

type Metrics = ReturnType<typeof makeMetrics>

/** What guards have counted, asked of the database when the metrics are read. */
function guardMetrics(
  { gauge }: Pick<ReturnType<typeof metricMaker>, 'gauge'>,
  read: (() => Promise<readonly GuardCounts[]>) | undefined,
  maxLabelValues: number,
): void {
  const tables = new LabelBound(maxLabelValues)
  const writes = gauge('guard_writes', GUARD_WRITES, ['table', 'key', 'result'], async () => {
    const counted = (await read?.()) ?? []
    writes.reset()
    for (const each of counted) {
      const table = tables.bounded(each.table)
      // Guards over the bound have no label of their own, and their counts would overwrite each other.
      if (table === OTHER) continue
      for (const result of GUARD_RESULTS) writes.labels({ table, key: each.key, result }).set(each[result])
    }
  })
  const inactive = gauge('guard_inactive', GUARD_INACTIVE, ['table', 'key'], async () => {
    const counted = (await read?.()) ?? []
    inactive.reset()
    for (const { table, key, state } of counted) {
      const bounded = tables.bounded(table)
      if (bounded !== OTHER) inactive.labels({ table: bounded, key }).set(state === 'active' ? 0 : 1)
    }
  })
}

/** Makes metrics that have in common where they are registered, and what is done before they are read. */
function metricMaker(client: PrometheusClient, register: PrometheusRegistry | undefined, collect: () => void) {
  const common = register === undefined ? { collect } : { collect, registers: [register as never] }
  return {
    counter: (name: string, help: string, labelNames: string[]) =>
      new client.Counter({ name: `lockstep_${name}`, help, labelNames, ...common }),
    gauge: (name: string, help: string, labelNames: string[], before?: () => Promise<void>) =>
      new client.Gauge({ name: `lockstep_${name}`, help, labelNames, ...common, ...(before && { collect: before }) }),
    histogram: (name: string, help: string, labelNames: string[], buckets: readonly number[] = BUCKETS_SECONDS) =>
      new client.Histogram({ name: `lockstep_${name}`, help, labelNames, buckets: [...buckets], ...common }),
  }
}

// What each of them means is in docs/reference/prometheus.md, which a test compares with this list.
function makeMetrics(maker: ReturnType<typeof metricMaker>, who: string[]) {
  const { counter } = maker
  const histogram = (name: string, help: string, buckets?: readonly number[]) =>
    maker.histogram(name, help, who, buckets)
  return {
    acquired: counter('lock_acquired_total', 'Locks that were granted.', who),
    wait: histogram('lock_wait_seconds', 'Time from the request of a lock to its grant.'),
    hold: histogram('lock_hold_seconds', 'Time from the grant of a lock to the end of its transaction.'),
    contention: counter('lock_contention_total', 'Locks that were not free at once.', [...who, 'where']),
    timeout: counter('lock_timeout_total', 'Locks that were not granted within waitMs.', who),
    busy: counter('lock_busy_total', 'Locks that were only tried, and that another session held.', who),
    lockRefused: counter('lock_refused_total', 'Calls that were refused because too many waited.', who),
    abandoned: counter('lock_abandoned_total', 'Waits that the caller gave up.', who),
    slow: counter('lock_slow_total', 'Waits longer than the threshold for slow waits.', who),
    wouldWait: histogram(
      'lock_would_wait_seconds',
      'Time that a call would have waited for the lock of an observed key.',
    ),
    retry: counter('transaction_retry_total', 'Attempts that failed and were retried.', [...who, 'reason']),
    resolved: counter('commit_resolved_total', 'COMMITs whose answer was lost, by outcome.', [...who, 'outcome']),
    switchedBack: counter('rollout_switched_back_total', 'Prefixes that a trigger switched back to observe.', [
      'prefix',
      'trigger',
    ]),
    duplicates: counter('rollout_duplicates_total', 'Duplicates that were found, by how their key was treated.', [
      ...who,
      'mode',
    ]),
    batchSize: histogram('combine_batch_size', 'How many calls a batch served.', BUCKETS_CALLS),
    batchWait: histogram('combine_wait_seconds', 'How long the first call of a batch had waited for it to begin.'),
    refused: counter('combine_refused_total', 'Combined calls that were refused because too many waited.', who),
    leaseAcquired: counter('lease_acquired_total', 'Leases that were granted.', who),
    leaseRefused: counter('lease_refused_total', 'Requests for a lease that another caller held.', who),
    leaseSlow: counter('lease_slow_total', 'Waits for a lease longer than the threshold for slow waits.', who),
    leaseWouldWait: histogram(
      'lease_would_wait_seconds',
      'Time that a call would have waited for the lease of an observed key.',
    ),
    leaseWouldRefuse: counter('lease_would_refuse_total', 'Observed calls that a lease would have refused.', who),
    leaseUnreachable: counter(
      'lease_unreachable_total',
      'Requests for a lease without an answer of the database.',
      who,
    ),
    leaseRenewed: counter('lease_renewed_total', 'Heartbeats that were answered.', [...who, 'outcome']),
    leaseLost: counter('lease_lost_total', 'Leases that were lost.', [...who, 'reason']),
    leaseHold: histogram('lease_hold_seconds', 'Time from the grant of a lease to its end.', BUCKETS_LEASE_SECONDS),
    leaseWait: histogram('lease_wait_seconds', 'Time from the request of a lease to its grant.'),
  }
}

/**
 * Times that prom-client does not know yet. They are given to it in batches, and before each read: between two round trips
 * to the server one observation takes several microseconds, in a row a tenth of that.
 */
class Times {
  readonly #seconds = new Float64Array(BATCH)
  readonly #histogram: Histogram
  readonly #counter: Counter | undefined
  #count = 0

  /** The counter counts the same as the histogram. */
  constructor(histogram: Histogram, counter?: Counter) {
    this.#histogram = histogram
    this.#counter = counter
  }

  add(seconds: number): void {
    this.#seconds[this.#count++] = seconds
    if (this.#count === BATCH) this.flush()
  }

  flush(): void {
    const count = this.#count
    if (count === 0) return
    this.#count = 0
    this.#counter?.inc(count)
    for (let index = 0; index < count; index++) this.#histogram.observe(this.#seconds[index] as number)
  }
}

/** The time series of one operation, or of one key. Found once: finding them by their labels takes longer than counting. */
class Series {
  readonly labels: Labels
  readonly waits: Times
  readonly holds: Times
  readonly timeout: Counter
  readonly busy: Counter
  readonly lockRefused: Counter
  readonly abandoned: Counter
  readonly slow: Counter
  readonly refused: Counter

  constructor(metrics: Metrics, labels: Labels) {
    const acquired = metrics.acquired.labels(labels)
    this.labels = labels
    this.waits = new Times(metrics.wait.labels(labels), acquired)
    this.holds = new Times(metrics.hold.labels(labels))
    this.timeout = metrics.timeout.labels(labels)
    this.busy = metrics.busy.labels(labels)
    this.lockRefused = metrics.lockRefused.labels(labels)
    this.abandoned = metrics.abandoned.labels(labels)
    this.slow = metrics.slow.labels(labels)
    this.refused = metrics.refused.labels(labels)
    // A series that begins at 1 has not risen, to Prometheus: without the zero the first timeout would raise no alert.
    const { timeout, busy, lockRefused, abandoned, slow, refused } = this
    for (const counter of [acquired, timeout, busy, lockRefused, abandoned, slow, refused]) counter.inc(0)
    for (const where of ['process', 'server']) metrics.contention.labels({ ...labels, where }).inc(0)
    for (const outcome of ['committed', 'rolledBack', 'unknown']) metrics.resolved.labels({ ...labels, outcome }).inc(0)
  }
}

/** The same of leases. They are few a second: each is passed to prom-client as it comes. */
class LeaseSeries {
  readonly labels: Labels
  readonly acquired: Counter
  readonly refused: Counter
  readonly slow: Counter
  readonly wouldRefuse: Counter
  readonly unreachable: Counter
  readonly wait: Histogram
  readonly hold: Histogram

  constructor(metrics: Metrics, labels: Labels) {
    this.labels = labels
    this.acquired = metrics.leaseAcquired.labels(labels)
    this.refused = metrics.leaseRefused.labels(labels)
    this.slow = metrics.leaseSlow.labels(labels)
    this.wouldRefuse = metrics.leaseWouldRefuse.labels(labels)
    this.unreachable = metrics.leaseUnreachable.labels(labels)
    this.wait = metrics.leaseWait.labels(labels)
    this.hold = metrics.leaseHold.labels(labels)
    const { acquired, refused, slow, wouldRefuse, unreachable } = this
    for (const counter of [acquired, refused, slow, wouldRefuse, unreachable]) counter.inc(0)
    for (const outcome of ['renewed', 'unknown']) metrics.leaseRenewed.labels({ ...labels, outcome }).inc(0)
    for (const reason of LOST_REASONS) metrics.leaseLost.labels({ ...labels, reason }).inc(0)
  }
}

/** `released` is reported by another event. */
const LOST_REASONS: readonly EventMessage<'lease.lost'>['reason'][] = [
  'not renewed in time',
  'taken away',
  'held too long',
  'closed',
]

/** Finds the series of keys. */
class SeriesTable<Each extends { readonly labels: Labels }> {
  readonly #make: (labels: Labels) => Each
  readonly #byKey: boolean
  readonly #operations: LabelBound
  readonly #keys: LabelBound
  /** By operation, or by key. Lists of one, so that the common case of one key has its answer ready. */
  readonly #known = new Map<string, readonly [Each]>()

  /** The bounds are those of the labels, which several tables share. */
  constructor(make: (labels: Labels) => Each, byKey: boolean, { operations, keys }: Bounds) {
    this.#make = make
    this.#byKey = byKey
    this.#operations = operations
    this.#keys = keys
  }

  get all(): Iterable<readonly [Each]> {
    return this.#known.values()
  }

  /** Each series once, however many of the keys fall into it. */
  of(keys: readonly string[], sharedKeys: readonly string[] = []): Iterable<Each> {
    const count = keys.length + sharedKeys.length
    if (count <= 1) return this.#find(keys[0] ?? sharedKeys[0] ?? NONE)
    const found = new Set<Each>()
    for (const key of keys) found.add(this.#find(key)[0])
    for (const key of sharedKeys) found.add(this.#find(key)[0])
    return found
  }

  #find(key: string): readonly [Each] {
    const operation = operationOf(key)
    return this.#known.get(this.#byKey ? key : operation) ?? this.#meet(operation, key)
  }

  /** The series of what is new, or over the bound. */
  #meet(operation: string, key: string): readonly [Each] {
    const shown = this.#operations.bounded(operation)
    const labels: Labels = this.#byKey ? { operation: shown, key: this.#keys.bounded(key) } : { operation: shown }
    // Keys over the bound share one series for each operation; an operation has no colon, so it is never mistaken for a key.
    const name = labels['key'] === undefined || labels['key'] === OTHER ? shown : key
    let series = this.#known.get(name)
    if (series === undefined) this.#known.set(name, (series = [this.#make(labels)]))
    return series
  }
}

/** Those of locks keep times back. */
class LockSeriesTable extends SeriesTable<Series> {
  constructor(metrics: Metrics, byKey: boolean, bounds: Bounds) {
    super((labels) => new Series(metrics, labels), byKey, bounds)
  }

  flush(): void {
    for (const [{ waits, holds }] of this.all) {
      waits.flush()
      holds.flush()
    }
  }
}

interface Bounds {
  readonly operations: LabelBound
  readonly keys: LabelBound
}
