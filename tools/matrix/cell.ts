import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { command, type CommandResult } from '../check/command.ts'
import { matrixDirectory, type Pinned, type Runtime, titleOf } from './versions.ts'

export interface Cell {
  readonly postgres: Pinned
  /** Node, Bun or Deno. */
  readonly runtime: Pinned
}

export interface CellResult {
  readonly postgres: string
  /** Its name and version. */
  readonly runtime: string
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

/** One cell: the tests of these modules, or all, on this runtime against this PostgreSQL, after both have said who they are. */
export async function runCell(cell: Cell, modules: readonly string[]): Promise<CellResult> {
  const startedAt = performance.now()
  const outcome = (await probe(cell)) ?? (await suite(cell, modules))
  return {
    postgres: cell.postgres.version,
    runtime: titleOf(cell.runtime),
    seconds: Math.round((performance.now() - startedAt) / 1000),
    ...outcome,
  }
}

type Outcome = Pick<CellResult, 'passed' | 'tests' | 'skipped' | 'reason'>

function failure(reason: string, output = '', tests = 0, skipped = 0): Outcome {
  return { passed: false, tests, skipped, reason: `${reason}\n${output.trimEnd()}`.trimEnd() }
}

async function probe(cell: Cell): Promise<Outcome | undefined> {
  const result = await run(cell, COMMANDS[kindOf(cell)].typescript(join(matrixDirectory, 'probe.ts')), probeTimeoutMs)
  if (result.code !== 0) return failure(`the probe ended with ${result.code}`, result.output)
  const seen = JSON.parse(result.stdout.trim().split('\n').at(-1) ?? '{}') as Readonly<Record<string, string>>
  const kind = kindOf(cell)
  const { version } = cell.runtime
  const wanted = {
    runtime: `${kind} ${version}`,
    postgres: cell.postgres.version,
    ...(kind === 'node' && { nodeOnPath: version }),
  }
  const wrong = Object.entries(wanted).filter(([name, right]) => seen[name] !== right)
  if (wrong.length === 0) return undefined
  return failure(wrong.map(([name, right]) => `${name} is ${seen[name]}, not ${right}`).join('; '))
}

async function suite(cell: Cell, modules: readonly string[]): Promise<Outcome> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-matrix-'))
  const report = join(directory, 'report.json')
  try {
    const vitest = join('node_modules', 'vitest', 'vitest.mjs')
    const args = ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...modules]
    const result = await run(cell, COMMANDS[kindOf(cell)].program([vitest, ...args]), suiteTimeoutMs)
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

/** How each runtime is called. */
interface Commands {
  /** The binary in its package. */
  readonly binary: string
  readonly typescript: (file: string) => readonly string[]
  readonly program: (args: readonly string[]) => readonly string[]
}

const COMMANDS: Readonly<Record<Runtime, Commands>> = {
  node: {
    binary: join('bin', 'node'),
    typescript: (file) => ['--import', 'tsx', file],
    program: (args) => args,
  },
  // Without --bun it starts Node for programs that ask for it in their first line.
  bun: { binary: join('bin', 'bun'), typescript: (file) => [file], program: (args) => ['--bun', ...args] },
  deno: {
    binary: 'deno',
    typescript: (file) => ['run', '--allow-all', file],
    program: (args) => ['run', '--allow-all', ...args],
  },
}

function kindOf({ runtime }: Cell): Runtime {
  return runtime.kind as Runtime
}

function run(cell: Cell, args: readonly string[], timeoutMs: number): Promise<CommandResult> {
  const { postgres, runtime } = cell
  const kind = kindOf(cell)
  const program = join(matrixDirectory, 'node_modules', runtime.alias, COMMANDS[kind].binary)
  const env: NodeJS.ProcessEnv = {
    // npm sets which Node runs it; that one is not this cell's.
    NODE: undefined,
    NODE_OPTIONS: undefined,
    npm_node_execpath: undefined,
    LOCKSTEP_PG_BINARIES: join(matrixDirectory, 'node_modules', postgres.alias),
    LOCKSTEP_BUILT: '1',
    // A test compares it with what it runs on.
    LOCKSTEP_RUNTIME: `${kind} ${runtime.version}`,
    PATH: [dirname(program), process.env['PATH'] ?? ''].join(delimiter),
  }
  return command(program, args, { cwd: root, env, timeoutMs })
}
