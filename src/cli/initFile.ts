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
export function firstFile(project: Project): string {
  const { driver, orm, framework, language } = project
  const typed: Typed = (text) => (language === 'ts' ? text : '')
  const withOrm = orm === undefined ? undefined : ORMS[orm](typed, project)
  const plain = `    const { rows } = await tx.query${typed('<{ now: string }>')}('${STATEMENT}')\n    return rows[0]?.now ?? ''`
  const pool =
    driver === 'pg'
      ? `new pg.Pool({ connectionString: process.env['DATABASE_URL'] })`
      : `postgres(process.env['DATABASE_URL'] ?? '')`
  if (framework === 'nest') return nestFile(driver, pool, { imports: [], body: plain, ...withOrm })
  const withFramework = framework === undefined ? undefined : FRAMEWORKS[framework](typed)
  const imports = [
    importOf(driver),
    ...(withOrm?.imports ?? []),
    ...(withFramework?.imports ?? []),
    `import { key, Lockstep } from 'pg-lockstep'`,
  ]
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
  await pool.end()
}`,
  ]
  return `${parts.join('\n\n')}\n`
}

function importOf(driver: Project['driver']): string {
  return driver === 'pg' ? `import pg from 'pg'` : `import postgres from 'postgres'`
}

/** A module to import. The pool stands outside of it: some ORMs are made with it. */
function nestFile(driver: Project['driver'], pool: string, { imports, setUp, body }: Parts): string {
  const parts = [
    [
      importOf(driver),
      `import { Controller, Module, Param, Post } from '@nestjs/common'`,
      `import { key, type Transaction } from 'pg-lockstep'`,
      `import type { ParsedRequest } from 'pg-lockstep/http'`,
      `import { Locked, LockstepModule, Tx } from 'pg-lockstep/nest'`,
      ...imports,
    ]
      .toSorted(bySource)
      .join('\n'),
    `const pool = ${pool}`,
    ...(setUp === undefined ? [] : [setUp]),
    `interface NamedRequest extends ParsedRequest {
  readonly params: { readonly name: string }
}

@Controller('example')
export class ExampleController {
  /** One request at a time for each name, in all processes. The lock is granted before the first statement. */
  @Post(':name')
  @Locked({ lock: (request: NamedRequest) => key\`Example:\${request.params.name}\` })
  async example(@Param('name') name: string, @Tx() tx: Transaction): Promise<{ name: string; now: string }> {
    return { name, now: await this.now(tx) }
  }

  private async now(tx: Transaction): Promise<string> {
${body}
  }
}

/** Import it in the module of your application. It closes the pool with the application. */
@Module({
  imports: [LockstepModule.forRoot({ pool, endPool: true })],
  controllers: [ExampleController],
})
export class ExampleModule {}`,
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

/** It opens no connection by itself: what it sends inside of tx goes through the connection of tx. */
const OWN_INSTANCE = '/** Put the one of your program here. */'

const ORMS: Readonly<Record<OrmName, (typed: Typed, project: Project) => Parts>> = {
  'drizzle-orm': (typed, { driver }) => ({
    imports: [
      `import { sql } from 'drizzle-orm'`,
      `import { drizzle } from 'pg-lockstep/${driver === 'pg' ? 'drizzle' : 'drizzle-postgres-js'}'`,
    ],
    body: `    const ${driver === 'pg' ? '{ rows }' : 'rows'} = await drizzle(tx).execute${typed('<{ now: string }>')}(sql\`${STATEMENT}\`)
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
  '@prisma/client': (typed, { prismaClient }) => ({
    imports: [
      `import { prisma, prismaAdapter } from 'pg-lockstep/prisma'`,
      `import { PrismaClient } from '${prismaClient}'`,
    ],
    setUp: `${OWN_INSTANCE}\nconst client = new PrismaClient({ adapter: prismaAdapter(pool) })`,
    body: `    const db = await prisma(tx, client)
    const rows = await db.$queryRaw${typed('<{ now: string }[]>')}\`${STATEMENT}\`
    return rows[0]?.now ?? ''`,
  }),
  typeorm: (typed) => ({
    imports: [`import { typeorm } from 'pg-lockstep/typeorm'`, `import { DataSource } from 'typeorm'`],
    setUp: `${OWN_INSTANCE}\nconst dataSource = new DataSource({ type: 'postgres', url: process.env['DATABASE_URL'] ?? '' })`,
    body: `    const rows = await typeorm(tx, dataSource).query${typed('<{ now: string }[]>')}('${STATEMENT}')
    return rows[0]?.now ?? ''`,
  }),
  '@mikro-orm/postgresql': (typed) => ({
    imports: [`import { MikroORM } from '@mikro-orm/postgresql'`, `import { mikroOrm } from 'pg-lockstep/mikro-orm'`],
    setUp: `${OWN_INSTANCE}
const orm = MikroORM.initSync({
  clientUrl: process.env['DATABASE_URL'] ?? '',
  entities: [],
  discovery: { warnWhenNoEntities: false },
})`,
    body: `    const rows = await mikroOrm(tx, orm).execute${typed('<{ now: string }[]>')}('${STATEMENT}')
    return rows[0]?.now ?? ''`,
  }),
  sequelize: (typed) => ({
    imports: [`import { sequelize } from 'pg-lockstep/sequelize'`, `import { QueryTypes, Sequelize } from 'sequelize'`],
    setUp: `${OWN_INSTANCE}
const instance = new Sequelize(process.env['DATABASE_URL'] ?? 'postgres://', { dialect: 'postgres', logging: false })`,
    body: `    const transaction = sequelize(tx, instance)
    const [row] = await instance.query${typed('<{ now: string }>')}('${STATEMENT}', { transaction, type: QueryTypes.SELECT })
    return row?.now ?? ''`,
  }),
}

const SECOND = '/** A second request for the same name gets 409 while the first one works. */'

const FRAMEWORKS: Readonly<Record<Exclude<FrameworkName, 'nest'>, (typed: Typed) => Parts>> = {
  next: (typed) => ({
    imports: [`import { exclusive, fetchHandler } from 'pg-lockstep/http'`],
    after: `const nameOf = (request${typed(': Request')}) => new URL(request.url).searchParams.get('name') ?? 'anonymous'
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
