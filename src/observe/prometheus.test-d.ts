import clientAsDefault, { Counter, Gauge, Histogram } from 'prom-client'
import * as client from 'prom-client'
import { describe, expectTypeOf, test } from 'vitest'
import { type LockstepMetricsOptions, lockstepMetrics, type PrometheusClient } from './prometheus.ts'

// Nothing here is run: the compiler is the test.
describe('lockstepMetrics()', () => {
  test('takes the real module, however it was imported', () => {
    expectTypeOf(client).toExtend<PrometheusClient>()
    expectTypeOf(clientAsDefault).toExtend<PrometheusClient>()
    expectTypeOf(lockstepMetrics(client)).toEqualTypeOf<() => void>()
    lockstepMetrics(clientAsDefault)
    lockstepMetrics({ Counter, Gauge, Histogram })
  })

  test('takes registries of both formats', () => {
    const open = new client.Registry<client.OpenMetricsContentType>()
    lockstepMetrics(client, { register: new client.Registry(), byKey: true, maxLabelValues: 10 })
    lockstepMetrics(client, { register: client.register })
    lockstepMetrics(client, { register: open })
    expectTypeOf<client.Registry>().toExtend<NonNullable<LockstepMetricsOptions['register']>>()
  })

  test('refuses what is neither', () => {
    // @ts-expect-error: the module, not one of its metrics
    lockstepMetrics(client.Counter)
    // @ts-expect-error: it has no histograms
    lockstepMetrics({ Counter, Gauge })
    // @ts-expect-error: it has no gauges
    lockstepMetrics({ Counter, Histogram })
    // @ts-expect-error: a counter is no registry
    lockstepMetrics(client, { register: client.Counter })
    // @ts-expect-error: a registry, not a list of them
    lockstepMetrics(client, { register: [client.register] })
    // @ts-expect-error: a number
    lockstepMetrics(client, { maxLabelValues: '10' })
  })
})
