/**
 * `npm run bundles`: bundles a program with every bundler, from the packed package, and runs what was made. With Next.js also the suite of
 * the HTTP handlers, on the built server, and hot reloads of the example in development.
 *
 *     npm run bundles                      all of them; installs Next.js and Bun in tools/bundles first, 450 MB
 *     npm run bundles -- next webpack      those whose name has one of these words
 */
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { COMPILERS } from '../apps/nextApp.ts'
import { command } from '../check/command.ts'
import { root } from '../check/repository.ts'
import { pack } from '../check/tarball.ts'
import { areInstalled, install } from '../dependencies.ts'
import { goal, type Goal, printReport, describeMachine, type ResultRow } from '../judge/report.ts'
import { startPostgres } from '../server/postgres.ts'
import { type Bundler, bundlers } from './bundlers.ts'
import { bundlesFolder, makeProject, type Project } from './project.ts'
import { EXPECTED, tryBundler } from './tryBundler.ts'

const words = process.argv.slice(2).map((word) => word.toLowerCase())
const chosen = bundlers.filter(
  ({ name }) => words.length === 0 || words.some((word) => name.toLowerCase().includes(word)),
)
if (chosen.some(({ large }) => large) && !areInstalled(bundlesFolder)) {
  process.stderr.write('installing Next.js and Bun\n')
  install(bundlesFolder)
}

async function faultOf(bundler: Bundler, project: Project, databaseUrl: string): Promise<string | undefined> {
  try {
    const { work, version, page, script } = await tryBundler(bundler, project, databaseUrl)
    if (!isDeepStrictEqual({ work, version }, EXPECTED)) return `it answered ${JSON.stringify({ work, version })}`
    return page.includes('<!doctype html>') && script.length > 10_000
      ? undefined
      : 'the page of the console is not whole'
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

const { path } = await pack()
await using server = await startPostgres()
await using project = await makeProject(path)
const results: ResultRow[] = []
const goals: Goal[] = []
for (const bundler of chosen) {
  const startedAt = performance.now()
  const fault = await faultOf(bundler, project, server.url())
  if (fault !== undefined) process.stderr.write(`${bundler.name}: ${fault}\n`)
  const seconds = Number(((performance.now() - startedAt) / 1000).toFixed(1))
  results.push({ bundler: bundler.name, seconds, works: fault === undefined ? 'yes' : 'no' })
  goals.push(goal(`${bundler.name}: faults`, fault === undefined ? 0 : 1, '=', 0))
}
for (const compiler of COMPILERS.filter((each) => chosen.some(({ name }) => name.toLowerCase().endsWith(each)))) {
  const name = `Next.js, ${compiler}: suite of the handlers, hot reloads`
  const startedAt = performance.now()
  const vitest = [
    join(root, 'node_modules', 'vitest', 'vitest.mjs'),
    'run',
    '--config',
    'tools/bundles/conformance/vitest.config.ts',
  ]
  const { code, output } = await command(process.execPath, vitest, { cwd: root, env: { LOCKSTEP_COMPILER: compiler } })
  if (code !== 0) process.stderr.write(`${name}\n${output}\n`)
  const seconds = Number(((performance.now() - startedAt) / 1000).toFixed(1))
  results.push({ bundler: name, seconds, works: code === 0 ? 'yes' : 'no' })
  goals.push(goal(`${name}: faults`, code === 0 ? 0 : 1, '=', 0))
}
process.exitCode = printReport({ name: 'bundles', machine: describeMachine(), results, goals }, false)
