import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { describeMachine, printReport, verdictOf } from '../../tools/judge/report.ts'
import { newSeed } from '../seed.ts'
import { LEAKS, type Leak } from '../workload/workload.ts'
import { soak } from './soak.ts'

const USAGE = `npm run soak -- [--minutes N] [--record FILE] [--leak ${LEAKS.join(' | ')}] [--seed N] [--json]

  All modules at a steady rate, with killed sessions, killed processes and restarts of the server. No resource can grow after the first quarter.

  --minutes N    how long; default 60. Below 30 the warm-up is too short for some of what is judged
  --record FILE  writes what was measured as JSON
  --leak LEAK    plants a leak: the run has to find it, and ends with 1
  --seed N       what is left to chance is drawn from it
  --json         one JSON object on the last line
`

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      minutes: { type: 'string' },
      record: { type: 'string' },
      leak: { type: 'string' },
      seed: { type: 'string' },
      json: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  const minutes = Number(values.minutes ?? 60)
  const seed = values.seed === undefined ? newSeed() : Number(values.seed)
  const isKnownLeak = values.leak === undefined || (LEAKS as readonly string[]).includes(values.leak)
  if (values.help === true || positionals.length > 0 || !(minutes > 0) || !Number.isSafeInteger(seed) || !isKnownLeak) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const date = new Date().toISOString()
  const leak = values.leak === undefined ? {} : { leak: values.leak as Leak }
  const { samples, faults, failed, largestTables, results, goals } = await soak({ minutes, seed, ...leak }, progress)
  endProgress()
  const report = { name: `soak of ${minutes} minutes, seed ${seed}`, machine: describeMachine(), results, goals }
  if (values.record !== undefined) {
    const record = {
      date,
      minutes,
      seed,
      ...leak,
      verdict: verdictOf(goals),
      ...report,
      faults,
      failed,
      largestTables,
      samples,
    }
    mkdirSync(dirname(values.record), { recursive: true })
    writeFileSync(values.record, `${JSON.stringify(record, undefined, 1)}\n`)
  }
  return printReport(report, values.json === true)
}

process.exitCode = await main()
