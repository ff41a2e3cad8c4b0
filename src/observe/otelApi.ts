/**
 * The part of `@opentelemetry/api` that is used, by its shape: the library does not import it. Methods, not properties: what it
 * calls a Context or a SpanKind is passed on as it came, or as the number that its specification gives it.
 */

/** What OpenTelemetry calls a Context; only passed on. */
type Context = unknown

export type AttributeValue = string | number | boolean | string[]
export type Attributes = Record<string, AttributeValue>

/** An entry of `links`: the context of a span that this one has to do with. */
export interface SpanLink {
  context: SpanContext
}

export interface SpanContext {
  traceId: string
  spanId: string
  traceFlags: number
}

/** A span of OpenTelemetry. */
export interface OpenTelemetrySpan {
  spanContext(): SpanContext
  setAttribute(name: string, value: AttributeValue): unknown
  addEvent(name: string, attributes?: Attributes, time?: number): unknown
  setStatus(status: { code: number; message?: string }): unknown
  end(time?: number): void
}

/** A `TracerProvider` of OpenTelemetry. */
export interface OpenTelemetryTracerProvider {
  getTracer(name: string): {
    startSpan(
      name: string,
      options?: { kind?: number; attributes?: Attributes; links?: SpanLink[]; startTime?: number },
      context?: Context,
    ): OpenTelemetrySpan
  }
}

export interface Counter {
  add(value: number, attributes?: Attributes): void
}

export interface Histogram {
  record(value: number, attributes?: Attributes): void
}

export interface InstrumentOptions {
  description?: string
  unit?: string
  advice?: { explicitBucketBoundaries?: number[] }
}

/** A `Meter` of OpenTelemetry. */
export interface OpenTelemetryMeter {
  createCounter(name: string, options?: InstrumentOptions): Counter
  createUpDownCounter(name: string, options?: InstrumentOptions): Counter
  createHistogram(name: string, options?: InstrumentOptions): Histogram
  createObservableGauge(name: string, options?: InstrumentOptions): ObservableGauge
}

export interface ObservableGauge {
  addCallback(callback: GaugeCallback): void
  removeCallback(callback: GaugeCallback): void
}

export type GaugeCallback = (result: { observe(value: number, attributes?: Attributes): void }) => Promise<void>

/** A `MeterProvider` of OpenTelemetry. */
export interface OpenTelemetryMeterProvider {
  getMeter(name: string): OpenTelemetryMeter
}

/** The module `@opentelemetry/api`, or its default export. */
export interface OpenTelemetryApi {
  readonly context: { active(): Context }
  readonly trace: {
    getTracerProvider(): OpenTelemetryTracerProvider
    getSpan(context: Context): OpenTelemetrySpan | undefined
    getSpanContext(context: Context): SpanContext | undefined
    setSpan(context: Context, span: unknown): Context
    deleteSpan(context: Context): Context
  }
  readonly metrics: { getMeterProvider(): OpenTelemetryMeterProvider }
  readonly propagation: {
    inject(context: Context, carrier: unknown): void
    extract(context: Context, carrier: unknown): Context
  }
}

/** By the specification of OpenTelemetry. */
export const SPAN_KIND = { internal: 0, producer: 3, consumer: 4 } as const
export const STATUS_ERROR = 2
