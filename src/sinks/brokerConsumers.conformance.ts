import type { ConsumedBroker } from '../../tools/brokers/consumed.ts'
import type { OpenConsumer, ConsumerBench } from '../consumers/consumers.conformance.ts'
import type { BrokerConsumerOptions, EventHandler } from '../consumers/index.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { contextOf, eventsOf, sendAll } from './sinkBench.conformance.ts'

/** The suite's bench on a real broker: events come from its sink, as a dispatcher sends them. */
export async function brokerBench(tested: ConsumedBroker): Promise<ConsumerBench> {
  const { broker, deliversAgain } = tested
  const running = await broker.run()
  const connected = await broker.connect(running.address, { timeoutMs: 10_000 })
  const { sink } = connected
  const sent = new Map<string, OutboxEvent[]>()
  const prepared = new Set<string>()
  const ends: (() => Promise<void>)[] = []
  const prepareOnce = async (topic: string): Promise<void> => {
    if (prepared.has(topic)) return
    prepared.add(topic)
    await tested.prepare?.(running.address, topic)
  }
  return {
    async send(topic, keys, count, from = 1) {
      await prepareOnce(topic)
      const events = eventsOf(topic, keys, count, from)
      sent.set(topic, [...(sent.get(topic) ?? []), ...events])
      await sendAll(sink, events)
    },
    sendAgain: deliversAgain
      ? async (topic) => void (await sink.send(sent.get(topic) ?? [], contextOf({ fence: 2n })))
      : undefined,
    async open(lockstep, name, topic, options, handler): Promise<OpenConsumer> {
      await prepareOnce(topic)
      const backoffMs = { first: 20, longest: 100 }
      const given = { ...options, lockstep, backoffMs } as unknown as BrokerConsumerOptions
      const consumer = await tested.open(running.address, name, topic, given, handler as EventHandler)
      if (consumer.end !== undefined) ends.push(() => (consumer.end as () => Promise<void>)())
      return consumer
    },
    async close() {
      for (const each of ends) await each()
      await connected.end()
      await running.stop()
    },
  }
}
