import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { DRIVERS, failureOf, note, pidOf, testBench } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'
import { on } from '../observe/index.ts'

/** COMMIT that is answered with an error, or late. */

const bench = await testBench()

/** Long enough for an answer over loopback, short enough to wait for. */
const SILENCE_MS = 300

const COMMIT = query('COMMIT')

/** One simple Query as it goes over the wire. */
function query(text: string): Buffer {
  return message('Q', `${text}\0`)
}

function message(type: string, body: string): Buffer {
  const bytes = Buffer.alloc(5 + Buffer.byteLength(body))
  bytes.write(type)
  bytes.writeInt32BE(bytes.length - 1, 1)
  bytes.write(body, 5)
  return bytes
}

/** What stands between client and server, for one connection. */
interface Between {
  readonly client: Socket
  readonly server: Socket
}

/** Gives what is to be sent on in place of what came; undefined where nothing is. */
type Rewrite = (chunk: Buffer, between: Between) => Buffer | undefined

/** A proxy that can rewrite messages. */
async function forge(rewrite: { toServer: Rewrite; toClient?: Rewrite }): Promise<string> {
  const { hostname, port } = new URL(bench.url)
  const sockets = new Set<Socket>()
  const listener = createServer((client) => {
    const server = connect(Number(port || 5432), hostname)
    const between = { client, server }
    for (const [from, to, change] of [
      [client, server, rewrite.toServer],
      [server, client, rewrite.toClient],
    ] as const) {
      sockets.add(from)
      from.on('data', (chunk) => {
        const sent = change === undefined ? chunk : change(chunk, between)
        if (sent !== undefined && to.writable) to.write(sent)
      })
      from.on('error', () => undefined)
      from.on('close', () => to.end())
    }
  })
  bench.cleanUp(() => (listener.close(), sockets.forEach((socket) => socket.destroy())))
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const forged = new URL(bench.url)
  forged.hostname = '127.0.0.1'
  forged.port = String((listener.address() as AddressInfo).port)
  return forged.href
}

describe.each(DRIVERS)('COMMIT that is answered with an error, %s', (driver) => {
  const ENDS = ['at once', 'unseen'] as const

  test.each(ENDS.flatMap((end) => ['FATAL', 'PANIC'].map((severity) => ({ severity, end }))))(
    'is looked up, and does not count as a rollback, after $severity and an end $end',
    async ({ severity, end }) => {
      const answer = message('E', `S${severity}\0V${severity}\0C58030\0Mcould not fsync file\0\0`)
      let armed = false
      const struck = new WeakSet<Socket>()
      const url = await forge({
        toServer(chunk, { client }) {
          if (!armed || !chunk.equals(COMMIT)) return chunk
          armed = false
          struck.add(client)
          return chunk
        },
        toClient(chunk, { client }) {
          if (!struck.has(client)) return chunk
          if (end === 'at once') client.end(answer)
          else client.write(answer)
          return undefined
        },
      })
      const { lockstep } = bench.open(driver, { url, silenceMs: SILENCE_MS })
      await lockstep.transaction({}, async () => undefined)
      const outcomes: string[] = []
      const stop = on('commit.resolved', ({ outcome }) => outcomes.push(outcome))
      let runs = 0
      const value = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        await note(tx, `run ${++runs}`)
        armed = true
        return 'done'
      })
      stop()
      expect(value).toBe('done')
      expect(outcomes).toEqual(['committed'])
      expect(await bench.notes()).toEqual(['run 1'])
    },
  )

  test('writes nothing and keeps the connection when it is canceled before it runs', async () => {
    let armed = false
    const url = await forge({
      // A cancel that arrives as COMMIT begins leaves the transaction open, and failed. COMMIT is too short to
      // hit, so a statement that takes longer replaces it.
      toServer: (chunk) => (armed && chunk.equals(COMMIT) ? ((armed = false), query('SELECT pg_sleep(60)')) : chunk),
    })
    const client = bench.open(driver, { url, max: 1 })
    await client.lockstep.transaction({}, async () => undefined)
    let pid = 0
    const cancelled = failureOf(
      client.lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        await note(tx, 'lost')
        pid = await pidOf(tx)
        armed = true
      }),
    )
    const isCommitting = async (): Promise<unknown> => {
      const { rows } = await bench.admin.query('SELECT wait_event FROM pg_stat_activity WHERE pid = $1', [pid])
      return (rows[0] as { wait_event?: string } | undefined)?.wait_event
    }
    await expect.poll(isCommitting).toBe('PgSleep')
    await bench.admin.query('SELECT pg_cancel_backend($1)', [pid])
    expect(await cancelled).toMatchObject({ code: '57014' })
    expect(await client.query('SELECT pg_backend_pid() AS pid')).toEqual([{ pid }])
    expect(await bench.locksHeld()).toBe(0)
    expect(await bench.notes()).toEqual([])
  })
})

describe('COMMIT that waits for a synchronous standby', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres({ settings: { synchronous_commit: 'local' } })
    const pool = new pg.Pool({ connectionString: server.url(), max: 1 })
    const lockstep = new Lockstep(pool)
    await lockstep.migrate()
    // Begins the server epoch, which waits for the standby whatever the setting.
    await lockstep.transaction({}, (tx) => tx.query('CREATE TABLE notes (id text PRIMARY KEY)'))
    await pool.query(`ALTER SYSTEM SET synchronous_standby_names = 'gone'`)
    await pool.end()
    // Whether a reload has reached every process cannot be seen. From now on, a session that asks for it waits.
    await server.restart()
  })
  afterAll(() => server.stop('immediate'))

  test('is not disturbed, and commits when the server says so', async () => {
    const watcher = bench.open('pg', { url: server.url(), max: 1 })
    const commits = DRIVERS.map((driver) => {
      const { lockstep } = bench.open(driver, { url: server.url(), silenceMs: SILENCE_MS })
      const commit = { pid: 0, settled: false, lookUps: new Set<unknown>(), done: Promise.resolve('') }
      const work = lockstep.transaction({ lock: `Order:${driver}` }, async (tx) => {
        await tx.query('SET LOCAL synchronous_commit = on')
        await note(tx, driver)
        commit.pid = await pidOf(tx)
        return driver
      })
      commit.done = work.finally(() => (commit.settled = true))
      return commit
    })
    const waiting = async (pid: number): Promise<unknown> =>
      (await watcher.query(`SELECT wait_event AS event FROM pg_stat_activity WHERE pid = ${pid}`))[0]?.['event']
    for (const commit of commits) {
      await expect.poll(() => waiting(commit.pid)).toBe('SyncRep')
      // By the second look it was given up for silent, and whatever is done to a session in progress has been done.
      const lookedUp = async (): Promise<number> => {
        const asked = `SELECT query_start::text AS at FROM pg_stat_activity
          WHERE query LIKE 'SELECT pg_terminate_backend(pid)%pid = ${commit.pid} %'`
        for (const { at } of await watcher.query(asked)) commit.lookUps.add(at)
        return commit.lookUps.size
      }
      await expect.poll(lookedUp).toBeGreaterThan(1)
      expect(await waiting(commit.pid)).toBe('SyncRep')
      expect(commit.settled).toBe(false)
    }
    await watcher.query(`ALTER SYSTEM SET synchronous_standby_names = ''`)
    await watcher.query('SELECT pg_reload_conf()')
    expect(await Promise.all(commits.map((commit) => commit.done))).toEqual(DRIVERS)
    expect(await watcher.query('SELECT id FROM notes ORDER BY id')).toEqual(DRIVERS.map((id) => ({ id })))
  })
})
