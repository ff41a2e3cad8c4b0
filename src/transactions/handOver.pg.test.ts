import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { type Key, lockMethod, type LockSet, lockSet, RecentLockIds } from '../locks/index.ts'
import { NO_PARTS } from './plannedPart.ts'
import { handOver, handOverTrying, type Opening } from './transactions.sql.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 5 })
afterAll(() => pool.end())

const [ONE, TWO]: readonly [Key, Key] = ['Order:1', 'Order:2']

function opening(locks: LockSet): Opening {
  return {
    isolation: 'serializable',
    method: lockMethod('advisory', '"lockstep"'),
    locks,
    parts: NO_PARTS,
    withXid: true,
    serverEpoch: undefined,
    checksConnections: false,
  }
}

function locksOf(...keys: readonly Key[]): LockSet {
  return lockSet(new RecentLockIds('lockstep'), keys, undefined)
}

/** A session, and what the server warned it of. */
interface Session {
  readonly client: pg.PoolClient
  readonly warnings: readonly unknown[]
}

async function withSessions(work: (mine: Session, other: pg.PoolClient) => Promise<void>): Promise<void> {
  const [client, other] = [await pool.connect(), await pool.connect()]
  const warnings: unknown[] = []
  client.on('notice', (notice) => warnings.push(notice.message))
  try {
    await work({ client, warnings }, other)
  } finally {
    client.release(true)
    other.release(true)
  }
}

/** What the last statement of a message says of the locks. */
async function held(client: pg.PoolClient, message: string): Promise<string | null | undefined> {
  const results = (await client.query(message)) as unknown as pg.QueryResult<{ held: string | null }>[]
  return results.at(-1)?.rows[0]?.held
}

async function locksHeld(client: pg.PoolClient): Promise<number> {
  const text = `SELECT count(*)::int AS count FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`
  return (await client.query<{ count: number }>(text)).rows[0]?.count ?? -1
}

test('takes the locks over, and the session keeps none after COMMIT', async () => {
  await withSessions(async ({ client, warnings }) => {
    const locks = locksOf(ONE, TWO)
    expect(await held(client, handOverTrying(opening(locks)))).toMatch(/^\d+$/)
    expect(await client.query('SHOW transaction_isolation')).toMatchObject({
      rows: [{ transaction_isolation: 'serializable' }],
    })
    expect(await client.query('SHOW transaction_read_only')).toMatchObject({ rows: [{ transaction_read_only: 'off' }] })
    expect(await locksHeld(client)).toBe(2)
    await client.query('COMMIT')
    expect(await locksHeld(client)).toBe(0)
    expect(warnings).toEqual([])
  })
})

test.each([0, 1])('leaves nothing on the session where lock %i of two is taken', async (taken) => {
  await withSessions(async ({ client, warnings }, other) => {
    const locks = locksOf(ONE, TWO)
    await other.query(`BEGIN; SELECT pg_advisory_xact_lock(${locks[taken]?.id})`)
    expect(await held(client, handOverTrying(opening(locks)))).toBeNull()
    await client.query('ROLLBACK')
    expect(await locksHeld(client)).toBe(0)
    expect(await client.query('SHOW transaction_read_only')).toMatchObject({ rows: [{ transaction_read_only: 'off' }] })
    expect(warnings).toEqual([])
    // The waiting form continues from there in one message.
    const waiting = held(client, handOver(opening(locks), 60_000, true))
    await other.query('ROLLBACK')
    expect(await waiting).toMatch(/^\d+$/)
  })
})

// With such a default the mark of a refusal says nothing: what the server unlocked has to.
test.each(['off', 'on'])(
  'does not count a lock that comes free between its two transactions, default_transaction_read_only %s',
  async (readOnly) => {
    await withSessions(async ({ client, warnings }, other) => {
      await client.query(`SET default_transaction_read_only = ${readOnly}`)
      const locks = locksOf(ONE)
      await other.query(`BEGIN; SELECT pg_advisory_xact_lock(${locks[0]?.id})`)
      const [first = '', second = ''] = handOverTrying(opening(locks)).split('COMMIT AND CHAIN;')
      await client.query(first)
      await other.query('COMMIT')
      expect(await held(client, `COMMIT AND CHAIN; ${second}`)).toBeNull()
      await client.query('ROLLBACK')
      expect(await locksHeld(client)).toBe(0)
      if (readOnly === 'off') expect(warnings).toEqual([])
    })
  },
)
