import * as client from 'prom-client'
import { lockstepMetrics } from '../src/observe/prometheus.ts'

/** A metric that a query asks for, with the labels that it needs: in its braces, and in the `by` or `on` around it. */
export interface Asked {
  readonly name: string
  readonly labels: readonly string[]
}

/** Every metric of Lockstep in a query. */
export function askedOf(query: string): Asked[] {
  const grouped = [...query.matchAll(/\b(?:by|on) \(([^)]*)\)/g)]
    .flatMap(([, labels = '']) => labels.split(', '))
    .filter((label) => label !== 'le')
  return [...query.matchAll(/(lockstep_\w+)(?:\{([^}]*)\})?/g)].map(([, name = '', selector = '']) => ({
    name,
    labels: [...grouped, ...[...selector.matchAll(/(\w+)\s*(?:=~|!=|!~|=)/g)].map(([, label = '']) => label)],
  }))
}

/** The labels of every time series that the library has, by its name as a query has it. */
export async function seriesOfLibrary(): Promise<ReadonlyMap<string, readonly string[]>> {
  const series = new Map<string, readonly string[]>()
  const register = new client.Registry()
  const outbox = { status: () => Promise.resolve({ shards: [] }) }
  lockstepMetrics(client, { register, outbox })()
  for (const [, name = '', type] of (await register.metrics()).matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    // prom-client keeps them, but its types do not say so.
    const { labelNames } = register.getSingleMetric(name) as unknown as { labelNames: string[] }
    if (type !== 'histogram') series.set(name, labelNames)
    else for (const suffix of ['_bucket', '_sum', '_count']) series.set(name + suffix, labelNames)
  }
  return series
}
