import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Proxy, startProxy, type Verdict } from './proxy.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'

const database = await testDatabase()
const observer = new pg.Pool({ connectionString: database.url })
afterAll(() => observer.end())
await observer.query('create table done (what text)')

let proxy: Proxy
let client: pg.Client

beforeEach(async () => {
  await observer.query('truncate done')
  const target = new URL(database.url)
  proxy = await startProxy({ targetHost: target.hostname, targetPort: Number(target.port || 5432), lingerMs: 100 })
  client = new pg.Client(proxy.url(database.url))
  client.on('error', () => {})
  await client.connect()
})

afterEach(async () => {
  await proxy.close()
  await client.end().catch(() => {})
})

async function done(): Promise<string[]> {
  return (await observer.query<{ what: string }>('select what from done')).rows.map(({ what }) => what)
}

/** Backends of clients that came through the proxy: the observer's own are left out by what they run. */
async function insideTransaction(): Promise<number> {
  const { rows } = await observer.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity
      where datname = current_database() and state like 'idle in transaction%'`,
  )
  return rows[0]?.count ?? -1
}

async function beginWork(): Promise<void> {
  await client.query('begin')
  await client.query("insert into done values ('work')")
}

function onCommit(verdict: Verdict): void {
  proxy.onClientData((chunk) => (chunk.includes('commit') ? verdict : 'forward'))
}

describe('a COMMIT', () => {
  test('does not run if cut before it is forwarded', async () => {
    await beginWork()
    onCommit('cut-before')
    await expect(client.query('commit')).rejects.toThrow(/terminated/)
    await expect.poll(() => insideTransaction()).toBe(0)
    expect(await done()).toEqual([])
  })

  test('runs if cut after it is forwarded, and the client gets no answer', async () => {
    await beginWork()
    onCommit('cut-after')
    await expect(client.query('commit')).rejects.toThrow(/terminated/)
    await expect.poll(() => done()).toEqual(['work'])
    await expect.poll(() => proxy.connections).toEqual([])
  })

  test('has run if its answer is cut', async () => {
    await beginWork()
    proxy.onServerData((chunk) => (chunk.includes('COMMIT') ? 'cut-before' : 'forward'))
    await expect(client.query('commit')).rejects.toThrow(/terminated/)
    expect(await done()).toEqual(['work'])
  })

  test('arrives only on release if held, with both sides open', async () => {
    await beginWork()
    onCommit('hold')
    const commit = client.query('commit')
    await expect(Promise.race([commit, delay(100, 'silence')])).resolves.toBe('silence')
    expect(await insideTransaction()).toBe(1)
    proxy.connections[0]?.release()
    await commit
    expect(await done()).toEqual(['work'])
  })

  test('arrives on release if held, even after its client gave up', async () => {
    await beginWork()
    onCommit('hold')
    const commit = client.query('commit').catch(() => 'gave up')
    await delay(20)
    ;(client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
    await expect(commit).resolves.toBe('gave up')
    expect(await insideTransaction()).toBe(1)
    proxy.connections[0]?.release()
    await expect.poll(() => done()).toEqual(['work'])
    await expect.poll(() => proxy.connections).toEqual([])
  })
})

describe('the network', () => {
  test('loses everything and closes nothing when silenced, also on new connections', async () => {
    await beginWork()
    proxy.silence()
    const commit = client.query('commit').catch(() => 'cut')
    const late = new pg.Client({ connectionString: proxy.url(database.url), connectionTimeoutMillis: 100 })
    await expect(late.connect()).rejects.toThrow(/timeout/)
    expect(await insideTransaction()).toBe(1)
    expect(await done()).toEqual([])
    proxy.resume()
    const next = new pg.Client(proxy.url(database.url))
    await next.connect()
    await next.end()
    proxy.cutAll()
    await expect(commit).resolves.toBe('cut')
    await expect.poll(() => insideTransaction()).toBe(0)
  })

  test('rejects connections, and accepts them again', async () => {
    proxy.refuse(true)
    await expect(new pg.Client(proxy.url(database.url)).connect()).rejects.toThrow(/terminated|ECONNRESET/)
    proxy.refuse(false)
    const next = new pg.Client(proxy.url(database.url))
    await next.connect()
    await next.end()
    await expect.poll(() => proxy.connections).toHaveLength(1)
  })

  test('transfers more than any buffer holds, both ways', async () => {
    const size = 20_000_000
    const { rows } = await client.query<{ back: string }>('select $1::text as back', ['x'.repeat(size)])
    expect(rows[0]?.back).toHaveLength(size)
  })
})

describe('counting', () => {
  test('counts each simple or extended query as one round trip', async () => {
    expect(proxy.roundTrips).toBe(0)
    await client.query('begin')
    await client.query('select $1::int', [1])
    await client.query({ name: 'prepared', text: 'select $1::int', values: [1] })
    await client.query('commit')
    expect([proxy.roundTrips, proxy.waits]).toEqual([4, 4])
    proxy.roundTrips = 0
    proxy.waits = 0
    await client.query('begin; select 1; commit')
    expect([proxy.roundTrips, proxy.waits]).toEqual([1, 1])
  })

  test('counts one wait for pipelined queries', async () => {
    const pipelining = new pg.Client({ connectionString: proxy.url(database.url), pipeline: true })
    await pipelining.connect()
    try {
      await Promise.all(['begin', 'select 1', 'commit'].map((sql) => pipelining.query(sql)))
      expect([proxy.roundTrips, proxy.waits]).toEqual([3, 1])
    } finally {
      await pipelining.end()
    }
  })
})
