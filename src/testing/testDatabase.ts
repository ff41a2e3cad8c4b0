import { InvalidOptionError } from '../index.ts'
import { checkTestDatabaseOptions, TestDatabase, type TestDatabaseOptions } from './database.ts'
import { type ClosablePool, checkPool, createTemplate, type Template } from './template.ts'
import { testServer } from './embeddedServer.ts'

type Hook = (run: () => Promise<void>) => unknown

/**
 * The hooks of a test runner, such as all of `vitest`, `@jest/globals` or `node:test`: `beforeAll` and `afterAll`, or `before` and `after`;
 * `beforeEach` and `afterEach`.
 */
export interface TestHooks {
  readonly beforeAll?: Hook
  readonly before?: Hook
  readonly afterAll?: Hook
  readonly after?: Hook
  readonly beforeEach: Hook
  readonly afterEach: Hook
}

/**
 * A database for each test of this file, copied from a template, and dropped after the test. A test that leaves a lock, a lease, a
 * transaction or a connection behind fails.
 *
 * Register it after your own hooks where the runner calls them in their order (jest, node:test), or close what you open with `db.after()`.
 *
 * @example
 * import * as vitest from 'vitest'
 * const db = testDatabase(vitest, { pool: (url) => new pg.Pool({ connectionString: url }), prepare: createTables })
 *
 * vitest.test('one of two callers waits', async () => {
 *   const held = await db.hold(key`Order:${id}`)
 *   // …
 * })
 */
export function testDatabase<P extends ClosablePool>(
  hooks: TestHooks,
  options: TestDatabaseOptions<P>,
): TestDatabase<P> {
  checkTestDatabaseOptions(options)
  checkPool(options.pool)
  const beforeAll = hooks.beforeAll ?? hooks.before
  const afterAll = hooks.afterAll ?? hooks.after
  if (beforeAll === undefined || afterAll === undefined) {
    throw new InvalidOptionError('testDatabase() was given no hooks.', {
      advice: 'Pass the module of your test runner: vitest, @jest/globals or node:test.',
    })
  }
  const database = new TestDatabase(options)
  const perTest = (options.per ?? 'test') === 'test'
  let source: Template | undefined
  const begin = async (): Promise<void> => {
    if (source !== undefined) await database.begin(source.url, source.name)
  }
  beforeAll(async () => {
    source = await templateOf(options)
    if (!perTest) await begin()
  })
  hooks.beforeEach(async () => {
    if (perTest) await begin()
  })
  hooks.afterEach(() => (perTest ? database.drop() : database.endTest()))
  afterAll(async () => {
    try {
      await database.drop()
    } finally {
      await source?.drop()
    }
  })
  return database
}

/**
 * One test database, without a test runner: for a script, or for hooks of your own.
 *
 * @example
 * await using db = await createTestDatabase({ pool: (url) => new pg.Pool({ connectionString: url }) })
 */
export async function createTestDatabase<P extends ClosablePool>(
  options: Omit<TestDatabaseOptions<P>, 'per'>,
): Promise<TestDatabase<P>> {
  checkTestDatabaseOptions(options)
  checkPool(options.pool)
  const source = await templateOf(options)
  const database = new TestDatabase<P>(options, () => source.drop())
  try {
    await database.begin(source.url, source.name)
  } catch (error) {
    await source.drop()
    throw error
  }
  return database
}

/** The template that is named, which stays, or one of our own. */
async function templateOf<P extends ClosablePool>(options: TestDatabaseOptions<P>): Promise<Template> {
  const { pool, url, prepare, schema, template } = options
  if (template === undefined) {
    return createTemplate<P>({
      pool,
      ...(url !== undefined && { url }),
      ...(prepare !== undefined && { prepare }),
      ...(schema !== undefined && { schema }),
    })
  }
  const server = await testServer(url)
  return { name: template, url: server.url, drop: server.stop, [Symbol.asyncDispose]: server.stop }
}
