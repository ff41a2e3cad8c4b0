import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { afterAll, inject } from 'vitest'
import { prepareTemplate } from './globalSetup.ts'
import { startPostgres } from './postgres.ts'
import { withClient } from './withClient.ts'

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
  const name = `lockstep_test_${process.pid}_${Date.now().toString(36)}_${Math.random().toString(36).slice(2, 6)}`
  // Registered before it exists: a file that fails half-way still leaves nothing. Hooks run last to first, so what the
  // file registers later, such as its pool's end, comes before.
  afterAll(() => withClient(adminUrl, (admin) => dropDatabase(admin, name)))
  await withClient(adminUrl, (admin) => copyTemplate(admin, name, inject('templateDatabase')))
  if (options.leakGuard !== false) leakGuard({ name, adminUrl })
  return {
    name,
    adminUrl,
    url: withDatabase(adminUrl, name),
    pooledUrl: pooledAdminUrl === null ? undefined : withDatabase(pooledAdminUrl, name),
  }
}

/** Sessions that are just ending get a moment: a client whose session is terminated meanwhile would report an unexpected error. */
async function dropDatabase(admin: pg.Client, name: string): Promise<void> {
  for (let attempt = 1; attempt <= 100; attempt++) {
    const { rowCount } = await admin.query('select from pg_stat_activity where datname = $1', [name])
    if (rowCount === 0) break
    await delay(30)
  }
  await admin.query(`drop database if exists ${name} with (force)`)
}

async function copyTemplate(admin: pg.Client, name: string, template: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await admin.query(`create database ${name} template ${template}`)
      return
    } catch (error) {
      // 55006: the template is in use, if only for the moment a maintenance process looks into it.
      if ((error as { code?: string }).code !== '55006' || attempt === 40) throw error
      await delay(50)
    }
  }
}

const leakGraceMs = 20_000

interface Leak {
  readonly kind: string
  readonly detail: string
}

const leaks = `
  select 'advisory lock' as kind,
         format('%s (%s, %s, %s) by pid %s: %s', l.mode, l.classid, l.objid, l.objsubid, l.pid, a.query) as detail
    from pg_locks l
    left join pg_stat_activity a using (pid)
   where l.locktype = 'advisory'
     and l.database = (select oid from pg_database where datname = $1)
  union all
  select state, format('pid %s, last query: %s', pid, query)
    from pg_stat_activity
   where datname = $1 and state like 'idle in transaction%'`

/**
 * Fails the file when, after its last test, an advisory lock is still held in its database or a session still sits in
 * a transaction. They get a while to go away, since a backend notices its client's death only a moment later.
 */
function leakGuard(database: Pick<TestDatabase, 'name' | 'adminUrl'>): void {
  afterAll(() =>
    withClient(database.adminUrl, async (admin) => {
      const deadline = performance.now() + leakGraceMs
      for (;;) {
        const { rows } = await admin.query<Leak>(leaks, [database.name])
        if (rows.length === 0) return
        if (performance.now() > deadline) {
          const list = rows.map(({ kind, detail }) => `${kind}: ${detail}`)
          throw new Error(`this file leaks in ${database.name}:\n${list.join('\n')}`)
        }
        await delay(25)
      }
    }),
  )
}

/**
 * The same on a server that no other file uses. For files that look at what transactions of the whole server hold up, such as
 * retention, and for files with a backend that cannot write to its client: every DROP DATABASE on that server waits for such a backend
 * (PostgreSQL 15 and later), and the transaction of the DROP holds up retention.
 */
export async function testServer(): Promise<TestDatabase> {
  const server = await startPostgres({ settings: { max_connections: '300' } })
  afterAll(() => server.stop('immediate'))
  const adminUrl = server.url()
  const name = 'lockstep_test'
  await withClient(adminUrl, (admin) => admin.query(`create database ${name}`))
  const url = withDatabase(adminUrl, name)
  await prepareTemplate(url)
  leakGuard({ name, adminUrl })
  return { name, adminUrl, url, pooledUrl: undefined }
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}
