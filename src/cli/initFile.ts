import { STATEMENT } from './initFile.sql.ts'
import type { FrameworkName, OrmName, Project } from './initProject.ts'

/** The parts of a first file that depend on what the project uses. */
interface Parts {
  readonly imports: readonly string[]
  /** Statements of their own, below the Lockstep. */
  readonly setUp?: string
  /** The body of the example's transaction: returns the time of the database. */
  readonly body?: string
  /** What follows the example. */
  readonly after?: string
}

/** Text that is there in TypeScript only. */
type Typed = (text: string) => string

/** The text of a first file: it compiles, and it runs on a database with Lockstep's schema. */
export function firstFile({ driver, orm, framework, language }: Project): string {
  const typed: Typed = (text) => (language === 'ts' ? text : '')
  const withOrm = orm === undefined ? undefined : ORMS[orm](typed, driver === 'pg')
  const withFramework = framework === undefined ? undefined : FRAMEWORKS[framework](typed)
  const imports = [
    driver === 'pg' ? `import pg from 'pg'` : `import postgres from 'postgres'`,
    ...(withOrm?.imports ?? []),
    ...(withFramework?.imports ?? []),
    `import { key, Lockstep } from 'pg-lockstep'`,
  ]
  const pool =
    driver === 'pg'
      ? `new pg.Pool({ connectionString: process.env['DATABASE_URL'] })`
      : `postgres(process.env['DATABASE_URL'] ?? '')`
  const plain = `    const { rows } = await tx.query${typed('<{ now: string }>')}('${STATEMENT}')\n    return rows[0]?.now ?? ''`
  const parts = [
    imports.toSorted(bySource).join('\n'),
    framework === 'next'
      ? sharedInstances(pool, driver, typed)
      : `export const pool = ${pool}\nexport const lockstep = new Lockstep(pool)`,
    ...(withOrm?.setUp === undefined ? [] : [withOrm.setUp]),
    `/** One caller at a time for each name, in all processes. The lock is granted before the first statement. */
export function example(name${typed(': string')})${typed(': Promise<string>')} {
  return lockstep.transaction({ lock: key\`Example:\${name}\` }, async (tx) => {
${withOrm?.body ?? plain}
  })
}`,
    ...(withFramework?.after === undefined ? [] : [withFramework.after]),
    `/** Before the process ends. */
export async function close()${typed(': Promise<void>')} {
  await lockstep.close()
  await pool.end(${driver === 'pg' ? '' : '{ timeout: 5 }'})
}`,
  ]
  return `${parts.join('\n\n')}\n`
}

function sharedInstances(pool: string, driver: Project['driver'], typed: Typed): string {
  const types = `{ lockstepPool?: ${driver === 'pg' ? 'pg.Pool' : 'postgres.Sql'}; lockstep?: Lockstep }`
  return `/** Next.js evaluates this file once for each bundle, and again after a change. All of them share one pool and one Lockstep. */
const shared = globalThis${typed(` as ${types}`)}
export const pool = (shared.lockstepPool ??= ${pool})
export const lockstep = (shared.lockstep ??= new Lockstep(pool))`
}

function bySource(one: string, other: string): number {
  const source = (line: string): string => /from '(.*)'$/.exec(line)?.[1] ?? ''
  return source(one) < source(other) ? -1 : 1
}

const ORMS: Readonly<Record<OrmName, (typed: Typed, onPg: boolean) => Parts>> = {
  'drizzle-orm': (typed, onPg) => ({
    imports: [
      `import { sql } from 'drizzle-orm'`,
      `import { drizzle } from 'pg-lockstep/${onPg ? 'drizzle' : 'drizzle-postgres-js'}'`,
    ],
    body: `    const ${onPg ? '{ rows }' : 'rows'} = await drizzle(tx).execute${typed('<{ now: string }>')}(sql\`${STATEMENT}\`)
    return rows[0]?.now ?? ''`,
  }),
  kysely: (typed) => ({
    imports: [`import { sql } from 'kysely'`, `import { kysely } from 'pg-lockstep/kysely'`],
    body: `    const db = kysely${typed('<object>')}(tx)
    const { rows } = await sql${typed('<{ now: string }>')}\`${STATEMENT}\`.execute(db)
    return rows[0]?.now ?? ''`,
  }),
  knex: (typed) => ({
    imports: [`import knexFactory from 'knex'`, `import { knex } from 'pg-lockstep/knex'`],
    setUp: `const db = knexFactory({ client: 'pg' })`,
    body: `    const trx = await knex(tx, db)
    const { rows } = await trx.raw${typed('<{ rows: { now: string }[] }>')}('${STATEMENT}')
    return rows[0]?.now ?? ''`,
  }),
}

const SECOND = '/** A second request for the same name gets 409 while the first one works. */'

const FRAMEWORKS: Readonly<Record<FrameworkName, (typed: Typed) => Parts>> = {
  next: (typed) => ({
    imports: [`import { exclusive, fetchHandler } from 'pg-lockstep/http'`],
    after: `const nameOf = (request${typed(': Request')}) => new URL(request.url).searchParams.get('name') ?? 'nobody'
const oneAtATime = exclusive(lockstep, { key: (request${typed(': Request')}) => key\`Example:\${nameOf(request)}\` })

${SECOND}
export const POST = fetchHandler(oneAtATime, async (request) => Response.json({ now: await example(nameOf(request)) }))`,
  }),
  hono: (typed) => ({
    imports: [
      `import { ${typed('type Context, ')}Hono } from 'hono'`,
      `import { exclusive, honoHandler } from 'pg-lockstep/http'`,
    ],
    after: `const nameOf = (c${typed(': Context')}) => c.req.param('name') ?? ''
const oneAtATime = exclusive(lockstep, { key: (c${typed(': Context')}) => key\`Example:\${nameOf(c)}\` })

${SECOND}
export const routes = new Hono()
routes.post(
  '/example/:name',
  honoHandler(oneAtATime, async (c) => c.json({ now: await example(nameOf(c)) })),
)`,
  }),
  express: (typed) => ({
    imports: [
      `import express${typed(', { type Request, type Response }')} from 'express'`,
      `import { exclusive, expressHandler } from 'pg-lockstep/http'`,
    ],
    after: `const nameOf = (request${typed(': Request')}) => String(request.params['name'])
const oneAtATime = exclusive(lockstep, { key: (request${typed(': Request')}) => key\`Example:\${nameOf(request)}\` })

${SECOND}
export const routes = express.Router()
routes.post(
  '/example/:name',
  expressHandler(oneAtATime, async (request, response${typed(': Response')}) => {
    response.json({ now: await example(nameOf(request)) })
  }),
)`,
  }),
  fastify: (typed) => ({
    imports: [
      ...(typed('x') === '' ? [] : [`import type { FastifyInstance, FastifyRequest } from 'fastify'`]),
      `import { exclusive, fastifyHandler } from 'pg-lockstep/http'`,
    ],
    after: `${typed(`type NamedRequest = FastifyRequest<{ Params: { name: string } }>\n`)}const oneAtATime = exclusive(lockstep, {
  key: (request${typed(': NamedRequest')}) => key\`Example:\${request.params.name}\`,
})

${SECOND}
export async function routes(app${typed(': FastifyInstance')})${typed(': Promise<void>')} {
  app.post(
    '/example/:name',
    fastifyHandler(oneAtATime, async (request) => ({ now: await example(request.params.name) })),
  )
}`,
  }),
}
