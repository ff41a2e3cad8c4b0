import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { command, type CommandResult } from '../check/command.ts'
import { matrixDirectory, type Pinned } from './versions.ts'

export interface Cell {
  readonly postgres: Pinned
  readonly node: Pinned
}

export interface CellResult {
  readonly postgres: string
  readonly node: string
  readonly passed: boolean
  readonly tests: number
  readonly skipped: number
  readonly seconds: number
  /** Why it failed, with what the program said. */
  readonly reason?: string
}

const root = join(matrixDirectory, '..', '..')
const probeTimeoutMs = 2 * 60_000
const suiteTimeoutMs = 20 * 60_000

/** One cell: the tests of these modules, or all, on this Node against this PostgreSQL, after both have said who they are. */
export async function runCell(cell: Cell, modules: readonly string[]): Promise<CellResult> {
  const startedAt = performance.now()
  const outcome = (await probe(cell)) ?? (await suite(cell, modules))
  return {
    postgres: cell.postgres.version,
    node: cell.node.version,
    seconds: Math.round((performance.now() - startedAt) / 1000),
    ...outcome,
  }
}

type Outcome = Pick<CellResult, 'passed' | 'tests' | 'skipped' | 'reason'>

function failure(reason: string, output = '', tests = 0, skipped = 0): Outcome {
  return { passed: false, tests, skipped, reason: `${reason}\n${output.trimEnd()}`.trimEnd() }
}

async function probe(cell: Cell): Promise<Outcome | undefined> {
  const args = ['--import', 'tsx', join(matrixDirectory, 'probe.ts')]
  const result = await runNode(cell, args, probeTimeoutMs)
  if (result.code !== 0) return failure(`the probe ended with ${result.code}`, result.output)
  const seen = JSON.parse(result.stdout.trim().split('\n').at(-1) ?? '{}') as Readonly<Record<string, string>>
  const wanted = { node: cell.node.version, nodeOnPath: cell.node.version, postgres: cell.postgres.version }
  const wrong = Object.entries(wanted).filter(([name, version]) => seen[name] !== version)
  if (wrong.length === 0) return undefined
  return failure(wrong.map(([name, version]) => `${name} is ${seen[name]}, not ${version}`).join('; '))
}

async function suite(cell: Cell, modules: readonly string[]): Promise<Outcome> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-matrix-'))
  const report = join(directory, 'report.json')
  try {
    const vitest = join('node_modules', 'vitest', 'vitest.mjs')
    const args = [vitest, 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...modules]
    const result = await runNode(cell, args, suiteTimeoutMs)
    if (!existsSync(report)) return failure(`vitest ended with ${result.code}`, result.output)
    const counts = JSON.parse(await readFile(report, 'utf8')) as Report
    const skipped = counts.numPendingTests + counts.numTodoTests
    if (result.code !== 0)
      return failure(`vitest ended with ${result.code}`, result.output, counts.numPassedTests, skipped)
    // An empty suite is green for vitest in some configurations; here it proves nothing.
    if (counts.numPassedTests === 0) return failure('no test was run', result.output)
    return { passed: true, tests: counts.numPassedTests, skipped }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

interface Report {
  readonly numPassedTests: number
  readonly numPendingTests: number
  readonly numTodoTests: number
}

function runNode({ node, postgres }: Cell, args: readonly string[], timeoutMs: number): Promise<CommandResult> {
  const program = join(matrixDirectory, 'node_modules', node.alias, 'bin', 'node')
  const env: NodeJS.ProcessEnv = {
    // npm sets which Node runs it; that one is not this cell's.
    NODE: undefined,
    NODE_OPTIONS: undefined,
    npm_node_execpath: undefined,
    LOCKSTEP_PG_BINARIES: join(matrixDirectory, 'node_modules', postgres.alias),
    LOCKSTEP_BUILT: '1',
    PATH: [dirname(program), process.env['PATH'] ?? ''].join(delimiter),
  }
  return command(program, args, { cwd: root, env, timeoutMs })
}
