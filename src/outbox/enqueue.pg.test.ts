import { beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { EventInvalidError, key, Lockstep, StreamNotDeclaredError } from '../index.ts'

/** How events get their numbers: every function that enqueues, at every isolation level. */

const bench = await testBench()

beforeEach(() => bench.admin.query('TRUNCATE lockstep.outbox_events; ALTER SEQUENCE lockstep.outbox_ids RESTART'))

interface Row {
  readonly stream: string
  readonly seq: number
  readonly payload: unknown
}

async function stored(): Promise<Row[]> {
  const { rows } = await bench.admin.query<Row>(
    `SELECT topic || '/' || key AS stream, seq::int AS seq, COALESCE(payload, to_json(encode(bytes, 'escape'))) AS payload
       FROM lockstep.outbox_events ORDER BY id`,
  )
  return rows
}

const named = (rows: readonly Row[]): string[] => rows.map(({ stream, seq }) => `${stream}#${seq}`)
const trade = (portfolio: string, payload: unknown = {}): { topic: string; key: string; payload: unknown } => {
  return { topic: 'trades', key: portfolio, payload }
}

describe.each(DRIVERS)('enqueue, %s', (driver) => {
  test('numbers each stream by itself, in the order of the calls', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue(trade('a', { n: 1 }))
      await tx.enqueueMany([trade('b', 'text'), trade('a', [2]), trade('a', null)])
      await tx.enqueue({ ...trade('a', Buffer.from('bytes')), topic: 'quotes' })
      expect(await stored()).toEqual([])
    })
    await lockstep.transaction({}, (tx) => tx.enqueue({ ...trade('a', 4.5), headers: { traceparent: '00-1-2-01' } }))
    const rows = await stored()
    expect(named(rows)).toEqual(['trades/a#1', 'trades/b#1', 'trades/a#2', 'trades/a#3', 'quotes/a#1', 'trades/a#4'])
    expect(rows.map(({ payload }) => payload)).toEqual([{ n: 1 }, 'text', [2], null, 'bytes', 4.5])
    const { rows: headers } = await bench.admin.query(
      `SELECT headers FROM lockstep.outbox_events WHERE headers IS NOT NULL`,
    )
    expect(headers).toEqual([{ headers: { traceparent: '00-1-2-01' } }])
  })

  test('writes events as they were when they were enqueued', async () => {
    const { lockstep } = bench.open(driver)
    const payload = { n: 1 }
    const bytes = Buffer.from('one')
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueueMany([trade('a', payload), trade('b', bytes)])
      payload.n = 2
      bytes.write('two')
    })
    expect((await stored()).map((row) => row.payload)).toEqual([{ n: 1 }, 'one'])
  })

  test('leaves no gap after a rollback of the transaction or of a savepoint', async () => {
    const { lockstep } = bench.open(driver)
    const undone = lockstep.transaction({}, async (tx) => {
      await tx.enqueue(trade('a'))
      throw new Error('undo')
    })
    await failureOf(undone)
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue(trade('a', 1))
      const part = tx.savepoint(async (inner) => {
        await inner.enqueue(trade('a', 'undone'))
        throw new Error('undo')
      })
      await part.catch(() => undefined)
      // Through the outer transaction: tx.query belongs to the savepoint around it, and so does tx.enqueue.
      const outer = tx.savepoint(async () => {
        await tx.enqueue(trade('a', 'undone'))
        throw new Error('undo')
      })
      await outer.catch(() => undefined)
      await tx.savepoint((inner) => inner.enqueue(trade('a', 2)))
      await tx.transaction({}, (nested) => nested.enqueue(trade('a', 3)))
    })
    expect((await stored()).map(({ seq, payload }) => [seq, payload])).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
    ])
  })

  test('writes at once inside a transaction of the caller, and returns the number', async () => {
    const { lockstep, begin } = bench.open(driver)
    const numbers = await begin('', async (client) => {
      const first = await lockstep.outbox.enqueue(client, trade('a', { own: true }))
      const tx = await lockstep.join(client)
      await tx.enqueue(trade('a'))
      return [first.seq, (await lockstep.outbox.enqueue(client, trade('a'))).seq]
    })
    expect(numbers).toEqual([1, 3])
    expect(named(await stored())).toEqual(['trades/a#1', 'trades/a#2', 'trades/a#3'])
  })

  test.each(['repeatable read', 'serializable'] as const)(
    'gives every number once to 32 clients of a declared stream, %s',
    async (isolation) => {
      const clients = [bench.open(driver, { max: 8 }), bench.open(driver, { max: 8 })]
      const streams = [{ topic: 'trades', key: 'hot' }]
      await Promise.all(
        Array.from({ length: 32 }, async (_, n) => {
          const { lockstep } = clients[n % 2] as (typeof clients)[number]
          for (let round = 0; round < 3; round++) {
            const lock = n % 3 === 0 ? key`Portfolio:${n}` : key`Portfolio:shared`
            await lockstep.transaction({ isolation, lock, streams }, async (tx) => {
              await tx.query('SELECT count(*) FROM notes')
              await tx.enqueueMany([trade('hot', { n, round }), trade('hot', { n, round, second: true })])
            })
          }
        }),
      )
      const rows = await stored()
      expect(rows.map(({ seq }) => seq)).toEqual(Array.from({ length: 192 }, (_, n) => n + 1))
      expect(await bench.locksHeld()).toBe(0)
    },
  )

  test.each(['repeatable read', 'serializable'] as const)(
    'rejects a stream that was not declared, in the library and in SQL, %s',
    async (isolation) => {
      const { lockstep } = bench.open(driver)
      const streams = [{ topic: 'trades', key: 'b' }]
      const undeclared = lockstep.transaction({ isolation, streams }, (tx) => tx.enqueue(trade('a')))
      expect(await failureOf(undeclared)).toBeInstanceOf(StreamNotDeclaredError)
      const bySql = lockstep.transaction({ isolation }, (tx) => tx.query(`SELECT lockstep.enqueue('trades', 'a', '1')`))
      expect(await failureOf(bySql)).toMatchObject({ code: '0A000' })
      expect(await stored()).toEqual([])
    },
  )

  test('gives every number once to 32 clients on three keys, read committed', async () => {
    const clients = [bench.open(driver, { max: 8 }), bench.open(driver, { max: 8 })]
    await Promise.all(
      Array.from({ length: 32 }, async (_, n) => {
        const { lockstep } = clients[n % 2] as (typeof clients)[number]
        for (let round = 0; round < 4; round++) {
          await lockstep.transaction({}, async (tx) => {
            if (n === 0) await tx.query(`SELECT lockstep.enqueue('trades', 'a', '{}')`)
            else await tx.enqueueMany(['c', 'a', 'b'].map((portfolio) => trade(portfolio)))
          })
        }
      }),
    )
    const rows = await stored()
    const of = (stream: string): number[] => rows.filter((row) => row.stream === stream).map(({ seq }) => seq)
    expect(of('trades/a')).toEqual(Array.from({ length: 128 }, (_, n) => n + 1))
    expect(of('trades/b')).toEqual(Array.from({ length: 124 }, (_, n) => n + 1))
  })

  test('delays only its own stream while a transaction is open', async () => {
    const { lockstep } = bench.open(driver)
    const sameBucket = await neighbourOf('a')
    const [written, goOn] = [signal(), signal()]
    const holder = bench.open(driver).lockstep.transaction({}, async (tx) => {
      await tx.query(`SELECT lockstep.enqueue('trades', 'a', '{}')`)
      written.give()
      await goOn.given
    })
    await written.given
    await lockstep.transaction({}, (tx) => tx.enqueue(trade(sameBucket)))
    const second = lockstep.transaction({}, (tx) => tx.enqueue(trade('a')))
    await bench.waiters(1)
    goOn.give()
    await Promise.all([holder, second])
    expect(named(await stored()).toSorted()).toEqual(['trades/a#1', 'trades/a#2', `trades/${sameBucket}#1`].toSorted())
  })

  test('takes group locks for more than a hundred streams, and keeps their order', async () => {
    const { lockstep } = bench.open(driver)
    const events = Array.from({ length: 12_000 }, (_, n) => trade(`${n % 3000}`, n))
    const [flushed, goOn] = [signal(), signal()]
    const writing = bench.open(driver).begin('', async (client) => {
      const tx = await lockstep.join(client)
      await tx.enqueueMany(events)
      flushed.give()
      await goOn.given
    })
    await flushed.given
    expect(await bench.locksHeld()).toBeLessThanOrEqual(64)
    goOn.give()
    await writing
    const rows = await stored()
    expect(rows).toHaveLength(12_000)
    expect(rows.map(({ payload }) => payload)).toEqual(events.map(({ payload }) => payload))
    expect(rows.filter(({ stream }) => stream === 'trades/17').map(({ seq }) => seq)).toEqual([1, 2, 3, 4])
    await lockstep.transaction({}, (tx) => tx.enqueue(trade('17')))
    expect((await stored()).at(-1)).toMatchObject({ seq: 5 })
  })

  test('adds headers to every event, and prefers the event’s own', async () => {
    const { lockstep } = bench.open(driver, { eventHeaders: () => ({ traceparent: '00-a-b-01', tenant: 'all' }) })
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ ...trade('a'), headers: { tenant: 'one' } })
      await tx.enqueue(trade('a'))
    })
    const { rows } = await bench.admin.query(`SELECT headers FROM lockstep.outbox_events ORDER BY id`)
    expect(rows.map(({ headers }) => headers as unknown)).toEqual([
      { traceparent: '00-a-b-01', tenant: 'one' },
      { traceparent: '00-a-b-01', tenant: 'all' },
    ])
  })

  test('rejects invalid events before anything is sent, and the transaction continues', async () => {
    const { lockstep } = bench.open(driver, { maxEventBytes: 100 })
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    const bad: unknown[] = [
      undefined,
      {},
      trade(''),
      { topic: '', key: 'a', payload: 1 },
      { topic: 'x\0y', key: 'a', payload: 1 },
      { topic: 'trades', key: 'a' },
      trade('a', () => 1),
      trade('a', circular),
      trade('a', 'x'.repeat(101)),
      trade('a', Buffer.alloc(101)),
      { ...trade('a'), headers: { a: 1 } },
      { ...trade('k'.repeat(1001)) },
    ]
    await lockstep.transaction({}, async (tx) => {
      for (const event of bad) expect(await failureOf(tx.enqueue(event as never))).toBeInstanceOf(EventInvalidError)
      await tx.enqueue(trade('a', 'good'))
    })
    expect(await stored()).toMatchObject([{ seq: 1, payload: 'good' }])
  })

  test('keeps the streams of schemas apart', async () => {
    const other = bench.open(driver, { schema: 'we"ird %s' })
    await other.lockstep.migrate()
    await bench.admin.query('TRUNCATE "we""ird %s".outbox_events')
    await other.lockstep.transaction({}, (tx) => tx.enqueue(trade('a')))
    await other.lockstep.transaction({}, (tx) => tx.enqueueMany([trade('a'), trade('b')]))
    const { rows } = await bench.admin.query(
      `SELECT seq::int FROM "we""ird %s".outbox_events WHERE key = 'a' ORDER BY id`,
    )
    expect(rows).toEqual([{ seq: 1 }, { seq: 2 }])
    expect(await stored()).toEqual([])
  })
})

