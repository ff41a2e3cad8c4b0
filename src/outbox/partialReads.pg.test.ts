import { beforeEach, describe, expect, test } from 'vitest'
import { dispatching } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, signal, testBench } from '../../tools/server/testing/workbench.ts'
import type { Lockstep } from '../index.ts'

/** Windows that are read in many pieces: of few large transactions, of many small ones, of one that was open when the window began. */

const bench = await testBench()
const KEYS = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
const PIECE = { batch: 20, shards: 2 }
let name = 'd0'

beforeEach(async () => {
  name = `d${Number(name.slice(1)) + 1}`
  await bench.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events')
})

/** One transaction with so many events, over all keys. */
async function write(lockstep: Lockstep, count: number, before = Promise.resolve()): Promise<void> {
  await lockstep.transaction({}, async (tx) => {
    const events = Array.from({ length: count }, (_, n) => ({
      topic: 'pieces',
      key: KEYS[n % KEYS.length] as string,
      payload: n,
    }))
    await tx.enqueueMany(events)
    await before
  })
}

/** Everything in its order and nothing twice: per key 1, 2, 3, … and so many together. */
function expectAll(delivered: readonly string[], total: number): void {
  const next = new Map<string, number>()
  const wrong = delivered.filter((each) => {
    const [stream, seq] = each.split('#') as [string, string]
    next.set(stream, (next.get(stream) ?? 0) + 1)
    return next.get(stream) !== Number(seq)
  })
  expect(wrong).toEqual([])
  expect(delivered).toHaveLength(total)
}

describe.each(DRIVERS)('partial reads, %s', (driver) => {
  test('cover few large transactions among small ones', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await write(lockstep, 400)
    for (const count of [1, 3, 250, 2, 7]) await write(lockstep, count)
    const run = dispatching(lockstep, { name, ...PIECE })
    await run.until(663)
    await run.stop()
    expectAll(run.delivered, 663)
  })

  test('cover more transactions than are looked at one by one', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await write(lockstep, 200)
    for (let n = 0; n < 330; n++) await write(lockstep, 1 + (n % 2))
    const run = dispatching(lockstep, { name, ...PIECE })
    await run.until(695)
    await run.stop()
    expectAll(run.delivered, 695)
  })

  test('cover a large transaction that was open when the window began', async () => {
    const { lockstep } = bench.open(driver, { max: 8 })
    await write(lockstep, 5)
    const run = dispatching(lockstep, { name, ...PIECE })
    await run.until(5)
    const [open, written] = [signal(), signal()]
    const enqueue = `SELECT lockstep.enqueue('late', ('{a,b,c,d,e,f,g}'::text[])[1 + n % 7], '0') FROM generate_series(1, 300) AS n`
    const late = lockstep.transaction({}, async (tx) => {
      await tx.query(enqueue)
      written.give()
      await open.given
    })
    await written.given
    // Others continue meanwhile, and their window begins after the open one.
    for (let n = 0; n < 4; n++) await write(lockstep, 60)
    await run.until(245)
    await run.stop()
    open.give()
    await late
    await write(lockstep, 100)
    const again = dispatching(lockstep, { name, ...PIECE })
    await again.until(400)
    await again.stop()
    expectAll([...run.delivered, ...again.delivered], 645)
  })
})

test('find the transactions of a window at a constant cost, however many events they have', async () => {
  const { lockstep } = bench.open('pg', { max: 2 })
  const snapshot = async (): Promise<string> =>
    (await bench.admin.query<{ at: string }>('SELECT pg_current_snapshot()::text AS at')).rows[0]?.at as string
  const pagesFor = async (count: number): Promise<number> => {
    await bench.admin.query('TRUNCATE lockstep.outbox_events')
    const open = await bench.admin.connect()
    await open.query('BEGIN; SELECT pg_current_xact_id()')
    // Without a later one that has ended, the snapshot does not name it.
    await bench.admin.query('SELECT pg_current_xact_id()')
    const begun = await snapshot()
    await open.query('COMMIT')
    open.release()
    await write(lockstep, count)
    const { rows } = await bench.admin.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
       SELECT * FROM lockstep.outbox_window_parts('{0}', ARRAY(SELECT generate_series(0, 63)::smallint), $1, $2)`,
      [begun, await snapshot()],
    )
    const plan = rows[0]?.['QUERY PLAN'][0].Plan
    return (plan?.['Shared Hit Blocks'] ?? 0) + (plan?.['Shared Read Blocks'] ?? 0)
  }
  const few = await pagesFor(100)
  expect(await pagesFor(80_000)).toBeLessThan(4 * few)
})
