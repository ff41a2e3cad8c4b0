import { webhook } from '../../tools/brokers/webhook.ts'
import { benchOf } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

describeSink('Webhook', () => benchOf(webhook, { again: 'recognisable', tooLarge: 1_000_001 }))
