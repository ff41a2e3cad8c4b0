import { connect, type Socket } from 'node:net'
import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { DriverUnsupportedError } from '../errors.ts'
import { describeConnection } from './connection.conformance.ts'
import type { Setting } from './connectionBench.conformance.ts'
import { describeConnectionLoss } from './connectionLoss.conformance.ts'
import { driverFor } from './driver.ts'

const database = await testDatabase()

function pgSetting(name: string, pooled: boolean, url: string, options: pg.PoolConfig = {}): Setting {
  return {
    name,
    pooled,
    url,
    open(max, through) {
      const pool = new pg.Pool({ connectionString: through, max, ...options })
      return {
        pool,
        async borrow() {
          const client = await pool.connect()
          return { client, returnToPool: () => client.release() }
        },
        async end() {
          if (!pool.ending) await pool.end()
        },
      }
    },
  }
}

function postgresJsSetting(name: string, pooled: boolean, url: string, options: postgres.Options<{}> = {}): Setting {
  return {
    name,
    pooled,
    url,
    open(max, through) {
      // A pause before each new try would make the tests longer and nothing else.
      const sql = postgres(through, { max, onnotice() {}, backoff: () => 0.005, ...options })
      return {
        pool: sql,
        async borrow() {
          // Without fetch_types a reserve() that has to open a connection never returns.
          await sql.unsafe('SELECT 1')
          const client = await sql.reserve()
          return { client, returnToPool: () => client.release() }
        },
        end: () => sql.end(),
      }
    },
  }
}

const { url, pooledUrl, adminUrl } = database

const settings = [
  pgSetting('pg', false, url),
  pgSetting('pg with pipeline', false, url, { pipeline: true }),
  postgresJsSetting('postgres.js', false, url),
  postgresJsSetting('postgres.js in camel case', false, url, { transform: postgres.camel }),
  postgresJsSetting('postgres.js without fetch_types', false, url, { fetch_types: false }),
]
if (pooledUrl !== undefined) {
  settings.push(pgSetting('pg behind PgBouncer', true, pooledUrl))
  settings.push(postgresJsSetting('postgres.js behind PgBouncer', true, pooledUrl, { prepare: false }))
}
for (const setting of settings) {
  describeConnection(setting, adminUrl)
  describeConnectionLoss(setting, adminUrl)
}

describe('postgres.js as its owner configured it', () => {
  async function firstRow(options: postgres.Options<{}>): Promise<unknown> {
    const sql = postgres(url, { max: 1, ...options })
    try {
      const connection = await driverFor(sql).connect()
      const [result] = await connection.script(`SELECT NULL AS held, '7' AS pid`)
      connection.release()
      return result?.rows[0]
    } finally {
      await sql.end({ timeout: 1 })
    }
  }

  test.each([
    ['camel', postgres.camel],
    ['pascal', postgres.pascal],
    ['kebab', postgres.kebab],
    ['upper case', { column: (name: string) => name.toUpperCase() }],
    [
      'rows with other names',
      { row: (row: object) => Object.fromEntries(Object.entries(row).map(([k, v]) => [k.toUpperCase(), v])) },
    ],
    ['null turned into undefined', { value: (value: unknown) => value ?? undefined }],
    ['text turned into numbers', { value: (value: unknown) => (value === null ? null : Number(value)) }],
    ['rows turned into lists', { row: (row: object) => Object.values(row) as unknown }],
  ])('reads results of internal statements unchanged: %s', async (_, transform) => {
    expect(await firstRow({ transform })).toEqual({ held: null, pid: '7' })
  })

  test('reads results through a client of another pool, within its transforms', async () => {
    const [ours, theirs] = [postgres(url, { max: 1 }), postgres(url, { max: 1, transform: postgres.pascal })]
    try {
      await theirs.begin(async (client) => {
        const wrapped = driverFor(ours).wrap(client)
        const results = await wrapped.script(`SELECT NULL AS held, 7 AS pid`)
        expect(results.map(({ rows }) => rows)).toEqual([[{ held: null, pid: '7' }]])
        expect((await wrapped.read('SELECT ($1::int[])::text AS list', [[1, null]])).rows).toEqual([
          { list: '{1,NULL}' },
        ])
      })
    } finally {
      await Promise.all([ours.end({ timeout: 1 }), theirs.end({ timeout: 1 })])
    }
  })

  test('learns the connection before a long message fills the buffer of the socket', async () => {
    const { hostname, port } = new URL(url)
    const sockets: Socket[] = []
    const socket = (): Socket => {
      const made = connect(Number(port), hostname)
      const write = made.write.bind(made)
      made.write = (chunk: Buffer) => write(chunk) && chunk.length < 16_384
      sockets.push(made)
      return made
    }
    // postgres.js knows the option, its types do not.
    const options = { max: 1, socket } as postgres.Options<{}>
    const sql = postgres(url, options)
    try {
      const connection = await driverFor(sql).connect()
      const [result] = await connection.script(`SELECT 1 AS n /* ${'ü'.repeat(20_000)} */`)
      expect(result?.rows).toEqual([{ n: '1' }])
      sockets[0]?.destroy()
      await expect.poll(() => connection.lost).toBe(true)
      connection.release()
    } finally {
      await sql.end({ timeout: 1 })
    }
  })
})

test('rejects other objects than those of the two drivers', () => {
  for (const wrong of [undefined, null, {}, () => undefined, new pg.Client(), 'postgres://localhost']) {
    expect(() => driverFor(wrong)).toThrow(DriverUnsupportedError)
  }
})
