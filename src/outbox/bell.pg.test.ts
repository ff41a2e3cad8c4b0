import { randomUUID } from 'node:crypto'
import { describe, expect, test, vi } from 'vitest'
import { strikeNextCommit } from '../../proofs/faults/inCommit.ts'
import { type Dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, firstCall } from '../../tools/server/testing/workbench.ts'
import { type Lockstep } from '../index.ts'

/** What wakes a dispatcher, and what it sends while there is nothing to do. */

const bench = await outboxBench()

const event = (key: string): { topic: string; key: string; payload: number } => ({ topic: 't', key, payload: 1 })

const write = (lockstep: Lockstep, key: string): Promise<void> =>
  lockstep.transaction({}, (tx) => tx.enqueue(event(key)))

async function rings(): Promise<boolean> {
  const { rows } = await bench.admin.query<{ rung: boolean }>('SELECT lockstep.outbox_ring() AS rung')
  return rows[0]?.rung === true
}

/** Resolves when so many dispatchers want to hear the bell. */
const listen = (count: number): Promise<void> =>
  eventually(async () => (await bench.admin.query('SELECT FROM lockstep.outbox_listeners')).rowCount === count)

/** Resolves when the leases of all shards, and of all members, are over: they rest. */
const rest = (): Promise<void> =>
  eventually(async () => {
    const { rows } = await bench.admin.query<{ all: number; live: number }>(
      'SELECT count(*)::int AS all, count(*) FILTER (WHERE expires_at > clock_timestamp())::int AS live FROM lockstep.leases WHERE token IS NOT NULL',
    )
    return rows[0]?.live === 0 && rows[0].all > 0
  })

/** Resolves when a dispatcher sleeps: it wants to be rung for as long as can be. */
const asleep = (): Promise<void> =>
  eventually(async () => {
    const { rowCount } = await bench.admin.query(
      `SELECT FROM lockstep.outbox_listeners WHERE until > clock_timestamp() + interval '1 day'`,
    )
    return rowCount === 1
  })

const fences = async (): Promise<unknown[]> =>
  (await bench.admin.query('SELECT name, fence FROM lockstep.leases ORDER BY name')).rows

describe.each(DRIVERS)('a dispatcher that has nothing to do, %s', (driver) => {
  test('lets its shards rest, sends nothing, and has the same shards when another process rings', async () => {
    const [writer, { lockstep, proxy }] = [bench.open('pg', { max: 2 }).lockstep, await bench.proxied(driver)]
    const dispatcher = bench.dispatch(lockstep, { shards: 4, ttlMs: 1500 })
    await write(writer, 'a')
    await dispatcher.until(1)
    await rest()
    await eventually(async () => ((await writer.outbox.status()).shards[0]?.owner ?? '').includes('(resting)'))
    await eventually(async () => {
      const trips = proxy.roundTrips
      // Meanwhile a lease would have been renewed.
      await bench.admin.query('SELECT pg_sleep(0.8)')
      return proxy.roundTrips === trips
    })
    const held = await fences()
    expect(held).toHaveLength(5)
    await write(writer, 'b')
    await dispatcher.until(2)
    expect(await fences()).toEqual(held)
  })

  test('does not look more often because of events that are not its own', async () => {
    const { lockstep, proxy } = await bench.proxied(driver)
    const dispatcher = bench.dispatch(lockstep, { shards: 4 })
    await listen(1)
    const looks: number[] = []
    proxy.onClientData((chunk) => {
      if (chunk.includes('outbox_read(')) looks.push(performance.now())
      return 'forward'
    })
    // Numbers are given out all the time, so each look finds a new one. If that were a reason to look again, no pause would become long.
    const over = new AbortController()
    const others = (async (): Promise<void> => {
      while (!over.signal.aborted) await bench.admin.query(`SELECT nextval('lockstep.outbox_ids'), pg_sleep(0.025)`)
    })()
    const pauses = (): number[] => looks.slice(1).map((at, look) => at - (looks[look] ?? 0))
    await eventually(
      () =>
        looks.length > 6 &&
        pauses()
          .slice(-5)
          .every((ms) => ms > 150),
    )
    over.abort()
    await others
    await dispatcher.stop()
  })

  test('is woken from its rest by a commit in the same process', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500 })
    await write(lockstep, 'a')
    await dispatcher.until(1)
    await rest()
    await write(lockstep, 'b')
    await dispatcher.until(2)
    expect(dispatcher.names).toEqual(['a#1', 'b#1'])
  })

  test('looks again when the connection on which it listens was lost', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500 })
    await listen(1)
    await rest()
    // No writer rings for it.
    await bench.enqueue('a')
    await bench.admin.query(`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE 'listen%'`)
    await dispatcher.until(1)
    // And it hears the bell again.
    await rest()
    await bench.enqueue('b')
    expect(await rings()).toBe(true)
    await dispatcher.until(2)
  })
})

