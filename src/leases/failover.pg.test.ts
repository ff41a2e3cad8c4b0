import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { FAKETIME } from '../../tools/server/fakeClock.ts'
import type { PostgresServer } from '../../tools/server/postgres.ts'
import { copyForRestore, type Standby, type StandbyOptions } from '../../tools/server/standby.ts'
import { type OpenServer, serverBench } from '../../tools/server/testing/serverBench.ts'
import { InvalidOptionError, LeaseHeldError, type MigrateOptions, StandbyRefusedError } from '../index.ts'

/** Leases when another server takes over: with another clock, or without the last commits. */

const bench = serverBench()

interface Pair {
  readonly primary: PostgresServer
  readonly standby: Standby
  readonly before: OpenServer
  /** By an address that leads to the primary, and after `failOver` to the standby. */
  readonly through: OpenServer
  failOver(): Promise<OpenServer>
  /** The address leads to the standby, which is none less. */
  leadToStandby(): void
}

async function startPair(migrate: MigrateOptions, options: StandbyOptions = {}): Promise<Pair> {
  const primary = await bench.start()
  const before = bench.open(primary.url())
  await before.lockstep.migrate(migrate)
  const standby = await bench.standby(primary, options)
  const address = await bench.address(primary)
  const through = bench.open(address.url)
  return {
    primary,
    standby,
    before,
    through,
    leadToStandby: () => address.leadTo(standby.server),
    async failOver() {
      await primary.crash()
      await standby.promote()
      address.leadTo(standby.server)
      return bench.open(standby.server.url())
    },
  }
}

const TTL_MS = 3000

test('a standby that answers is rejected by name, also after the primary had answered', async () => {
  const pair = await startPair({})
  await (await pair.through.lockstep.leases.acquire('Job:a')).release()
  await bench.caughtUp(pair.primary)
  pair.leadToStandby()
  // The connections of the pool were cut: the first calls may find that out.
  const error = async (): Promise<unknown> =>
    pair.through.lockstep.leases.acquire('Job:a').catch((thrown: unknown) => thrown)
  await expect.poll(error).toBeInstanceOf(StandbyRefusedError)
})

