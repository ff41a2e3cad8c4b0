import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Transaction } from '../index.ts'
import { on } from '../observe/index.ts'

/** Statements that a server process keeps: quicker, and never in the way. */

const bench = await testBench()

beforeAll(async () => {
  await bench.admin.query('CREATE SCHEMA aside')
  // The trial of the locks, which keeps statements, too.
  await bench.open('pg', { max: 1 }).lockstep.transaction({}, async () => undefined)
})

const KEPT = `SELECT count(*)::int AS kept FROM pg_prepared_statements WHERE name LIKE 'lockstep%'`
const keptBy = async (tx: Transaction): Promise<number | undefined> =>
  (await tx.query<{ kept: number }>(KEPT)).rows[0]?.kept
const numbers = async (topic: string): Promise<number[]> => {
  const { rows } = await bench.admin.query<{ seq: number }>(
    `SELECT seq::int AS seq FROM lockstep.outbox_events WHERE topic = $1 ORDER BY id`,
    [topic],
  )
  return rows.map(({ seq }) => seq)
}

describe('kept statements', () => {
  test('are prepared once per direct connection', async () => {
    const { lockstep } = bench.open('pg', { max: 1 })
    const seen: (number | undefined)[] = []
    for (let n = 0; n < 6; n++) {
      await lockstep.transaction({ lock: key`Order:${n}` }, async (tx) => {
        seen.push(await keptBy(tx))
        await tx.enqueue({ topic: 'kept', key: 'a', payload: n })
      })
    }
    // BEGIN, the lock, the append, COMMIT; the first time, it is not known yet that the connection is direct.
    expect(seen.at(-1)).toBe(4)
    expect(seen.at(-2)).toBe(4)
    expect(await numbers('kept')).toEqual([1, 2, 3, 4, 5, 6])
  })

  test.runIf(bench.pooledUrl !== undefined)('are not used behind a pooler', async () => {
    const { lockstep } = bench.open('pg', { max: 1, url: bench.pooledUrl as string })
    for (let n = 0; n < 4; n++) {
      await lockstep.transaction({ lock: key`Order:${n}` }, async (tx) => {
        expect(await keptBy(tx)).toBe(0)
        await tx.enqueue({ topic: 'pooled', key: 'a', payload: n })
      })
    }
    expect(await numbers('pooled')).toEqual([1, 2, 3, 4])
  })

  test.each([
    { what: 'retried', retry: undefined },
    { what: 'with a single try', retry: { attempts: 1 } },
  ])('are prepared again after DISCARD ALL, $what', async ({ what, retry }) => {
    const { lockstep, query } = bench.open('pg', { max: 1, ...(retry === undefined ? {} : { retry }) })
    const topic = `forgotten ${what}`
    for (let n = 0; n < 8; n++) {
      await lockstep.transaction({ lock: key`Order:${n}` }, (tx) => tx.enqueue({ topic, key: 'a', payload: n }))
      await query('DISCARD ALL')
    }
    expect(await numbers(topic)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    // And from then on nothing is kept on this pool.
    await lockstep.transaction({ lock: key`Order:1` }, async (tx) => expect(await keptBy(tx)).toBe(0))
  })

  test('survive an event that fails', async () => {
    const { lockstep } = bench.open('pg', { max: 1 })
    const enqueue = (payload: unknown): Promise<void> =>
      lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'failing', key: 'a', payload }))
    for (let n = 0; n < 3; n++) await enqueue(n)
    await bench.admin.query(`ALTER TABLE lockstep.outbox_events ADD CONSTRAINT failing CHECK (payload::text <> '"no"')`)
    try {
      for (let n = 0; n < 5; n++) await expect(enqueue('no')).rejects.toMatchObject({ code: '23514' })
    } finally {
      await bench.admin.query('ALTER TABLE lockstep.outbox_events DROP CONSTRAINT failing')
    }
    await enqueue(3)
    expect(await numbers('failing')).toEqual([1, 2, 3, 4])
    await lockstep.transaction({}, async (tx) => expect(await keptBy(tx)).toBe(4))
  })

  const APPEND = 'lockstep.outbox_append(text, text, json, bytea, json, bigint, uuid)'
  const ASIDE = 'aside.outbox_append(text, text, json, bytea, json, bigint, uuid)'

  test('are replaced when a function returns other columns', async () => {
    const { lockstep } = bench.open('pg', { max: 1 })
    const enqueue = (payload: unknown): Promise<void> =>
      lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'another type', key: 'a', payload }))
    for (let n = 0; n < 3; n++) await enqueue(n)
    await bench.admin.query(`
      ALTER FUNCTION ${APPEND} SET SCHEMA aside;
      CREATE FUNCTION ${APPEND} RETURNS text LANGUAGE sql
        AS 'SELECT aside.outbox_append($1, $2, $3, $4, $5, $6, $7)::text'`)
    try {
      for (let n = 3; n < 6; n++) await enqueue(n)
    } finally {
      await bench.admin.query(`DROP FUNCTION ${APPEND}; ALTER FUNCTION ${ASIDE} SET SCHEMA lockstep`)
    }
    for (let n = 6; n < 9; n++) await enqueue(n)
    expect(await numbers('another type')).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  test('stay given up after a success without a name', async () => {
    const { lockstep } = bench.open('pg', { max: 1 })
    const enqueue = (payload: unknown): Promise<void> =>
      lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'given up', key: 'a', payload }))
    for (let n = 0; n < 2; n++) await lockstep.transaction({}, keptBy)
    await bench.admin.query(`ALTER FUNCTION ${APPEND} SET SCHEMA aside`)
    try {
      for (let n = 0; n < 3; n++) await expect(enqueue(n)).rejects.toMatchObject({ code: '42883' })
    } finally {
      await bench.admin.query(`ALTER FUNCTION ${ASIDE} SET SCHEMA lockstep`)
    }
    const retried: unknown[] = []
    const stop = on('transaction.retried', (message) => retried.push(message.error))
    for (let n = 0; n < 3; n++) await enqueue(n)
    stop()
    expect(retried).toEqual([])
    expect(await numbers('given up')).toEqual([1, 2, 3])
  })
})

