import { beforeEach, describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { EventInvalidError, InvalidOptionError, type Lockstep, type OutboxEvent, ReplayStoppedError } from '../index.ts'

/** Every event has a payload of a bounded size, and every read has a bounded size. */

// A busy machine takes its time.
const bench = await testBench()
const DEFAULT_LIMIT = 1_000_000
/** What one read of the server may have, and the event with which it got there. */
const READ_BYTES = 8_000_000 + DEFAULT_LIMIT
let number = 0
let name: string

beforeEach(async () => {
  name = `d${++number}`
  await bench.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events')
  await bench.open('pg').lockstep.migrate({ maxEventBytes: DEFAULT_LIMIT })
})

/** A payload of so many bytes in the database, written by SQL. Compressed or not. */
function enqueueSized(key: string, bytes: number, compressible = false): Promise<unknown> {
  const text = compressible ? `repeat('x', $2)` : `left(string_agg(md5(n::text), ''), $2)`
  return bench.admin.query(
    `SELECT lockstep.enqueue('sizes', $1, to_json(${text})) FROM generate_series(1, ${compressible ? 1 : Math.ceil(bytes / 32)}) AS n`,
    [key, bytes - 2],
  )
}

const bytesOf = (events: readonly OutboxEvent[]): number => events.reduce((sum, { body }) => sum + body.length, 0)
const of = (delivered: readonly string[], key: string): string[] =>
  delivered.filter((each) => each.startsWith(`sizes/${key}#`)).map((each) => each.split('#')[1] as string)

describe('enqueuing by SQL', () => {
  test('refuses an SQL NULL payload', async () => {
    const calls = [
      `lockstep.enqueue('t', 'k', NULL)`,
      `lockstep.enqueue_bytes('t', 'k', NULL)`,
      `lockstep.outbox_append_many('{t,t}', '{k,k}', '{1,NULL}', '{NULL,NULL}', '{NULL,NULL}')`,
    ]
    for (const call of calls) {
      const failure = await failureOf(bench.admin.query(`SELECT ${call}`))
      expect(failure, call).toMatchObject({ code: '22004', message: expect.stringContaining('t/k') as string })
    }
    const { rows } = await bench.admin.query('SELECT count(*)::int FROM lockstep.outbox_events')
    expect(rows).toEqual([{ count: 0 }])
  })

  test('delivers JSON null as null', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'k', 'null')`)
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'k', payload: null }))
    const run = dispatching(lockstep, { name })
    await run.until(2)
    await run.stop()
    expect(run.events.map(({ payload, body }) => [payload, body.toString()])).toEqual([
      [null, 'null'],
      [null, 'null'],
    ])
  })

  test('refuses an event that is larger than the limit, by what it is unpacked', async () => {
    await bench.admin.query('CREATE TEMP TABLE packed (payload json)').catch(() => undefined)
    const tooLarge = [
      `SELECT lockstep.enqueue('t', 'k', to_json(repeat('x', ${DEFAULT_LIMIT - 1})))`,
      `SELECT lockstep.enqueue_bytes('t', 'k', repeat('x', ${DEFAULT_LIMIT + 1})::bytea)`,
      `SELECT lockstep.enqueue('t', 'k', to_json(repeat('x', ${DEFAULT_LIMIT - 12})), '{"a": "bcd"}')`,
      `SELECT lockstep.enqueue('t', 'k', '1', json_build_object('a', repeat('x', ${DEFAULT_LIMIT})))`,
      `SELECT lockstep.outbox_append_many('{t,t}', '{k,k}', ARRAY['1', to_json(repeat('x', ${DEFAULT_LIMIT}))::text], '{NULL,NULL}', '{NULL,NULL}')`,
      // As it is stored it has a hundredth of that.
      `WITH packed AS (INSERT INTO packed VALUES (to_json(repeat('x', ${DEFAULT_LIMIT}))) RETURNING payload)
       SELECT lockstep.enqueue('t', 'k', payload) FROM packed`,
    ]
    const client = await bench.admin.connect()
    try {
      await client.query('CREATE TEMP TABLE IF NOT EXISTS packed (payload json)')
      for (const text of tooLarge) {
        const failure = await failureOf(client.query(text))
        expect(failure, text).toMatchObject({
          code: '54000',
          message: expect.stringMatching(/t\/k has \d+ bytes, more than the limit of 1000000 bytes/) as string,
        })
      }
      await client.query(`SELECT lockstep.enqueue('t', 'k', to_json(repeat('x', ${DEFAULT_LIMIT - 2})))`)
      await client.query(`SELECT lockstep.enqueue_bytes('t', 'k', repeat('x', ${DEFAULT_LIMIT})::bytea)`)
    } finally {
      client.release()
    }
    const { rows } = await bench.admin.query(`SELECT count(*)::int FROM lockstep.outbox_events`)
    expect(rows).toEqual([{ count: 2 }])
  })
})

describe('the limit of a schema', () => {
  test('is set by migrate(), kept by the next one, and noticed by sessions that have their plans', async () => {
    const { lockstep } = bench.open('pg')
    const client = await bench.admin.connect()
    const enqueue = (bytes: number): Promise<unknown> =>
      client.query(`SELECT lockstep.enqueue('t', 'k', to_json(repeat('x', ${bytes - 2})))`)
    try {
      for (let n = 0; n < 10; n++) await enqueue(100)
      await lockstep.migrate({ maxEventBytes: 99 })
      await lockstep.migrate()
      expect(await failureOf(enqueue(100))).toMatchObject({ code: '54000' })
      await enqueue(99)
      await lockstep.migrate({ maxEventBytes: 2_000_000 })
      await enqueue(2_000_000)
      expect(await failureOf(enqueue(2_000_001))).toMatchObject({ code: '54000' })
    } finally {
      client.release()
    }
  })

  test.each([0, -1, 1.5, Number.NaN, 64 * 1024 * 1024 + 1, '5'])('refuses %s', async (maxEventBytes) => {
    const { lockstep } = bench.open('pg')
    expect(await failureOf(lockstep.migrate({ maxEventBytes: maxEventBytes as number }))).toBeInstanceOf(
      InvalidOptionError,
    )
  })

  test('counts headers in bytes, as the schema does', async () => {
    const { lockstep } = bench.open('pg', { maxEventBytes: 22 })
    const event = (text: string): object => ({ topic: 't', key: 'k', payload: 1, headers: { name: text } })
    const enqueue = (text: string): Promise<void> => lockstep.transaction({}, (tx) => tx.enqueue(event(text) as never))
    await enqueue('1234567890')
    expect(await failureOf(enqueue('12345678é9'))).toBeInstanceOf(EventInvalidError)
  })
})

describe.each(DRIVERS)('reading, %s', (driver) => {
  /** Three events of one stream, the second too large; and others of the same shard. */
  async function withTooLarge(lockstep: Lockstep, compressible: boolean): Promise<void> {
    await lockstep.migrate({ maxEventBytes: 20_000_000 })
    await enqueueSized('large', 10)
    await enqueueSized('large', 12_000_000, compressible)
    await enqueueSized('large', 10)
    await enqueueSized('other', 10)
    await lockstep.migrate({ maxEventBytes: DEFAULT_LIMIT })
  }

  test.each([
    ['compressed', true],
    ['not compressed', false],
  ])(
    'parks the stream of an event that is too large, %s, and delivers it once the limit is raised',
    async (_, packed) => {
      const { lockstep } = bench.open(driver, { max: 6 })
      await withTooLarge(lockstep, packed)
      const run = dispatching(lockstep, { name, shards: 1, attempts: 2 })
      await eventually(async () => (await lockstep.outbox.parked({ dispatcher: name }))[0]?.state === 'blocked')
      await enqueueSized('other', 10)
      await eventually(() => of(run.delivered, 'other').length === 2)
      const [parked] = await lockstep.outbox.parked({ dispatcher: name })
      expect(parked).toMatchObject({ key: 'large', head: 2, events: 2 })
      expect(parked?.reason).toMatch(/at least (11999996|12000000) bytes, more than the schema's maxEventBytes/)
      expect(of(run.delivered, 'large')).toEqual(['1'])
      await lockstep.migrate({ maxEventBytes: 20_000_000 })
      await lockstep.outbox.retry({ topic: 'sizes', key: 'large', dispatcher: name })
      await eventually(() => of(run.delivered, 'large').length === 3)
      await run.stop()
      expect(of(run.delivered, 'large')).toEqual(['1', '2', '3'])
      expect(run.events.find(({ key, seq }) => key === 'large' && seq === 2)?.body).toHaveLength(12_000_000)
    },
  )

  test('gives up an event that is too large like one that the sink refuses', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await withTooLarge(lockstep, true)
    const run = dispatching(lockstep, { name, shards: 1, attempts: 2, giveUp: 'skip' })
    await run.until(4)
    await run.stop()
    expect(of(run.delivered, 'large')).toEqual(['1', '2†', '3'])
  })

  test('sends the tombstone of an event whose headers are too large', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await bench.admin.query(
      `SELECT lockstep.enqueue('sizes', 'h', '1', json_build_object('big', string_agg(md5(n::text), ''))) FROM generate_series(1, 900) AS n`,
    )
    await lockstep.migrate({ maxEventBytes: 10_000 })
    const run = dispatching(lockstep, { name, attempts: 1, giveUp: 'skip', backoffMs: { first: 1, longest: 2 } })
    await eventually(() => Promise.resolve(of(run.delivered, 'h').length === 1))
    await run.stop()
  })

  test('stops a replay at an event that is too large, after what is before it', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await withTooLarge(lockstep, false)
    const replayed: string[] = []
    const replaying = lockstep.outbox.replay({
      topic: 'sizes',
      key: 'large',
      sink: (events) => void replayed.push(...events.map(({ seq }) => String(seq))),
    })
    const failure = await failureOf(replaying)
    expect(failure).toBeInstanceOf(ReplayStoppedError)
    expect(failure).toMatchObject({ seq: 2 })
    expect(replayed).toEqual(['1'])
  })

  test('reads parked streams with large payloads in pieces', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let refuses = true
    const pieces: number[] = []
    const run = dispatching(lockstep, {
      name,
      shards: 1,
      attempts: 1_000_000,
      sink(events) {
        if (refuses) {
          const seen = new Set<string>()
          return events.map(({ key }) =>
            seen.has(key) ? { unknown: 'behind it' } : (seen.add(key), { refused: 'no' }),
          )
        }
        pieces.push(bytesOf(events))
        return undefined
      },
    })
    const keys = ['a', 'b', 'c', 'd']
    for (let n = 0; n < 8; n++) for (const key of keys) await enqueueSized(key, 900_000, n % 2 === 0)
    const parkedEvents = async (): Promise<number> =>
      (await lockstep.outbox.parked({ dispatcher: name })).reduce((sum, { events }) => sum + events, 0)
    await eventually(async () => (await parkedEvents()) === 32)
    refuses = false
    await eventually(() => run.delivered.length === 32)
    await eventually(async () => (await lockstep.outbox.parked({ dispatcher: name })).length === 0)
    await run.stop()
    for (const key of keys) expect(of(run.delivered, key)).toEqual(['1', '2', '3', '4', '5', '6', '7', '8'])
    expect(Math.max(...pieces)).toBeLessThanOrEqual(READ_BYTES)
  })

  test('replays large payloads in pieces', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    for (let n = 0; n < 24; n++) await enqueueSized(`k${n % 3}`, 900_000, n % 2 === 0)
    for (const stream of [{}, { topic: 'sizes', key: 'k1' }]) {
      const pieces: number[] = []
      const { events } = await lockstep.outbox.replay({
        ...stream,
        batch: 10_000,
        sink: (batch) => void pieces.push(bytesOf(batch)),
      })
      expect(events).toBe('key' in stream ? 8 : 24)
      expect(Math.max(...pieces)).toBeLessThanOrEqual(READ_BYTES)
    }
  })
})

test('one answer of outbox_read() is bounded for all shards together', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const run = dispatching(lockstep, { name, shards: 16 })
  await eventually(
    async () =>
      (await lockstep.outbox.status()).shards.filter(
        ({ dispatcher, fence }) => dispatcher === name && fence !== undefined,
      ).length === 16,
  )
  await run.stop()
  for (let n = 0; n < 64; n++) await enqueueSized(`k${n}`, 500_000)
  const { rows } = await bench.admin.query<{ bytes: string; shards: string }>(
    `SELECT sum(octet_length(r.bodies) + octet_length(r.headers)) AS bytes, count(*) AS shards
       FROM (SELECT array_agg(c.shard) AS shards, array_agg(c.fence) AS fences, array_agg(1000) AS most
               FROM (SELECT DISTINCT ON (shard) * FROM lockstep.outbox_cursors WHERE dispatcher = $1 ORDER BY shard, version DESC) AS c) AS q,
            lockstep.outbox_read($1, q.shards, q.fences, q.most, 16) AS r`,
    [name],
  )
  expect(Number(rows[0]?.bytes)).toBeLessThanOrEqual(2 * 8_000_000)
  expect(Number(rows[0]?.shards)).toBeGreaterThan(0)
  const again = dispatching(lockstep, { name, shards: 16 })
  await again.until(64)
  await again.stop()
})