describe('after the promotion of a standby', () => {
  /**
   * By the standby's clock the lease has ended, or lasts too long. Both servers have the row. Its holder continues, and no other caller gets
   * the lease meanwhile.
   */
  test.skipIf(!existsSync(FAKETIME)).each([5000, -5000])(
    'keeps the holder of a lease on a server whose clock is off by %i ms',
    async (clockOffsetMs) => {
      const pair = await startPair({}, { clockOffsetMs })
      // Long enough for a heartbeat after the failover on a busy machine, and others need not wait for it.
      const lease = await pair.through.lockstep.leases.acquire('Job:kept', { ttlMs: 30_000 })
      await pair.before.lockstep.migrate({ maxTtlMs: TTL_MS })
      const abandoned = await pair.before.lockstep.leases.acquire('Job:abandoned', { ttlMs: TTL_MS })
      await bench.caughtUp(pair.primary)
      const after = await pair.failOver()
      const asked = Date.now()
      const { rows } = await after.pool.query<{ ms: number }>(
        'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS ms',
      )
      const here = (rows[0]?.ms ?? 0) - clockOffsetMs
      // However long the answer took. A clock may be read in whole seconds.
      expect(here).toBeGreaterThan(asked - 1000)
      expect(here).toBeLessThan(Date.now() + 1000)
      const second = after.lockstep.leases.tryAcquire('Job:kept', { ttlMs: TTL_MS })
      expect(await second).toBe(undefined)
      expect(lease.signal.aborted).toBe(false)
      expect(await lease.transaction({}, async () => 'committed')).toBe('committed')
      // No process renews it: its holder cannot reach the new primary. It ends after its ttl, by the new clock.
      const successor = await after.lockstep.leases.acquire('Job:abandoned', { ttlMs: TTL_MS, waitMs: 60_000 })
      expect(successor.fence).toBeGreaterThan(abandoned.fence)
      expect(abandoned.signal.aborted).toBe(true)
      expect(lease.signal.aborted).toBe(false)
      expect((await after.lockstep.leases.inspect('Job:kept')).holders[0]?.fence).toBe(lease.fence)
    },
  )

  /** The standby has never heard of the lease. Its holder trusts it, until its own clock or the first heartbeat ends that. */
  test('grants a lease whose row was lost only when its holder cannot trust it any more', async () => {
    const pair = await startPair({ maxTtlMs: TTL_MS })
    await bench.caughtUp(pair.primary)
    await bench.cutOff(pair.standby)
    const lost = await pair.before.lockstep.leases.acquire('Job:lost', { ttlMs: TTL_MS })
    const after = await pair.failOver()
    const refused = await after.lockstep.leases.acquire('Job:lost', { ttlMs: TTL_MS }).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(LeaseHeldError)
    expect(refused).toMatchObject({ holder: undefined, message: expect.stringContaining('may have been lost') })
    // Neither a crash nor another Lockstep ends the wait.
    const wait = await waitOf(after)
    await standbyCrash(pair)
    const again = bench.open(pair.standby.server.url())
    const early = await again.lockstep.leases.tryAcquire('Job:lost', { ttlMs: TTL_MS })
    const { ends, isOver } = await waitOf(again)
    expect(ends).toBe(wait.ends)
    // On a busy machine, the wait may be over by now.
    if (!isOver) expect(early).toBe(undefined)
    const successor = early ?? (await again.lockstep.leases.acquire('Job:lost', { ttlMs: TTL_MS, waitMs: 60_000 }))
    expect(lost.signal.aborted).toBe(true)
    expect(successor.fence).toBeGreaterThan(lost.fence)
  })

  /**
   * A caller that has not heard that it was granted the lease asks again with the same token. Meanwhile its lease has ended, and another caller has it;
   * the standby knows only of the first.
   */
  test('does not grant a lease to an earlier try while a later holder can trust it', async () => {
    const pair = await startPair({ maxTtlMs: 60_000 })
    const token = randomUUID()
    const take = `SELECT verdict FROM lockstep.lease_take('Job:tried', $1, 30000, 1, 'first', NULL, NULL, true)`
    expect((await pair.before.pool.query(take, [token])).rows).toEqual([{ verdict: 'granted' }])
    await bench.caughtUp(pair.primary)
    await bench.cutOff(pair.standby)
    await pair.before.pool.query(`SELECT lockstep.lease_release('Job:tried', $1)`, [token])
    await pair.before.lockstep.leases.acquire('Job:tried', { ttlMs: 60_000 })
    const after = await pair.failOver()
    expect((await after.pool.query(take, [token])).rows).toEqual([{ verdict: 'failover' }])
  })

  test('grants new leases at once where an operator states that no commit can be lost', async () => {
    const pair = await startPair({ synchronousFailover: true })
    const held = await pair.through.lockstep.leases.acquire('Job:held')
    await pair.standby.makeSynchronous()
    const late = await pair.through.lockstep.leases.acquire('Job:late')
    const after = await pair.failOver()
    const fresh = await after.lockstep.leases.acquire('Job:new')
    expect(fresh.fence).toBeGreaterThan(late.fence)
    for (const key of ['Job:held', 'Job:late'] as const) {
      expect(await after.lockstep.leases.tryAcquire(key)).toBe(undefined)
    }
    expect(held.signal.aborted).toBe(false)
  })
})

/**
 * The second server is the primary for a while, and no call of Lockstep comes to it. Its last commit is by its own clock, which says nothing about the ends of
 * leases that the first server wrote.
 */
test.skipIf(!existsSync(FAKETIME))('keeps the holder of a lease through two promotions with one epoch', async () => {
  const first = await bench.start()
  const before = bench.open(first.url())
  await before.lockstep.migrate({ maxTtlMs: 600_000, synchronousFailover: true })
  const lease = await before.lockstep.leases.acquire('Job:kept', { ttlMs: 600_000 })
  const second = await bench.standby(first, { clockOffsetMs: 1_200_000 })
  await bench.caughtUp(first)
  await first.crash()
  await second.promote()
  const third = await bench.standby(second.server)
  await bench.open(second.server.url()).pool.query('CREATE TABLE notes ()')
  await bench.caughtUp(second.server)
  await second.server.crash()
  await third.promote()
  const after = bench.open(third.server.url())
  expect(await after.lockstep.leases.tryAcquire('Job:kept')).toBe(undefined)
  expect(lease.signal.aborted).toBe(false)
  const { rows } = await after.pool.query('SELECT timeline FROM lockstep.epochs ORDER BY number')
  expect(rows).toEqual([{ timeline: '1' }, { timeline: '3' }])
})

