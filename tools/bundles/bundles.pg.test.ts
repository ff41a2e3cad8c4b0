import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { manifest, pack, tarball } from '../check/tarball.ts'
import { testDatabase } from '../server/testDatabase.ts'
import { bundlers } from './bundlers.ts'
import { makeProject } from './project.ts'
import { EXPECTED, tryBundler } from './tryBundler.ts'

const PATIENTLY = { timeout: 240_000 }

const database = await testDatabase({ leakGuard: false })
// `npm test` has built it, and other tests run on what is there.
const { path } = await (process.env['LOCKSTEP_BUILT'] === '1' ? pack() : tarball())
const project = await makeProject(path)
const { peerDependencies } = await manifest()
afterAll(() => project[Symbol.asyncDispose]())

// The large ones: `npm run bundles`.
test.each(bundlers.filter(({ large }) => !large))(
  'migrates, locks, runs the doctor and serves the console from a bundle by $name, outside of the package',
  PATIENTLY,
  async (bundler) => {
    const visited = await tryBundler(bundler, project, database.url)
    expect(visited).toMatchObject(EXPECTED)
    expect(visited.page).toContain('<!doctype html>')
    expect(visited.script.length).toBeGreaterThan(10_000)
  },
)

test('guards of one bundle work with the Lockstep of another, as after a hot reload', PATIENTLY, async () => {
  type Copy = typeof import('../../src/index.ts') & typeof import('../../src/http/index.ts')
  const copies: Copy[] = []
  for (const name of ['older', 'newer']) {
    const outfile = join(project.directory, `${name}.mjs`)
    const contents = `export * from 'pg-lockstep'; export * from 'pg-lockstep/http'`
    await build({
      stdin: { contents, resolveDir: project.directory },
      outfile,
      bundle: true,
      format: 'esm',
      platform: 'node',
      logLevel: 'error',
    })
    copies.push((await import(pathToFileURL(outfile).href)) as Copy)
  }
  const [older, newer] = copies as [Copy, Copy]
  expect(older.LeaseHeldError).not.toBe(newer.LeaseHeldError)
  const pool = new pg.Pool({ connectionString: database.url, max: 4 })
  const lockstep = new older.Lockstep(pool, { schema: 'two copies' })
  try {
    await lockstep.migrate()
    const key = newer.key`Instance:${1}`
    const alone = newer.fetchHandler(newer.exclusive(lockstep, { key: () => key }), () => new Response('served'))
    const guard = newer.idempotent(lockstep, { scope: () => 'acme', lock: () => key, transaction: { waitMs: 3000 } })
    const pay = newer.fetchHandler(guard, async (_request, tx) =>
      Response.json((await tx.query('SELECT 1 AS one')).rows),
    )
    const post = (): Request =>
      new Request('http://localhost/', { method: 'POST', headers: { 'idempotency-key': 'key' } })
    await lockstep.lease(key, {}, async () => expect((await alone(post())).status).toBe(409))
    await lockstep.transaction({ lock: key }, () =>
      lockstep.detached(async () => expect((await pay(post())).status).toBe(409)),
    )
    expect((await alone(post())).status).toBe(200)
    const first = await (await pay(post())).text()
    const again = await pay(post())
    expect([again.headers.get('idempotency-replayed'), await again.text()]).toEqual(['true', first])
  } finally {
    await lockstep.close()
    await pool.end()
  }
})

describe('the modules behind an entry point', () => {
  const library = join(project.directory, 'node_modules', 'pg-lockstep')
  const peers = Object.keys(peerDependencies).filter((name) => name !== 'pg')

  /** The modules of the package that a bundle of these entries contains. */
  async function modulesOf(entries: readonly string[]): Promise<string[]> {
    const { metafile } = await build({
      stdin: { contents: entries.map((each) => `import '${each}'`).join('\n'), resolveDir: project.directory },
      absWorkingDir: library,
      bundle: true,
      // Nothing is left out: the package says that no module has side effects.
      ignoreAnnotations: true,
      platform: 'node',
      packages: 'bundle',
      // What a user installs only to use it: the peers.
      external: peers.flatMap((name) => [name, `${name}/*`]),
      write: false,
      metafile: true,
      logLevel: 'error',
    })
    return Object.keys(metafile.inputs).filter((file) => file.startsWith('dist/'))
  }

  test('contain neither the page of the console nor a sink nor an ORM for the main one', PATIENTLY, async () => {
    const modules = await modulesOf(['pg-lockstep'])
    expect(modules).toContain('dist/postgres/sqlFiles.js')
    expect(modules.filter((file) => /^dist\/(cli|console|lab|http|nest|orms|sinks|testing)\//.test(file))).toEqual([])
  })

  test('read no file of the package and do not use import.meta.url', PATIENTLY, async () => {
    const { exports } = await manifest(library)
    // Tests are not bundled: `./testing` starts the programs of a server that it finds beside itself.
    const entries = Object.keys(exports).filter((name) => !['./package.json', './testing'].includes(name))
    const modules = await modulesOf(entries.map((name) => name.replace('.', 'pg-lockstep')))
    expect(modules).toContain('dist/console/pageContents.js')
    const texts = await Promise.all(
      modules.map(async (file) => ({ file, text: await readFile(join(library, file), 'utf8') })),
    )
    const named = (pattern: RegExp): string[] => texts.filter(({ text }) => pattern.test(text)).map(({ file }) => file)
    expect(named(/import\.meta|createRequire|__dirname|__filename/)).toEqual([])
    // The files that a caller names: `sql.file(path)` of postgres.js.
    const callers = ['dist/postgres/postgresJsPin.js', 'dist/postgres/postgresJsVirtualClient.js']
    expect(named(/['"](?:node:)?fs(?:\/promises)?['"]/).filter((file) => !callers.includes(file))).toEqual([])
  })
})
