import { Cluster, Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { redis } from '../../tools/brokers/redis.ts'
import { freePort } from '../../tools/server/freePort.ts'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import type { RestartableServer } from '../../tools/server/restartableServer.ts'
import type { Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import { readRedisEntry, type RedisClient, redisSink, type RedisSinkOptions, redisStreamName } from './redis.ts'
import { benchOf, contextOf, eventOf, eventsOf, sendAll } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

const like = (pattern: RegExp): string => expect.stringMatching(pattern) as string

describe.skipIf(!redisAvailable())('the Redis sink', () => {
  describeSink('Redis', () =>
    benchOf(redis, { again: 'kept out', tooLarge: 2_000_001, cloudEvents: { prefix: 'ce_', text: 'Größe "1" 100%' } }),
  )
})

describe.skipIf(!redisAvailable())('Redis alone', () => {
  let server: RestartableServer
  let admin: Redis
  let count = 0
  beforeAll(async () => {
    server = await startRedis()
    admin = new Redis(server.port)
  })
  afterAll(async () => {
    admin?.disconnect()
    await server?.stop()
  })

  const newTopic = (): string => `t${++count}`
  const sinkWith = (options: Partial<RedisSinkOptions> = {}): Sink => redisSink({ client: admin, ...options })
  const answersOf = (sink: Sink, ...events: Parameters<Sink['send']>[0]): Promise<readonly Delivery[]> =>
    sink.send(events, contextOf())
  const idsOf = async (topic: string, key = 'k'): Promise<string[]> =>
    (await admin.xrange(redisStreamName({ topic, key }), '-', '+')).map(([id]) => id)

  test('uses the number of an event as the id of its entry', async () => {
    const topic = newTopic()
    await sendAll(sinkWith(), eventsOf(topic, ['k'], 3))
    expect(await idsOf(topic)).toEqual(['1-0', '2-0', '3-0'])
  })

  test('begins an empty stream with 1, or with start', async () => {
    const topic = newTopic()
    const [refused, after] = await answersOf(sinkWith(), eventOf(topic, 'k', 7), eventOf(topic, 'k', 8))
    expect(refused).toEqual({ refused: like(/is empty, and begins with #1, not with #7.*start/) })
    expect(after).toEqual({ unknown: 'an earlier event of its stream was not sent' })
    expect(await answersOf(sinkWith({ start: 8 }), eventOf(topic, 'k', 7))).toMatchObject([
      { refused: like(/#8, not/) },
    ])
    expect(await answersOf(sinkWith({ start: 'anywhere' }), eventOf(topic, 'k', 7))).toEqual(['sent'])
    const start: RedisSinkOptions['start'] = ({ key }) => (key === 'late' ? 100 : 1)
    expect(await answersOf(sinkWith({ start }), eventOf(topic, 'late', 100), eventOf(topic, 'new', 1))).toEqual([
      'sent',
      'sent',
    ])
    expect(await answersOf(sinkWith({ start: () => 0 }), eventOf(topic, 'z', 1))).toMatchObject([
      { refused: like(/start/) },
    ])
  })

  test('refuses an event that would leave a gap, with the number to continue from', async () => {
    const topic = newTopic()
    await sendAll(sinkWith(), eventsOf(topic, ['k'], 2))
    const [answer] = await answersOf(sinkWith({ start: 'anywhere' }), eventOf(topic, 'k', 4))
    expect(answer).toEqual({ refused: like(/ends with #2: #4 would leave a gap.*replay.*from #3/) })
    expect(await idsOf(topic)).toEqual(['1-0', '2-0'])
  })

  test('refuses the same number with another id as a diverged history', async () => {
    const topic = newTopic()
    const events = eventsOf(topic, ['k'], 3)
    await sendAll(sinkWith(), events)
    const other = eventOf(topic, 'k', 2)
    const answers = await answersOf(sinkWith(), events[0]!, other, events[2]!)
    expect(answers).toMatchObject([
      'sent',
      { refused: like(/another event as #2: its id is/) },
      { unknown: like(/earlier/) },
    ])
    expect((answers[1] as { refused: string }).refused).toContain(events[1]!.id)
  })

  test('keeps the last number of a trimmed stream', async () => {
    const topic = newTopic()
    const events = eventsOf(topic, ['k'], 5)
    const name = redisStreamName({ topic, key: 'k' })
    await sendAll(sinkWith(), events)
    await admin.xtrim(name, 'MAXLEN', 2)
    expect(await answersOf(sinkWith(), ...events)).toEqual(Array(5).fill('sent'))
    await admin.xtrim(name, 'MAXLEN', 0)
    expect(await answersOf(sinkWith(), ...events)).toEqual(Array(5).fill('sent'))
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 7))).toMatchObject([{ refused: like(/ends with #5/) }])
    expect(await answersOf(sinkWith(), events[4]!, eventOf(topic, 'k', 6))).toEqual(['sent', 'sent'])
    expect(await idsOf(topic)).toEqual(['6-0'])
  })

  test('refuses a number that was trimmed and is assigned again in a later generation', async () => {
    const topic = newTopic()
    await sendAll(sinkWith(), eventsOf(topic, ['k'], 5))
    await admin.xtrim(redisStreamName({ topic, key: 'k' }), 'MAXLEN', 2)
    const again = eventOf(topic, 'k', 2, { generation: 2 })
    expect(await answersOf(sinkWith(), again)).toMatchObject([{ refused: like(/had another event as #2/) }])
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 6, { generation: 2 }))).toEqual(['sent'])
  })

  test.each([
    ['all trimmed', (name: string) => admin.xtrim(name, 'MAXLEN', 0)],
    ['all deleted', (name: string) => admin.xdel(name, '1-0', '2-0', '3-0')],
    ['the last one deleted', (name: string) => admin.xdel(name, '3-0')],
  ])('refuses a number that is given out again where no entry above it is left: %s', async (_, empty) => {
    for (const generation of [1, 7]) {
      const topic = newTopic()
      const name = redisStreamName({ topic, key: 'k' })
      const events = [1, 2, 3].map((seq) => eventOf(topic, 'k', seq, { generation }))
      await sendAll(sinkWith(), events)
      await empty(name)
      expect(await answersOf(sinkWith(), ...events)).toEqual(Array(3).fill('sent'))
      const again = eventOf(topic, 'k', 3, { generation: generation + 1 })
      expect(await answersOf(sinkWith(), again)).toMatchObject([{ refused: like(/had another event as #3/) }])
      expect(await answersOf(sinkWith(), eventOf(topic, 'k', 4, { generation: generation + 1 }))).toEqual(['sent'])
      expect((await idsOf(topic)).at(-1)).toBe('4-0')
    }
  })

  test('has no trace of the generation for a reader', async () => {
    const topic = newTopic()
    const name = redisStreamName({ topic, key: 'k' })
    const of = (seq: number): OutboxEvent => eventOf(topic, 'k', seq, { generation: 5 })
    await sendAll(sinkWith(), [of(1), of(2)])
    await admin.xgroup('CREATE', name, 'readers', '$')
    await sendAll(sinkWith(), [of(3)])
    const read = (await admin.xreadgroup('GROUP', 'readers', 'me', 'STREAMS', name, '>')) as [string, [string][]][]
    expect(read[0]?.[1].map(([id]) => id)).toEqual(['3-0'])
    expect(await idsOf(topic)).toEqual(['1-0', '2-0', '3-0'])
  })

  test('does not send a deleted last entry again, and continues after it', async () => {
    const topic = newTopic()
    const events = eventsOf(topic, ['k'], 4)
    await sendAll(sinkWith(), events.slice(0, 3))
    await admin.xdel(redisStreamName({ topic, key: 'k' }), '3-0')
    expect(await answersOf(sinkWith(), events[2]!, events[3]!)).toEqual(['sent', 'sent'])
    expect(await idsOf(topic)).toEqual(['1-0', '2-0', '4-0'])
  })

  /** The entries that are left are below it: that they are of an earlier generation says nothing. */
  test('takes a deleted last entry for sent, also where it was the first of its generation', async () => {
    const topic = newTopic()
    const first = eventOf(topic, 'k', 3, { generation: 2 })
    await sendAll(sinkWith(), [...eventsOf(topic, ['k'], 2), first])
    await admin.xdel(redisStreamName({ topic, key: 'k' }), '3-0')
    expect(await answersOf(sinkWith(), first)).toEqual(['sent'])
  })

  test('trims a stream to about maxLength', async () => {
    const topic = newTopic()
    await sendAll(sinkWith({ maxLength: 100 }), eventsOf(topic, ['k'], 1000))
    const kept = (await idsOf(topic)).length
    expect(kept).toBeGreaterThanOrEqual(100)
    expect(kept).toBeLessThan(400)
  })

  test('splits a batch that is too large for one call', async () => {
    const topic = newTopic()
    const text = 'x'.repeat(1500)
    const events = Array.from({ length: 1700 }, (_, index) => eventOf(topic, 'k', index + 1, { payload: text }))
    expect(new Set(await answersOf(sinkWith(), ...events))).toEqual(new Set(['sent']))
    expect(await idsOf(topic)).toHaveLength(1700)
  })

  test('does not change foreign streams and keys', async () => {
    const topic = newTopic()
    await admin.xadd(redisStreamName({ topic, key: 'stream' }), '*', 'field', 'value')
    await admin.set(redisStreamName({ topic, key: 'text' }), 'value')
    const answers = await answersOf(sinkWith(), eventOf(topic, 'stream', 1), eventOf(topic, 'text', 1))
    expect(answers).toMatchObject([
      { refused: like(/no Lockstep has written/) },
      { refused: like(/something else than a stream/) },
    ])
  })

  test('blames no event when the server rejects writes', async () => {
    const topic = newTopic()
    await admin.config('SET', 'maxmemory', '1')
    const full = await answersOf(sinkWith(), eventOf(topic, 'k', 1))
    await admin.config('SET', 'maxmemory', '0')
    expect(full).toMatchObject([{ unknown: like(/OOM/) }])
    await admin.replicaof('127.0.0.1', '1')
    const replica = await answersOf(sinkWith(), eventOf(topic, 'k', 1))
    await admin.replicaof('NO', 'ONE')
    expect(replica).toMatchObject([{ unknown: like(/READONLY|MASTERDOWN/) }])
    expect(await answersOf(sinkWith(), eventOf(topic, 'k', 1))).toEqual(['sent'])
  })

  test('loads scripts again that the server has forgotten', async () => {
    const topic = newTopic()
    for (let round = 0; round < 3; round++) {
      await admin.script('FLUSH')
      await sendAll(sinkWith(), eventsOf(topic, ['a', 'b', 'c'], 2, 1 + 2 * round))
    }
    expect(await idsOf(topic, 'b')).toHaveLength(6)
  })

  test('changes nothing by a late command that was given up', async () => {
    const topic = newTopic()
    const held: (() => Promise<unknown>)[] = []
    const client: RedisClient = {
      call: (command, args) =>
        new Promise((resolve, reject) => held.push(() => admin.call(command, args).then(resolve, reject))),
    }
    const late = sinkWith({ client, timeoutMs: 20 })
    const [one, two, three] = eventsOf(topic, ['k'], 3) as [never, never, never]
    expect(await answersOf(late, one, two)).toMatchObject([
      { unknown: like(/within 20 ms/) },
      { unknown: like(/earlier/) },
    ])
    await sendAll(sinkWith(), [one, two, three])
    for (const run of held) await run().catch(() => {})
    expect(await idsOf(topic)).toEqual(['1-0', '2-0', '3-0'])
    // Unless no other sender has sent it: then the late message is stored at its position, and the next sender finds it there.
    const four = eventOf(topic, 'k', 4)
    held.length = 0
    await answersOf(late, four)
    for (const run of held) await run().catch(() => {})
    expect(await answersOf(sinkWith(), four)).toEqual(['sent'])
    expect(await idsOf(topic)).toEqual(['1-0', '2-0', '3-0', '4-0'])
  })

  test.each([1, 'anywhere'] as const)('leaves no gap when calls overtake each other (start: %s)', async (start) => {
    const topic = newTopic()
    const held: (() => Promise<unknown>)[] = []
    // A pool of connections gives no order among its commands.
    const client: RedisClient = {
      sendCommand: ([command, ...args]) =>
        new Promise((resolve, reject) => {
          held.push(() => admin.call(String(command), args).then(resolve, reject))
          if (held.length === 3) for (const run of held.toReversed()) void run()
        }),
    }
    const events = eventsOf(topic, ['k'], 1200)
    await answersOf(sinkWith(), eventOf(topic, 'other', 1))
    const answers = await answersOf(sinkWith({ client, start }), ...events)
    expect(answers.slice(0, 500)).toEqual(Array(500).fill('sent'))
    expect(answers[500]).toMatchObject({ unknown: like(/overtook/) })
    expect(await idsOf(topic)).toHaveLength(500)
    expect(await answersOf(sinkWith(), ...events)).toEqual(Array(1200).fill('sent'))
    expect(await idsOf(topic)).toEqual(events.map(({ seq }) => `${seq}-0`))
  })

  test('gives different names to different streams', async () => {
    const pairs = [
      ['a:b', 'c'],
      ['a', 'b:c'],
      ['a', '{b}'],
      ['a%3Ab', 'c'],
      ['ä', ' '],
    ]
    const all = pairs.map(([topic, key]) => redisStreamName({ topic: topic!, key: key! }))
    expect(new Set(all).size).toBe(pairs.length)
    expect(redisStreamName({ topic: 'trades', key: 'growth' })).toBe('lockstep:trades:growth')
    expect(redisStreamName({ topic: 'trades', key: 'growth' }, '{{topic}}/{key}')).toBe('{trades}/growth')
    const topic = newTopic()
    await sendAll(sinkWith({ stream: 'mine/{key}/of/{topic}' }), [eventOf(topic, 'k', 1)])
    expect(await admin.exists(`mine/k/of/${topic}`)).toBe(1)
  })

  test('rejects invalid options', () => {
    const wrong: Partial<RedisSinkOptions>[] = [
      { client: {} as never },
      { client: undefined as never },
      { stream: 'events' },
      { stream: '{topic}{key}' },
      { stream: '{topic}-{key}' },
      { stream: '{topic}:{topic}:{key}' },
      { start: 0 },
      { start: 'somewhere' as never },
      { maxLength: 0 },
      { maxEventBytes: 1.5 },
      { timeoutMs: Number.NaN },
      { timeoutMs: 2 ** 31 },
    ]
    for (const options of wrong) expect(() => sinkWith(options)).toThrow(/Pass|Name/)
  })

  test('works with node-redis: order, duplicates, divergence, silence, bytes', async () => {
    const client = createClient({ socket: { port: server.port, host: '127.0.0.1' } })
    client.on('error', () => {})
    await client.connect()
    try {
      const topic = newTopic()
      const sink = sinkWith({ client, timeoutMs: 1000 })
      expect(await sink.healthy?.()).toBe(true)
      await admin.script('FLUSH')
      const events = eventsOf(topic, ['a', 'b'], 30)
      expect(new Set(await answersOf(sink, ...events))).toEqual(new Set(['sent']))
      expect(new Set(await answersOf(sink, ...events))).toEqual(new Set(['sent']))
      const bytes = eventOf(topic, 'a', 31, { bytes: Buffer.from([0, 255, 13, 10]) })
      expect(await answersOf(sink, bytes, eventOf(topic, 'b', 30), eventOf(topic, 'c', 2))).toMatchObject([
        'sent',
        { refused: like(/another event/) },
        { refused: like(/is empty/) },
      ])
      expect(await idsOf(topic, 'a')).toHaveLength(31)
      const [last] = await admin.xrevrangeBuffer(redisStreamName(bytes), '+', '-', 'COUNT', 1)
      expect(readRedisEntry(last![1]).payload).toEqual(bytes.body)
      const entries = await client.xRange(redisStreamName(events[0]!), '1', '1')
      expect(readRedisEntry(entries![0]!.message)).toMatchObject({ topic, key: 'a', seq: 1, payload: { seq: 1 } })
      client.destroy()
      expect(await answersOf(sink, eventOf(topic, 'b', 31))).toMatchObject([{ unknown: like(/Redis/) }])
      expect(await sink.healthy?.()).toBe(false)
    } finally {
      if (client.isOpen) client.destroy()
    }
  })

  test('uses one key per call on a cluster', async () => {
    const own = await startRedis({
      args: [
        '--cluster-enabled',
        'yes',
        '--cluster-announce-ip',
        '127.0.0.1',
        '--cluster-port',
        String(await freePort()),
      ],
    })
    const one = new Redis(own.port)
    await one.call('CLUSTER', ['ADDSLOTSRANGE', '0', '16383'])
    await expect.poll(() => one.cluster('INFO')).toContain('cluster_state:ok')
    const client = new Cluster([{ host: '127.0.0.1', port: own.port }])
    try {
      const topic = newTopic()
      const sink = sinkWith({ client })
      await sendAll(sink, eventsOf(topic, ['a', 'b', 'c', 'd', 'e', 'f'], 5))
      expect(await one.xlen(redisStreamName({ topic, key: 'f' }))).toBe(5)
    } finally {
      client.disconnect()
      one.disconnect()
      await own.stop()
    }
  })
})