/** A holder whose row was lost could have the longer ttl, and the new primary would wait for the shorter one. */
test('grants leases with a raised maxTtlMs only when each standby has it', async () => {
  const pair = await startPair({ maxTtlMs: TTL_MS })
  await bench.caughtUp(pair.primary)
  const { pool } = bench.open(pair.standby.server.url())
  const receivers = `SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'`
  const pid = (await pool.query<{ pid: number }>(receivers)).rows[0]?.pid ?? 0
  process.kill(pid, 'SIGSTOP')
  const { lockstep, pool: primary } = pair.before
  const raised = lockstep.migrate({ maxTtlMs: 60_000 })
  try {
    const wait = 'SELECT max_ttl_ms AS ms FROM lockstep.epoch'
    await expect.poll(async () => (await primary.query<{ ms: number }>(wait)).rows[0]?.ms).toBe(60_000)
    await expect(lockstep.leases.acquire('Job:long', { ttlMs: 60_000 })).rejects.toBeInstanceOf(InvalidOptionError)
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  await raised
  await (await lockstep.leases.acquire('Job:long', { ttlMs: 60_000 })).release()
})

/** How long new leases wait after the promotion. */
async function waitOf({ pool }: OpenServer): Promise<{ ends: string; isOver: boolean }> {
  const text = 'SELECT grants_from::text AS ends, clock_timestamp() >= grants_from AS "isOver" FROM lockstep.epoch'
  return (await pool.query(text)).rows[0]
}

async function standbyCrash({ standby }: Pair): Promise<void> {
  await standby.server.crash()
  await standby.server.start()
}

test('a lease waits after a restore to a point in time, as after a promotion', async () => {
  const primary = await bench.start()
  const before = bench.open(primary.url())
  await before.lockstep.migrate({ maxTtlMs: 30_000 })
  const kept = await before.lockstep.leases.acquire('Job:kept')
  const copy = await copyForRestore(primary)
  await before.pool.query(`SELECT pg_create_restore_point('here')`)
  const lost = await before.lockstep.leases.acquire('Job:lost')
  await before.pool.query('SELECT pg_switch_wal()')
  const restored = await copy.restore('here')
  bench.cleanUp(() => restored.stop('immediate'))
  const after = bench.open(restored.server.url())
  for (const key of ['Job:kept', 'Job:lost', 'Job:new'] as const) {
    expect(await after.lockstep.leases.tryAcquire(key)).toBe(undefined)
  }
  const { rows } = await after.pool.query('SELECT kind, timeline FROM lockstep.epochs ORDER BY number DESC LIMIT 1')
  expect(rows).toEqual([{ kind: 'timeline', timeline: '2' }])
  const held = await after.lockstep.leases.list({ prefix: 'Job:' })
  expect(held.map(({ key }) => key)).toEqual(['Job:kept'])
  expect(lost.fence).toBeGreaterThan(kept.fence)
})

test('a crash makes no lease wait', async () => {
  const server = await bench.start()
  const { lockstep, pool } = bench.open(server.url())
  await lockstep.migrate()
  const held = await lockstep.leases.acquire('Job:held')
  await server.crash()
  await server.start()
  const fresh = await lockstep.leases.acquire('Job:new', { waitMs: 10_000 })
  expect(fresh.fence).toBeGreaterThan(held.fence)
  expect(await lockstep.leases.tryAcquire('Job:held')).toBe(undefined)
  const { rows } = await pool.query('SELECT kind FROM lockstep.epochs ORDER BY number')
  expect(rows).toEqual([{ kind: 'first' }, { kind: 'restart' }])
})

test('rejects names of a dispatcher, which do not wait as long after a failover', async () => {
  const server = await bench.start()
  const { lockstep } = bench.open(server.url())
  await lockstep.migrate()
  for (const key of ['Outbox:x:member:y', 'Outbox:x:shard:1', 'Outbox:x:drain:seats'] as const) {
    await expect(lockstep.leases.acquire(key)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.leases.tryAcquire(key)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.lease(key, {}, async () => undefined)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(async () => lockstep.leader(key, {}, async () => undefined)).rejects.toBeInstanceOf(InvalidOptionError)
  }
  await (await lockstep.leases.acquire('Outbox:x')).release()
})

test('rejects a ttl above the longest of the schema, and migrate() changes that', async () => {
  const server = await bench.start()
  const { lockstep } = bench.open(server.url())
  await lockstep.migrate()
  await expect(lockstep.leases.acquire('Job:a', { ttlMs: 60_001 })).rejects.toBeInstanceOf(InvalidOptionError)
  const long = lockstep.outbox.dispatcher({ sink: () => undefined, ttlMs: 60_001 })
  await expect(long.run()).rejects.toBeInstanceOf(InvalidOptionError)
  await lockstep.migrate({ maxTtlMs: 120_000 })
  await (await lockstep.leases.acquire('Job:a', { ttlMs: 120_000 })).release()
  for (const maxTtlMs of [199, 86_400_001, 1000.5, '60000' as unknown as number]) {
    await expect(lockstep.migrate({ maxTtlMs })).rejects.toBeInstanceOf(InvalidOptionError)
  }
  const synchronousFailover = 'yes' as unknown as boolean
  await expect(lockstep.migrate({ synchronousFailover })).rejects.toBeInstanceOf(InvalidOptionError)
})
