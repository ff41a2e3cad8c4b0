import { beforeEach, describe, expect, test } from 'vitest'
import { dispatching } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import type { OutboxEvent } from '../index.ts'

/** Events are read in columns: nothing in a column must count as its end, and large values come in smaller pieces. */

const bench = await testBench()
let name = 'd0'

beforeEach(async () => {
  name = `d${Number(name.slice(1)) + 1}`
  await bench.admin.query('TRUNCATE lockstep.outbox_events')
})

const TRICKY = [
  'a,b',
  '{"x"}',
  "it's",
  'back\\slash',
  'two\nlines',
  '\u001e',
  '\u001d00',
  'null',
  '🏦',
  '"',
  'ä\u2028',
  ' ',
]
const BYTES = [Buffer.alloc(0), Buffer.from([0x1e, 0x1d, 0, 255]), Buffer.from('{"not":"json"}')]

describe.each(DRIVERS)('columns, %s', (driver) => {
  test('deliver names, payloads and headers unchanged', async () => {
    const { lockstep } = bench.open(driver)
    const payloads: unknown[] = [
      ...TRICKY,
      ...BYTES,
      null,
      '',
      0,
      false,
      [],
      {},
      { deep: [{ '\u001e': '\u001d' }] },
      12345678901234567890n.toString(),
    ]
    const sent = payloads.map((payload, place) => {
      const text = TRICKY[place % TRICKY.length] as string
      const headers = place % 3 === 0 ? undefined : place % 3 === 1 ? {} : { [text]: text }
      return { topic: `t${text}`, key: `${text}${place}`, payload, ...(headers === undefined ? {} : { headers }) }
    })
    await lockstep.transaction({}, (tx) => tx.enqueueMany(sent))
    const run = dispatching(lockstep, { name, batch: 7 })
    await run.until(sent.length)
    await run.stop()
    const got = new Map(run.events.map((event) => [event.key, event]))
    for (const { topic, key, payload, headers } of sent) {
      const event = got.get(key)
      expect(event).toMatchObject({ topic, key, seq: 1, payload, headers: headers ?? {}, tombstone: undefined })
      const body = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload))
      expect(event?.body).toEqual(body)
      expect(event?.contentType).toBe(Buffer.isBuffer(payload) ? 'application/octet-stream' : 'application/json')
    }
  })

  test('deliver JSON with spaces, JSON null and erased payloads', async () => {
    const { lockstep } = bench.open(driver)
    const spaced = '\n\t{ "a" :\r\n 1 }  '
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'spaced', $1::json)`, [spaced])
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'nothing', 'null')`)
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'erased', '"secret"')`)
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'last', '1')`)
    await lockstep.outbox.erase({ topic: 't', key: 'erased' })
    const run = dispatching(lockstep, { name, shards: 1 })
    await run.until(4)
    await run.stop()
    const told = run.events.map((event) => [event.key, event.payload, event.body.toString(), event.tombstone])
    expect(told).toEqual([
      ['spaced', { a: 1 }, spaced, undefined],
      ['nothing', null, 'null', undefined],
      ['erased', undefined, '', 'erased'],
      ['last', 1, '1', undefined],
    ])
  })

  test('deliver large events in pieces that fit, in order', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query(
      `SELECT lockstep.enqueue('t', 'k', to_json(repeat('x', 999998))) FROM generate_series(1, 30)`,
    )
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'k', '1') FROM generate_series(1, 300)`)
    const sizes: number[] = []
    const run = dispatching(lockstep, {
      name,
      shards: 1,
      sink(batch) {
        sizes.push(batch.length)
        return Promise.resolve(batch.map(() => 'sent' as const))
      },
    })
    await run.until(330)
    await run.stop()
    expect(run.events.map(({ seq }) => seq)).toEqual(Array.from({ length: 330 }, (_, n) => n + 1))
    expect(Math.max(...sizes.slice(0, 6))).toBeLessThanOrEqual(8)
    expect(Math.max(...sizes)).toBeGreaterThan(50)
  })
})

test('delivers more than one value of PostgreSQL can hold', async () => {
  const { lockstep } = bench.open('pg')
  await lockstep.migrate({ maxEventBytes: 5_500_000 })
  // Of one character, so that it takes up little on the disk; in hex it is twice as much.
  await bench.admin.query(
    `SELECT lockstep.enqueue_bytes('t', 'k', convert_to(repeat('x', 5500000), 'UTF8')) FROM generate_series(1, 100)`,
  )
  const stop = new AbortController()
  const seqs: number[] = []
  const sink = (batch: readonly OutboxEvent[]): void => {
    // Not the events: there is a gigabyte of them.
    seqs.push(...batch.map(({ seq }) => seq))
    if (seqs.length >= 3) stop.abort()
  }
  await lockstep.outbox.dispatcher({ name, shards: 1, sink }).run({ signal: stop.signal })
  expect(seqs.slice(0, 3)).toEqual([1, 2, 3])
})
