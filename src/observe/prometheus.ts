import { type EventMessage, type EventName, on } from './events.ts'

/** What a label of a metric may hold. */
type Labels = Readonly<Record<string, string>>

interface PrometheusCounter {
  labels(labels: Labels): { inc(): void }
}

interface PrometheusHistogram {
  labels(labels: Labels): { observe(value: number): void }
}

interface MetricConfiguration {
  name: string
  help: string
  labelNames: string[]
  registers?: never[]
}

/** The part of prom-client that is used: pass the module itself. */
export interface PrometheusClient {
  readonly Counter: new (configuration: MetricConfiguration) => PrometheusCounter
  readonly Histogram: new (configuration: MetricConfiguration & { buckets: number[] }) => PrometheusHistogram
}

/** Options of `lockstepMetrics()`. */
export interface LockstepMetricsOptions<Registry = unknown> {
  /** Where the metrics are registered. Default: prom-client's own registry. */
  readonly register?: Registry
  /** Label by whole key as well. Each key is a time series of its own: only for a handful of keys. */
  readonly byKey?: boolean
  /** How many different operations, and keys where they are asked for, get a label of their own; the rest is `other`. Default 200. */
  readonly maxLabelValues?: number
}

const DEFAULT_MAX_LABEL_VALUES = 200
const OTHER = 'other'
/** From a millisecond to half a minute. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

/**
 * Counts and times what the locks do, for Prometheus. The answer stops it; the metrics stay in their registry.
 *
 * @example
 * import * as client from 'prom-client'
 * const stop = lockstepMetrics(client)
 */
export function lockstepMetrics(client: PrometheusClient, options: LockstepMetricsOptions = {}): () => void {
  const metrics = new Metrics(client, options)
  const stops: (() => void)[] = []
  const hear = <Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void): void => {
    stops.push(on(name, listener))
  }
  const acquired = metrics.counter('lockstep_lock_acquired_total', 'Locks that were granted.')
  const wait = metrics.histogram('lockstep_lock_wait_seconds', 'From asking for a lock to having it.')
  const hold = metrics.histogram('lockstep_lock_hold_seconds', 'From having a lock to the end of its transaction.')
  const contention = metrics.counter('lockstep_lock_contention_total', 'Locks that were not free at once.', ['where'])
  const timeout = metrics.counter('lockstep_lock_timeout_total', 'Locks that were not granted within waitMs.')
  const abandoned = metrics.counter('lockstep_lock_abandoned_total', 'Waits that were given up by their caller.')
  const slow = metrics.counter('lockstep_lock_slow_total', 'Waits that passed the threshold of slowness.')
  const wouldWait = metrics.histogram(
    'lockstep_lock_would_wait_seconds',
    'Observed keys: how long the lock would have been waited for.',
  )
  const retry = metrics.counter('lockstep_transaction_retry_total', 'Attempts that failed and were made again.', [
    'reason',
  ])
  const resolved = metrics.counter('lockstep_commit_resolved_total', 'Lost COMMITs, by what became of them.', [
    'outcome',
  ])
  const switched = metrics.plainCounter(
    'lockstep_rollout_switched_back_total',
    'Prefixes that a trigger put back to observe.',
    'prefix',
  )

  hear('lock.acquired', (event) => {
    metrics.forEach(event, (labels) => {
      acquired(labels)
      wait(labels, event.waitMs / 1000)
    })
  })
  hear('lock.released', (event) => metrics.forEach(event, (labels) => hold(labels, event.holdMs / 1000)))
  hear('lock.contended', (event) => metrics.forEach(event, (labels) => contention(labels, event.where)))
  hear('lock.timedOut', (event) => metrics.forEach(event, (labels) => timeout(labels)))
  hear('lock.abandoned', (event) => metrics.forEach(event, (labels) => abandoned(labels)))
  hear('lock.slow', (event) => metrics.forEach(event, (labels) => slow(labels)))
  hear('lock.wouldWait', (event) =>
    metrics.forEach({ keys: [event.key], sharedKeys: [] }, (labels) => wouldWait(labels, event.waitMs / 1000)),
  )
  hear('transaction.retried', (event) => {
    metrics.forEach({ keys: event.keys, sharedKeys: [] }, (labels) => retry(labels, event.reason ?? 'connection'))
  })
  hear('commit.resolved', (event) => {
    metrics.forEach({ keys: event.keys, sharedKeys: [] }, (labels) => resolved(labels, event.outcome))
  })
  hear('rollout.switchedBack', (event) => switched(metrics.bounded(event.prefix)))
  return () => stops.forEach((stop) => stop())
}

