/**
 * `npm run matrix`: the suite on every supported PostgreSQL and every supported Node. Beside the library's own tests, those of the
 * examples and of the servers they run on; with `--whole` also the attacks, the race lab and the benches, which take as long again.
 *
 *     npm run matrix                               all fifteen cells
 *     npm run matrix -- --whole                    the same with everything
 *     npm run matrix -- --pg 14,18 --node 20       some of them
 *     npm run matrix -- --runtime bun,deno         Bun and Deno, on the newest PostgreSQL: drivers, leases, outbox
 *     npm run --silent matrix -- --markdown        the table of docs/reference/guarantees.md (or --json)
 *
 * Progress goes to stderr, the table to stdout. The exit code is 1 when a cell failed.
 */
import { execFileSync } from 'node:child_process'
import { parseArgs } from 'node:util'
import { SERVER_15 } from '../server/postgres15.ts'
import { type CellResult, runCell } from './cell.ts'
import { ensureAlone, ensureInstalled } from './install.ts'
import { cellText, markdownTable, plainTable } from './table.ts'
import { pinned, type Pinned, type Runtime, RUNTIMES, titleOf } from './versions.ts'

const { values } = parseArgs({
  options: {
    pg: { type: 'string' },
    node: { type: 'string' },
    runtime: { type: 'string' },
    json: { type: 'boolean', default: false },
    markdown: { type: 'boolean', default: false },
    whole: { type: 'boolean', default: false },
  },
})

/** As vitest names files. */
const FOLDERS = ['src/', 'examples/', 'tools/server/']

/** For Bun and Deno: what depends on the runtime. */
const OF_OTHER_RUNTIMES = ['src/postgres/', 'src/leases/', 'src/outbox/']

function runtimeNamed(text: string): Runtime {
  const found = RUNTIMES.find((each) => each === text)
  if (found === undefined) throw new Error(`--runtime ${text}: there are ${RUNTIMES.join(', ')}`)
  return found
}

function newest(kind: 'pg'): string {
  return String(Math.max(...pinned(kind).map(({ major }) => major)))
}

function chosen(kind: Runtime | 'pg', list: string | undefined): Pinned[] {
  const all = pinned(kind)
  if (list === undefined) return all
  return list.split(',').map((text) => {
    const found = all.find(({ major }) => String(major) === text.trim())
    if (found === undefined) throw new Error(`--${kind} ${text}: there are ${all.map(({ major }) => major).join(', ')}`)
    return found
  })
}

/** What tests of dumps run on, whatever the cell's own server is. */
const forDumps = pinned('pg').filter(({ alias }) => alias === SERVER_15)

function print(results: readonly CellResult[]): void {
  if (values.json) console.log(JSON.stringify(results, undefined, 2))
  else console.log(values.markdown ? markdownTable(results) : plainTable(results))
}

try {
  const others = values.runtime?.split(',').map((text) => runtimeNamed(text.trim()))
  const servers = chosen('pg', values.pg ?? (others === undefined ? undefined : newest('pg')))
  const runtimes = others === undefined ? chosen('node', values.node) : others.flatMap((each) => pinned(each))
  const modules = values.whole ? [] : [...(others === undefined ? FOLDERS : OF_OTHER_RUNTIMES), 'tools/matrix/runtime']
  if (others === undefined) ensureInstalled([...servers, ...runtimes])
  else for (const each of [...servers, ...runtimes, ...forDumps]) ensureAlone(each)
  // Once for all cells: their processes begin with it.
  for (const script of ['build', 'build:processes'])
    execFileSync('npm', ['run', '--silent', script], { stdio: 'inherit' })
  const cells = servers.flatMap((postgres) => runtimes.map((runtime) => ({ postgres, runtime })))
  const results: CellResult[] = []
  // One after another: the suite races against itself on purpose and must not race against another cell for the cores.
  for (const [index, cell] of cells.entries()) {
    const title = `[${index + 1}/${cells.length}] ${titleOf(cell.postgres)}, ${titleOf(cell.runtime)}`
    console.error(`${title} …`)
    const result = await runCell(cell, modules)
    results.push(result)
    console.error(`${title}: ${cellText(result)}`)
    if (result.reason !== undefined) console.error(result.reason.replaceAll(/^(?=.)/gm, '    '))
  }
  print(results)
  process.exitCode = results.every(({ passed }) => passed) ? 0 : 1
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error))
  process.exitCode = 2
}
