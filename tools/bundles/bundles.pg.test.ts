import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'
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
    expect(modules.filter((file) => /^dist\/(cli|console|lab|http|sinks|orms)\//.test(file))).toEqual([])
  })

  test('read no file of the package and do not use import.meta.url', PATIENTLY, async () => {
    const { exports } = await manifest(library)
    const entries = Object.keys(exports).filter((name) => name !== './package.json')
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
