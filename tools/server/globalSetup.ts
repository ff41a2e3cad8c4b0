import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { createTemplate } from '../../src/testing/index.ts'
import { pgBouncerAvailable, startPgBouncer } from './pgbouncer.ts'
import { startPostgres } from './postgres.ts'

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
 * One server for all test files: TEST_DATABASE_URL or DATABASE_URL where set (databases are created and dropped beside
 * the named one, which is left alone), otherwise one of our own.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const cleanups: (() => Promise<void>)[] = []
  const cleanUp = async (): Promise<void> => {
    for (const each of cleanups.toReversed()) await each()
  }
  try {
    let adminUrl = process.env['TEST_DATABASE_URL'] || process.env['DATABASE_URL']
    if (!adminUrl) {
      const server = await startPostgres({ settings: { max_connections: '600' } })
      cleanups.push(() => server.stop('immediate'))
      adminUrl = server.url()
    }
    const template = await createTemplate({
      url: adminUrl,
      pool: (url) => new pg.Pool({ connectionString: url, max: 4 }),
    })
    cleanups.push(() => template.drop())
    const pooledAdminUrl = await pooled(adminUrl, cleanups)
    project.provide('adminUrl', adminUrl)
    project.provide('pooledAdminUrl', pooledAdminUrl)
    project.provide('templateDatabase', template.name)
  } catch (error) {
    await cleanUp()
    throw error
  }
  return cleanUp
}

async function pooled(adminUrl: string, cleanups: (() => Promise<void>)[]): Promise<string | null> {
  if (!pgBouncerAvailable()) {
    const missing = 'PgBouncer is not installed: tests through a transaction pooler are SKIPPED'
    // Skipped tests are easily overlooked, so under CI they are an error.
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
