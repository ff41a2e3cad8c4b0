import { connect } from 'node:net'
import { Kafka, logLevel, type Producer } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { kafka, kafkaThrough, receivedFrom } from '../../tools/brokers/kafka.ts'
import { kafkaAvailable, type KafkaServer, startKafka } from '../../tools/server/kafka.ts'
import { type Proxy, startProxy } from '../testing/index.ts'
import type { Delivery } from '../outbox/index.ts'
import { kafkaSink } from './kafka.ts'
import { benchOf, contextOf, eventOf, eventsOf, firstDeliveries, sendAll } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

const kindOf = (answer: Delivery | undefined): string =>
  typeof answer === 'object' ? (Object.keys(answer)[0] as string) : String(answer)

describe.skipIf(!kafkaAvailable())('the Kafka sink', () => {
  describeSink('Kafka', () =>
    benchOf(kafka, {
      again: 'recognizable',
      tooLarge: 1_000_000,
      cloudEvents: { prefix: 'ce_', text: 'Größe "1" 100%' },
    }),
  )

  describe('three brokers', () => {
    let server: KafkaServer
    let proxies: Map<number, Proxy>
    let producer: Producer
    beforeAll(async () => {
      server = await startKafka({ brokers: 3 })
      const ports = server.brokers.map((broker) => Number(broker.split(':')[1]))
      proxies = new Map()
      for (const port of ports) proxies.set(port, await startProxy({ targetPort: port }))
      const through = new Kafka({
        brokers: [...server.brokers],
        logLevel: logLevel.NOTHING,
        requestTimeout: 1000,
        socketFactory: ({ port, onConnect }) =>
          connect({ port: proxies.get(port)?.port ?? port, host: '127.0.0.1', noDelay: true }, onConnect),
      })
      producer = through.producer({ retry: { retries: 0 } })
      await producer.connect()
    })
    afterAll(async () => {
      await producer?.disconnect()
      for (const proxy of proxies?.values() ?? []) await proxy.close()
      await server?.stop()
    })

    test('loses nothing and keeps first deliveries in order when parts of a request are lost', async () => {
      const sink = kafkaSink({ producer, timeoutMs: 1500 })
      const keys = Array.from({ length: 12 }, (_, n) => `k${n}`)
      let [cuts, chunks, unsent] = [0, 0, 0]
      for (const proxy of proxies.values()) {
        proxy.onClientData((chunk) =>
          chunk.includes('lockstep-id') && ++chunks % 7 === 0 ? (cuts++, 'cut-before') : 'forward',
        )
        proxy.onServerData(() => (++chunks % 11 === 0 ? (cuts++, 'cut-before') : 'forward'))
      }
      for (let from = 1; from <= 60; from += 5) {
        const batch = eventsOf('cut', keys, 5, from)
        const answers = await sink.send(batch, contextOf())
        expect(answers.map(kindOf)).not.toContain('refused')
        unsent += answers.filter((answer) => answer !== 'sent').length
        const stopped = new Set<string>()
        const left = batch.filter(({ key }, place) => {
          if (answers[place] !== 'sent') stopped.add(key)
          return stopped.has(key)
        })
        await sendAll(sink, left)
      }
      expect(cuts).toBeGreaterThan(3)
      expect(unsent).toBeGreaterThan(0)
      const { order, diverged } = firstDeliveries(await receivedFrom(server.brokers[0] as string, 'cut'))
      expect(Object.keys(order).toSorted()).toEqual(keys.toSorted())
      for (const key of keys) expect(order[key]).toEqual(Array.from({ length: 60 }, (_, n) => n + 1))
      expect(diverged).toBe(0)
    })

    test('does not overtake a client that retries after it was given up', async () => {
      const single = await startKafka()
      const way = await startProxy({ targetPort: Number((single.brokers[0] as string).split(':')[1]) })
      const own = kafkaThrough(`127.0.0.1:${way.port}`, { requestTimeout: 30_000 }).producer({
        retry: { initialRetryTime: 10 },
      })
      try {
        await own.connect()
        const sink = kafkaSink({ producer: own, timeoutMs: 1000 })
        await sendAll(sink, [eventOf('held', 'k', 1)])
        let holding: { cut(): void } | undefined
        way.onClientData((chunk, connection) => {
          if (!chunk.includes('lockstep-id') || holding !== undefined) return 'forward'
          holding = connection
          return 'hold'
        })
        const second = eventOf('held', 'k', 2)
        expect(kindOf((await sink.send([second], contextOf()))[0])).toBe('unknown')
        const [again] = await sink.send([second], contextOf())
        expect((again as { unknown: string }).unknown).toContain('given up')
        // The client notices, and sends it once more by itself.
        ;(holding as unknown as { cut(): void }).cut()
        await sendAll(sink, [second, eventOf('held', 'k', 3)])
        const seqs = (await receivedFrom(single.brokers[0] as string, 'held')).map(({ seq }) => seq)
        expect(seqs).toEqual(seqs.toSorted((a, b) => a - b))
        expect(new Set(seqs)).toEqual(new Set([1, 2, 3]))
      } finally {
        await own.disconnect()
        await way.close()
        await single.stop()
      }
    })
  })
})