/** The labels of one key, made once. */
interface KeyLabels {
  readonly labels: Labels
  /** The children of prom-client, by metric and further label: finding one by its labels takes longer than counting. */
  readonly children: Map<object, unknown>
}

type Named = { readonly keys: readonly string[]; readonly sharedKeys: readonly string[] }

class Metrics {
  readonly #client: PrometheusClient
  readonly #registers: { registers?: never[] }
  readonly #byKey: boolean
  readonly #maxLabelValues: number
  readonly #values = new Map<string, KeyLabels>()
  readonly #seen = new Set<string>()
  readonly #labelNames: string[]

  constructor(client: PrometheusClient, options: LockstepMetricsOptions) {
    this.#client = client
    this.#registers = options.register === undefined ? {} : { registers: [options.register as never] }
    this.#byKey = options.byKey ?? false
    this.#maxLabelValues = options.maxLabelValues ?? DEFAULT_MAX_LABEL_VALUES
    this.#labelNames = this.#byKey ? ['operation', 'key'] : ['operation']
  }

  counter(name: string, help: string, more: string[] = []): (key: KeyLabels, value?: string) => void {
    const metric = new this.#client.Counter({
      name,
      help,
      labelNames: [...this.#labelNames, ...more],
      ...this.#registers,
    })
    const [label] = more
    const identities = new Map<string, object>()
    return (key, value = '') => {
      let identity = identities.get(value)
      if (identity === undefined) identities.set(value, (identity = {}))
      child(key, identity, () =>
        metric.labels(label === undefined ? key.labels : { ...key.labels, [label]: value }),
      ).inc()
    }
  }

  histogram(name: string, help: string): (key: KeyLabels, seconds: number) => void {
    const metric = new this.#client.Histogram({
      name,
      help,
      labelNames: this.#labelNames,
      buckets: BUCKETS,
      ...this.#registers,
    })
    return (key, seconds) => child(key, metric, () => metric.labels(key.labels)).observe(seconds)
  }

  plainCounter(name: string, help: string, label: string): (value: string) => void {
    const metric = new this.#client.Counter({ name, help, labelNames: [label], ...this.#registers })
    return (value) => metric.labels({ [label]: value }).inc()
  }

  /** Calls back once for each operation, or each key where that is wanted. A transaction without keys counts as `none`. */
  forEach({ keys, sharedKeys }: Named, count: (labels: KeyLabels) => void): void {
    if (keys.length === 1 && sharedKeys.length === 0) return count(this.#labelsOf(keys[0] as string))
    const all = new Set([...keys, ...sharedKeys].map((key) => this.#labelsOf(key)))
    if (all.size === 0) all.add(this.#labelsOf('none:'))
    for (const labels of all) count(labels)
  }

  /** The value itself, or `other` once there are too many. */
  bounded(value: string): string {
    if (this.#seen.has(value)) return value
    if (this.#seen.size >= this.#maxLabelValues) return OTHER
    this.#seen.add(value)
    return value
  }

  #labelsOf(key: string): KeyLabels {
    const operation = key.slice(0, key.indexOf(':'))
    const named = this.#byKey ? key : operation
    let labels = this.#values.get(named)
    if (labels !== undefined) return labels
    const shown = this.bounded(named)
    if (shown === OTHER && named !== OTHER) return this.#labelsOf(this.#byKey ? `${OTHER}:` : `${OTHER}:`)
    labels = { labels: this.#byKey ? { operation, key: shown } : { operation: shown }, children: new Map() }
    this.#values.set(named, labels)
    return labels
  }
}

function child<T>(key: KeyLabels, identity: object, make: () => T): T {
  let found = key.children.get(identity)
  if (found === undefined) key.children.set(identity, (found = make()))
  return found as T
}
