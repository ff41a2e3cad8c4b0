import pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { DRIVERS, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type BlockingNode, key, Lockstep, type ListedLock, type LockListing } from '../index.ts'

const bench = await testBench()

const sessions = new Set<pg.Client>()
afterEach(async () => {
  for (const each of sessions) await each.end()
  sessions.clear()
})

/** A session such as psql has, with a transaction open. */
async function session(application: string, url = bench.url): Promise<pg.Client & { readonly pid: number }> {
  const client = new pg.Client({ connectionString: url, application_name: application })
  // Its lock may end with its session.
  client.on('error', () => undefined)
  await client.connect()
  sessions.add(client)
  await client.query('BEGIN')
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  return Object.assign(client, { pid: rows[0]?.pid ?? 0 })
}

function take(client: pg.Client, lock: string, shared = false): Promise<unknown> {
  return client.query(
    `SELECT pg_advisory_xact_lock${shared ? '_shared' : ''}(lockstep.lock_id('lock', ${pg.escapeLiteral(lock)}))`,
  )
}

/** Asks for a lock and comes back when the session stands in the queue. */
async function wait(client: pg.Client & { readonly pid: number }, asking: () => Promise<unknown>): Promise<void> {
  asking().catch(() => undefined)
  const waits = async (): Promise<number | null> =>
    (
      await bench.admin.query('SELECT 1 FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL AND pid = $1', [
        client.pid,
      ])
    ).rowCount
  await expect.poll(waits).toBe(1)
}

function find({ locks }: LockListing, lock: string): ListedLock | undefined {
  return locks.find((each) => each.key === lock)
}

function pids(nodes: readonly BlockingNode[]): unknown[] {
  return nodes.map(({ pid, blocks }) => (blocks.length === 0 ? pid : [pid, pids(blocks)]))
}

