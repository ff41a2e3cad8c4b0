import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { ICruiseResult } from 'dependency-cruiser'
import { afterAll, describe, expect, test } from 'vitest'
import { drawnInto } from '../graph/drawing.ts'
import { graphFaults, importFaults } from './imports.ts'
import { cruiseImports } from './imports/cruiseImports.ts'

const directories: string[] = []
afterAll(() => directories.forEach((each) => rmSync(each, { recursive: true, force: true })))

/** Writes the files into an empty project and reads their imports. */
function cruised(texts: Readonly<Record<string, string>>): Promise<ICruiseResult> {
  const root = mkdtempSync(join(tmpdir(), 'lockstep-imports-'))
  directories.push(root)
  const exports = { '.': './dist/index.js', './kafka': './dist/sinks/kafka.js' }
  const folders = Object.fromEntries(
    ['src', 'desk', 'console', 'proofs', 'bench', 'examples'].map((name) => [`${name}/empty.ts`, '']),
  )
  for (const [file, text] of Object.entries({ ...folders, 'package.json': JSON.stringify({ exports }), ...texts })) {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    writeFileSync(join(root, file), text)
  }
  return cruiseImports(root)
}

/** Each file imports one other file, or one entry point of the package. */
async function faultsOf(pairs: readonly (readonly [from: string, to: string])[]): Promise<string[]> {
  const texts: Record<string, string> = {}
  for (const [from, to] of pairs) {
    const specifier = to.startsWith('pg-lockstep') ? to : `${'../'.repeat(from.split('/').length - 1)}${to}`
    texts[from] = `${texts[from] ?? ''}import '${specifier.replace(/^(?!\.|pg-)/, './')}'\n`
    if (to.includes('/') && !to.startsWith('pg-lockstep')) texts[to] ??= ''
  }
  return importFaults(await cruised(texts)).map((fault) => fault.split('  ')[0] ?? '')
}

test('accepts imports of lower modules, shared files and public entry points', async () => {
  const accepted = [
    ['src/locks/acquire.ts', 'src/postgres/index.ts'],
    ['src/locks/acquire.ts', 'src/locks/locks.sql.ts'],
    ['src/locks/acquire.ts', 'src/errors.ts'],
    ['src/locks/acquire.ts', 'src/checkOptions.ts'],
    ['src/locks/acquire.ts', 'src/observe/index.ts'],
    ['src/sinks/kafka.ts', 'src/outbox/index.ts'],
    ['src/outbox/enqueue.ts', 'src/leases/index.ts'],
    ['src/cli/main.ts', 'src/index.ts'],
    ['src/cli/main.ts', 'src/console/index.ts'],
    ['src/cli/migrate.ts', 'src/postgres/index.ts'],
    ['src/cli/dispatch.ts', 'src/sinks/kafka.ts'],
    ['src/cli/commandLine.ts', 'src/nearest.ts'],
    ['src/console/consoleOptions.ts', 'src/checkOptions.ts'],
    ['src/console/serve.ts', 'src/index.ts'],
    ['src/index.ts', 'src/locks/index.ts'],
    ['src/lockstep.ts', 'src/errors.ts'],
    ['src/packageVersion.ts', 'package.json'],
    ['src/locks/key.unit.test.ts', 'src/transactions/begin.ts'],
    ['src/locks/key.pg.test.ts', 'tools/server/postgres.ts'],
    ['src/observe/otel.ts', 'src/checkOptions.ts'],
    ['src/checkOptions.ts', 'src/errors.ts'],
    ['src/errors.ts', 'src/lockstepError.ts'],
    ['desk/main.ts', 'pg-lockstep'],
    ['desk/main.ts', 'pg-lockstep/kafka'],
    ['proofs/attacks/main.ts', 'tools/server/postgres.ts'],
  ] as const
  expect(await faultsOf(accepted)).toEqual([])
})

