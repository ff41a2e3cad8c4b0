import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { type Proxy, startProxy } from '../testing/index.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'

/** A network that loses everything for a while. When it is well again, its old sockets stay silent, and nothing closes them. */

const database = await testDatabase()

const POOL_SIZE = 3
const SILENCE_MS = 600

const cleanUp = cleanUps()

/** A pool behind a network, and its users without Lockstep. */
interface Scene {
  readonly proxy: Proxy
  readonly lockstep: Lockstep
  query(text: string): Promise<unknown>
  /** Opens a transaction, and gives what sends a query in it; and what ends it. */
  begin(): Promise<{ query: (text: string) => Promise<unknown>; commit: () => Promise<unknown> }>
}

type Opened = Omit<Scene, 'proxy' | 'lockstep'> & { readonly pool: pg.Pool | postgres.Sql; end(): Promise<void> }

function openPg(url: string): Opened {
  const pool = new pg.Pool({ connectionString: url, max: POOL_SIZE }).on('error', () => undefined)
  return {
    pool,
    query: async (text) => pool.query(text),
    async begin() {
      const client = await pool.connect()
      client.on('error', () => undefined)
      await client.query('BEGIN')
      const query = (text: string): Promise<unknown> =>
        client.query(text).catch((error: Error) => {
          client.release(error)
          throw error
        })
      return { query, commit: async () => (await client.query('COMMIT'), client.release()) }
    },
    end: () => pool.end(),
  }
}

function openPostgresJs(url: string): Opened {
  const sql = postgres(url, { max: POOL_SIZE, connect_timeout: 1, backoff: () => 0.005, onnotice() {} })
  return {
    pool: sql,
    query: async (text) => sql.unsafe(text),
    begin() {
      return new Promise((resolve, reject) => {
        sql
          .begin(
            (tx) =>
              new Promise<void>((commit) => {
                resolve({
                  query: async (text) => tx.unsafe(text),
                  commit: () => (commit(), Promise.resolve()),
                })
              }),
          )
          .catch(reject)
      })
    },
    end: () => sql.end({ timeout: 1 }),
  }
}

async function open(openPool: (url: string) => Opened): Promise<Scene> {
  const { hostname, port } = new URL(database.url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432) })
  const opened = openPool(proxy.url(database.url))
  const lockstep = new Lockstep(opened.pool as pg.Pool, { silenceMs: SILENCE_MS, waitMs: 20_000 })
  cleanUp(async () => {
    proxy.cutAll()
    await proxy.close()
    await lockstep.close()
    await opened.end()
  })
  return { ...opened, proxy, lockstep }
}

const fill = (work: () => Promise<unknown>): Promise<unknown>[] => Array.from({ length: POOL_SIZE }, work)

/** Every place of the pool works, for Lockstep and for others. */
async function expectWhole(scene: Scene): Promise<void> {
  const { lockstep } = scene
  await lockstep.transaction({ lock: key`Silent:1` }, (tx) => tx.query('SELECT 1'))
  await Promise.all(fill(() => scene.query('SELECT pg_sleep(0.05)')))
  await Promise.all(fill(() => lockstep.transaction({}, (tx) => tx.query('SELECT pg_sleep(0.05)'))))
}

// Closing it then would end the process: postgres.js does not handle that rejection.
test('does not close a connection that is silent while it is asked for types, postgres.js', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432) })
  const sql = postgres(proxy.url(database.url), { max: 1, backoff: () => 0.005, onnotice() {} })
  const lockstep = new Lockstep(sql, { silenceMs: SILENCE_MS, waitMs: 20_000 })
  cleanUp(async () => {
    await lockstep.close()
    await sql.end({ timeout: 1 })
    await proxy.close()
  })
  await lockstep.transaction({}, () => Promise.resolve())
  await lockstep.transaction({}, () => Promise.resolve())
  proxy.cutAll()
  await expect.poll(() => proxy.connections.length).toBe(0)
  let held = 0
  proxy.onClientData((chunk) => {
    if (!chunk.includes('pg_catalog.pg_type')) return 'forward'
    held++
    return 'hold'
  })
  const waiting = lockstep.transaction({}, () => Promise.resolve('served'))
  await expect.poll(() => held).toBe(1)
  proxy.onClientData(undefined)
  await sleep(4 * SILENCE_MS)
  for (const connection of proxy.connections) connection.release()
  expect(await waiting).toBe('served')
})