describe.each(DRIVERS)('%s', (driver) => {
  test('resolves names of this process and of others', async () => {
    const other = bench.open(driver)
    const watcher = bench.open('pg')
    const lock = key`Transfer:${`named ${driver}`}`
    await other.lockstep.transaction({ lock, lockShared: key`Ledger:${driver}` }, async (tx) => {
      const pid = await pidOf(tx)
      expect(find(await other.lockstep.locks.list(), lock)).toMatchObject({ operation: 'Transfer' })
      await expect.poll(async () => find(await watcher.lockstep.locks.list(), lock)?.key).toBe(lock)
      const listing = await watcher.lockstep.locks.list()
      expect(listing.tree).toEqual([])
      expect(find(listing, lock)).toEqual({
        id: other.lockstep.lockId(lock),
        key: lock,
        operation: 'Transfer',
        holders: [
          {
            pid,
            mode: 'exclusive',
            application: expect.anything(),
            state: 'idle in transaction',
            heldForMs: expect.any(Number),
          },
        ].map((holder) => ({ ...holder, application: driver === 'pg' ? undefined : 'postgres.js' })),
        waiters: [],
        queued: 0,
      })
      expect(find(listing, `Ledger:${driver}`)?.holders).toMatchObject([{ pid, mode: 'shared' }])
    })
    expect(await watcher.lockstep.locks.list()).toEqual({ locks: [], tree: [] })
  })

  test('shows a lock without a name as a signed number', async () => {
    const { lockstep } = bench.open(driver)
    const foreign = await session('somebody else')
    for (const id of ['-9223372036854775808', '-1', '0', '42', '9223372036854775807']) {
      await foreign.query('SELECT pg_advisory_xact_lock($1)', [id])
    }
    await foreign.query('SELECT pg_advisory_xact_lock(1, 2)')
    const { locks } = await lockstep.locks.list()
    expect(locks.map(({ id }) => id).toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      -(2n ** 63n),
      -1n,
      0n,
      42n,
      2n ** 63n - 1n,
    ])
    expect(locks.every((each) => each.key === undefined && each.operation === undefined)).toBe(true)
  })

  test('shows locks of plain SQL by lock_id() under their key', async () => {
    const { lockstep } = bench.open(driver)
    const lock = key`Transfer:${`by psql ${driver}`}`
    // The key was used before, so its name is known.
    await lockstep.transaction({ lock }, async () => undefined)
    const psql = await session('psql')
    await take(psql, lock)
    await expect
      .poll(async () => find(await lockstep.locks.list(), lock)?.holders)
      .toMatchObject([{ pid: psql.pid, application: 'psql', mode: 'exclusive', state: 'idle in transaction' }])
    expect(find(await lockstep.locks.list(), lock)?.holders[0]).not.toHaveProperty('statement')
    const told = await lockstep.locks.list({ statements: true })
    expect(find(told, lock)?.holders[0]?.statement).toContain('pg_advisory_xact_lock(lockstep.lock_id')
  })

  test('lists waiters in order of arrival, with a tree of blockers', async () => {
    const { lockstep } = bench.open(driver)
    const holder = await session('holder')
    await holder.query('SELECT pg_advisory_xact_lock_shared(7)')
    const waiters = []
    for (const shared of [false, true, true, false]) {
      const waiter = await session('waiter')
      await wait(waiter, () => waiter.query(`SELECT pg_advisory_xact_lock${shared ? '_shared' : ''}(7)`))
      waiters.push(waiter.pid)
    }
    const { locks, tree } = await lockstep.locks.list()
    expect(locks).toHaveLength(1)
    expect(locks[0]?.holders).toMatchObject([{ pid: holder.pid, mode: 'shared' }])
    expect(locks[0]?.waiters.map(({ pid, mode }) => ({ pid, mode }))).toEqual([
      { pid: waiters[0], mode: 'exclusive' },
      { pid: waiters[1], mode: 'shared' },
      { pid: waiters[2], mode: 'shared' },
      { pid: waiters[3], mode: 'exclusive' },
    ])
    for (const waiter of locks[0]?.waiters ?? []) expect(waiter.waitedMs).toBeGreaterThanOrEqual(0)
    const [first, second, third, fourth] = waiters
    expect(pids(tree)).toEqual([[holder.pid, [[first, [second, third]], fourth]]])
    const { rows } = await bench.admin.query<{ blockers: number[] }>('SELECT pg_blocking_pids($1) AS blockers', [
      second,
    ])
    expect(rows[0]?.blockers).toEqual([first])
  })

  test('shows a chain of three with a row lock in it', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query(`INSERT INTO notes VALUES ('a row')`)
    const [writer, middle, last] = [await session('writer'), await session('middle'), await session('last')]
    await writer.query(`UPDATE notes SET id = 'a row'`)
    await middle.query('SELECT pg_advisory_xact_lock(8)')
    await wait(middle, () => middle.query(`UPDATE notes SET id = 'a row'`))
    await wait(last, () => last.query('SELECT pg_advisory_xact_lock(8)'))
    const { tree } = await lockstep.locks.list({ statements: true })
    expect(pids(tree)).toEqual([[writer.pid, [[middle.pid, [last.pid]]]]])
    expect(tree[0]).toMatchObject({
      application: 'writer',
      state: 'idle in transaction',
      statement: expect.stringContaining('UPDATE notes'),
      waitsFor: undefined,
      blocks: [
        { waitsFor: { id: undefined, kind: 'transactionid' }, blocks: [{ waitsFor: { id: 8n, kind: 'advisory' } }] },
      ],
    })
  })

  test('counts callers that wait in this process', async () => {
    const { lockstep } = bench.open(driver)
    const [held, over] = [signal(), signal()]
    const lock = key`Wallet:${driver}`
    const first = lockstep.transaction({ lock }, async () => {
      held.give()
      await over.given
    })
    await held.given
    const others = [1, 2, 3].map(() => lockstep.transaction({ lock }, async () => undefined))
    await expect.poll(async () => find(await lockstep.locks.list(), lock)?.queued).toBe(3)
    over.give()
    await Promise.all([first, ...others])
    expect(await lockstep.locks.list()).toEqual({ locks: [], tree: [] })
  })

  test('shows a deadlock that the server has not broken yet', async () => {
    const { lockstep } = bench.open(driver)
    const [one, other] = [await session('one'), await session('other')]
    for (const each of [one, other]) await each.query(`SET LOCAL deadlock_timeout = '30s'`)
    await one.query('SELECT pg_advisory_xact_lock(1)')
    await other.query('SELECT pg_advisory_xact_lock(2)')
    await wait(one, () => one.query('SELECT pg_advisory_xact_lock(2)'))
    await wait(other, () => other.query('SELECT pg_advisory_xact_lock(1)'))
    const { tree } = await lockstep.locks.list()
    const [low, high] = [one.pid, other.pid].toSorted((a, b) => a - b)
    expect(pids(tree)).toEqual([[low, [[high, [low]]]]])
    await bench.admin.query('SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid', [[one.pid, other.pid]])
  })

  test('gives the same list behind a pooler', async () => {
    if (bench.pooledUrl === undefined) return
    const lockstep = new Lockstep(
      driver === 'pg'
        ? own(new pg.Pool({ connectionString: bench.pooledUrl, max: 2 }))
        : own(postgres(bench.pooledUrl, { max: 2, prepare: false })),
    )
    const lock = key`Transfer:${`pooled ${driver}`}`
    await lockstep.transaction({ lock }, async (tx) => {
      const pid = await pidOf(tx)
      await expect
        .poll(async () => find(await bench.open('pg').lockstep.locks.list(), lock)?.holders)
        .toMatchObject([{ pid }])
      expect(find(await lockstep.locks.list(), lock)?.holders).toMatchObject([{ pid }])
    })
    await lockstep.close()
  })

  test('looks only once whose schema it is', async () => {
    const { lockstep, proxy } = await bench.proxied(driver)
    await lockstep.transaction({}, async () => undefined)
    const roundTrips: number[] = []
    for (let count = 0; count < 2; count++) {
      proxy.roundTrips = 0
      await lockstep.locks.list()
      roundTrips.push(proxy.roundTrips)
    }
    expect(roundTrips).toEqual([2, 1])
  })

  test('works without the table of names, and rejects after close()', async () => {
    const { lockstep, again } = bench.open(driver)
    const nameless = again({ schema: 'not_migrated' })
    const holder = await session('holder')
    await holder.query('SELECT pg_advisory_xact_lock(9)')
    expect((await nameless.locks.list()).locks).toMatchObject([{ id: 9n, holders: [{ pid: holder.pid }] }])
    await lockstep.close()
    await expect(lockstep.locks.list()).rejects.toMatchObject({ code: 'LOCKSTEP_CLOSED' })
  })
})

const pools: { end(): Promise<unknown> }[] = []
function own<T extends { end(): Promise<unknown> }>(pool: T): T {
  pools.push(pool)
  return pool
}
afterAll(() => Promise.all(pools.map((pool) => pool.end())))

test('shows holders to a role that cannot see other sessions', async () => {
  const role = `watcher_${bench.name}`
  await bench.admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  const url = new URL(bench.url)
  url.username = role
  const pool = new pg.Pool({ connectionString: url.href, max: 2 })
  try {
    const holder = await session('holder')
    await holder.query('SELECT pg_advisory_xact_lock(10)')
    // The role has no USAGE on the schema: then there are no names.
    const { locks } = await new Lockstep(pool).locks.list({ statements: true })
    expect(locks).toEqual([
      {
        id: 10n,
        key: undefined,
        operation: undefined,
        holders: [
          { pid: holder.pid, mode: 'exclusive', application: 'holder', state: undefined, heldForMs: undefined },
        ],
        waiters: [],
        queued: 0,
      },
    ])
  } finally {
    await pool.end()
    await bench.admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  }
})
