/**
 * `npm run apps`: the example applications, built with the packed package, two processes each, raced with kills.
 *
 *     npm run apps                  NestJS, and Next.js with both bundlers; installs Next.js in tools/bundles first, 450 MB
 *     npm run apps -- nest          one of them: nest, turbopack, webpack
 *     npm run apps -- --kills 50    default 20
 *     npm run apps -- --seed 7      what the clients draw; the name of the report has it
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { newSeed } from '../../proofs/seed.ts'
import { installConsumer } from '../check/consumer.ts'
import { pack } from '../check/tarball.ts'
import { describeMachine, goal, type Goal, printReport, type ResultRow } from '../judge/report.ts'
import { startPostgres } from '../server/postgres.ts'
import type { App } from './appProcess.ts'
import { buildNestApp } from './nestApp.ts'
import { buildNextApp, COMPILERS } from './nextApp.ts'
import { race } from './race.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { kills: { type: 'string', default: '20' }, seed: { type: 'string' } },
})
const kills = Number(values.kills)
const seed = values.seed === undefined ? newSeed() : Number(values.seed)
if (!Number.isSafeInteger(seed)) throw new Error('--seed is a whole number')

interface Example {
  readonly name: string
  readonly build: (project: string, packageDirectory: string) => Promise<App>
}

const examples: readonly Example[] = [
  { name: 'nest', build: buildNestApp },
  ...COMPILERS.map((compiler) => ({
    name: `next ${compiler}`,
    build: (project: string, packageDirectory: string) =>
      buildNextApp(join(project, 'next'), packageDirectory, compiler),
  })),
]

const { path } = await pack()
await using server = await startPostgres()
const results: ResultRow[] = []
const goals: Goal[] = []
const chosen = examples.filter(
  ({ name }) => positionals.length === 0 || positionals.some((word) => name.includes(word)),
)
for (const { name, build } of chosen) {
  const project = await mkdtemp(join(tmpdir(), 'lockstep-app-'))
  try {
    const { faults, packageDirectory } = await installConsumer(project, path)
    if (faults.length > 0) throw new Error(faults.join('\n'))
    process.stderr.write(`${name}: building\n`)
    const app = await build(project, packageDirectory)
    process.stderr.write(`${name}: ${kills} kills\n`)
    const database = `app_${name.replace(' ', '_')}`
    const admin = new pg.Client({ connectionString: server.url() })
    await admin.connect()
    await admin.query(`CREATE DATABASE ${database}`)
    await admin.end()
    const url = server.url(database)
    const { violations, ...counted } = await race(app, url, { kills, requestsPerKill: 50, seed })
    for (const each of violations) process.stderr.write(`${name}: ${each}\n`)
    const { transfers, replays, steps, forms, refusals } = counted
    results.push({ application: name, kills, transfers, replays, steps, forms, refusals })
    goals.push(goal(`${name}: violations`, violations.length, '=', 0))
  } finally {
    await rm(project, { recursive: true, force: true })
  }
}
process.exitCode = printReport({ name: `apps, seed ${seed}`, machine: describeMachine(), results, goals }, false)
