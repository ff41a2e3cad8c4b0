import { existsSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { key, Lockstep } from '../index.ts'

/**
 * A server with LLVM compiles every statement whose plan it takes for expensive. Compiling takes seconds, and none of our statements runs
 * for as long. Debian's server has LLVM; the one that comes with the tests has not.
 */

const DEBIAN_15 = '/usr/lib/postgresql/15'
const isThere = existsSync(join(DEBIAN_15, 'bin/initdb')) && existsSync(join(DEBIAN_15, 'lib/llvmjit.so'))

describe.skipIf(!isThere)('on a server with LLVM', () => {
  let server: PostgresServer
  let pool: pg.Pool
  let lockstep: Lockstep

  beforeAll(async () => {
    const binary = (name: string): string => join(DEBIAN_15, 'bin', name)
    server = await startPostgres({
      binaries: { initdb: binary('initdb'), pg_ctl: binary('pg_ctl'), postgres: binary('postgres') },
      settings: { jit: 'on', shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track': 'all' },
    })
    pool = new pg.Pool({ connectionString: server.url(), max: 8 })
    lockstep = new Lockstep(pool)
    await pool.query('CREATE EXTENSION pg_stat_statements')
    await lockstep.migrate()
  })

  afterAll(async () => {
    await lockstep?.close()
    await pool?.end()
    await server?.stop()
  })

  const compiled = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ query: string }>(
      'SELECT query FROM pg_stat_statements WHERE jit_functions > 0 ORDER BY query',
    )
    return rows.map(({ query }) => query)
  }

  test('compiles an expensive query (control)', async () => {
    await pool.query(
      'SET jit_above_cost = 0; SELECT count(*) FROM pg_class WHERE relname > $$a$$; RESET jit_above_cost',
    )
    expect(await compiled()).toHaveLength(1)
    await pool.query('SELECT pg_stat_statements_reset()')
  })

  test('compiles no statement of ours', async () => {
    await pool.query(`SELECT lockstep.enqueue('t', (n % 500)::text, '1') FROM generate_series(1, 20000) AS n`)
    let refuses = true
    const run = dispatching(lockstep, {
      shards: 8,
      attempts: 1_000_000,
      sink: (events) => events.map(({ key: name }) => (refuses && name === '7' ? { refused: 'no' } : 'sent')),
    })
    await run.until(19_900)
    await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 40)
    refuses = false
    await run.until(20_000)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await run.stop()
    await pool.query(`SELECT lockstep.enqueue('t', (n % 1000)::text, '1') FROM generate_series(1, 30000) AS n`)
    await lockstep.outbox.status()
    await lockstep.outbox.pause({ topic: 't', key: '1' })
    await lockstep.outbox.resume({ topic: 't', key: '1' })
    await lockstep.outbox.replay({ sink: () => undefined, topic: 't', key: '8' })
    await lockstep.outbox.replay({ sink: () => undefined, fromPosition: 49_000 })
    await lockstep.outbox.erase({ topic: 't', key: '9' })
    for (let n = 0; n < 3; n++) await lockstep.outbox.retain({ olderThanMs: 0 })
    for (let n = 0; n < 200; n++) await lockstep.leases.acquire(key`Lease:${n}`, { ttlMs: 60_000 })
    await lockstep.leases.list({ prefix: 'Lease:' })
    await lockstep.leases.inspect(key`Lease:1`)
    await lockstep.leases.history(key`Lease:1`)
    await lockstep.leases.forceRelease(key`Lease:1`, { reason: 'a test', by: 'a test' })
    await lockstep.transaction({ lock: 'Lock:1' }, () => lockstep.locks.list())
    await lockstep.doctor()
    const [event] = run.events
    if (event !== undefined) await lockstep.transaction({}, (tx) => lockstep.inbox.consumer('c').accept(tx, event))
    await lockstep.outbox.removeDispatcher('default', { reason: 'a test' })
    expect(await compiled()).toEqual([])
  })
})
