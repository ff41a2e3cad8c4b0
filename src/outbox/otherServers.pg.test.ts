import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { dumpDatabase, restoreDatabase } from '../../tools/server/dump.ts'
import type { PostgresServer } from '../../tools/server/postgres.ts'
import { missingOf15, SERVER_15 } from '../../tools/server/postgres15.ts'
import { childrenOf } from '../../tools/server/processes.ts'
import { serverBench } from '../../tools/server/testing/serverBench.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import {
  FlushUnconfirmedError,
  type Lockstep,
  type OutboxEvent,
  OutboxRebaseNeededError,
  type Retained,
  StandbyRefusedError,
} from '../index.ts'
import { on } from '../observe/index.ts'

/** What only a second server can show: restored dumps and standbys, with dispatchers that run on. */

const bench = serverBench({ binariesFrom: SERVER_15 })
let place: string
beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'lockstep-servers-'))
  bench.cleanUp(() => rm(place, { recursive: true, force: true }))
})

async function enqueue(lockstep: Lockstep, key: string): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key, payload: {} }))
}

/** Moves the cursor of the one shard past a#2 and a#3, with its fence, and puts them aside. */
const PUT_ASIDE = `
  SELECT lockstep.outbox_advance('default', 0::smallint, c.fence, c.version, i.value::text, pg_current_snapshot(), pg_current_snapshot(),
           0, true, n.last_value, '[{ "topic": "t", "key": "a", "seqs": [2, 3] }]') AS moved
    FROM (SELECT * FROM lockstep.outbox_cursors ORDER BY version DESC LIMIT 1) AS c, lockstep.incarnation i, lockstep.outbox_ids n`

/** Runs a dispatcher; what its sink took is reported as `key#seq`. */
function dispatch(
  lockstep: Lockstep,
  name = 'default',
): { names: string[]; ended: Promise<unknown>; stop: () => void } {
  const stopping = new AbortController()
  const names: string[] = []
  const ended = lockstep.outbox
    .dispatcher({
      name,
      shards: 1,
      retainMs: false,
      sink: (events) => void names.push(...events.map(({ key, seq }) => `${key}#${seq}`)),
    })
    .run({ signal: stopping.signal })
    .catch((error: unknown) => error)
  const stop = (): void => stopping.abort()
  bench.cleanUp(async () => {
    stop()
    await ended
  })
  return { names, ended, stop }
}

