import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { startIneffectiveLocks } from '../../tools/server/ineffectiveLocks.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { type Proxy, type ProxyConnection, startProxy } from '../testing/index.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { LocksIneffectiveError } from '../errors.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import type { LockstepOptions } from '../lockstepOptions.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())

const transact = (lockstep: Lockstep, id = 1): Promise<string> =>
  lockstep.transaction({ lock: key`Trial:${id}` }, async () => 'inside')

/** With how many connections the locks were tried by each route. */
async function trials(): Promise<number[]> {
  const { rows } = await admin.query<{ connections: number }>('SELECT connections FROM lockstep.lock_trials')
  return rows.map(({ connections }) => connections)
}

async function direct(): Promise<Proxy> {
  const { hostname, port } = new URL(database.url)
  return startProxy({ targetHost: hostname, targetPort: Number(port) })
}

async function withPool<T>(
  url: string,
  max: number,
  work: (pool: pg.Pool, lockstep: Lockstep) => Promise<T>,
  options: LockstepOptions = {},
): Promise<T> {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool, options)
  try {
    return await work(pool, lockstep)
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

beforeEach(() => admin.query('DELETE FROM lockstep.lock_trials'))

describe('a pool that is busy', () => {
  test('does not stop a start, and is tried with two connections later', async () => {
    await using proxy = await direct()
    await withPool(proxy.url(database.url), 2, async (pool, lockstep) => {
      const taken = await pool.connect()
      expect(await transact(lockstep)).toBe('inside')
      expect(await trials()).toEqual([1])
      taken.release()
      await expect.poll(trials).toEqual([2])
    })
  })

  test('does not hide that locks do nothing', async () => {
    await using stub = await startIneffectiveLocks(database.url)
    await withPool(stub.url(database.url), 2, async (pool, lockstep) => {
      const taken = await pool.connect()
      await expect(transact(lockstep)).rejects.toBeInstanceOf(LocksIneffectiveError)
      taken.release()
      await expect(transact(lockstep)).rejects.toMatchObject({ reason: 'granted twice' })
    })
  })

  test('does not make callers of join() wait', async () => {
    await using proxy = await direct()
    await withPool(proxy.url(database.url), 1, async (pool, lockstep) => {
      const client = await pool.connect()
      await client.query('BEGIN')
      await lockstep.join(client, { lock: key`Trial:${1}` })
      await client.query('ROLLBACK')
      client.release()
    })
  })
})

test('rejects join() where locks do nothing', async () => {
  await using stub = await startIneffectiveLocks(database.url)
  await withPool(stub.url(database.url), 3, async (pool, lockstep) => {
    const client = await pool.connect()
    await client.query('BEGIN')
    await expect(lockstep.join(client, { lock: key`Trial:${1}` })).rejects.toBeInstanceOf(LocksIneffectiveError)
    await client.query('ROLLBACK')
    client.release()
  })
})

test('repeats the trial when its first connection is lost', async () => {
  await using proxy = await direct()
  await withPool(proxy.url(database.url), 2, async (_, lockstep) => {
    const askers: ProxyConnection[] = []
    let cut = 0
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('pg_try_advisory_xact_lock') || askers.includes(connection)) return 'forward'
      askers.push(connection)
      const [first] = askers
      if (askers.length !== 2 || first === undefined) return 'forward'
      cut++
      first.cut()
      void (async () => {
        // The server gives the lock away when it has noticed.
        const held = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = $1)`
        while ((await admin.query(held, [database.name])).rowCount !== 0) await new Promise(setImmediate)
        connection.release()
      })()
      return 'hold'
    })
    expect(await transact(lockstep)).toBe('inside')
    expect(cut).toBe(1)
    expect(await trials()).toEqual([2])
  })
})

test.each([1, 2])('repeats the trial when its connection %i falls silent', async (which) => {
  await using proxy = await direct()
  const work = async (_: pg.Pool, lockstep: Lockstep): Promise<void> => {
    const askers: ProxyConnection[] = []
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('pg_try_advisory_xact_lock') || askers.includes(connection)) return 'forward'
      askers.push(connection)
      if (askers.length !== which) return 'forward'
      connection.silence()
      return 'hold'
    })
    expect(await transact(lockstep)).toBe('inside')
    expect(askers.length).toBeGreaterThan(which)
    proxy.cutAll()
  }
  await withPool(proxy.url(database.url), 2, work, { silenceMs: 500 })
})

test('tries in every process for a role that cannot read the trials', async () => {
  const role = `app_${database.name}`
  await admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  try {
    await admin.query(`GRANT USAGE ON SCHEMA lockstep TO ${role};
      GRANT EXECUTE ON FUNCTION lockstep.schema_version, lockstep.ensure_incarnation, lockstep.current_incarnation TO ${role}`)
    const url = new URL(database.url)
    url.username = role
    expect(await withPool(url.href, 2, (_, lockstep) => transact(lockstep))).toBe('inside')
    expect(await trials()).toEqual([])
    await using stub = await startIneffectiveLocks(database.url)
    await expect(withPool(stub.url(url.href), 2, (_, lockstep) => transact(lockstep))).rejects.toBeInstanceOf(
      LocksIneffectiveError,
    )
  } finally {
    await admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  }
})

test('rejects a worker of a Citus cluster, but not its coordinator', async () => {
  await using proxy = await direct()
  const client = await admin.connect()
  try {
    // Its catalog, where the extension keeps it.
    await client.query(
      'SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer)',
    )
    await client.query('INSERT INTO pg_catalog.pg_dist_local_group VALUES (3)')
    await withPool(proxy.url(database.url), 2, async (_, lockstep) => {
      await expect(transact(lockstep)).rejects.toMatchObject({ reason: 'Citus worker' })
      await client.query('UPDATE pg_catalog.pg_dist_local_group SET groupid = 0')
      expect(await transact(lockstep)).toBe('inside')
    })
  } finally {
    await client.query('DROP TABLE pg_catalog.pg_dist_local_group; RESET allow_system_table_mods')
    client.release()
  }
})

test('tries again when an earlier server epoch comes back', async () => {
  await using proxy = await direct()
  let trialsMade = 0
  proxy.onClientData((chunk) => {
    // Only a trial asks for it.
    if (chunk.includes('load_balance_mode')) trialsMade++
    return 'forward'
  })
  await withPool(proxy.url(database.url), 2, async (pool, lockstep) => {
    /** How many trials the first transaction makes after the server epoch has changed. */
    const trialsAfterMoveTo = async (value: string): Promise<number> => {
      const before = trialsMade
      await admin.query('UPDATE lockstep.incarnation SET value = $1', [value])
      for (let left = pool.totalCount; left > 0; left--) (await pool.connect()).release(true)
      await transact(lockstep)
      return trialsMade - before
    }
    await transact(lockstep)
    // On a busy machine the first trial can have had one connection. The repetition in the background keeps connections from the pool.
    await expect.poll(trials).toEqual([2])
    await expect.poll(() => pool.totalCount - pool.idleCount).toBe(0)
    const { rows } = await admin.query<{ value: string }>('SELECT value FROM lockstep.incarnation')
    // A crash, or a standby that was promoted: the same server continues.
    expect(await trialsAfterMoveTo(randomUUID())).toBe(0)
    expect(await trialsAfterMoveTo(rows[0]?.value ?? '')).toBeGreaterThan(0)
  })
})

/** A balancer that gives each connection the next server of its list. */
async function startBalancer(
  ports: () => readonly number[],
): Promise<{ url: string; [Symbol.asyncDispose](): Promise<void> }> {
  const sockets = new Set<Socket>()
  let turn = 0
  const listener = createServer((client) => {
    const list = ports()
    const server = connect(list[turn++ % list.length] ?? 0, '127.0.0.1')
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => other.destroy())
    }
    client.pipe(server).pipe(client)
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    async [Symbol.asyncDispose]() {
      const closed = once(listener, 'close')
      listener.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

test('finds connections to different servers, at the start and later', async () => {
  await using one = await startPostgres()
  await using other = await startPostgres()
  for (const server of [one, other]) await withPool(server.url(), 2, (_, lockstep) => lockstep.migrate())
  let ports = [one.port, other.port]
  await using balancer = await startBalancer(() => ports)
  await withPool(balancer.url, 2, async (_, lockstep) => {
    await expect(transact(lockstep)).rejects.toMatchObject({
      reason: 'granted twice',
      message: expect.stringContaining(`one reached 127.0.0.1:`) as string,
    })
  })
  ports = [one.port]
  await withPool(balancer.url, 2, async (pool, lockstep) => {
    expect(await transact(lockstep)).toBe('inside')
    // Another process has come by this route while it led to the other server: that is remembered there, and does not count.
    ports = [other.port]
    await withPool(balancer.url, 2, (_, elsewhere) => transact(elsewhere))
    const client = await pool.connect()
    client.release(true)
    const both = Promise.all([transact(lockstep, 1), transact(lockstep, 2)])
    await expect(both).rejects.toMatchObject({ reason: 'granted twice' })
    await expect(transact(lockstep, 3)).rejects.toBeInstanceOf(LocksIneffectiveError)
    // All of them there, and it continues.
    for (let left = pool.totalCount; left > 0; left--) (await pool.connect()).release(true)
    expect(await transact(lockstep, 4)).toBe('inside')
  })
})
