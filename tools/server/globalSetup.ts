import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { Lockstep } from '../../src/index.ts'
import { pgBouncerAvailable, startPgBouncer } from './pgbouncer.ts'
import { startPostgres } from './postgres.ts'
import { withClient } from './withClient.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A database of the shared server from which others can be created and dropped. */
    adminUrl: string
    /** The same through PgBouncer in transaction mode; null where that is not installed. */
    pooledAdminUrl: string | null
    templateDatabase: string
  }
}

/**
 * Called once, before any test, with an empty database of which every test file's own is a copy. What all tests need
 * to find, such as Lockstep's schema, is put there here. It must have closed its connections when it returns.
 */
export async function prepareTemplate(url: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  try {
    await new Lockstep(pool).migrate()
  } finally {
    await pool.end()
  }
}

/**
 * One server for all test files: TEST_DATABASE_URL or DATABASE_URL where set (databases are created and dropped beside
 * the named one, which is left alone), else one of our own.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const cleanups: (() => Promise<void>)[] = []
  const cleanUp = async (): Promise<void> => {
    for (const each of cleanups.toReversed()) await each()
  }
  try {
    let adminUrl = process.env['TEST_DATABASE_URL'] || process.env['DATABASE_URL']
    if (!adminUrl) {
      const server = await startPostgres({ settings: { max_connections: '300' } })
      cleanups.push(() => server.stop('immediate'))
      adminUrl = server.url()
    }
    const template = await createTemplate(adminUrl)
    cleanups.push(() => dropTemplate(adminUrl, template))
    const pooledAdminUrl = await pooled(adminUrl, cleanups)
    project.provide('adminUrl', adminUrl)
    project.provide('pooledAdminUrl', pooledAdminUrl)
    project.provide('templateDatabase', template)
  } catch (error) {
    await cleanUp()
    throw error
  }
  return cleanUp
}

async function pooled(adminUrl: string, cleanups: (() => Promise<void>)[]): Promise<string | null> {
  if (!pgBouncerAvailable()) {
    const missing = 'PgBouncer is not installed: tests through a transaction pooler are SKIPPED'
    // A skip that nobody reads is how a guarantee rots: under CI it is an error.
    if (process.env['CI'] === 'true') throw new Error(`${missing}, which CI=true forbids`)
    console.warn(missing)
    return null
  }
  const url = new URL(adminUrl)
  const bouncer = await startPgBouncer({
    postgresHost: url.hostname,
    postgresPort: Number(url.port || 5432),
    poolMode: 'transaction',
    users: { [decodeURIComponent(url.username) || 'postgres']: decodeURIComponent(url.password) },
  })
  cleanups.push(() => bouncer.stop())
  return bouncer.url(decodeURIComponent(url.pathname.slice(1)) || 'postgres')
}

async function createTemplate(adminUrl: string): Promise<string> {
  const name = `lockstep_template_${process.pid}_${Date.now().toString(36)}`
  await execute(adminUrl, `create database ${name} template template0`)
  const url = new URL(adminUrl)
  url.pathname = `/${name}`
  await prepareTemplate(url.href)
  // A template someone is connected to cannot be copied.
  await execute(adminUrl, `alter database ${name} with allow_connections false`)
  return name
}

async function dropTemplate(adminUrl: string, name: string): Promise<void> {
  await execute(adminUrl, `drop database if exists ${name} with (force)`)
}

async function execute(url: string, sql: string): Promise<void> {
  await withClient(url, (client) => client.query(sql))
}
