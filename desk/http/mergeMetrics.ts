import { AggregatorRegistry, type MetricObjectWithValues, type MetricValue, type Registry } from 'prom-client'

/** The series of one process, as prom-client gives them as JSON. */
export type Snapshot = readonly MetricObjectWithValues<MetricValue<string>>[]

export interface ProcessSnapshot {
  readonly process: string
  readonly snapshot: Snapshot
}

/** They are about the database, whichever process has asked it: no process has a share of them. */
const OF_DATABASE = /^lockstep_outbox_(lag_|parked_streams$)/

/** One answer for several processes: each series with the name of its process. Series of one name add up. */
export function mergeMetrics(snapshots: readonly ProcessSnapshot[]): Registry {
  return AggregatorRegistry.aggregate(snapshots.map(({ process, snapshot }) => snapshot.map(labelled(process))))
}

/** What continues when a process is gone: counters and histograms. A gauge of a process that is gone means nothing. */
export function lasting(snapshot: Snapshot): Snapshot {
  // In the JSON, unlike in its type, the kind is a word.
  return snapshot.filter(({ type }) => ['counter', 'histogram', 'summary'].includes(type as unknown as string))
}

/** The sum of what several processes have counted, one after the other. */
export async function addUp(snapshots: readonly Snapshot[]): Promise<Snapshot> {
  return AggregatorRegistry.aggregate(snapshots.map((each) => [...each])).getMetricsAsJSON()
}

function labelled(process: string) {
  return (metric: Snapshot[number]): Snapshot[number] => {
    if (OF_DATABASE.test(metric.name)) return metric
    const isGauge = (metric.type as unknown as string) === 'gauge'
    return {
      ...metric,
      // Each gauge has a process of its own: there is nothing to average or to leave out.
      ...(isGauge && { aggregator: 'first' as const }),
      values: metric.values.map((value) => ({ ...value, labels: { ...value.labels, process } })),
    }
  }
}
