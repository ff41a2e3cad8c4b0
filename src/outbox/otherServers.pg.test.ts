import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { dumpDatabase, restoreDatabase } from '../../tools/server/dump.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { missingOf15, SERVER_15 } from '../../tools/server/postgres15.ts'
import { childrenOf } from '../../tools/server/processes.ts'
import { type Proxy, startProxy } from '../../tools/server/proxy.ts'
import { startStandby } from '../../tools/server/standby.ts'
import { Lockstep, OutboxRebaseNeeded, type Retained, StandbyRefused } from '../index.ts'
import { on } from '../observe/index.ts'

/** What only a second server can show: restored dumps and standbys, with dispatchers that run on. */

const SOON = { interval: 10, timeout: 15_000 }
const TIMEOUT = { timeout: 60_000 }

let ends: (() => unknown)[] = []
let place: string
beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'lockstep-servers-'))
  ends.push(() => rm(place, { recursive: true, force: true }))
})
afterEach(async () => {
  const ending = ends.toReversed()
  ends = []
  for (const end of ending) await end()
})

async function startServer(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  const server = await startPostgres({ binariesFrom: SERVER_15, settings })
  ends.push(() => server.stop('immediate'))
  return server
}

function open(url: string): { lockstep: Lockstep; pool: pg.Pool } {
  const pool = new pg.Pool({ connectionString: url, max: 8 })
  // Connections are cut on purpose.
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  ends.push(async () => {
    await lockstep.close()
    await pool.end()
  })
  return { lockstep, pool }
}

/** An address that leads to one server, and then to another. */
async function startAddress(
  server: PostgresServer,
): Promise<{ url: string; proxy: Proxy; leadTo(other: PostgresServer): void }> {
  let { port } = server
  const proxy = await startProxy({
    get targetPort() {
      return port
    },
  })
  ends.push(() => proxy.close())
  const leadTo = (other: PostgresServer): void => {
    port = other.port
    proxy.cutAll()
  }
  return { url: proxy.url(server.url()), proxy, leadTo }
}

async function enqueue(lockstep: Lockstep, key: string): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key, payload: {} }))
}

/** Runs a dispatcher; what its sink took is told as `key#seq`. */
function dispatch(lockstep: Lockstep): { names: string[]; ended: Promise<unknown>; stop: () => void } {
  const stopping = new AbortController()
  const names: string[] = []
  const ended = lockstep
    .dispatcher({
      shards: 1,
      retainMs: false,
      sink: (events) => void names.push(...events.map(({ key, seq }) => `${key}#${seq}`)),
    })
    .run({ signal: stopping.signal })
    .catch((error: unknown) => error)
  const stop = (): void => stopping.abort()
  ends.push(async () => {
    stop()
    await ended
  })
  return { names, ended, stop }
}