const { pooledUrl } = database

test.skipIf(pooledUrl === undefined)('does not judge connections by the process ids of a pooler', async () => {
  const pool = new pg.Pool({ connectionString: pooledUrl, max: 1 })
  const lockstep = new Lockstep(pool, { silenceMs: SILENCE_MS, waitMs: 20_000 })
  cleanUp(async () => {
    await lockstep.close()
    await pool.end()
  })
  await lockstep.transaction({}, () => Promise.resolve())
  const slow = pool.query(`SELECT pg_sleep(${(4 * SILENCE_MS) / 1000})`)
  await lockstep.transaction({}, () => Promise.resolve())
  expect((await slow).rowCount).toBe(1)
})

describe.each([
  ['pg', openPg],
  ['postgres.js', openPostgresJs],
])('%s', (_, openPool) => {
  test('recovers when all connections were idle', async () => {
    const scene = await open(openPool)
    await expectWhole(scene)
    scene.proxy.silence()
    scene.proxy.resume()
    await expectWhole(scene)
  })

  test('recovers when all connections worked for Lockstep', async () => {
    const scene = await open(openPool)
    await expectWhole(scene)
    let begun = 0
    const work = fill(() =>
      scene.lockstep.transaction({}, async (tx) => {
        if (++begun === POOL_SIZE) {
          scene.proxy.silence()
          scene.proxy.resume()
        }
        await expect.poll(() => begun >= POOL_SIZE).toBe(true)
        await tx.query('SELECT 1')
      }),
    )
    // COMMIT, or the statement before it, is not answered: it is done again.
    await Promise.all(work)
    await expectWhole(scene)
  })

  test('recovers when others had queries in progress, which fail', async () => {
    const scene = await open(openPool)
    await expectWhole(scene)
    const lost = Promise.allSettled(fill(() => scene.query('SELECT pg_sleep(0.2)')))
    await expect.poll(() => scene.proxy.roundTrips).toBeGreaterThan(0)
    scene.proxy.silence()
    scene.proxy.resume()
    await expectWhole(scene)
    expect((await lost).map(({ status }) => status)).toEqual(Array(POOL_SIZE).fill('rejected'))
  })

  test('recovers when others had transactions open', async () => {
    const scene = await open(openPool)
    await expectWhole(scene)
    const transactions = await Promise.all(Array.from({ length: POOL_SIZE }, () => scene.begin()))
    await Promise.all(transactions.map(({ query }) => query('SELECT 1')))
    scene.proxy.silence()
    scene.proxy.resume()
    const lost = Promise.allSettled(transactions.map(({ query }) => query('SELECT 2')))
    await expectWhole(scene)
    expect((await lost).map(({ status }) => status)).toEqual(Array(POOL_SIZE).fill('rejected'))
  })

  test('recovers when connections were being opened', async () => {
    const scene = await open(openPool)
    scene.proxy.silence()
    const lost = Promise.allSettled(fill(() => scene.query('SELECT 1')))
    const waiting = scene.lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
    await expect.poll(() => scene.proxy.connections.length).toBe(POOL_SIZE)
    scene.proxy.resume()
    await waiting
    await expectWhole(scene)
    await lost
  })

  test('does not disturb a slow query or an idle transaction', async () => {
    const scene = await open(openPool)
    await expectWhole(scene)
    const slow = Array.from({ length: POOL_SIZE - 1 }, () => scene.query(`SELECT pg_sleep(${(5 * SILENCE_MS) / 1000})`))
    const thinking = await scene.begin()
    await thinking.query('CREATE TEMP TABLE thought (n int) ON COMMIT DROP')
    // Waits for a connection for longer than the silence, so the others are looked at.
    const waiting = scene.lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
    await Promise.all(slow)
    await waiting
    await thinking.query('INSERT INTO thought VALUES (1)')
    await thinking.commit()
    await expectWhole(scene)
  })
})