test('reports imports against the layers, past an index.ts and past the public entry points', async () => {
  const refused = [
    ['src/postgres/migrate.ts', 'src/locks/index.ts'],
    ['src/locks/acquire.ts', 'src/postgres/connection.ts'],
    ['src/locks/acquire.ts', 'src/lockstepError.ts'],
    ['src/locks/acquire.ts', 'src/lockstep.ts'],
    ['src/locks/acquire.ts', 'src/index.ts'],
    ['src/locks/acquire.ts', 'pg-lockstep'],
    ['src/locks/acquire.ts', 'tools/server/postgres.ts'],
    ['src/locks/acquire.ts', 'src/attic/index.ts'],
    ['src/outbox/enqueue.ts', 'src/inbox/index.ts'],
    ['src/rows/lock.ts', 'src/leases/index.ts'],
    ['src/observe/events.ts', 'src/postgres/index.ts'],
    ['src/observe/events.ts', 'src/errors.ts'],
    ['src/errors.ts', 'src/observe/index.ts'],
    ['src/checkOptions.ts', 'src/rows/index.ts'],
    ['src/lockstep.ts', 'src/locks/key.ts'],
    ['src/lockstep.ts', 'src/console/index.ts'],
    ['src/cli/main.ts', 'src/locks/key.ts'],
    ['src/cli/main.ts', 'src/errors.ts'],
    ['src/console/serve.ts', 'src/cli/index.ts'],
    ['src/attic/box.ts', 'src/locks/index.ts'],
    ['desk/main.ts', 'src/index.ts'],
    ['desk/main.ts', 'dist/index.js'],
    ['desk/main.ts', 'pg-lockstep/leases'],
    ['examples/queue.ts', 'src/outbox/index.ts'],
    ['bench/main.ts', 'pg-lockstep/dist/index.js'],
  ] as const
  const faults = await faultsOf(refused)
  expect([...new Set(faults)].toSorted()).toEqual(refused.map((pair) => pair.join(' → ')).toSorted())
})

test('lets observe import types of errors.ts', async () => {
  const texts = { 'src/observe/events.ts': "import type { Code } from '../errors.ts'\n", 'src/errors.ts': '' }
  expect(importFaults(await cruised(texts))).toEqual([])
})

test('reports a cycle of files, also one of types, and ignores tests', async () => {
  const texts = {
    'src/locks/a.ts': "import type { B } from './b.ts'\n",
    'src/locks/b.ts': "import { a } from './a.ts'\n",
    'src/rows/c.ts': "import { d } from './d.ts'\n",
    'src/rows/d.ts': '',
    'src/rows/d.unit.test.ts': "import { c } from './c.ts'\n",
  }
  expect(importFaults(await cruised(texts))).toEqual([
    'src/locks/a.ts → src/locks/b.ts → src/locks/a.ts  no cycle of files; `import type` counts',
  ])
})

describe('import graph', () => {
  const sources = {
    'src/index.ts': "export { Lockstep } from './lockstep.ts'\n",
    'src/lockstep.ts': "import { lock } from './rows/index.ts'\nimport { id } from './locks/index.ts'\n",
    'src/rows/index.ts': "import { id } from '../locks/index.ts'\n",
    'src/locks/index.ts': "import type { Code } from '../errors.ts'\n",
    'src/errors.ts': '',
  }
  const marks = ['<!-- import graph: begin, drawn by `npm run graph` -->', '<!-- import graph: end -->'] as const
  const graph = [
    '```mermaid',
    'flowchart TD',
    '  locks["locks"]',
    '  lockstep["lockstep.ts, index.ts"]',
    '  rows["rows"]',
    '  shared["errors.ts, checkOptions.ts"]',
    '  locks -.-> shared',
    '  lockstep --> rows',
    '  rows --> locks',
    '```',
  ]
  const page = ['before', '', marks[0], '', ...graph, '', marks[1], '', 'after', ''].join('\n')

  test('shows the modules without the arrows that follow from others', async () => {
    const empty = ['before', '', ...marks, '', 'after', ''].join('\n')
    expect(drawnInto(empty, await cruised(sources))).toBe(page)
  })

  test('is accepted only while it shows the imports as they are', async () => {
    expect(graphFaults(page, await cruised(sources))).toEqual([])
    const more = { ...sources, 'src/leases/index.ts': "import { id } from '../locks/index.ts'\n" }
    expect(graphFaults(page, await cruised(more))).toEqual([
      'ARCHITECTURE.md shows an old import graph: run `npm run graph`',
    ])
    expect(graphFaults('# Architecture\n', await cruised(sources))).toEqual([
      'ARCHITECTURE.md has no marks for the import graph',
    ])
  })
})