/** What DISCARD ALL does to them; postgres.js would not find its own ones after that either. */
const FORGET = `
  DO $$ DECLARE kept text; BEGIN
    FOR kept IN SELECT name FROM pg_prepared_statements WHERE name LIKE 'lockstep%' LOOP EXECUTE format('DEALLOCATE %I', kept); END LOOP;
  END $$`

describe.each(DRIVERS)('kept statements of the opening message, %s', (driver) => {
  test.each(['read committed', 'serializable'] as const)(
    'are not missed when they are gone, at %s',
    async (isolation) => {
      const { lockstep, query } = bench.open(driver, { max: 1, retry: { attempts: 1 } })
      const name = `${driver} ${isolation}`
      const kept: (number | undefined)[] = []
      const add = async (number: number): Promise<void> =>
        lockstep.transaction({ lock: key`Order:${number}`, isolation }, async (tx) => {
          kept.push(await keptBy(tx))
          await tx.query('INSERT INTO notes VALUES ($1)', [`${name} ${number}`])
        })
      for (let number = 0; number < 4; number++) await add(number)
      expect(kept.at(-1)).toBeGreaterThan(0)
      expect(kept.at(-1)).toBe(kept.at(-2))
      await query(FORGET)
      for (let number = 4; number < 6; number++) await add(number)
      expect(kept.slice(-2)).toEqual([0, 0])
      expect(await bench.notes()).toHaveLength(6)
    },
  )

  test('lock what they were given, shared and exclusive', async () => {
    const [{ lockstep }, { lockstep: other }] = [bench.open(driver, { max: 1 }), bench.open(driver, { max: 1 })]
    const noWait = { noWait: true } as const
    for (const isolation of ['read committed', 'serializable'] as const) {
      for (let number = 0; number < 3; number++) {
        await lockstep.transaction(
          { lock: [key`Order:${1}`, key`Order:${2}`], lockShared: key`Order:${3}`, isolation },
          async () => {
            for (const id of [1, 2, 3])
              await expect(
                other.transaction({ lock: key`Order:${id}`, isolation, ...noWait }, keptBy),
              ).rejects.toThrow()
            await other.transaction({ lockShared: key`Order:${3}`, isolation, ...noWait }, keptBy)
          },
        )
      }
    }
  })
})
