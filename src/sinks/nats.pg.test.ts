import { setTimeout as delay } from 'node:timers/promises'
import { jetstream, type JetStreamClient, jetstreamManager, type JetStreamManager } from '@nats-io/jetstream'
import { connect, headers, type NatsConnection } from '@nats-io/transport-node'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nats } from '../../tools/brokers/nats.ts'
import { natsAvailable, startNats } from '../../tools/server/nats.ts'
import type { RestartableServer } from '../../tools/server/restartableServer.ts'
import type { Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import { type NatsClient, natsSink, type NatsSinkOptions, natsSubject } from './nats.ts'
import { benchOf, contextOf, eventOf, eventsOf, sendAll } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

const like = (pattern: RegExp): string => expect.stringMatching(pattern) as string

describe.skipIf(!natsAvailable())('the NATS sink', () => {
  describeSink('NATS', () =>
    benchOf(nats, {
      again: 'kept out',
      tooLarge: 1_048_577,
      cloudEvents: { prefix: 'ce-', text: 'Gr%C3%B6%C3%9Fe%20%221%22%20100%25' },
    }),
  )
})

describe.skipIf(!natsAvailable())('NATS alone', () => {
  const STREAM = 'SPECIAL'
  const subject = 's.{topic}.{key}'
  let server: RestartableServer
  let client: NatsConnection
  let manager: JetStreamManager
  let js: JetStreamClient
  let count = 0
  beforeAll(async () => {
    server = await startNats()
    client = await connect({ servers: `127.0.0.1:${server.port}` })
    manager = await jetstreamManager(client)
    js = jetstream(client)
    // The shortest that there is: an id is soon as good as never seen.
    await manager.streams.add({ name: STREAM, subjects: ['s.>'], duplicate_window: 100_000_000, max_msg_size: 100_000 })
  })
  afterAll(async () => {
    await client?.close()
    await server?.stop()
  })

  const newTopic = (): string => `t${++count}`
  const sinkWith = (options: Partial<NatsSinkOptions> = {}): Sink =>
    natsSink({ client, stream: STREAM, subject, timeoutMs: 2000, ...options })
  const answersOf = (sink: Sink, ...events: Parameters<Sink['send']>[0]): Promise<readonly Delivery[]> =>
    sink.send(events, contextOf())
  const subjectOf = (topic: string, key = 'k'): string => natsSubject({ topic, key }, subject)
  /** The numbers that a subject has, in its order. */
  async function numbersOf(topic: string, key = 'k'): Promise<number[]> {
    const numbers: number[] = []
    for (let seq = 1; ;) {
      const query = JSON.stringify({ seq, next_by_subj: subjectOf(topic, key) })
      const answer = await client.request(`$JS.API.STREAM.MSG.GET.${STREAM}`, query)
      const { message } = answer.json<{ message?: { seq: number; hdrs: string } }>()
      if (message === undefined) return numbers
      numbers.push(Number(/^lockstep-seq: (\d+)/m.exec(Buffer.from(message.hdrs, 'base64').toString())?.[1]))
      seq = message.seq + 1
    }
  }
  /** Counts what is asked, by the beginning of the subject. */
  function counting(): { readonly client: NatsClient; asked: { publishes: number; looks: number } } {
    const asked = { publishes: 0, looks: 0 }
    const request: NatsClient['request'] = (to, payload, options) => {
      asked[to.startsWith('$JS.') ? 'looks' : 'publishes']++
      return client.request(to, payload, options as { timeout: number })
    }
    return { client: { request, flush: () => client.flush(), info: client.info }, asked }
  }
  /** Comes back when the stream does not know the ids of before: when it takes one again that came after them. */
  async function forgotten(): Promise<void> {
    const msgID = `canary-${++count}`
    await js.publish('s.canary', '', { msgID })
    while ((await js.publish('s.canary', '', { msgID })).duplicate) await delay(20)
  }

  test('sends one request per event, and one more for a new sink', async () => {
    const topic = newTopic()
    const { client: counted, asked } = counting()
    const sink = sinkWith({ client: counted })
    await sendAll(sink, eventsOf(topic, ['a', 'b'], 3))
    await sendAll(sink, eventsOf(topic, ['a', 'b'], 3, 4))
    expect(asked).toEqual({ publishes: 12, looks: 0 })
    await sendAll(sinkWith({ client: counted }), eventsOf(topic, ['a', 'b'], 3, 7))
    expect(asked).toEqual({ publishes: 18, looks: 2 })
  })

  test('begins an empty subject with 1, or with start', async () => {
    const topic = newTopic()
    const [refused, after] = await answersOf(sinkWith(), eventOf(topic, 'k', 7), eventOf(topic, 'k', 8))
    expect(refused).toEqual({ refused: like(/is empty, and begins with #1, not with #7.*start/) })
    expect(after).toEqual({ unknown: 'an earlier event of its stream was not sent' })
    expect(await answersOf(sinkWith({ start: 8 }), eventOf(topic, 'k', 7))).toEqual([{ refused: like(/#8, not/) }])
    expect(await answersOf(sinkWith({ start: 'anywhere' }), eventOf(topic, 'k', 7))).toEqual(['sent'])
    const start: NatsSinkOptions['start'] = ({ key }) => (key === 'late' ? 100 : 1)
    const two = [eventOf(topic, 'late', 100), eventOf(topic, 'new', 1)]
    expect(await answersOf(sinkWith({ start }), ...two)).toEqual(['sent', 'sent'])
    expect(await answersOf(sinkWith({ start: () => 0 }), eventOf(topic, 'z', 1))).toMatchObject([
      { refused: like(/start gave 0/) },
    ])
  })

  test('refuses an event that would leave a gap, with the number to continue from', async () => {
    const topic = newTopic()
    const sink = sinkWith({ start: 'anywhere' })
    await sendAll(sink, eventsOf(topic, ['k'], 2))
    expect(await answersOf(sink, eventOf(topic, 'k', 4))).toEqual([
      { refused: like(/ends with #2: #4 would leave a gap.*replay.*from #3/) },
    ])
    expect(await numbersOf(topic)).toEqual([1, 2])
  })

  test('recognizes duplicates by number and id, also older ones and without Msg-Id', async () => {
    const topic = newTopic()
    // Others in between: places and numbers are not the same.
    const events = Array.from({ length: 30 }, (_, index) => eventOf(topic, 'k', index + 1))
    for (const event of events) await sendAll(sinkWith(), [event, eventOf(topic, `other${event.seq}`, 1)])
    await forgotten()
    const { client: counted, asked } = counting()
    expect(await answersOf(sinkWith({ client: counted }), ...events.slice(7))).toEqual(Array(23).fill('sent'))
    expect(await numbersOf(topic)).toEqual(events.map(({ seq }) => seq))
    // The first is searched by halves, the next ones are right behind it.
    expect(asked.looks).toBeLessThan(7 + 2 * 23)
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 9), events[9]!)).toEqual([
      { refused: like(/another event as #9: its id is/) },
      { unknown: like(/earlier/) },
    ])
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 30))).toEqual([{ refused: like(/another event as #30/) }])
  })

  test('accepts a duplicate whose message is gone', async () => {
    const topic = newTopic()
    const events = eventsOf(topic, ['k'], 6)
    await sendAll(sinkWith(), events)
    await forgotten()
    await manager.streams.purge(STREAM, { filter: subjectOf(topic), keep: 2 })
    expect(await answersOf(sinkWith(), ...events, eventOf(topic, 'k', 7))).toEqual(Array(7).fill('sent'))
    expect(await numbersOf(topic)).toEqual([5, 6, 7])
    // Unless it is of a later generation than the end: then its number was assigned again.
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 2, { generation: 2 }))).toEqual([
      { refused: like(/had another event as #2/) },
    ])
  })

  test('begins a purged subject with start, whatever the sink remembers', async () => {
    const topic = newTopic()
    const sink = sinkWith()
    const events = eventsOf(topic, ['k'], 3)
    await sendAll(sink, events)
    await forgotten()
    await manager.streams.purge(STREAM, { filter: subjectOf(topic) })
    expect(await answersOf(sink, eventOf(topic, 'k', 4))).toEqual([{ refused: like(/is empty/) }])
    expect(await answersOf(sink, events[2]!)).toEqual([{ refused: like(/is empty/) }])
    expect(await numbersOf(topic)).toEqual([])
    expect(await answersOf(sinkWith({ start: 4 }), eventOf(topic, 'k', 4))).toEqual(['sent'])
  })

  test('forgets all positions when a subject of a recreated stream has gone back', async () => {
    const again = { name: 'AGAIN', subjects: ['again.>'] }
    const options = { stream: 'AGAIN', subject: 'again.{topic}.{key}' }
    const topic = newTopic()
    await manager.streams.add(again)
    const sink = sinkWith(options)
    const [a1, a2, a3] = eventsOf(topic, ['a'], 3) as [OutboxEvent, OutboxEvent, OutboxEvent]
    await sendAll(sink, [eventOf(topic, 'c', 1)])
    await sendAll(sink, [a1])
    await sendAll(sink, [a2])
    await manager.streams.delete('AGAIN')
    await manager.streams.add(again)
    // Another program sends all messages again, in another order: now #1 is where #2 was.
    const replay = sinkWith(options)
    for (const event of [...eventsOf(topic, ['b'], 2), a1]) await sendAll(replay, [event])
    expect(await answersOf(sink, eventOf(topic, 'c', 2))).toEqual([{ refused: like(/is empty/) }])
    expect(await answersOf(sink, a3)).toEqual([{ refused: like(/ends with #1: #3 would leave a gap/) }])
    await sendAll(replay, [a2])
    expect(await answersOf(sink, a3)).toEqual(['sent'])
    await manager.streams.delete('AGAIN')
  })

  test('does not take a remembered Msg-Id for a stored message', async () => {
    const topic = newTopic()
    const event = eventOf(topic, 'k', 1)
    await sendAll(sinkWith(), [event])
    await manager.streams.purge(STREAM, { filter: subjectOf(topic) })
    const answers = [...(await answersOf(sinkWith(), event)), ...(await answersOf(sinkWith(), event))]
    // On a slow machine the id is forgotten by then.
    for (const answer of answers) if (answer !== 'sent') expect(answer).toEqual({ unknown: like(/remembers the id/) })
    await sendAll(sinkWith(), [event])
    expect(await numbersOf(topic)).toEqual([1])
  })

  test('reads the end of the subject again when another sink has sent meanwhile', async () => {
    const topic = newTopic()
    const [old, next] = [sinkWith(), sinkWith()]
    const events = eventsOf(topic, ['k'], 6)
    await sendAll(old, events.slice(0, 2))
    await sendAll(next, events.slice(2, 5))
    await forgotten()
    expect(await answersOf(old, events[2]!, eventOf(topic, 'k', 4))).toEqual([
      'sent',
      { refused: like(/another event as #4/) },
    ])
    expect(await answersOf(old, ...events.slice(3))).toEqual(['sent', 'sent', 'sent'])
    expect(await answersOf(next, ...events.slice(4))).toEqual(['sent', 'sent'])
    expect(await numbersOf(topic)).toEqual([1, 2, 3, 4, 5, 6])
  })

  test('stores a late publish at its own position or not at all', async () => {
    const topic = newTopic()
    const held: (() => Promise<unknown>)[] = []
    const slow: NatsClient = {
      request: (to, payload, options) => {
        held.push(() => client.request(to, payload, options as { timeout: number }))
        return Promise.reject(new Error('timeout'))
      },
      flush: () => client.flush(),
    }
    const [one, two, three] = eventsOf(topic, ['k'], 3) as [never, never, never]
    const late = sinkWith({ client: slow })
    expect(await answersOf(late, one, two)).toMatchObject([{ unknown: like(/timeout/) }, { unknown: like(/earlier/) }])
    await sendAll(sinkWith(), [one, two, three])
    await forgotten()
    for (const run of held) await run()
    expect(await numbersOf(topic)).toEqual([1, 2, 3])
  })

  test('handles foreign messages, and refuses headers that are instructions or cannot be sent', async () => {
    const topic = newTopic()
    await client.request(subjectOf(topic, 'other'), 'x', { timeout: 1000, headers: headers() })
    const answers = await answersOf(
      sinkWith(),
      eventOf(topic, 'other', 1),
      eventOf(topic, 'rollup', 1, { headers: { 'Nats-Rollup': 'all' } }),
      eventOf(topic, 'lines', 1, { headers: { note: 'one\r\nNats-Rollup: all' } }),
      eventOf(topic, 'name', 1, { headers: { 'a: b': 'c' } }),
      eventOf(topic, 'fine', 1, { headers: { note: 'Größe: ✓' } }),
    )
    expect(answers).toEqual([
      { refused: like(/no Lockstep has sent/) },
      { refused: like(/an order to NATS/) },
      { refused: like(/cannot carry/) },
      { refused: like(/cannot carry/) },
      'sent',
    ])
  })

  test('refuses events that are too large, and keeps the connection', async () => {
    const topic = newTopic()
    const large = eventOf(topic, 'k', 1, { payload: 'x'.repeat(200_000) })
    expect(await answersOf(sinkWith(), large)).toEqual([{ refused: like(/20\d{4} bytes.*max_msg_size/) }])
    expect(await answersOf(sinkWith(), eventOf(topic, 'ü'.repeat(999), 1))).toEqual([{ refused: like(/subject of/) }])
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 1))).toEqual(['sent'])
  })

  test('reports unknown with advice for a missing or different stream', async () => {
    const topic = newTopic()
    const event = eventOf(topic, 'k', 1)
    expect(await answersOf(sinkWith({ subject: 'nobody.{topic}.{key}' }), event)).toMatchObject([
      { unknown: like(/Create the stream SPECIAL/) },
    ])
    expect(await answersOf(sinkWith({ stream: 'OTHER' }), event)).toMatchObject([{ unknown: like(/option stream/) }])
    const missing = sinkWith({ stream: () => 'OTHER', start: 'anywhere' })
    expect(await answersOf(missing, event)).toMatchObject([{ unknown: like(/Create the stream OTHER/) }])
  })

  test('gives different subjects to different streams, and escapes wildcards', () => {
    const pairs = [
      ['a.b', 'c'],
      ['a', 'b.c'],
      ['a', '*'],
      ['a', '>'],
      ['a%2Eb', 'c'],
      ['$JS', 'API'],
    ]
    const all = pairs.map(([topic, key]) => natsSubject({ topic: topic!, key: key! }))
    expect(new Set(all).size).toBe(pairs.length)
    for (const name of all) expect(name).toMatch(/^[^\s*>.$]+\.[^\s*>.$]+$/)
    expect(natsSubject({ topic: 'trades', key: 'growth' })).toBe('trades.growth')
  })

  test('rejects invalid options', () => {
    const wrong: Partial<NatsSinkOptions>[] = [
      { client: {} as never },
      { stream: undefined as never },
      { stream: 'a.b' },
      { subject: 'events' },
      { subject: '{topic}-{key}' },
      { subject: '{topic}..{key}' },
      { subject: '{topic}.{key}.>' },
      { subject: '$JS.{topic}.{key}' },
      { start: -1 },
      { apiPrefix: '' },
      { timeoutMs: 0 },
      { timeoutMs: 2 ** 31 },
    ]
    for (const options of wrong) expect(() => sinkWith(options)).toThrow(/Pass|Name/)
  })
})
