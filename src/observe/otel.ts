import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { type EventMessage, type EventName, on } from './events.ts'
import { DEFAULT_MAX_VALUES } from './labelBound.ts'
import type { OpenTelemetryApi, OpenTelemetryMeterProvider, OpenTelemetryTracerProvider } from './otelApi.ts'
import { guardMetrics, lagMetrics, telemetryMetrics } from './otelMetrics.ts'
import { telemetrySpans } from './otelSpans.ts'
import type { GuardsToWatch } from './guardCounts.ts'
import type { OutboxToWatch } from './outboxLag.ts'

export type {
  OpenTelemetryApi,
  OpenTelemetryMeter,
  OpenTelemetryMeterProvider,
  OpenTelemetrySpan,
  OpenTelemetryTracerProvider,
} from './otelApi.ts'

/** Options of `lockstepTelemetry()`. */
export interface LockstepTelemetryOptions {
  /** The provider of the spans. Default: the one registered with the API. False: no spans. */
  readonly tracerProvider?: OpenTelemetryTracerProvider | false
  /** The provider of the metrics. Default: the one registered with the API at this time. False: no metrics. */
  readonly meterProvider?: OpenTelemetryMeterProvider | false
  /**
   * Whether to add keys, and the answers of sinks about events, to the attributes of spans. They can contain personal data. Default false.
   */
  readonly keys?: boolean
  /** How many different values each attribute of a metric can have. All others count as `other`. Default 200. */
  readonly maxAttributeValues?: number
  /** `lockstep.outbox`, for metrics of its lag. The database is queried whenever metrics are collected. */
  readonly outbox?: OutboxToWatch
  /** `lockstep.guards`, for metrics of the counts of guards, queried in the same way. */
  readonly guards?: GuardsToWatch
}

const TELEMETRY_OPTIONS: OptionNames<LockstepTelemetryOptions> = {
  tracerProvider: true,
  meterProvider: true,
  keys: true,
  maxAttributeValues: true,
  outbox: true,
  guards: true,
}

/** The instrumentation scope of all spans and metrics. */
const SCOPE = 'pg-lockstep'

/**
 * Reports to OpenTelemetry what locks, transactions, leases and the outbox do: as spans below the span of the caller, and as
 * metrics. The answer stops it, and ends the spans that are open.
 *
 * @example
 * import * as api from '@opentelemetry/api'
 * const stop = lockstepTelemetry(api)
 */
export function lockstepTelemetry(api: OpenTelemetryApi, options: LockstepTelemetryOptions = {}): () => void {
  checkOptions('lockstepTelemetry()', options, TELEMETRY_OPTIONS)
  const { keys = false, maxAttributeValues = DEFAULT_MAX_VALUES } = options
  if (!Number.isInteger(maxAttributeValues) || maxAttributeValues < 1)
    throw new RangeError(`maxAttributeValues is ${maxAttributeValues}. Use a whole number above 0.`)
  const { tracerProvider = api.trace.getTracerProvider(), meterProvider = api.metrics.getMeterProvider() } = options
  const stops: (() => void)[] = []
  const hear = <Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void): void =>
    void stops.push(on(name, listener))

  if (meterProvider !== false) {
    const meter = meterProvider.getMeter(SCOPE)
    telemetryMetrics(meter, maxAttributeValues, hear)
    if (options.outbox !== undefined) stops.push(lagMetrics(meter, maxAttributeValues, options.outbox))
    if (options.guards !== undefined) stops.push(guardMetrics(meter, maxAttributeValues, options.guards))
  }
  if (tracerProvider !== false) stops.push(telemetrySpans(api, tracerProvider.getTracer(SCOPE), keys, hear))
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}

/**
 * The headers that name to the receiver of an event the trace that it comes from. Give them to `tx.enqueue()`: the span of the
 * delivery is then linked with the one that is active now.
 *
 * @example
 * tx.enqueue({ topic: 'trades', key: '42', payload, headers: traceHeaders(api) })
 */
export function traceHeaders(api: OpenTelemetryApi): Record<string, string> {
  const headers: Record<string, string> = {}
  api.propagation.inject(api.context.active(), headers)
  return headers
}