test('a dispatcher that sleeps looks once more before, and sends nothing until it is rung for', async () => {
  const { lockstep, proxy } = await bench.proxied('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, sleepAfterMs: 1000 })
  await asleep()
  const trips = proxy.roundTrips
  await bench.enqueue('a')
  expect(proxy.roundTrips).toBe(trips)
  expect(await rings()).toBe(true)
  await dispatcher.until(1)
  await asleep()
  // Found with what wakes it.
  await bench.enqueue('b')
  await lockstep.transaction({}, (tx) => tx.enqueue(event('c')))
  await dispatcher.until(3)
})

test('a dispatcher that comes back too late to be rung for looks again and again before it sleeps', async () => {
  const [{ lockstep }, { lockstep: writer }] = [bench.open('pg', { max: 6 }), bench.open('pg', { max: 2 })]
  const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, sleepAfterMs: 3000, topics: ['t'] })
  await rest()
  // As if the machine had been suspended: writers have read that no dispatcher listens.
  const now = Date.now.bind(Date)
  const clock = vi.spyOn(Date, 'now').mockImplementation(() => now() + 200_000)
  try {
    await bench.admin.query(`UPDATE lockstep.outbox_listeners SET until = clock_timestamp() - interval '1 s'`)
    const { rows } = await bench.admin.query<{ until: Date }>('SELECT until FROM lockstep.outbox_listeners')
    const before = rows[0]?.until.getTime() ?? 0
    await eventually(async () => {
      await writer.transaction({}, (tx) => tx.enqueue({ topic: 'foreign', key: 'a', payload: 1 }))
      await bench.admin.query('SELECT pg_sleep(0.1)')
      const listeners = await bench.admin.query<{ until: Date }>('SELECT until FROM lockstep.outbox_listeners')
      return listeners.rows.some(({ until }) => until.getTime() > before)
    })
    // It asked a moment ago whether a dispatcher listens, and does not ask again.
    await write(writer, 'a')
    await dispatcher.until(1)
  } finally {
    clock.mockRestore()
  }
})