describe.skipIf(missingOf15() !== undefined)('another server', () => {
  /**
   * A dump contains leases, cursors and the server epoch. A dispatcher that ran while its address was switched to the
   * restored server found everything as it was, continued with cursors whose transaction ids are another server's, and skipped what is
   * enqueued there: it has smaller ids.
   */
  test('ends a dispatcher whose address leads to a restored dump', async () => {
    const [original, copy] = await Promise.all([bench.start(), bench.start()])
    const file = join(place, 'dump')
    const here = bench.open(original.url()).lockstep
    await here.migrate()
    const address = await bench.address(original)
    const run = dispatch(bench.open(address.url).lockstep)
    for (let n = 0; n < 20; n++) await enqueue(here, 'a')
    await expect.poll(() => run.names.length).toBe(20)
    await dumpDatabase(original.url(), file)
    await restoreDatabase(file, copy.url())
    address.leadTo(copy)
    const there = bench.open(copy.url()).lockstep
    await enqueue(there, 'a')
    expect(await run.ended).toBeInstanceOf(OutboxRebaseNeededError)
    expect(run.names).toHaveLength(20)
    await there.outbox.rebase({ deliver: 'undelivered' })
    const again = dispatch(bench.open(address.url).lockstep)
    await expect.poll(() => again.names).toContain('a#21')
  })

  /**
   * A dump without the events: nothing is left to choose about, and the first dispatcher that registers makes the server its own. What the
   * dump knows of the original's transactions, ticks above all, has larger ids than any here: all that was enqueued below them counted
   * as delivered.
   */
  test('delivers what is enqueued into a restored dump without event data', async () => {
    const [original, copy] = await Promise.all([bench.start(), bench.start()])
    const file = join(place, 'dump')
    const { lockstep: here, pool } = bench.open(original.url())
    await here.migrate()
    const many = Array.from({ length: 1000 }, (_, n) => ({ topic: 't', key: `k${n % 10}`, payload: n }))
    // Two ticks, and a segment that was left.
    await here.transaction({}, (tx) => tx.enqueueMany(many))
    await here.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })
    await pool.query('DO $$ BEGIN FOR n IN 1 .. 3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$')
    await here.transaction({}, (tx) => tx.enqueueMany(many))
    expect((await pool.query('SELECT FROM lockstep.outbox_ticks')).rowCount).toBe(2)
    await dumpDatabase(original.url(), file, { withoutData: 'lockstep.outbox_events*' })
    await restoreDatabase(file, copy.url())
    const there = bench.open(copy.url())
    const run = dispatch(there.lockstep, 'of-the-copy')
    // With events that are there before the dispatcher is, an operator has to choose.
    await expect.poll(async () => (await there.lockstep.outbox.status()).dispatchers.length).toBe(1)
    for (let n = 0; n < 200; n++) await enqueue(there.lockstep, 'a')
    await expect.poll(() => run.names).toEqual(Array.from({ length: 200 }, (_, n) => `a#${n + 1}`))
    const left = await there.pool.query(
      `SELECT FROM lockstep.outbox_segments WHERE sealed_xid >= pg_snapshot_xmax(pg_current_snapshot())
       UNION ALL SELECT FROM lockstep.outbox_ticks WHERE newest > pg_snapshot_xmax(pg_current_snapshot())`,
    )
    expect(left.rowCount).toBe(0)
  })

  /**
   * Three events of a parked stream are being tried again when the primary is lost. The standby has the first of them; there, other events
   * get the numbers of the other two, and are parked behind it. Then the try gets through: what was sent was deleted by number,
   * and with it two events that were never sent.
   */
  test('deletes no event after a failover that has the number of one sent before', async () => {
    const primary = await bench.start()
    const before = bench.open(primary.url())
    // Leases do not wait: this is about what comes after.
    await before.lockstep.migrate({ synchronousFailover: true })
    const standby = await bench.standby(primary)
    const address = await bench.address(primary)
    const { lockstep } = bench.open(address.url)
    let [refusing, first] = [true, true]
    const [trying, gate] = [signal(), signal()]
    const sent: OutboxEvent[] = []
    const stopping = new AbortController()
    const ended = lockstep.outbox
      .dispatcher({
        shards: 1,
        retainMs: false,
        ttlMs: 60_000,
        backoffMs: { first: 10, longest: 10 },
        attempts: 1_000_000,
        async sink(events) {
          if (refusing) return events.map(() => ({ refused: 'not yet' }))
          if (first) {
            first = false
            trying.give()
            await gate.given
          }
          sent.push(...events)
          return events.map(() => 'sent' as const)
        },
      })
      .run({ signal: stopping.signal })
    bench.cleanUp(async () => {
      gate.give()
      stopping.abort()
      await ended.catch(() => undefined)
    })
    const parked = async (at: Lockstep): Promise<number> => (await at.outbox.parked())[0]?.events ?? 0
    await enqueue(before.lockstep, 'a')
    await expect.poll(() => parked(before.lockstep)).toBe(1)
    await bench.caughtUp(primary)
    await bench.cutOff(standby)
    for (let n = 0; n < 2; n++) await enqueue(before.lockstep, 'a')
    await expect.poll(() => parked(before.lockstep)).toBe(3)
    refusing = false
    await trying.given
    await primary.stop('immediate')
    await standby.promote()
    const after = bench.open(standby.server.url())
    for (let n = 0; n < 2; n++) await enqueue(after.lockstep, 'a')
    const ids = await after.pool.query<{ uuid: string }>('SELECT uuid FROM lockstep.outbox_events ORDER BY seq')
    expect(ids.rowCount).toBe(3)
    // As the owner of the shard does it here: the stream waits, so they are parked and the cursor moves on.
    const putAside = await after.pool.query<{ moved: boolean }>(PUT_ASIDE)
    expect(putAside.rows).toEqual([{ moved: true }])
    address.leadTo(standby.server)
    gate.give()
    await expect.poll(() => ids.rows.filter(({ uuid }) => !sent.some(({ id }) => id === uuid))).toEqual([])
    const histories = new Set(sent.map(({ history }) => history))
    expect(histories.size).toBe(2)
  })

  /**
   * The counter of server epochs is as far as the standby is: after a crash of the primary that the standby did not hear of, both had the
   * same epoch, and the standby continued with the smaller fences.
   */
  test('raises fences over a crash and two failovers to standbys that are behind', async () => {
    const primary = await bench.start()
    const before = bench.open(primary.url())
    // Leases do not wait: this is about what comes after.
    await before.lockstep.migrate({ synchronousFailover: true })
    const fence = async (lockstep: Lockstep): Promise<bigint> => {
      const lease = await lockstep.leases.acquire('Fence:one')
      await lease.release()
      return lease.fence
    }
    const first = await fence(before.lockstep)
    const standby = await bench.standby(primary)
    await bench.caughtUp(primary)
    await bench.cutOff(standby)
    // As a crash does.
    await before.pool.query('TRUNCATE lockstep.incarnation')
    let last = first
    for (let n = 0; n < 51; n++) {
      const next = await fence(before.lockstep)
      expect(next).toBeGreaterThan(last)
      last = next
    }
    await standby.promote()
    const successor = bench.open(standby.server.url()).lockstep
    const promoted = await fence(successor)
    expect(promoted).toBeGreaterThan(last)
    const behind = await bench.standby(standby.server)
    await bench.caughtUp(standby.server)
    await bench.cutOff(behind)
    for (let n = 0; n < 51; n++) last = await fence(successor)
    expect(last).toBeGreaterThan(promoted)
    await behind.promote()
    expect(await fence(bench.open(behind.server.url()).lockstep)).toBeGreaterThan(last)
  })

  /** A dump knows a timeline and a sequence that say nothing about the server on which it is restored. */
  test('raises fences on a server with a restored dump, and on its standby', async () => {
    const [original, copy] = await Promise.all([bench.start(), bench.start()])
    const file = join(place, 'dump')
    const here = bench.open(original.url())
    await here.lockstep.migrate()
    // As after many failovers.
    await here.pool.query(`SELECT FROM lockstep.ensure_incarnation(); UPDATE lockstep.epoch SET timeline = 40`)
    const read = async (server: PostgresServer): Promise<bigint> => {
      const { pool } = bench.open(server.url())
      const { rows } = await pool.query<{ fence: string }>('SELECT lockstep.next_fence()::text AS fence')
      return BigInt(rows[0]?.fence ?? 0)
    }
    await dumpDatabase(original.url(), file)
    await restoreDatabase(file, copy.url())
    const standby = await bench.standby(copy)
    await bench.caughtUp(copy)
    // It does not hear that the copy has begun an epoch of its own.
    await bench.cutOff(standby)
    const there = await read(copy)
    expect(there >> 40n).toBeGreaterThan(40n)
    await standby.promote()
    expect(await read(standby.server)).toBeGreaterThan(there)
  })

  /**
   * pg_dump has its snapshot, and locks the tables a while later. Of a segment that is emptied in between, the dump has no events. The
   * last numbers of its streams have to be in the snapshot already; if they are not, rebase reports it.
   */
  test.each(['before', 'after'])(
    'keeps stream numbers in a dump whose snapshot is from %s a segment was emptied',
    async (when) => {
      const [original, copy] = await Promise.all([bench.start(), bench.start()])
      const file = join(place, 'dump')
      const { lockstep, pool } = bench.open(original.url())
      await lockstep.migrate()
      const run = dispatch(lockstep)
      for (let n = 0; n < 3; n++) await enqueue(lockstep, 'quiet')
      await expect.poll(() => run.names.length).toBe(3)
      await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })
      await enqueue(lockstep, 'other')
      await expect.poll(() => run.names.length).toBe(4)
      const round = (): Promise<Retained> => lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 })
      const readied = (): Promise<void> => expect.poll(async () => (await round()).readied).toBe(1)
      if (when === 'after') await readied()
      const dumping = await pool.connect()
      await dumping.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
      const exported = await dumping.query<{ snapshot: string }>('SELECT pg_export_snapshot() AS snapshot')
      if (when === 'before') await readied()
      expect(await round()).toMatchObject({ dropped: 1 })
      await dumpDatabase(original.url(), file, { snapshot: exported.rows[0]?.snapshot ?? '' })
      await dumping.query('COMMIT')
      dumping.release()
      await restoreDatabase(file, copy.url())
      const there = bench.open(copy.url()).lockstep
      const { torn } = await there.outbox.rebase({ deliver: 'undelivered' })
      expect(torn).toEqual(when === 'before' ? [1] : [])
      await enqueue(there, 'quiet')
      const again = dispatch(there)
      await expect.poll(() => again.names).toContain(when === 'before' ? 'quiet#1' : 'quiet#4')
    },
  )

  /**
   * COMMIT waits for the standby and is cancelled: the transaction is visible, on this server's disk, and not on the standby's.
   * Sent now, it would be gone after a failover. 'durable' was said by this server's disk alone.
   */
  test.each(['pg', 'postgres'])('sends nothing that the synchronous standby does not have, %s', async (driver) => {
    const primary = await bench.start()
    const { lockstep, pool } = bench.open(primary.url())
    await lockstep.migrate()
    const dispatching = driver === 'pg' ? lockstep : bench.openPostgresJs(primary.url())
    const failures: unknown[] = []
    bench.cleanUp(on('outbox.failed', ({ error }) => void failures.push(error)))
    const standby = await bench.standby(primary)
    await standby.makeSynchronous()
    const run = dispatch(dispatching)
    await enqueue(lockstep, 'a')
    await expect.poll(() => run.names).toEqual(['a#1'])
    const receiver = childrenOf(standby.server.pid ?? 0).find((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('walreceiver'),
    ) as number
    process.kill(receiver, 'SIGSTOP')
    const goOn = (): boolean => process.kill(receiver, 'SIGCONT')
    bench.cleanUp(goOn)
    const waiting = async (query: string): Promise<number[]> => {
      const text = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1`
      return (await pool.query<{ pid: number }>(text, [query])).rows.map(({ pid }) => pid)
    }
    const writer = await pool.connect()
    await writer.query('BEGIN')
    await lockstep.outbox.enqueue(writer, { topic: 't', key: 'a', payload: {} })
    const committing = writer.query('COMMIT')
    await expect.poll(() => waiting('COMMIT')).toHaveLength(1)
    expect(run.names).toEqual(['a#1'])
    await pool.query('SELECT pg_cancel_backend($1)', await waiting('COMMIT'))
    await committing
    writer.release()
    // It is visible, and the dispatcher has found it: it waits for the standby, or has sent it. When that wait is cancelled as well, its
    // COMMIT is answered like any other, with a warning.
    for (let cancelled = 0; ; cancelled++) {
      let flushing: number[] = []
      const flushes = async (): Promise<boolean> => (flushing = await waiting('%outbox_flush%')).length > 0
      await expect.poll(async () => run.names.length > 1 || (await flushes())).toBe(true)
      expect(run.names).toEqual(['a#1'])
      if (cancelled === 2) break
      for (const pid of flushing) await pool.query('SELECT pg_cancel_backend($1)', [pid])
      await expect.poll(() => run.names.length > 1 || failures.length > cancelled).toBe(true)
    }
    expect(failures.every((error) => error instanceof FlushUnconfirmedError)).toBe(true)
    goOn()
    await expect.poll(() => run.names).toEqual(['a#1', 'a#2'])
  })

  /**
   * Whether the server is a standby was asked once, when the Lockstep was new. Its address leads to a standby now: what came out was
   * 0A000, for a table that is not logged, or 25006, for the first write.
   */
  test('rejects a standby, also after it was ready on the primary', async () => {
    const primary = await bench.start()
    const address = await bench.address(primary)
    const { lockstep } = bench.open(address.url)
    await lockstep.migrate()
    const run = dispatch(lockstep)
    await enqueue(lockstep, 'a')
    await expect.poll(() => run.names).toEqual(['a#1'])
    const standby = await bench.standby(primary)
    const told: unknown[] = []
    bench.cleanUp(on('outbox.failed', ({ error }) => void told.push(error)))
    address.leadTo(standby.server)
    await expect.poll(() => told.some((error) => error instanceof StandbyRefusedError)).toBe(true)
    run.stop()
    expect(await run.ended).toBe(undefined)
    const { outbox } = lockstep
    const stream = { topic: 't', key: 'a' }
    for (const call of [
      () => lockstep.outbox.dispatcher({ shards: 1, sink: () => undefined }).run(),
      () => outbox.rebase({ deliver: 'undelivered' }),
      () => outbox.retain({ olderThanMs: 0 }),
      () => outbox.erase(stream),
      () => outbox.pause(stream),
      () => outbox.removeDispatcher('default', { reason: 'a test' }),
    ]) {
      await expect(call()).rejects.toBeInstanceOf(StandbyRefusedError)
    }
    address.leadTo(primary)
    const again = dispatch(lockstep)
    await enqueue(lockstep, 'a')
    await expect.poll(() => again.names).toEqual(['a#2'])
  })
})
