import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import {
  contextOf,
  eventOf,
  eventsOf,
  firstDeliveries,
  sendAll,
  type SinkBench,
  underFence,
} from './sinkBench.conformance.ts'

const KEYS = ['a', 'b', 'c', 'd', 'e']
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)
const inOrder = (keys: readonly string[], count: number): Record<string, number[]> =>
  Object.fromEntries(keys.map((key) => [key, upTo(count)]))
const kindOf = (answer: Delivery | undefined): string =>
  typeof answer === 'object' ? (Object.keys(answer)[0] as string) : String(answer)

/** What every sink promises to the dispatcher, against its real broker. */
export function describeSink(name: string, prepare: () => Promise<SinkBench>): void {
  describe(name, () => {
    let bench: SinkBench
    const opened: Sink[] = []
    beforeAll(async () => {
      bench = await prepare()
    }, 60_000)
    afterEach(async () => {
      bench.proxy.onClientData(undefined)
      bench.proxy.onServerData(undefined)
      for (const sink of opened.splice(0)) await sink.close?.()
    })
    afterAll(async () => {
      await bench?.close()
    })

    async function open(): Promise<Sink> {
      const sink = await bench.open()
      await sink.open?.()
      opened.push(sink)
      return sink
    }
    /** A topic of the test's own. */
    const newTopic = (): string => `t-${randomUUID().slice(0, 8)}`
    const deliveries = async (topic: string): Promise<ReturnType<typeof firstDeliveries>> =>
      firstDeliveries(await bench.received(topic))
    const expectOnce = async (topic: string, keys: readonly string[], count: number): Promise<void> => {
      const { order, again, diverged } = await deliveries(topic)
      expect(order).toEqual(inOrder(keys, count))
      expect(diverged).toBe(0)
      if (bench.again === 'kept out') expect(again).toBe(0)
    }

    test('delivers events of a key in order over batches, and keys in parallel', async () => {
      const sink = await open()
      const topic = newTopic()
      for (const from of [1, 21, 41]) {
        const answers = await sink.send(eventsOf(topic, KEYS, 20, from), contextOf())
        expect(new Set(answers.map(kindOf))).toEqual(new Set(['sent']))
      }
      expect(await deliveries(topic)).toEqual({ order: inOrder(KEYS, 60), again: 0, diverged: 0 })
    })

    test('delivers number, id, fence, headers and payload', async () => {
      const sink = await open()
      const topic = newTopic()
      const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
      const events = [
        eventOf(topic, 'k', 1, {
          payload: { text: 'Größe ✓', n: 1.5 },
          headers: { traceparent, tenant: 'eu' },
          fence: 7n,
        }),
        eventOf(topic, 'k', 2, { bytes: Buffer.from([0, 255, 10, 13]) }),
        eventOf(topic, 'k', 3, { tombstone: 'skipped', headers: { tenant: 'eu' } }),
        eventOf(topic, 'Schlüssel / 1*>.#', 1, { payload: null }),
      ]
      expect(await sink.send(events, contextOf({ fence: 7n }))).toEqual(['sent', 'sent', 'sent', 'sent'])
      const received = await bench.received(topic)
      for (const event of events) {
        const got = received.find(({ key, seq }) => key === event.key && seq === event.seq)
        const { id, fence, history, payload, headers, enqueuedAt, tombstone, contentType } = event
        expect(got).toMatchObject({ topic, id, fence, history, headers, enqueuedAt, tombstone, contentType })
        expect(got?.payload).toEqual(payload)
      }
    })

    test('carries the attributes of CloudEvents, and consumers read the same event', async ({ skip }) => {
      const { headers: headersOf, cloudEvents } = bench
      skip(headersOf === undefined || cloudEvents === undefined, 'an event is no message there')
      const { prefix, text } = cloudEvents as { prefix: string; text: string }
      const sink = await bench.open({
        cloudEvents: {
          source: '/shop',
          type: ({ key, seq }) => (key === 'bad' ? '' : `com.example.${seq}`),
          dataschema: ({ seq }) => (seq === 1 ? 'https://example.com/v1' : undefined),
        },
      })
      const topic = newTopic()
      const own = { tenant: 'eu', [`${prefix}traceparent`]: '00-1', [`${prefix.toUpperCase()}TYPE`]: 'forged' }
      const key = 'Größe "1" 100%'
      const events = [
        eventOf(topic, key, 1, { headers: own }),
        eventOf(topic, key, 2, { tombstone: 'skipped' }),
        eventOf(topic, 'bad', 1),
      ]
      const answers = await sink.send(events, contextOf())
      expect(answers.map(kindOf)).toEqual(['sent', 'sent', 'refused'])
      const attributes = (await (headersOf as NonNullable<typeof headersOf>)(topic)).map((headers) =>
        Object.fromEntries(
          Object.entries(headers).flatMap(([header, value]) =>
            header.toLowerCase().startsWith(prefix.toLowerCase()) && !header.endsWith('datacontenttype')
              ? [[header.slice(prefix.length), value]]
              : [],
          ),
        ),
      )
      const [first, second] = events as [OutboxEvent, OutboxEvent]
      const common = { specversion: '1.0', source: '/shop', subject: text, partitionkey: text }
      expect(attributes).toEqual([
        {
          ...common,
          id: first.id,
          type: 'com.example.1',
          time: first.enqueuedAt.toISOString(),
          dataschema: 'https://example.com/v1',
          traceparent: '00-1',
        },
        { ...common, id: second.id, type: 'lockstep.tombstone', time: second.enqueuedAt.toISOString() },
      ])
      const received = await bench.received(topic)
      expect(received).toMatchObject([
        { topic, key, seq: 1, id: first.id, payload: first.payload },
        { topic, key, seq: 2, id: second.id, tombstone: 'skipped', headers: {} },
      ])
      expect(received[0]?.headers).toMatchObject({ tenant: 'eu', [`${prefix.toLowerCase()}traceparent`]: '00-1' })
      expect(received[0]?.headers).not.toHaveProperty([`${prefix.toLowerCase()}id`])
    })

    test('stops only the key of a refused event', async () => {
      const sink = await open()
      const topic = newTopic()
      const events = eventsOf(topic, KEYS, 5).map((event) =>
        event.key === 'c' && event.seq === 3 ? { ...event, ...oversized(event) } : event,
      )
      const answers = await sink.send(events, contextOf())
      const kinds = (key: string): string[] => answers.filter((_, place) => events[place]?.key === key).map(kindOf)
      expect(kinds('c')).toEqual(['sent', 'sent', 'refused', 'unknown', 'unknown'])
      for (const key of ['a', 'b', 'd', 'e']) expect(kinds(key)).toEqual(Array(5).fill('sent'))
      expect((await deliveries(topic)).order).toEqual({ ...inOrder(KEYS, 5), c: [1, 2] })
      // And the key can continue with what takes its place.
      await sendAll(sink, [eventOf(topic, 'c', 3), eventOf(topic, 'c', 4)])
      expect((await deliveries(topic)).order['c']).toEqual([1, 2, 3, 4])
    })

    function oversized(event: OutboxEvent): Pick<OutboxEvent, 'payload' | 'body'> {
      const { payload, body } = eventOf(event.topic, event.key, event.seq, { payload: 'x'.repeat(bench.tooLarge) })
      return { payload, body }
    }

    test('refuses an oversized event with its size, and keeps the connection', async () => {
      const sink = await open()
      const topic = newTopic()
      const large = eventOf(topic, 'k', 1, { payload: 'x'.repeat(bench.tooLarge) })
      const [answer] = await sink.send([large], contextOf())
      expect(kindOf(answer)).toBe('refused')
      expect((answer as { refused: string }).refused).toMatch(/\d{4,}/)
      expect(await sink.send([eventOf(topic, 'other', 1)], contextOf())).toEqual(['sent'])
    })

    test('sends events again whose confirmation was lost, once or with the same id', async () => {
      const sink = await open()
      const topic = newTopic()
      await sendAll(sink, eventsOf(topic, ['k'], 2))
      const third = eventOf(topic, 'k', 3)
      const mark = Buffer.from(third.id)
      let struck = 0
      bench.proxy.onClientData((chunk, connection) => {
        if (struck > 0 || !chunk.includes(mark)) return 'forward'
        struck = connection.id
        return 'forward'
      })
      bench.proxy.onServerData((_, connection) => (connection.id === struck ? 'cut-before' : 'forward'))
      const [answer] = await sink.send([third], contextOf()).catch((): Delivery[] => [{ unknown: 'it threw' }])
      expect(struck).toBeGreaterThan(0)
      bench.proxy.onClientData(undefined)
      bench.proxy.onServerData(undefined)
      // A client may have asked again by itself.
      expect(['unknown', 'failed', 'sent']).toContain(kindOf(answer))
      await sendAll(sink, [third, eventOf(topic, 'k', 4)])
      await expectOnce(topic, ['k'], 4)
    })

    test('stores nothing of a paused dispatcher behind events of its successor', async () => {
      const [late, next] = [await open(), await open()]
      // Who says so has its shards taken over while a late sender is alive.
      expect(late.enforcesFences ?? false).toBe(bench.again === 'kept out')
      const topic = newTopic()
      await sendAll(late, eventsOf(topic, ['k'], 2))
      const held = [3, 4].map((seq) => eventOf(topic, 'k', seq))
      const mark = Buffer.from(held[0]?.id as string)
      const paused = new Promise<{ release(): void }>((resolve) => {
        bench.proxy.onClientData((chunk, connection) => {
          if (!chunk.includes(mark)) return 'forward'
          resolve(connection)
          return 'hold'
        })
      })
      const sending = late.send(held, contextOf()).catch(() => [])
      const holding = await paused
      bench.proxy.onClientData(undefined)
      await sendAll(next, underFence(held, 2n), contextOf({ fence: 2n }))
      await sendAll(next, [eventOf(topic, 'k', 5, { fence: 2n })], contextOf({ fence: 2n }))
      holding.release()
      await sending
      await late.send(held, contextOf()).catch(() => [])
      await expectOnce(topic, ['k'], 5)
      await sendAll(next, [eventOf(topic, 'k', 6, { fence: 2n })], contextOf({ fence: 2n }))
      await expectOnce(topic, ['k'], 6)
    })

    test('sends nothing after an abort', async () => {
      const sink = await open()
      const topic = newTopic()
      const lost = new AbortController()
      lost.abort(new Error('the shard was lost'))
      const answers = await sink.send(eventsOf(topic, KEYS, 2), contextOf({ signal: lost.signal }))
      expect(answers.map(kindOf)).not.toContain('sent')
      expect(answers.map(kindOf)).not.toContain('refused')
      expect(await bench.received(topic)).toEqual([])
    })

    test('sends batches of several shards in parallel', async () => {
      const sink = await open()
      const topic = newTopic()
      const shards = [0, 1, 2].map((shard) => KEYS.map((key) => `${key}${shard}`))
      await Promise.all(
        shards.map((keys, shard) => sendAll(sink, eventsOf(topic, keys, 10), contextOf({ shard, fence: 1n }))),
      )
      await expectOnce(topic, shards.flat(), 10)
    })

    test('reports unknown in time for a silent broker, and delivers what follows', async () => {
      const sink = await open()
      const topic = newTopic()
      const first = eventOf(topic, 'k', 1)
      await sendAll(sink, [eventOf(topic, 'other', 1)])
      bench.proxy.silence()
      const [answer] = await sink.send([first], contextOf()).catch((): Delivery[] => [{ unknown: 'it threw' }])
      expect(['unknown', 'failed']).toContain(kindOf(answer))
      bench.proxy.resume()
      bench.proxy.cutAll()
      await sendAll(sink, [first, eventOf(topic, 'k', 2)])
      expect((await deliveries(topic)).order['k']).toEqual([1, 2])
    })

    test('refuses nothing while the broker is down, and delivers everything when it is back', async () => {
      const sink = await open()
      const topic = newTopic()
      await sendAll(sink, eventsOf(topic, KEYS, 3))
      expect(await sink.healthy?.()).toBe(true)
      await bench.kill()
      const events = eventsOf(topic, KEYS, 3, 4)
      const answers = await sink.send(events, contextOf()).catch((): Delivery[] => [{ unknown: 'it threw' }])
      expect(answers.map(kindOf)).not.toContain('sent')
      expect(answers.map(kindOf)).not.toContain('refused')
      expect(await sink.healthy?.()).toBe(false)
      await bench.start()
      while ((await sink.healthy?.()) === false) await new Promise((resolve) => setTimeout(resolve, 50))
      await sendAll(sink, events)
      await expectOnce(topic, KEYS, 6)
    }, 60_000)

    test('keeps confirmed events when the broker is killed, and delivers the rest in order', async () => {
      const sink = await open()
      const topic = newTopic()
      await sendAll(sink, eventsOf(topic, KEYS, 1))
      const events = eventsOf(topic, KEYS, 60, 2)
      let killing: Promise<void> | undefined
      const mark = Buffer.from(events[40]?.id as string)
      bench.proxy.onClientData((chunk) => {
        if (chunk.includes(mark)) killing ??= bench.kill()
        return 'forward'
      })
      const answers = await sink.send(events, contextOf()).catch((): Delivery[] => events.map(() => ({ unknown: '' })))
      expect(killing).toBeDefined()
      await killing
      bench.proxy.onClientData(undefined)
      expect(answers.map(kindOf)).not.toContain('refused')
      const sent = events.filter((_, place) => answers[place] === 'sent')
      await bench.start()
      const there = new Set((await bench.received(topic)).map(({ key, seq }) => `${key} ${seq}`))
      expect(sent.filter(({ key, seq }) => !there.has(`${key} ${seq}`))).toEqual([])
      const left = events.filter((_, place) => answers[place] !== 'sent')
      await sendAll(sink, left)
      await expectOnce(topic, KEYS, 61)
    }, 60_000)

    test('sends after close() and open()', async () => {
      const sink = await open()
      const topic = newTopic()
      await sendAll(sink, eventsOf(topic, KEYS, 2))
      await sink.close?.()
      expect(kindOf((await sink.send([eventOf(topic, 'z', 1)], contextOf()))[0])).not.toBe('sent')
      await sink.open?.()
      expect(await sink.healthy?.()).not.toBe(false)
      // As another run() has it: its shards have later fences.
      const context = contextOf({ fence: 2n })
      await sendAll(sink, underFence(eventsOf(topic, KEYS, 2, 3), 2n), context)
      await expectOnce(topic, KEYS, 4)
    })

    test('stays open for others when one user closes it', async () => {
      const sink = await open()
      const topic = newTopic()
      await sink.open?.()
      await sink.close?.()
      await sendAll(sink, eventsOf(topic, KEYS, 2))
      await sink.close?.()
      expect(kindOf((await sink.send([eventOf(topic, 'z', 1)], contextOf()))[0])).not.toBe('sent')
      await expectOnce(topic, KEYS, 2)
    })

    test('refuses only an event with malformed headers, and sends nothing twice', async () => {
      const sink = await open()
      const topic = newTopic()
      const malformed: unknown[] = [null, 'text', { a: null }, { a: { toString: 1 } }, { a: 1 }]
      const bad = malformed.map((headers, n) => eventOf(topic, `bad${n}`, 1, { headers: headers as never }))
      const events = [...eventsOf(topic, KEYS, 1), ...bad, ...eventsOf(topic, KEYS, 1, 2)]
      const answers = await sink.send(events, contextOf())
      const expected = events.map((event) => (bad.includes(event) ? 'refused' : 'sent'))
      expect(answers.map(kindOf)).toEqual(expected)
      await expectOnce(topic, KEYS, 2)
      expect((await bench.received(topic)).length).toBe(KEYS.length * 2)
    })

    test('finishes the batch on close(), and sends nothing after it', async () => {
      const sink = await open()
      const topic = newTopic()
      await sendAll(sink, eventsOf(topic, KEYS, 1))
      const events = eventsOf(topic, KEYS, 40, 2)
      const sending = sink.send(events, contextOf()).catch((): Delivery[] => events.map(() => ({ unknown: '' })))
      await sink.close?.()
      const answers = await sending
      expect(answers.map(kindOf)).not.toContain('refused')
      const count = (await bench.received(topic)).length
      expect(count).toBeGreaterThanOrEqual(KEYS.length + answers.filter((answer) => answer === 'sent').length)
      const after = await sink.send([eventOf(topic, 'z', 1)], contextOf()).catch((): Delivery[] => [{ unknown: '' }])
      expect(kindOf(after[0])).not.toBe('sent')
      expect((await bench.received(topic)).length).toBe(count)
    })
  })
}