describe('the bell', () => {
  test('is rung only while a dispatcher listens', async () => {
    expect(await rings()).toBe(false)
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep)
    await listen(1)
    expect(await rings()).toBe(true)
    await dispatcher.stop()
    expect(await rings()).toBe(false)
  })

  test('can be rung in SQL, inside the transaction and after it', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500 })
    await listen(1)
    await rest()
    await bench.admin.query(`BEGIN; SELECT lockstep.enqueue('t', 'a', '1'), lockstep.outbox_ring(); COMMIT`)
    await dispatcher.until(1)
    await rest()
    await bench.enqueue('b')
    await rings()
    await dispatcher.until(2)
    expect(dispatcher.names).toEqual(['a#1', 'b#1'])
  })

  test('wakes a dispatcher for an operator', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    let refuse = true
    const dispatcher = bench.dispatch(lockstep, {
      ttlMs: 500,
      attempts: 1,
      sink: (batch) => batch.map(() => (refuse ? { refused: 'not now' } : 'sent')),
    })
    await write(lockstep, 'a')
    const state = async (): Promise<unknown> => (await lockstep.outbox.parked())[0]?.state
    await eventually(async () => (await state()) === 'blocked')
    await rest()
    refuse = false
    await lockstep.outbox.retry({ topic: 't', key: 'a' })
    await dispatcher.until(1)
  })

  test('is rung again when the connection was lost on which it was rung', async () => {
    const [{ lockstep }, { lockstep: writer }] = [bench.open('pg', { max: 6 }), bench.open('pg', { max: 2 })]
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, sleepAfterMs: 1000 })
    await asleep()
    const holder = await bench.session()
    await holder.query('BEGIN; LOCK TABLE lockstep.outbox_listeners IN ACCESS EXCLUSIVE MODE')
    await write(writer, 'a')
    await bench.lockWaits(1, '%outbox_ring(%')
    await bench.admin.query(`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%outbox_ring(%'`)
    await holder.query('COMMIT')
    // It looks at nothing by itself.
    await dispatcher.until(1)
  })

  test('is rung when the answer to COMMIT was lost', async () => {
    const [{ lockstep }, writer] = [bench.open('pg', { max: 6 }), await bench.proxied('pg', { max: 2 })]
    await firstCall(writer.lockstep)
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, sleepAfterMs: 1000 })
    await asleep()
    await writer.lockstep.transaction({}, async (tx) => {
      await tx.enqueue(event('a'))
      strikeNextCommit(writer.proxy, 'answer lost')
    })
    // It looks at nothing by itself.
    await dispatcher.until(1)
  })

  test('does not wake a dispatcher that wants none of the topics', async () => {
    const [{ lockstep }, { lockstep: writer }] = [bench.open('pg', { max: 6 }), bench.open('pg', { max: 2 })]
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, topics: ['t', 'orders.*'] })
    await write(writer, 'a')
    await dispatcher.until(1)
    await rest()
    const ended = async (): Promise<unknown> =>
      (await bench.admin.query('SELECT name, expires_at FROM lockstep.leases')).rows
    const before = await ended()
    await writer.transaction({}, (tx) => tx.enqueue({ topic: 'foreign', key: 'a', payload: 1 }))
    await bench.admin.query(`SELECT lockstep.outbox_ring('ffffffffffffffff ${randomUUID()} t:foreign,orders')`)
    // Where it is woken, it holds its leases again.
    await bench.admin.query('SELECT pg_sleep(0.5)')
    expect(await ended()).toEqual(before)
    await writer.transaction({}, (tx) =>
      tx.enqueueMany([
        { topic: 'foreign', key: 'a', payload: 1 },
        { topic: 'orders.eu', key: 'a', payload: 1 },
      ]),
    )
    await dispatcher.until(2)
    expect(dispatcher.delivered).toEqual(['t/a#1', 'orders.eu/a#1'])
  })

  test('is not needed for what was committed before writers were asked to ring', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    // It cannot register as a listener before this ends: no writer rings for what is committed until then.
    const holder = await bench.session()
    await holder.query('BEGIN; LOCK TABLE lockstep.outbox_listeners IN EXCLUSIVE MODE')
    const dispatcher = bench.dispatch(lockstep)
    await bench.lockWaits(1, '%outbox_listen(%')
    await bench.enqueue('a')
    await holder.query('COMMIT')
    await dispatcher.until(1)
  })

  test('is not missed while a look is on its way', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep)
    await listen(1)
    for (let number = 1; number <= 40; number++) {
      await bench.admin.query(`SELECT lockstep.enqueue('t', 'k', '1'), lockstep.outbox_ring()`)
      if (number % 3 === 0) await dispatcher.until(number)
    }
    await dispatcher.until(40)
    expect(dispatcher.names).toEqual(Array.from({ length: 40 }, (_, place) => `k#${place + 1}`))
  })
})

