import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { types } from 'node:util'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { startProxy } from '../testing/index.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { ConnectionLostError } from '../errors.ts'
import type { Connection } from './connection.ts'
import { driverFor } from './driver.ts'

const database = await testDatabase()

const cleanUp = cleanUps()

const point = { to: 600, from: [600], serialize: ([x, y]: number[]) => `(${x},${y})`, parse: (text: string) => text }

function openSql(options: postgres.Options<{}> = {}, url = database.url): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice() {}, ...options })
  cleanUp(() => sql.end({ timeout: 1 }))
  return sql
}

/** A connection of a pool in which none was ever idle: others wait for each, whenever it is free. */
async function connectInCrowd(sql: postgres.Sql): Promise<Connection> {
  const stopping = new AbortController()
  const crowd = Array.from({ length: 5 }, async () => {
    while (!stopping.signal.aborted) await sql.begin((tx) => tx`SELECT 1`)
  })
  const connection = await driverFor(sql).connect()
  stopping.abort()
  cleanUp(() => Promise.all(crowd))
  // The `sql` of `reserve()` is none.
  expect(types.isProxy(connection.client)).toBe(true)
  return connection
}

describe('the client of a connection that was taken from a pool without an idle one', () => {
  test('is a sql like that of sql.reserve()', async () => {
    const connection = await connectInCrowd(openSql({ types: { point } }))
    const client = connection.client as postgres.ReservedSql<{ point: number[] }>
    const [mine] = await client<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
    const pid = mine?.pid
    expect(pid).toBe(connection.protocolPid ?? pid)

    const part = client`pg_backend_pid()`
    expect(await client`SELECT ${part} AS pid, ${7}::int AS n`).toEqual([{ pid, n: 7 }])
    expect(await client`SELECT * FROM (VALUES ${client([[1, 2]])}) AS t (a, b)`).toEqual([{ a: '1', b: '2' }])
    expect(await client.unsafe('SELECT pg_backend_pid() AS pid, $1::int AS n', [3])).toEqual([{ pid, n: 3 }])
    expect(await client`SELECT ${client.json({ a: 1 })}::jsonb AS value`).toEqual([{ value: { a: 1 } }])
    expect(await client`SELECT ${client.array([1, 2])}::int[] AS value`).toEqual([{ value: [1, 2] }])
    expect(await client`SELECT ${client.types.point([1, 2])} AS value`).toEqual([{ value: '(1,2)' }])
    expect(await client`SELECT ${client.typed('5', 23)} AS value`).toEqual([{ value: 5 }])
    const rows: unknown[] = []
    await client`SELECT generate_series(1, 3) AS n`.cursor(2, (some) => void rows.push(...some))
    expect(rows).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }])
    expect('begin' in client || 'end' in client || 'reserve' in client).toBe(false)
    connection.release()
  })

  test('reads statements from files, on its own connection', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'lockstep-pin-'))
    cleanUp(() => rm(directory, { recursive: true }))
    const path = join(directory, 'pid.sql')
    await writeFile(path, 'SELECT pg_backend_pid() AS pid, $1::int AS n')
    const connection = await connectInCrowd(openSql({ max: 2 }))
    const client = connection.client as postgres.ReservedSql
    const [mine] = await client<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
    expect(await client.file(path, [4])).toEqual([{ pid: mine?.pid, n: 4 }])
    await expect(client.file(join(directory, 'missing.sql'))).rejects.toMatchObject({ code: 'ENOENT' })
    connection.release()
  })

  test('sends queries in their order, whether they wait for each other or not', async () => {
    const connection = await connectInCrowd(openSql())
    const client = connection.client as postgres.ReservedSql
    await client`CREATE TEMP TABLE seen (place int GENERATED ALWAYS AS IDENTITY, n int)`
    // A statement whose parameters are not known yet takes two messages.
    const inserts = Array.from({ length: 150 }, (_, n) =>
      n % 3 === 0 ? client`INSERT INTO seen (n) VALUES (${n})` : client.unsafe(`INSERT INTO seen (n) VALUES (${n})`),
    )
    await Promise.all(inserts)
    const rows = await client<{ n: number }[]>`SELECT n FROM seen ORDER BY place`
    expect(rows.map(({ n }) => n)).toEqual(Array.from({ length: 150 }, (_, n) => n))
    await client`DROP TABLE seen`
    connection.release()
  })

  test('is refused once the connection is lost, though the pool has opened it again', async () => {
    const sql = openSql({ backoff: () => 0.005 })
    const connection = await connectInCrowd(sql)
    const client = connection.client as postgres.ReservedSql
    const admin = openSql()
    const [mine] = await client<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
    await admin`SELECT pg_terminate_backend(${mine?.pid ?? 0})`
    await expect.poll(() => connection.lost).toBe(true)
    expect(await sql`SELECT 1 AS n`).toEqual([{ n: 1 }])
    await expect(client`SELECT 2 AS n`).rejects.toBeInstanceOf(ConnectionLostError)
    connection.release()
    expect(await sql`SELECT 3 AS n`).toEqual([{ n: 3 }])
  })

  test('is closed when released inside a transaction', async () => {
    const sql = openSql()
    const connection = await connectInCrowd(sql)
    await connection.script('BEGIN; SET LOCAL application_name = left_open')
    connection.release()
    expect(await sql`SELECT current_setting('application_name') AS name`).not.toEqual([{ name: 'left_open' }])
  })
})

test('sends nothing for callers that wait only for each other', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432) })
  cleanUp(() => proxy.close())
  const driver = driverFor(openSql({ max: 2, fetch_types: false }, proxy.url(database.url)))
  const work = async (): Promise<void> => {
    const connection = await driver.connect()
    await connection.script('SELECT 1')
    connection.release()
  }
  // Both connections are open and have been idle: each is held until the other is there, too.
  for (let round = 0; round < 2; round++) {
    for (const connection of await Promise.all([driver.connect(), driver.connect()])) connection.release()
    await expect.poll(() => driver.hasIdle()).toBe(true)
  }
  proxy.roundTrips = 0
  const callers = 100
  await Promise.all(Array.from({ length: callers }, work))
  // A message for each caller that waits would be twice as many. On a busy machine a message can arrive in two pieces.
  expect(proxy.roundTrips).toBeLessThan(callers * 1.5)
})
