/** What is special to RabbitMQ, against a real server. */
import { connect } from 'amqplib'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { rabbitAvailable, type RabbitServer, startRabbit } from '../../tools/server/rabbitmq.ts'
import type { Delivery, Sink } from '../outbox/index.ts'
import { readMessage, type ReceivedEvent } from './message.ts'
import { type RabbitmqOptions, rabbitmqSink } from './rabbitmq.ts'
import { contextOf, eventOf, eventsOf, sendAll } from './sinkBench.conformance.ts'

const SERVER_BYTES = 100_000
const kinds = (answers: readonly Delivery[]): (string | undefined)[] =>
  answers.map((answer) => (typeof answer === 'object' ? Object.keys(answer)[0] : answer))
const reasonOf = (answer: Delivery | undefined): string => String(Object.values(answer as object)[0])

describe.skipIf(!rabbitAvailable())('RabbitMQ alone', () => {
  let server: RabbitServer
  let admin: Awaited<ReturnType<typeof connect>>
  let channel: Awaited<ReturnType<typeof admin.createChannel>>
  const opened: Sink[] = []
  beforeAll(async () => {
    server = await startRabbit({ maxMessageBytes: SERVER_BYTES })
    admin = await connect(server.url)
    channel = await admin.createChannel()
  })
  afterEach(async () => {
    for (const sink of opened.splice(0)) await sink.close?.()
  })
  afterAll(async () => {
    await admin?.close()
    await server?.stop()
  })

  function open(exchange: string, options: Partial<RabbitmqOptions> = {}): Sink {
    const sink = rabbitmqSink({ connect: () => connect(server.url), exchange, timeoutMs: 3000, ...options })
    opened.push(sink)
    return sink
  }
  async function topology(name: string, pattern = '#', queue: object = {}): Promise<void> {
    await channel.assertExchange(name, 'topic', { durable: true })
    await channel.assertQueue(name, { durable: true, ...queue })
    await channel.bindQueue(name, name, pattern)
  }
  async function taken(queue: string): Promise<ReceivedEvent[]> {
    const events: ReceivedEvent[] = []
    for (;;) {
      const message = await channel.get(queue, { noAck: true })
      if (message === false) return events
      events.push(readMessage(message.properties.headers ?? {}, message.content))
    }
  }

  test('refuses events that no queue takes, with the routing key, and delivers other streams', async () => {
    await topology('routes', 'trades.eu.*')
    const sink = open('routes', { routingKey: '{topic}.{key}' })
    const events = [...eventsOf('trades', ['eu.a', 'us.b'], 2), eventOf('trades', 'eu.c', 1)]
    const answers = await sink.send(events, contextOf())
    expect(kinds(answers)).toEqual(['sent', 'refused', 'sent', 'unknown', 'sent'])
    expect(reasonOf(answers[1])).toMatch(/#1 of trades\/us\.b: 312 NO_ROUTE\. .*"routes".*"trades\.us\.b"/)
    await channel.bindQueue('routes', 'routes', 'trades.us.*')
    await sendAll(sink, eventsOf('trades', ['us.b'], 2))
    expect((await taken('routes')).map(({ key, seq }) => `${key} ${seq}`)).toEqual([
      'eu.a 1',
      'eu.c 1',
      'eu.a 2',
      'us.b 1',
      'us.b 2',
    ])
  })

  test('refuses only events larger than the limit of the server, and remembers the limit', async () => {
    await topology('sizes')
    const sink = open('sizes')
    const large = eventOf('t', 'large', 1, { payload: 'x'.repeat(SERVER_BYTES) })
    const answers = await sink.send([eventOf('t', 'a', 1), large, eventOf('t', 'b', 1)], contextOf())
    expect(kinds(answers)[1]).toBe('refused')
    expect(reasonOf(answers[1])).toContain(`${large.body.length} bytes, more than ${SERVER_BYTES}`)
    expect(kinds(answers)).not.toContain('failed')
    // The channel is gone, and now the limit is known: nothing else is held up by it again.
    expect(kinds(await sink.send([eventOf('t', 'c', 1), large, eventOf('t', 'd', 1)], contextOf()))).toEqual([
      'sent',
      'refused',
      'sent',
    ])
  })

  test('reports unknown with advice for a missing exchange, and continues when it is declared', async () => {
    const sink = open('later')
    const answers = await sink.send(eventsOf('t', ['a', 'b'], 2), contextOf())
    expect(new Set(kinds(answers))).toEqual(new Set(['unknown']))
    expect(reasonOf(answers[0])).toMatch(/NOT_FOUND.*Declare the exchange "later"/)
    expect(await sink.healthy?.()).toBe(false)
    await topology('later')
    expect(await sink.healthy?.()).toBe(true)
    await sendAll(sink, eventsOf('t', ['a', 'b'], 2))
    expect((await taken('later')).length).toBe(4)
  })

  test('reports unknown when a queue is full, and sends nothing behind it', async () => {
    await topology('full', '#', { arguments: { 'x-max-length': 2, 'x-overflow': 'reject-publish' } })
    const sink = open('full')
    const events = eventsOf('t', ['a'], 5)
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['sent', 'sent', 'unknown', 'unknown', 'unknown'])
    const seen = (await taken('full')).map(({ seq }) => seq)
    await sendAll(sink, events.slice(2, 4))
    expect([...seen, ...(await taken('full')).map(({ seq }) => seq)]).toEqual([1, 2, 3, 4])
  })

  test('sends more than the socket buffers', async () => {
    await topology('much')
    const sink = open('much')
    const keys = Array.from({ length: 60 }, (_, index) => `k${index}`)
    const payload = 'x'.repeat(90_000)
    const events = [1, 2, 3].flatMap((seq) => keys.map((key) => eventOf('t', key, seq, { payload })))
    expect(new Set(await sink.send(events, contextOf()))).toEqual(new Set(['sent']))
    const order: Record<string, number[]> = {}
    for (const { key, seq } of await taken('much')) (order[key] ??= []).push(seq)
    expect(order).toEqual(Object.fromEntries(keys.map((key) => [key, [1, 2, 3]])))
  })

  test('delivers to the queue of that name through the default exchange', async () => {
    await channel.assertQueue('trades', { durable: true })
    const sink = open('')
    expect(await sink.healthy?.()).toBe(true)
    expect(await sink.send([eventOf('trades', 'k', 1)], contextOf())).toEqual(['sent'])
    expect(await taken('trades')).toMatchObject([{ topic: 'trades', key: 'k', seq: 1 }])
  })

  test('refuses events that RabbitMQ cannot carry, and keeps the connection', async () => {
    await topology('odd')
    const sink = open('odd', { routingKey: ({ key }) => (key === 'fails' ? fail() : key) })
    function fail(): never {
      throw new Error('no route')
    }
    const answers = await sink.send(
      [
        eventOf('t', 'fine', 1, { headers: { note: 'a\r\nb: ✓' } }),
        eventOf('t', 'k'.repeat(256), 1),
        eventOf('t', 'copy', 1, { headers: { CC: 'elsewhere' } }),
        eventOf('t', 'name', 1, { headers: { ['n'.repeat(256)]: 'x' } }),
        eventOf('t', 'headers', 1, { headers: { note: 'x'.repeat(70_000) } }),
        eventOf('t', 'fails', 1),
        eventOf('t', 'fine', 2),
      ],
      contextOf(),
    )
    expect(kinds(answers)).toEqual(['sent', 'refused', 'refused', 'refused', 'refused', 'failed', 'sent'])
    expect((await taken('odd')).map(({ headers }) => headers['note'])).toEqual(['a\r\nb: ✓', undefined])
  })

  test('opens another channel or connection after the server closed it', async () => {
    await topology('closed')
    let connection: Awaited<ReturnType<typeof connect>> | undefined
    const sink = open('closed', { connect: async () => (connection = await connect(server.url)) })
    await sendAll(sink, eventsOf('t', ['a'], 2))
    await connection?.close()
    await sendAll(sink, eventsOf('t', ['a'], 2, 3))
    expect((await taken('closed')).map(({ seq }) => seq)).toEqual([1, 2, 3, 4])
  })
})
