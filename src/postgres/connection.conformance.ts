import { once } from 'node:events'
import { type AddressInfo, connect as dial, createServer, type Server, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { ConnectionLost, PoolClosed } from '../errors.ts'
import type { Connection, Driver } from './connection.ts'
import { driverFor } from './driver.ts'

/** One pool of a driver, and what the suite needs to know of it. */
export interface OpenPool {
  readonly pool: object
  /** A client as the caller's own code gets it, for `wrap()`. */
  borrow(this: void): Promise<Borrowed>
  end(): Promise<void>
}

/** A client in its owner's hands. */
export interface Borrowed {
  readonly client: object
  giveBack(this: void): void
}

/** One way to configure a driver. */
export interface Setting {
  readonly name: string
  /** Whether a transaction pooler stands between. */
  readonly pooled: boolean
  readonly url: string
  open(max: number, url: string): OpenPool
}

/** What every driver promises to the rooms above, in whatever setting. */
export function describeConnection(setting: Setting, adminUrl: string): void {
  describe(setting.name, () => {
    const opened: OpenPool[] = []
    const held: Connection[] = []
    let admin: pg.Client

    beforeAll(async () => {
      admin = new pg.Client(adminUrl)
      await admin.connect()
    })
    afterAll(() => admin.end())
    afterEach(async () => {
      for (const connection of held.splice(0)) connection.destroy()
      for (const each of opened.splice(0)) await each.end()
    })

    function open(max = 2, url = setting.url): OpenPool & { readonly driver: Driver } {
      const made = setting.open(max, url)
      opened.push(made)
      return { ...made, driver: driverFor(made.pool) }
    }

    async function connect(driver: Driver): Promise<Connection> {
      const connection = await driver.connect()
      held.push(connection)
      return connection
    }

    async function terminate(pid: number): Promise<void> {
      await admin.query('SELECT pg_terminate_backend($1)', [pid])
    }

    /** The backend is gone from the server's list. */
    async function gone(pid: number): Promise<void> {
      const alive = async (): Promise<number | null> =>
        (await admin.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid])).rowCount
      await expect.poll(alive, { interval: 5, timeout: 5000 }).toBe(0)
    }

    async function lost(connection: Connection): Promise<void> {
      await expect.poll(() => connection.lost, { interval: 2, timeout: 5000 }).toBe(true)
    }

    /** Whether a promise is still open after the other connection has made a few round trips. */
    async function stillWaiting(pending: Promise<unknown>, other: Connection): Promise<boolean> {
      let settled = false
      pending.then(
        () => (settled = true),
        () => (settled = true),
      )
      for (let round = 0; round < 5; round++) await other.script('SELECT 1')
      return !settled
    }

    test('a script gives a result for each statement with rows, in order, and the last one has the last command tag', async () => {
      const { driver } = open()
      const connection = await connect(driver)
      const results = await connection.script(`
        BEGIN; SELECT 1 AS one, 'a' AS letter; SELECT 2 AS two WHERE false; SET LOCAL lock_timeout = 1000;
        SELECT n AS three FROM generate_series(3, 4) n; ROLLBACK`)
      expect(results.map((result) => result.rows).filter((rows) => rows.length > 0)).toEqual([
        [{ one: 1, letter: 'a' }],
        [{ three: 3 }, { three: 4 }],
      ])
      expect(results[0]).toMatchObject({ command: 'BEGIN', rows: [], rowCount: 0 })
      expect(results[1]).toMatchObject({ command: 'SELECT', rowCount: 1 })
      expect(results.at(-1)?.command).toBe('ROLLBACK')
      const [empty, full] = await connection.script('SELECT 1 AS n WHERE false; SELECT 2 AS n')
      expect([empty?.rows, empty?.rowCount, full?.rows, full?.rowCount]).toEqual([[], 0, [{ n: 2 }], 1])
    })

    test('one statement alone is one result', async () => {
      const connection = await connect(open().driver)
      const results = await connection.script('CREATE TEMP TABLE alone (n int); SELECT 1')
      expect(results.at(-1)).toEqual({ command: 'SELECT', rowCount: 1, rows: [{ '?column?': 1 }] })
      expect(await connection.script('VALUES (1), (2)')).toMatchObject([{ rowCount: 2 }])
      expect(await connection.script('BEGIN')).toMatchObject([{ command: 'BEGIN', rows: [], rowCount: 0 }])
      expect(await connection.script('COMMIT')).toMatchObject([{ command: 'COMMIT', rows: [], rowCount: 0 }])
      await connection.script('DISCARD TEMP')
    })

    test('an error in the middle of a script rejects with its SQLSTATE, and nothing after it runs', async () => {
      const connection = await connect(open().driver)
      const failing = connection.script('BEGIN; SELECT 1; SELECT 1/0; SELECT pg_advisory_xact_lock(4711)')
      await expect(failing).rejects.toMatchObject({ code: '22012' })
      expect(connection.lost).toBe(false)
      expect(await connection.script('ROLLBACK')).toMatchObject([{ command: 'ROLLBACK' }])
      expect(await connection.script('SELECT 5 AS five')).toMatchObject([{ rows: [{ five: 5 }] }])
    })

    test('COMMIT of a failed transaction is answered with ROLLBACK', async () => {
      const connection = await connect(open().driver)
      await connection.script('BEGIN')
      await expect(connection.query('SELECT 1/0')).rejects.toMatchObject({ code: '22012' })
      expect(await connection.script('COMMIT')).toMatchObject([{ command: 'ROLLBACK' }])
    })

    test('a query takes parameters, counts its rows and refuses a second statement', async () => {
      const connection = await connect(open().driver)
      const { rows, rowCount, command } = await connection.query<{ word: string; number: number; nothing: null }>(
        'SELECT $1::text AS word, $2::int AS number, $3::text AS nothing FROM generate_series(1, 2)',
        ["it's a \\ word", 42, null],
      )
      const row = { word: "it's a \\ word", number: 42, nothing: null }
      expect({ rows, rowCount, command }).toEqual({ rows: [row, row], rowCount: 2, command: 'SELECT' })
      await expect(connection.query('SELECT 1; SELECT 2')).rejects.toMatchObject({ code: '42601' })
      await connection.script('CREATE TEMP TABLE counted ON COMMIT DROP AS SELECT 1')
      await connection.script('BEGIN; CREATE TEMP TABLE counted (n int) ON COMMIT DROP')
      expect(await connection.query('INSERT INTO counted VALUES ($1), ($2)', [1, 2])).toMatchObject({
        rows: [],
        rowCount: 2,
        command: 'INSERT',
      })
      await connection.script('ROLLBACK')
    })

    test('the process id of the protocol is the backend’s exactly where no pooler stands between', async () => {
      const connection = await connect(open().driver)
      const [result] = await connection.script('SELECT pg_backend_pid() AS pid')
      expect(connection.protocolPid).toBeTypeOf('number')
      expect(connection.protocolPid === result?.rows[0]?.['pid']).toBe(!setting.pooled)
    })

    test('a query as the first thing on a connection works as well', async () => {
      const connection = await connect(open(1).driver)
      expect((await connection.query<{ n: number }>('SELECT $1::int AS n', [1])).rows).toEqual([{ n: 1 }])
    })

    test.skipIf(setting.pooled)('release gives the same session to the next caller', async () => {
      const { driver } = open(1)
      const pids: unknown[] = []
      for (let round = 0; round < 3; round++) {
        const connection = await connect(driver)
        pids.push((await connection.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows[0]?.pid)
        connection.release()
      }
      expect(new Set(pids).size).toBe(1)
    })

    test('a connection that is released twice is in the pool once', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      first.release()
      first.release()
      const second = await connect(driver)
      await second.script('SELECT 1')
      first.release()
      first.destroy()
      const third = connect(driver)
      expect(await stillWaiting(third, second)).toBe(true)
      second.release()
      expect(await (await third).script('SELECT 3 AS n')).toMatchObject([{ rows: [{ n: 3 }] }])
    })

    test('destroy ends the session, open transaction and all, and the pool replaces it', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      const results = await first.script('BEGIN; SELECT pg_advisory_xact_lock(4712); SELECT pg_backend_pid() AS pid')
      const pid = results.at(-1)?.rows[0]?.['pid'] as number
      const waiting = connect(driver)
      first.destroy()
      const second = await waiting
      const [answer] = await second.script('SELECT pg_try_advisory_xact_lock(4712) AS free, pg_backend_pid() AS pid')
      await gone(pid)
      expect(answer?.rows[0]?.['pid']).not.toBe(pid)
    })

    test('destroy before the first use leaves no place empty', async () => {
      const { driver } = open(1)
      ;(await connect(driver)).destroy()
      expect(await (await connect(driver)).script('SELECT 1 AS n')).toMatchObject([{ rows: [{ n: 1 }] }])
    })

    test.skipIf(setting.pooled)('a backend that is terminated while idle is noticed without a query', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      await connection.script('BEGIN')
      await terminate(connection.protocolPid ?? 0)
      await lost(connection)
      await expect(connection.script('SELECT 1')).rejects.toBeInstanceOf(ConnectionLost)
      await expect(connection.query('SELECT $1::int', [1])).rejects.toBeInstanceOf(ConnectionLost)
      connection.release()
      const next = await connect(driver)
      expect(await next.script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: 2 }] }])
      expect(next.lost).toBe(false)
    })

    test('a backend that is terminated during a query: the error comes, and by then the connection is known as lost', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      const results = await connection.script('BEGIN; SELECT pg_backend_pid() AS pid')
      const pid = results.at(-1)?.rows[0]?.['pid'] as number
      const sleeping = connection
        .script('SELECT pg_sleep(60)')
        .catch((error: unknown) => ({ error, lost: connection.lost }))
      const running = async (): Promise<number | null> => {
        return (await admin.query(`SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, [pid]))
          .rowCount
      }
      await expect.poll(running, { interval: 5, timeout: 5000 }).toBe(1)
      await terminate(pid)
      expect(await sleeping).toMatchObject({ error: expect.any(Error) as Error, lost: true })
      connection.release()
      expect(await (await connect(driver)).script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: 2 }] }])
    })

    test.skipIf(setting.pooled)('a session that the server ends by its own clock is lost', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      await connection.script(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = 1`)
      await lost(connection)
      connection.release()
      expect(await (await connect(driver)).script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: 2 }] }])
    })

    test.skipIf(setting.pooled)('a lost connection that its holder gives back is not given to two others', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      await terminate(first.protocolPid ?? 0)
      await lost(first)
      // pg keeps its place until it is given back; postgres.js has already opened it again for the next.
      if (driver.name === 'pg') first.release()
      const second = await connect(driver)
      await second.script('BEGIN')
      first.release()
      const third = connect(driver)
      expect(await stillWaiting(third, second)).toBe(true)
      expect(await second.script('COMMIT')).toMatchObject([{ command: 'COMMIT' }])
      second.release()
      expect(await (await third).script('SELECT 3 AS n')).toMatchObject([{ rows: [{ n: 3 }] }])
    })

    test.skipIf(setting.pooled)('one lost after nothing but a query is not given to two others either', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      const { rows } = await first.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
      await terminate(rows[0]?.pid ?? 0)
      await lost(first)
      first.destroy()
      const second = await connect(driver)
      await second.script('BEGIN')
      const third = connect(driver)
      expect(await stillWaiting(third, second)).toBe(true)
      await second.script('COMMIT')
      second.release()
      await third
    })

    test.skipIf(setting.pooled)('a connection lost in the pool ends no process and is replaced', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      const pid = first.protocolPid ?? 0
      first.release()
      await terminate(pid)
      await gone(pid)
      const works = async (): Promise<unknown> => {
        // Until the driver has seen the end, it gives out the dead connection: its user is told by an error.
        const connection = await connect(driver)
        try {
          return await connection.script('SELECT 2 AS n')
        } catch {
          return []
        } finally {
          connection.release()
        }
      }
      await expect.poll(works, { interval: 5, timeout: 5000 }).toMatchObject([{ rows: [{ n: 2 }] }])
    })

    test('the pool is whole after many were lost, destroyed and released', async () => {
      const { driver } = open(3)
      for (let round = 0; round < 4; round++) {
        const connections = await Promise.all([connect(driver), connect(driver), connect(driver)])
        const [a, b, c] = connections
        const results = await Promise.all(
          connections.map((each) => each.script('BEGIN; SELECT pg_backend_pid() AS pid')),
        )
        await terminate(results[0]?.at(-1)?.rows[0]?.['pid'] as number)
        await expect(a.script('SELECT pg_sleep(60)')).rejects.toThrow()
        a.release()
        b.destroy()
        await c.script('ROLLBACK')
        c.release()
      }
      const all = await Promise.all([connect(driver), connect(driver), connect(driver)])
      expect(await Promise.all(all.map((each) => each.script('SELECT 1 AS n')))).toHaveLength(3)
    })

    test('a server that refuses connections for a while costs the pool no place', async () => {
      const relay = await startRelay(setting.url)
      try {
        const { driver } = open(2, relay.url)
        const before = await connect(driver)
        await before.script('SELECT 1')
        await relay.stop()
        await lost(before)
        before.release()
        const refused = await Promise.allSettled(Array.from({ length: 5 }, () => driver.connect()))
        expect(refused.map(({ status }) => status)).toEqual(Array(5).fill('rejected'))
        await relay.start()
        const after = await Promise.all([connect(driver), connect(driver)])
        for (const each of after) expect(await each.script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: 2 }] }])
      } finally {
        await relay.stop()
      }
    })

    test.skipIf(setting.pooled)('those who wait are served when a connection is lost before their turn', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('BEGIN')
      const waiting = Array.from({ length: 5 }, async () => {
        const connection = await driver.connect()
        const results = await connection.script('SELECT 1 AS n')
        connection.release()
        return results[0]?.rows
      })
      await terminate(first.protocolPid ?? 0)
      await lost(first)
      first.release()
      expect(await Promise.all(waiting)).toEqual(waiting.map(() => [{ n: 1 }]))
    })

    test('callers beyond the pool’s size wait for their turn', async () => {
      const { driver } = open(2)
      expect(driver.poolSize).toBe(2)
      let inside = 0
      let most = 0
      const work = async (): Promise<void> => {
        const connection = await driver.connect()
        most = Math.max(most, ++inside)
        await connection.script('SELECT 1')
        inside--
        connection.release()
      }
      await Promise.all(Array.from({ length: 40 }, work))
      // Where the second connection takes long to open, the first may do it all.
      expect(most).toBeLessThanOrEqual(2)
      expect(inside).toBe(0)
    })

    test('an ended pool says so, whether it was used before or not', async () => {
      const unused = open()
      await unused.end()
      await expect(unused.driver.connect()).rejects.toBeInstanceOf(PoolClosed)
      const used = open()
      const connection = await connect(used.driver)
      await connection.script('SELECT 1')
      connection.release()
      await used.end()
      await expect(used.driver.connect()).rejects.toBeInstanceOf(PoolClosed)
      const endedBefore = setting.open(1, setting.url)
      await endedBefore.end()
      await expect(driverFor(endedBefore.pool).connect()).rejects.toBeInstanceOf(PoolClosed)
    })

    test('a wrapped client stays its owner’s', async () => {
      const { driver, borrow } = open(1)
      const { client, giveBack } = await borrow()
      const wrapped = driver.wrap(client)
      const results = await wrapped.script('BEGIN; SELECT pg_backend_pid() AS pid')
      wrapped.release()
      wrapped.destroy()
      const again = driver.wrap(client)
      const { rows } = await again.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
      expect(rows[0]?.pid).toBe(results.at(-1)?.rows[0]?.['pid'])
      expect(await again.script('COMMIT')).toMatchObject([{ command: 'COMMIT' }])
      again.release()
      giveBack()
      expect(await (await connect(driver)).script('SELECT 1 AS n')).toMatchObject([{ rows: [{ n: 1 }] }])
    })

    test('taking the same client many times leaves no listeners on it', async () => {
      const warnings: Error[] = []
      const note = (warning: Error): void => void warnings.push(warning)
      process.on('warning', note)
      try {
        const { driver, borrow } = open(1)
        for (let round = 0; round < 30; round++) {
          const connection = await driver.connect()
          await connection.script('SELECT 1')
          connection.release()
        }
        const { client, giveBack } = await borrow()
        for (let round = 0; round < 30; round++) {
          const wrapped = driver.wrap(client)
          await wrapped.script('SELECT 1')
          wrapped.release()
        }
        giveBack()
        // Node emits warnings in the next tick.
        await new Promise((resolve) => setImmediate(resolve))
        expect(warnings).toEqual([])
      } finally {
        process.off('warning', note)
      }
    })

    test('a message of 100 kB as the first on a connection', async () => {
      const connection = await connect(open(1).driver)
      expect(await connection.script(`SELECT 1 AS n /* ${'x'.repeat(100_000)} */`)).toMatchObject([
        { rows: [{ n: 1 }] },
      ])
    })
  })
}

/** A server's second address, which can be taken away and given back: while it is away, connections are refused. */
async function startRelay(to: string): Promise<{ url: string; start(): Promise<void>; stop(): Promise<void> }> {
  const target = new URL(to)
  const sockets = new Set<Socket>()
  let server: Server | undefined
  let port = 0
  const start = async (): Promise<void> => {
    server = createServer((client) => {
      const upstream = dial(Number(target.port), target.hostname)
      for (const socket of [client, upstream]) {
        sockets.add(socket)
        socket.on('error', () => undefined)
        socket.on('close', () => {
          client.destroy()
          upstream.destroy()
        })
      }
      client.pipe(upstream).pipe(client)
    })
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  }
  const stop = async (): Promise<void> => {
    if (server?.listening !== true) return
    const closed = once(server, 'close')
    server.close()
    for (const socket of sockets) socket.destroy()
    await closed
  }
  await start()
  const url = new URL(to)
  url.port = String(port)
  return { url: url.href, start, stop }
}
