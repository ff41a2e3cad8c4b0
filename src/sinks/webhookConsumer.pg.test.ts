import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { type ConsumerBench, describeConsumer } from '../consumers/consumers.conformance.ts'
import type { EventHandler } from '../consumers/index.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { contextOf, eventsOf, sendAll } from './sinkBench.conformance.ts'
import { type WebhookConsumer, webhookConsumer, webhookSink } from './webhook.ts'

const SECRET = `whsec_${randomBytes(32).toString('base64')}`

/** A server whose requests go to whatever consumer is running, and a sink that keeps sending until it has answered 204. */
async function webhookBench(): Promise<ConsumerBench> {
  const running = new Map<string, WebhookConsumer[]>()
  const server = createServer((message, response) => {
    const chunks: Buffer[] = []
    message.on('data', (chunk: Buffer) => chunks.push(chunk))
    message.on('end', () => {
      const all = running.get(decodeURIComponent(String(message.headers['lockstep-topic']))) ?? []
      const consumer = all[Math.floor(Math.random() * all.length)]
      if (consumer === undefined) {
        response.writeHead(503).end()
        return
      }
      void consumer
        .receive(message.headers, Buffer.concat(chunks))
        .then(({ status, headers, body }) => response.writeHead(status, headers).end(body))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`
  const sink = webhookSink({ url, secret: SECRET, concurrency: 16, timeoutMs: 30_000 })
  const sent = new Map<string, OutboxEvent[]>()
  const sending = new Set<Promise<void>>()
  const closing = new AbortController()
  /** As a dispatcher: what was not taken comes again, from the first of its stream on. */
  const sendUntilTaken = async (events: readonly OutboxEvent[]): Promise<void> => {
    let left = events
    while (left.length > 0 && !closing.signal.aborted) {
      const answers = await sink.send(left, contextOf({ signal: closing.signal }))
      const stopped = new Set<string>()
      left = left.filter((event, place) => {
        if (answers[place] !== 'sent') stopped.add(event.key)
        return stopped.has(event.key)
      })
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  return {
    send(topic, keys, count, from = 1) {
      // Each key by itself: a dispatcher puts one that stops aside, and continues with the others.
      for (const key of keys) {
        const events = eventsOf(topic, [key], count, from)
        const before = sent.get(topic) ?? []
        sent.set(topic, [...before, ...events])
        const work = sendUntilTaken(events).finally(() => sending.delete(work))
        sending.add(work)
      }
      return Promise.resolve()
    },
    sendAgain: (topic) => sendAll(sink, sent.get(topic) ?? []),
    open(lockstep, name, topic, options, handler) {
      const consumer = webhookConsumer(name, { ...options, lockstep, secret: SECRET }, handler as EventHandler)
      let end = (): void => undefined
      return Promise.resolve({
        run() {
          running.set(topic, [...(running.get(topic) ?? []), consumer])
          return new Promise<void>((resolve) => (end = resolve))
        },
        async stop() {
          running.set(
            topic,
            (running.get(topic) ?? []).filter((each) => each !== consumer),
          )
          await consumer.stop()
          end()
        },
      })
    },
    async close() {
      closing.abort()
      await Promise.all(sending)
      await sink.close?.()
      server.close()
      server.closeAllConnections()
    },
  }
}

describeConsumer('A receiver of webhooks', webhookBench)

const bench = await testBench()

describe('a receiver of webhooks', () => {
  test('answers 401 to a request without the right signature, and 503 while it is full', async () => {
    const { lockstep } = bench.open('pg')
    let begun = (): void => undefined
    let goOn = (): void => undefined
    const atWork = new Promise<void>((resolve) => (begun = resolve))
    const released = new Promise<void>((resolve) => (goOn = resolve))
    await using consumer = webhookConsumer('full', { lockstep, secret: SECRET, maxInFlight: 1 }, async () => {
      begun()
      await released
    })
    expect(await consumer.receive({}, '{}')).toMatchObject({ status: 401 })
    const server = createServer((message, response) => {
      const chunks: Buffer[] = []
      message.on('data', (chunk: Buffer) => chunks.push(chunk))
      message.on('end', () => {
        const request = new Request('http://localhost/', {
          method: 'POST',
          headers: message.headers as Record<string, string>,
          body: Buffer.concat(chunks),
        })
        void consumer
          .fetch(request)
          .then((answer) => response.writeHead(answer.status, Object.fromEntries(answer.headers)).end())
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    bench.cleanUp(() => server.close())
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const sink = webhookSink({ url, secret: SECRET, timeoutMs: 30_000 })
    const first = sink.send(eventsOf('t', ['a'], 1), contextOf())
    await atWork
    const [busy] = await sink.send(eventsOf('t', ['b'], 1), contextOf())
    expect(busy).toMatchObject({ unknown: expect.stringContaining('503'), retryAfterMs: 1000 })
    goOn()
    expect(await first).toEqual(['sent'])
    await sink.close?.()
  })
})
