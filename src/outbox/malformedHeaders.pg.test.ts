import { beforeEach, describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, failureOf, workbench } from '../../tools/server/testing/workbench.ts'
import { type OutboxEvent, perEvent, ReplayStoppedError } from '../index.ts'

/** Headers are an object of text. SQL refuses all else; what the owner of the tables writes past it stops its own stream alone. */

const database = await testDatabase()
leakGuard(database)
const bench = workbench(database)
let number = 0
let name: string

beforeEach(async () => {
  name = `d${++number}`
  await bench.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events')
})

const MALFORMED = ['null', '1', '"text"', '["a"]', '{"a": null}', '{"a": {"toString": 1}}', '{"b": "text", "a": 1}']
/** Around what outbox_plain_headers() lets through without a closer look. */
const TRICKY = [
  '{"a":1}',
  '{"a":"b","c":["d"]}',
  '{"a":{"b":"c"}}',
  '{"a":"}","b":1}',
  '{"a":"\\"","b":2,"c":"\\""}',
  '["a","b"]',
  '{"a":true}',
  '\n1',
]

/** Enqueues, and writes headers into the table that no function would have taken, in the same transaction. */
async function enqueueMalformed(streams: readonly string[], headers: string): Promise<void> {
  const client = await bench.admin.connect()
  try {
    await client.query('BEGIN')
    for (const key of streams) await client.query(`SELECT lockstep.enqueue('trades', $1, '{}')`, [key])
    await client.query(`UPDATE lockstep.outbox_events SET headers = $1::text::json WHERE key = 'bad' AND seq = 2`, [
      headers,
    ])
    await client.query('COMMIT')
  } finally {
    client.release()
  }
}

describe('SQL refuses malformed headers', () => {
  test.each([...MALFORMED, ...TRICKY])('enqueue(), enqueue_bytes() and the bulk function: %s', async (headers) => {
    const calls = [
      `SELECT lockstep.enqueue('trades', 'a', '1', $1::text::json)`,
      `SELECT lockstep.enqueue_bytes('trades', 'a', '1'::bytea, $1::text::json)`,
      `SELECT lockstep.outbox_append_many('{trades,trades}', '{a,b}', '{1,2}', '{NULL,NULL}', ARRAY[NULL, $1::text])`,
    ]
    for (const call of calls) {
      const error = await failureOf(bench.admin.query(call, [headers]))
      expect(error).toMatchObject({
        code: '22023',
        message: expect.stringMatching(/headers of an event of trades\/[ab]/),
      })
    }
    const { rows } = await bench.admin.query('SELECT FROM lockstep.outbox_events')
    expect(rows).toHaveLength(0)
  })

  test('none, an empty object and text are taken', async () => {
    for (const headers of [null, '{}', '{"a": "1", "ü": ""}', '{"a":"\\"","b":"c"}', ' {"a" : "b"} ']) {
      await bench.admin.query(`SELECT lockstep.enqueue('trades', 'a', '1', $1::text::json)`, [headers])
    }
    const { rows } = await bench.admin.query('SELECT headers FROM lockstep.outbox_events ORDER BY seq')
    expect(rows).toEqual([null, {}, { a: '1', ü: '' }, { a: '"', b: 'c' }, { a: 'b' }].map((headers) => ({ headers })))
  })
})

describe.each(DRIVERS)('an event with malformed headers in the table, %s', (driver) => {
  test.each(MALFORMED)('is refused alone, and the rest of its batch is sent once: %s', async (headers) => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await enqueueMalformed(['a', 'bad', 'b', 'bad', 'a', 'bad', 'b'], headers)
    const taken: string[] = []
    const seen: OutboxEvent[] = []
    const run = dispatching(lockstep, {
      name,
      shards: 1,
      attempts: 1,
      sink: (events) => {
        seen.push(...events)
        // As a sink that looks at every header, and fails as a whole.
        for (const event of events) for (const value of Object.values(event.headers)) value.toLowerCase()
        taken.push(...events.map(({ key, seq }) => `${key}${seq}`))
      },
    })
    await eventually(async () => (await lockstep.outbox.parked({ dispatcher: name }))[0]?.state === 'blocked')
    const [parked] = await lockstep.outbox.parked({ dispatcher: name })
    expect(parked).toMatchObject({ key: 'bad', head: 2, reason: expect.stringContaining('header') })
    expect(taken.toSorted()).toEqual(['a1', 'a2', 'b1', 'b2', 'bad1'])
    // An operator gives it up: its tombstone has no headers that could be refused again.
    await lockstep.outbox.skip({ dispatcher: name, topic: 'trades', key: 'bad', seq: 2 }, { reason: 'malformed' })
    await eventually(() => taken.includes('bad3'))
    await run.stop()
    expect(taken.toSorted()).toEqual(['a1', 'a2', 'b1', 'b2', 'bad1', 'bad2', 'bad3'])
    expect(seen.find(({ key, seq }) => key === 'bad' && seq === 2)).toMatchObject({ tombstone: 'skipped', headers: {} })
  })

  test('does not make a sink that is down look as if it were up', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await enqueueMalformed(['bad', 'bad', 'a'], 'null')
    let down = true
    const run = dispatching(lockstep, {
      name,
      shards: 1,
      sink: (events) => (down ? events.map(() => ({ failed: 'down' })) : undefined),
    })
    const asked = (): Promise<unknown> => lockstep.outbox.parked({ dispatcher: name })
    await eventually(async () => (await lockstep.outbox.status()).shards.length > 0)
    expect(await asked()).toEqual([])
    down = false
    await eventually(async () => ((await asked()) as unknown[]).length === 1)
    await run.until(2)
    await run.stop()
    expect(run.delivered.toSorted()).toEqual(['trades/a#1', 'trades/bad#1'])
  })

  test('ends a replay, with everything before it sent', async () => {
    const { lockstep } = bench.open(driver)
    await enqueueMalformed(['a', 'bad', 'b', 'bad', 'a'], 'null')
    const taken: string[] = []
    const sink = perEvent({}, ({ key, seq }) => void taken.push(`${key}${seq}`))
    const error = await failureOf(lockstep.outbox.replay({ sink }))
    expect(error).toBeInstanceOf(ReplayStoppedError)
    expect(error).toMatchObject({ seq: 2, message: expect.stringContaining('trades/bad #2') })
    expect(taken.toSorted()).toEqual(['a1', 'b1', 'bad1'])
  })
})
