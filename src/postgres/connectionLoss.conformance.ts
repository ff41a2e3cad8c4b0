import { describe, expect, test } from 'vitest'
import { startRelay } from '../../tools/server/relay.ts'
import { ConnectionLostError } from '../errors.ts'
import type { Connection } from './connection.ts'
import { connectionBench, type Setting } from './connectionBench.conformance.ts'

/** What every driver promises of connections that end without having been asked to. */
export function describeConnectionLoss(setting: Setting, adminUrl: string): void {
  describe(setting.name, () => {
    // What makes no sense where the pooler's sessions are not ours.
    const direct: (name: string, fn: () => Promise<void>) => void = setting.pooled ? () => undefined : test
    const { connect, gone, lost, open, sleeps, stillWaiting, terminate } = connectionBench(setting, adminUrl)

    direct('a backend that is terminated while idle is noticed without a query', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      await connection.script('BEGIN')
      await terminate(connection.protocolPid ?? 0)
      await lost(connection)
      await expect(connection.script('SELECT 1')).rejects.toBeInstanceOf(ConnectionLostError)
      await expect(connection.query('SELECT $1::int', [1])).rejects.toBeInstanceOf(ConnectionLostError)
      connection.release()
      const next = await connect(driver)
      expect(await next.script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: '2' }] }])
      expect(next.lost).toBe(false)
    })

    test('rejects a query of a terminated backend, with the connection already marked as lost', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      const results = await connection.script('BEGIN; SELECT pg_backend_pid() AS pid')
      const pid = Number(results.at(-1)?.rows[0]?.['pid'])
      const sleeping = connection
        .script('SELECT pg_sleep(60)')
        .catch((error: unknown) => ({ error, lost: connection.lost }))
      await sleeps(pid)
      await terminate(pid)
      expect(await sleeping).toMatchObject({ error: expect.any(Error) as Error, lost: true })
      connection.release()
      expect(await (await connect(driver)).script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: '2' }] }])
    })

    direct('a session that the server ends by its own clock is lost', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      await connection.script(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = 1`)
      await lost(connection)
      connection.release()
      expect(await (await connect(driver)).script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: '2' }] }])
    })

    direct('a lost connection that its holder releases is not given to two others', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      await terminate(first.protocolPid ?? 0)
      await lost(first)
      // pg keeps its place until it is released; postgres.js has already opened it again for the next.
      if (driver.name === 'pg') first.release()
      const second = await connect(driver)
      await second.script('BEGIN')
      first.release()
      const third = connect(driver)
      expect(await stillWaiting(third, second)).toBe(true)
      expect(await second.script('COMMIT')).toMatchObject([{ command: 'COMMIT' }])
      second.release()
      expect(await (await third).script('SELECT 3 AS n')).toMatchObject([{ rows: [{ n: '3' }] }])
    })

    test('rejects every query of a terminated backend, also those that wait for the one before', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      const [found] = await connection.script('SELECT pg_backend_pid() AS pid')
      const pid = Number(found?.rows[0]?.['pid'])
      const settled = Promise.allSettled([
        connection.query('SELECT pg_sleep($1)', [60]),
        connection.query('SELECT $1::text', ['second']),
        connection.query('SELECT $1::text', ['third']),
      ])
      await sleeps(pid)
      await terminate(pid)
      expect((await settled).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
      connection.release()
      expect(await (await connect(driver)).script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: '2' }] }])
    })

    test('opens a connection again that was destroyed before its message was sent', async () => {
      const { driver } = open(1)
      const connection = await connect(driver)
      await connection.script('SELECT 1')
      const sent = connection.script('SELECT 2').catch(() => undefined)
      // postgres.js writes the message now, and gives it to the socket at the end of this turn of the event loop.
      for (let step = 0; step < 10; step++) await Promise.resolve()
      connection.destroy()
      await sent
      expect(await (await connect(driver)).script('SELECT 3 AS n')).toMatchObject([{ rows: [{ n: '3' }] }])
    })

    direct('lets the pool end after connections were lost and destroyed in a query', async () => {
      const { driver, end } = open(3)
      const connections = [await connect(driver), await connect(driver), await connect(driver)]
      const sleep = async (connection: Connection): Promise<unknown> => {
        await connection.script('SELECT 1')
        return connection.script('SELECT pg_sleep(60)')
      }
      const sleeping = Promise.allSettled(connections.map(sleep))
      for (const connection of connections) {
        await expect.poll(() => connection.protocolPid).toBeGreaterThan(0)
        await sleeps(connection.protocolPid ?? 0)
      }
      const [lostOne, destroyed, destroyedLast] = connections as [Connection, Connection, Connection]
      await terminate(lostOne.protocolPid ?? 0)
      await lost(lostOne)
      lostOne.release()
      destroyed.destroy()
      // A backend that sleeps does not notice that its client has gone.
      await terminate(destroyed.protocolPid ?? 0)
      await gone(destroyed.protocolPid ?? 0)
      // This one has not closed yet.
      destroyedLast.destroy()
      await end()
      for (const each of await sleeping) expect(each.status).toBe('rejected')
      await terminate(destroyedLast.protocolPid ?? 0)
    })

    direct('lets the pool end when the last connection is released', async () => {
      const { driver, end } = open(2)
      const connections = [await connect(driver), await connect(driver)]
      for (const connection of connections) await connection.script('SELECT 1')
      const ending = end()
      const [first, second] = connections as [Connection, Connection]
      first.release()
      expect(await stillWaiting(ending, second)).toBe(true)
      second.release()
      await ending
    })

    direct('one lost after nothing but a query is not given to two others either', async () => {
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

    direct('a connection lost in the pool ends no process and is replaced', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      const pid = first.protocolPid ?? 0
      first.release()
      await terminate(pid)
      await gone(pid)
      const works = async (): Promise<unknown> => {
        // Until the driver has seen the end, it gives out the dead connection: its user receives an error.
        const connection = await connect(driver)
        try {
          return await connection.script('SELECT 2 AS n')
        } catch {
          return []
        } finally {
          connection.release()
        }
      }
      await expect.poll(works).toMatchObject([{ rows: [{ n: '2' }] }])
    })

    test('restores the size of the pool after many connections were lost, destroyed and released', async () => {
      const { driver } = open(3)
      for (let round = 0; round < 4; round++) {
        const connections = await Promise.all([connect(driver), connect(driver), connect(driver)])
        const [a, b, c] = connections
        const results = await Promise.all(
          connections.map((each) => each.script('BEGIN; SELECT pg_backend_pid() AS pid')),
        )
        await terminate(Number(results[0]?.at(-1)?.rows[0]?.['pid']))
        await expect(a.script('SELECT pg_sleep(60)')).rejects.toThrow()
        a.release()
        b.destroy()
        await c.script('ROLLBACK')
        c.release()
      }
      const all = await Promise.all([connect(driver), connect(driver), connect(driver)])
      expect(await Promise.all(all.map((each) => each.script('SELECT 1 AS n')))).toHaveLength(3)
    })

    test('loses no place in the pool when the server rejects connections for a while', async () => {
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
        for (const each of after) expect(await each.script('SELECT 2 AS n')).toMatchObject([{ rows: [{ n: '2' }] }])
      } finally {
        await relay.stop()
      }
    })

    direct('those who wait are served when a connection is lost before their turn', async () => {
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
      expect(await Promise.all(waiting)).toEqual(waiting.map(() => [{ n: '1' }]))
    })
  })
}
