import type { OutboxMetricsContext } from './prometheusOutbox.ts'

/** Counts what consumers of brokers do. Those of the own database are dispatchers, and counted as such. */
export function consumerMetrics({ counter, hear, dispatchers: consumers, topics }: OutboxMetricsContext): void {
  const applied = counter('consumer_applied_total', 'Events that a consumer of a broker has applied.', [
    'consumer',
    'source',
    'topic',
  ])
  const stopped = counter('consumer_stopped_total', 'Events that a consumer could not apply, by reason.', [
    'consumer',
    'source',
    'topic',
    'kind',
  ])
  const failures = counter('consumer_failures_total', 'Times that a consumer could not read or acknowledge.', [
    'consumer',
    'source',
  ])
  hear('consumer.applied', ({ consumer: name, source, events }) => {
    const consumer = consumers.bounded(name)
    for (const { topic } of events) applied.labels({ consumer, source, topic: topics.bounded(topic) }).inc()
  })
  hear('consumer.stopped', ({ consumer, source, topic, kind }) =>
    stopped.labels({ consumer: consumers.bounded(consumer), source, topic: topics.bounded(topic), kind }).inc(),
  )
  hear('consumer.failed', ({ consumer, source }) =>
    failures.labels({ consumer: consumers.bounded(consumer), source }).inc(),
  )
}