describe('shards that rest', () => {
  const owners = (dispatchers: readonly Dispatching[]): number =>
    dispatchers.filter(({ names }) => names.length > 0).length

  test('are taken over when their owner has died, at the next ring', async () => {
    const [dying, { lockstep: other }] = [await bench.proxied('pg'), bench.open('pg', { max: 6 })]
    const first = bench.dispatch(dying.lockstep, { shards: 2, ttlMs: 500 })
    const { lockstep: writer } = bench.open('pg', { max: 2 })
    for (const key of ['a', 'b', 'c', 'd', 'e']) await write(writer, key)
    await first.until(5)
    const second = bench.dispatch(other, { shards: 2, ttlMs: 500 })
    await listen(2)
    await rest()
    await dying.proxy.close()
    for (const key of ['a', 'b', 'c', 'd', 'e']) await write(writer, key)
    await second.until(5)
    expect(owners([first, second])).toBe(2)
    expect(second.names.toSorted()).toEqual(['a#2', 'b#2', 'c#2', 'd#2', 'e#2'])
  })

  test('are lost to a process that takes them meanwhile', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep, { shards: 2, ttlMs: 500 })
    await listen(1)
    await rest()
    const { rows } = await bench.admin.query<{ key: string }>(`
      SELECT DISTINCT ON (s.shard) k.key
        FROM generate_series(1, 20) AS n CROSS JOIN LATERAL (SELECT 'k' || n AS key) AS k
        CROSS JOIN LATERAL (SELECT lockstep.outbox_shard(lockstep.outbox_bucket(lockstep.outbox_stream('t', k.key)), 2::smallint) AS shard) AS s
       ORDER BY s.shard, n`)
    const [theirs, ours] = rows.map(({ key }) => key) as [string, string]
    const token = randomUUID()
    const name = 'Outbox:default:shard:0'
    const { rows: taken } = await bench.admin.query(
      `SELECT verdict FROM lockstep.lease_take($1, $2, 60000, 1, 'another', NULL, NULL, false)`,
      [name, token],
    )
    expect(taken).toEqual([{ verdict: 'granted' }])
    await lockstep.transaction({}, (tx) => tx.enqueueMany([event(theirs), event(ours)]))
    // Both shards were read in one message, if both were owned.
    await dispatcher.until(1)
    await write(lockstep, ours)
    await dispatcher.until(2)
    expect(dispatcher.names).toEqual([`${ours}#1`, `${ours}#2`])
    await bench.admin.query('SELECT lockstep.lease_release($1, $2)', [name, token])
    await dispatcher.until(3)
    expect(dispatcher.names.at(-1)).toBe(`${theirs}#1`)
  })
})

describe('outbox_look_ahead()', () => {
  const look = async (): Promise<{ stirred: boolean; due_ms: number | null }> => {
    const { rows } = await bench.admin.query<{ stirred: boolean; due_ms: number | null }>(
      `SELECT stirred, due_ms::int AS due_ms FROM lockstep.outbox_look_ahead('default', 1)`,
    )
    return rows[0] ?? { stirred: false, due_ms: null }
  }
  const stirred = async (): Promise<boolean> => (await look()).stirred

  test('sees what was committed by a transaction that was open when the cursor was moved', async () => {
    const [open, later] = [await bench.session(), await bench.session()]
    await open.query(`BEGIN; SELECT lockstep.enqueue('t', 'open', '1')`)
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep)
    await bench.enqueue('done', 1, later)
    await dispatcher.until(1)
    await dispatcher.stop()
    expect(await stirred()).toBe(false)
    await open.query('COMMIT')
    expect(await stirred()).toBe(true)
  })

  test('sees what was committed since, and when a stream is due that waits for another try', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep, {
      backoffMs: { first: 60_000 },
      sink: (batch) => batch.map(({ key }) => (key === 'bad' ? { refused: 'no' } : 'sent')),
    })
    await bench.enqueue('a')
    await dispatcher.until(1)
    await dispatcher.stop()
    expect(await look()).toEqual({ stirred: false, due_ms: null })
    await bench.enqueue('bad')
    expect(await stirred()).toBe(true)
    const again = bench.dispatch(lockstep, {
      backoffMs: { first: 60_000 },
      sink: (batch) => batch.map(() => ({ refused: 'no' })),
    })
    await eventually(async () => (await lockstep.outbox.parked()).length === 1)
    await again.stop()
    const { stirred: due, due_ms: dueMs } = await look()
    expect({ due, later: (dueMs ?? 0) > 0 }).toEqual({ due: false, later: true })
    await bench.admin.query('UPDATE lockstep.outbox_parked SET next_attempt_at = clock_timestamp()')
    expect(await stirred()).toBe(true)
  })
})
