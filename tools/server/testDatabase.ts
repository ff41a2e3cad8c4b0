import pg from 'pg'
import { afterAll, inject } from 'vitest'
import { Lockstep } from '../../src/index.ts'
import { assertNoLeaks } from '../../src/testing/index.ts'
import { asAdmin, copyTemplate, dropCopy, newName, withDatabase } from '../../src/testing/template.ts'
import { startPostgres } from './postgres.ts'

export interface TestDatabase {
  readonly name: string
  /** Straight to PostgreSQL. */
  readonly url: string
  /** Through PgBouncer in transaction mode; undefined where that is not installed, which CI does not allow. */
  readonly pooledUrl: string | undefined
  /** Another database of the same server, from which this one can be watched. */
  readonly adminUrl: string
}

/**
 * A database for this test file alone, dropped after its last test together with whatever is still connected. Before that, `leakGuard`
 * looks for locks and transactions that the file has left behind.
 *
 * @example
 * const database = await testDatabase()
 * const pool = new pg.Pool({ connectionString: database.url })
 * afterAll(() => pool.end())
 */
export async function testDatabase(options: { readonly leakGuard?: boolean } = {}): Promise<TestDatabase> {
  const adminUrl = inject('adminUrl')
  const pooledAdminUrl = inject('pooledAdminUrl')
  const name = newName('test')
  // Registered before it exists: a file that fails half-way still leaves nothing. Hooks run last to first, so what the
  // file registers later, such as its pool's end, comes before.
  afterAll(() => dropCopy(poolOf, adminUrl, name))
  await copyTemplate(poolOf, adminUrl, inject('templateDatabase'), name)
  const url = withDatabase(adminUrl, name)
  if (options.leakGuard !== false) leakGuard(url)
  return {
    name,
    adminUrl,
    url,
    pooledUrl: pooledAdminUrl === null ? undefined : withDatabase(pooledAdminUrl, name),
  }
}

/** A pool for one question. */
export function poolOf(connectionString: string): pg.Pool {
  return new pg.Pool({ connectionString, max: 1 })
}

/**
 * Fails the file when, after its last test, an advisory lock is still held in its database or a session still sits in
 * a transaction. They get a while to go away, since a backend notices its client's death only a moment later.
 */
function leakGuard(url: string): void {
  afterAll(async () => {
    const pool = poolOf(url)
    try {
      await assertNoLeaks(pool, { kinds: ['lock', 'transaction'], graceMs: 20_000 })
    } finally {
      await pool.end()
    }
  })
}

/**
 * The same on a server that no other file uses. For files that look at what transactions of the whole server delay, such as
 * retention, and for files with a backend that cannot write to its client: every DROP DATABASE on that server waits for such a backend
 * (PostgreSQL 15 and later), and the transaction of the DROP delays retention.
 */
export async function testServer(): Promise<TestDatabase> {
  const server = await startPostgres({ settings: { max_connections: '300' } })
  afterAll(() => server.stop('immediate'))
  const adminUrl = server.url()
  const name = 'lockstep_test'
  await asAdmin(poolOf, adminUrl, (connection) => connection.script(`create database ${name}`))
  const url = withDatabase(adminUrl, name)
  const pool = poolOf(url)
  await new Lockstep(pool).migrate()
  await pool.end()
  leakGuard(url)
  return { name, adminUrl, url, pooledUrl: undefined }
}
