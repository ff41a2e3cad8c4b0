import apiAsDefault from '@opentelemetry/api'
import * as api from '@opentelemetry/api'
import type { MeterProvider } from '@opentelemetry/sdk-metrics'
import type { BasicTracerProvider } from '@opentelemetry/sdk-trace-base'
import { describe, expectTypeOf, test } from 'vitest'
import { type LockstepTelemetryOptions, lockstepTelemetry, type OpenTelemetryApi, traceHeaders } from './otel.ts'

// Nothing here is run: the compiler is the test.
describe('lockstepTelemetry()', () => {
  test('takes the real module, however it was imported', () => {
    expectTypeOf(api).toExtend<OpenTelemetryApi>()
    expectTypeOf(apiAsDefault).toExtend<OpenTelemetryApi>()
    expectTypeOf(lockstepTelemetry(api)).toEqualTypeOf<() => void>()
    expectTypeOf(traceHeaders(api)).toEqualTypeOf<Record<string, string>>()
    lockstepTelemetry(api, { keys: true, maxAttributeValues: 10 })
  })

  test('takes the providers of the API and of the SDK, or none', () => {
    lockstepTelemetry(api, { tracerProvider: api.trace.getTracerProvider(), meterProvider: false })
    lockstepTelemetry(api, { tracerProvider: false, meterProvider: api.metrics.getMeterProvider() })
    expectTypeOf<BasicTracerProvider>().toExtend<NonNullable<LockstepTelemetryOptions['tracerProvider']>>()
    expectTypeOf<MeterProvider>().toExtend<NonNullable<LockstepTelemetryOptions['meterProvider']>>()
  })

  test('refuses what is neither', () => {
    // @ts-expect-error: the module, not one of its parts
    lockstepTelemetry(api.trace)
    // @ts-expect-error: a provider, not a tracer
    lockstepTelemetry(api, { tracerProvider: api.trace.getTracer('mine') })
    // @ts-expect-error: true is not a provider
    lockstepTelemetry(api, { meterProvider: true })
  })
})