describe.skipIf(missingOf15() !== undefined)('another server', () => {
  /**
   * A dump brings leases, cursors and the name of the server's life along. A dispatcher that runs while its address is led to the
   * restored server found everything as it was, went on with cursors whose transaction ids are another server's, and skipped what is
   * enqueued there: it has smaller ids.
   */
  test(
    'a dispatcher that runs on when its address leads to a restored dump ends, and sends nothing',
    TIMEOUT,
    async () => {
      const [original, copy] = await Promise.all([startServer(), startServer()])
      const file = join(place, 'dump')
      const here = open(original.url()).lockstep
      await here.migrate()
      const address = await startAddress(original)
      const run = dispatch(open(address.url).lockstep)
      for (let n = 0; n < 20; n++) await enqueue(here, 'a')
      await expect.poll(() => run.names.length, SOON).toBe(20)
      await dumpDatabase(original.url(), file)
      await restoreDatabase(file, copy.url())
      address.leadTo(copy)
      const there = open(copy.url()).lockstep
      await enqueue(there, 'a')
      expect(await run.ended).toBeInstanceOf(OutboxRebaseNeeded)
      expect(run.names).toHaveLength(20)
      await there.outbox.rebase({ deliver: 'undelivered' })
      const again = dispatch(open(address.url).lockstep)
      await expect.poll(() => again.names, SOON).toContain('a#21')
    },
  )

  /**
   * pg_dump has its snapshot, and locks the tables a while later. Of a segment that is emptied in between, the dump has no events. The
   * last numbers of its streams have to be in the snapshot already; where they are not, rebase tells.
   */
  test.each(['before', 'after'])(
    'a segment is emptied while a dump is made, whose snapshot is from %s the last numbers were kept',
    TIMEOUT,
    async (when) => {
      const [original, copy] = await Promise.all([startServer(), startServer()])
      const file = join(place, 'dump')
      const { lockstep, pool } = open(original.url())
      await lockstep.migrate()
      const run = dispatch(lockstep)
      for (let n = 0; n < 3; n++) await enqueue(lockstep, 'quiet')
      await expect.poll(() => run.names.length, SOON).toBe(3)
      await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })
      await enqueue(lockstep, 'other')
      await expect.poll(() => run.names.length, SOON).toBe(4)
      const round = (): Promise<Retained> => lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 })
      const readied = (): Promise<void> => expect.poll(async () => (await round()).readied, SOON).toBe(1)
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
      const there = open(copy.url()).lockstep
      const { torn } = await there.outbox.rebase({ deliver: 'undelivered' })
      expect(torn).toEqual(when === 'before' ? [1] : [])
      await enqueue(there, 'quiet')
      const again = dispatch(there)
      await expect.poll(() => again.names, SOON).toContain(when === 'before' ? 'quiet#1' : 'quiet#4')
    },
  )

  /**
   * COMMIT waits for the standby, and somebody cancels it: the transaction is visible, on this server's disk, and not on the standby's.
   * Sent now, it would be gone after a failover. 'durable' was said by this server's disk alone.
   */
  test('what the synchronous standby does not have yet is not sent', TIMEOUT, async () => {
    const primary = await startServer()
    const { lockstep, pool } = open(primary.url())
    await lockstep.migrate()
    const standby = await startStandby(primary)
    ends.push(() => standby.stop('immediate'))
    await standby.makeSynchronous()
    const run = dispatch(lockstep)
    await enqueue(lockstep, 'a')
    await expect.poll(() => run.names, SOON).toEqual(['a#1'])
    const receiver = childrenOf(standby.server.pid ?? 0).find((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('walreceiver'),
    ) as number
    process.kill(receiver, 'SIGSTOP')
    const goOn = (): boolean => process.kill(receiver, 'SIGCONT')
    ends.push(goOn)
    const waiting = async (query: string): Promise<number[]> => {
      const text = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1`
      return (await pool.query<{ pid: number }>(text, [query])).rows.map(({ pid }) => pid)
    }
    const writer = await pool.connect()
    await writer.query('BEGIN')
    await lockstep.outbox.enqueue(writer, { topic: 't', key: 'a', payload: {} })
    const committing = writer.query('COMMIT')
    await expect.poll(() => waiting('COMMIT'), SOON).toHaveLength(1)
    expect(run.names).toEqual(['a#1'])
    await pool.query('SELECT pg_cancel_backend($1)', await waiting('COMMIT'))
    await committing
    writer.release()
    // It is visible, and the dispatcher has found it: it waits for the standby, or has sent it.
    await expect.poll(async () => run.names.length > 1 || (await waiting('%outbox_flush%')).length > 0, SOON).toBe(true)
    expect(run.names).toEqual(['a#1'])
    goOn()
    await expect.poll(() => run.names, SOON).toEqual(['a#1', 'a#2'])
  })

  /**
   * Whether the server is a standby was asked once, when the Lockstep was new. Its address leads to a standby now: what came out was
   * 0A000, for a table that is not logged, or 25006, for the first write.
   */
  test('a Lockstep that was ready on the primary is refused on a standby, as one', TIMEOUT, async () => {
    const primary = await startServer()
    const address = await startAddress(primary)
    const { lockstep } = open(address.url)
    await lockstep.migrate()
    const run = dispatch(lockstep)
    await enqueue(lockstep, 'a')
    await expect.poll(() => run.names, SOON).toEqual(['a#1'])
    const standby = await startStandby(primary)
    ends.push(() => standby.stop('immediate'))
    const told: unknown[] = []
    ends.push(on('outbox.failed', ({ error }) => void told.push(error)))
    address.leadTo(standby.server)
    await expect.poll(() => told.some((error) => error instanceof StandbyRefused), SOON).toBe(true)
    run.stop()
    expect(await run.ended).toBe(undefined)
    const { outbox } = lockstep
    const stream = { topic: 't', key: 'a' }
    for (const call of [
      () => lockstep.dispatcher({ shards: 1, sink: () => undefined }).run(),
      () => outbox.rebase({ deliver: 'undelivered' }),
      () => outbox.retain({ olderThanMs: 0 }),
      () => outbox.erase(stream),
      () => outbox.pause(stream),
      () => outbox.remove({ dispatcher: 'default', reason: 'a test' }),
    ]) {
      await expect(call()).rejects.toBeInstanceOf(StandbyRefused)
    }
    address.leadTo(primary)
    const again = dispatch(lockstep)
    await enqueue(lockstep, 'a')
    await expect.poll(() => again.names, SOON).toEqual(['a#2'])
  })
})