test('enqueues in a trigger with the row, or not at all', async () => {
  await bench.admin.query(`
    CREATE TABLE orders (id int PRIMARY KEY, portfolio text NOT NULL);
    CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM lockstep.enqueue('orders', NEW.portfolio, to_json(NEW)); RETURN NEW; END $$;
    CREATE TRIGGER announce AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION announce()`)
  await bench.admin.query(`INSERT INTO orders VALUES (1, 'a'), (2, 'a'), (3, 'b')`)
  await failureOf(bench.admin.query(`INSERT INTO orders VALUES (4, 'a'), (1, 'a')`))
  expect(named(await stored())).toEqual(['orders/a#1', 'orders/a#2', 'orders/b#1'])
})

/** A portfolio whose stream is in the same group. */
async function neighbourOf(portfolio: string): Promise<string> {
  const { rows } = await bench.admin.query<{ key: string }>(
    `SELECT n::text AS key FROM generate_series(1, 10000) AS n
      WHERE lockstep.outbox_group(lockstep.outbox_bucket(lockstep.outbox_stream('trades', n::text)))
          = lockstep.outbox_group(lockstep.outbox_bucket(lockstep.outbox_stream('trades', $1))) LIMIT 1`,
    [portfolio],
  )
  return rows[0]?.key ?? ''
}

test('checks the types of events', () => {
  const typed = (lockstep: Lockstep<{ trades: { id: number } }>): void => {
    void lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: { id: 1 } })
      // @ts-expect-error a payload of another type
      await tx.enqueue({ topic: 'trades', key: 'a', payload: { id: 'one' } })
      // @ts-expect-error a topic that is not there
      await tx.enqueue({ topic: 'quotes', key: 'a', payload: { id: 1 } })
    })
  }
  expect(typed).toBeTypeOf('function')
})
