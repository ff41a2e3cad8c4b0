import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Redis } from 'ioredis'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ensurePeers, peerNode } from '../../bench/harness/peers.ts'
import { redlockPeer } from '../../bench/peers/redlock.ts'
import { command } from '../../tools/check/command.ts'
import { root } from '../../tools/check/repository.ts'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { run as advisoryLocks } from './advisory-locks.ts'
import { after as throughOutbox } from './outbox.ts'
import { run as outboxTable } from './outbox-table.ts'
import { after as leased, before as withRedlock } from './redlock.ts'
import { run as shedlock } from './shedlock.ts'

/** The programs of docs/migrating: what goes wrong before, and is right afterwards. */

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
beforeAll(() => ensurePeers(), 240_000)
afterAll(() => pool.end())

test('hand-written advisory locks: old and new code exclude each other once the old code takes both locks', async () => {
  expect(await advisoryLocks(pool, true)).toEqual({ balance: 70 })
  expect([80, 90]).toContain((await advisoryLocks(pool, false)).balance)
})

test.skipIf(!redisAvailable())('redlock: a holder that lost its lock writes, and under a lease it cannot', async () => {
  const server = await startRedis()
  const client = new Redis({ host: '127.0.0.1', port: server.port })
  try {
    const peer = await redlockPeer()
    const connection = peer.connect(server.port)
    expect(await withRedlock(pool, peer.redlock(connection, { retryCount: 0 }), () => client.flushall())).toEqual({
      size: 2,
    })
    await connection.quit()
  } finally {
    await client.quit()
    await server.stop()
  }
  expect(await leased(pool)).toEqual({ size: 3, late: 'refused' })
})

test('pg-boss: the second event overtakes one that failed, and in the outbox it waits', async () => {
  // pg-boss needs a newer Node than the oldest that Lockstep supports.
  const program = `
    import { PgBoss } from 'pg-boss'
    import { before } from ${JSON.stringify(pathToFileURL(join(root, 'examples/migrating/pg-boss.ts')))}
    const boss = new PgBoss({ connectionString: ${JSON.stringify(database.url)}, supervise: false, schedule: false })
    await boss.start()
    console.log(JSON.stringify(await before(boss)))
    await boss.stop({ graceful: false })`
  const { stdout, output } = await command(peerNode(), ['--input-type=module', '--eval', program], {
    cwd: join(root, 'bench'),
    timeoutMs: 120_000,
  })
  expect(stdout.trim(), output).toBe('[2,1]')
  expect(await throughOutbox(pool)).toEqual([1, 2])
})

test('an outbox table: rows of old code and events of new code are delivered in one order', async () => {
  expect(await outboxTable(pool)).toEqual([1, 2, 3, 4])
})

test('a lock table: a job that takes too long runs twice, and under a lease it does not', async () => {
  expect(await shedlock(pool, false)).toEqual({ atOnce: 2 })
  expect(await shedlock(pool, true)).toEqual({ atOnce: 1 })
})
