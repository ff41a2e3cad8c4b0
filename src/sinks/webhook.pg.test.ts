import { webhook } from '../../tools/brokers/webhook.ts'
import { benchOf } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

describeSink('Webhook', () =>
  benchOf(webhook, {
    again: 'recognizable',
    tooLarge: 1_000_001,
    cloudEvents: { prefix: 'ce-', text: 'Gr%C3%B6%C3%9Fe%20%221%22%20100%25' },
  }),
)
