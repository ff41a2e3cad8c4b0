import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { type PgBouncer, pgBouncerAvailable, startPgBouncer } from './pgbouncer.ts'

describe.skipIf(!pgBouncerAvailable())('PgBouncer', () => {
  let bouncer: PgBouncer
  const admin = new URL(inject('adminUrl'))

  beforeAll(async () => {
    bouncer = await startPgBouncer({
      postgresHost: admin.hostname,
      postgresPort: Number(admin.port || 5432),
      users: { [decodeURIComponent(admin.username)]: decodeURIComponent(admin.password) },
      poolMode: 'transaction',
      defaultPoolSize: 1,
    })
  })
  afterAll(() => bouncer.stop())

  async function connected(): Promise<pg.Client> {
    const client = new pg.Client(bouncer.url(admin.pathname.slice(1)))
    await client.connect()
    return client
  }

  test('in transaction mode lends one server connection to two clients in turn', async () => {
    const [a, b] = await Promise.all([connected(), connected()])
    try {
      const pids = new Set<number | undefined>()
      for (const client of [a, b, a, b]) {
        const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
        pids.add(rows[0]?.pid)
      }
      expect(pids.size).toBe(1)

      const order: string[] = []
      await a.query('begin')
      const waiting = b.query('select 1').then(() => order.push('b'))
      await a.query('select 1')
      order.push('a')
      await a.query('commit')
      await waiting
      expect(order).toEqual(['a', 'b'])
    } finally {
      await Promise.all([a.end(), b.end()])
    }
  })

  test('rejects an unknown start-up parameter, as in production', async () => {
    const client = new pg.Client({ connectionString: bouncer.url('postgres'), statement_timeout: 1_000 })
    await expect(client.connect()).rejects.toMatchObject({ code: '08P01' })
  })
})
