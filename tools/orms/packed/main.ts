/**
 * `npm run orms`: installs each ORM from the registry into an empty project with the packed package, and runs the program of its guide.
 *
 *     npm run orms                 all of them, 400 MB one after the other
 *     npm run orms -- prisma knex  these
 */
import { isDeepStrictEqual } from 'node:util'
import { pack } from '../../check/tarball.ts'
import { describeMachine, goal, type Goal, printReport, type ResultRow } from '../../judge/report.ts'
import { startPostgres } from '../../server/postgres.ts'
import { emptyProject, EXPECTED, PACKAGES, tryOrm } from './tryOrm.ts'

const named = process.argv.slice(2)
const { path } = await pack()
await using server = await startPostgres()
await using empty = await emptyProject(path)
const results: ResultRow[] = []
const goals: Goal[] = [goal('packages that come with Lockstep', empty.installed.length - 1, '=', 0)]
for (const name of Object.keys(PACKAGES)) {
  if (named.length > 0 && !named.includes(name)) continue
  const startedAt = performance.now()
  const answer = await tryOrm(name, empty, 'installed', server.url()).catch((error: unknown) => String(error))
  const works = isDeepStrictEqual(answer, EXPECTED)
  if (!works) process.stderr.write(`${name}: ${JSON.stringify(answer)}\n`)
  const seconds = Number(((performance.now() - startedAt) / 1000).toFixed(1))
  results.push({ orm: name, seconds, works: works ? 'yes' : 'no' })
  goals.push(goal(`${name}: faults`, works ? 0 : 1, '=', 0))
}
process.exitCode = printReport({ name: 'orms', machine: describeMachine(), results, goals }, false)
