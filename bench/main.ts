import { parseArgs } from 'node:util'
import { describeMachine, formatTable, printReport } from '../tools/judge/report.ts'
import { against } from './against.ts'
import type { Bench, RunSize } from './bench.ts'
import { benches } from './benches.ts'
import { limitRows } from './harness/limits.ts'
import { machineFacts } from './harness/machine.ts'
import { ProgressBar } from './harness/progressBar.ts'
import { publish } from './harness/publish.ts'
import { type BenchRecord, keepRecord, readRecord } from './harness/record.ts'
import { publicHarness } from './public-harness/publicHarness.ts'

const USAGE = `npm run bench -- [NAME … | against COMMIT | public-harness --checkout DIR] [--quick | --smoke] [--publish] [--json] [--verbose]

${Object.values(benches)
  .map((bench) => `  ${bench.name.padEnd(14)} ${bench.about}`)
  .join('\n')}

  ${'against COMMIT'.padEnd(14)} this checkout and the library of that commit in turns: the rows of locks, enqueue and drain
  public-harness the scenarios of github.com/hardbyte/postgresql-job-queue-benchmarking, from the checkout in DIR: see bench/public-harness

  Without a name: all of them, more than an hour.

  --publish      of a full run: keeps it in bench/results, draws it in docs/pictures, and fills it into docs/guides/benchmarks.md

  --quick        ends within 60 s each: for a look, with few rounds, whose ratios move more
  --smoke        only shows that it works; goals are printed and not judged
  --keep FILE    of cost alone: writes the costs for \`pg-lockstep capacity --costs FILE\`
  --json         one JSON object on the last line
  --systems      of public-harness: some of lockstep,pgque,pgboss
  --cells        of public-harness: some of rate,chaos,pressure
  --verbose      prints what it is compared with, and how that is set
`

/** What `public-harness` takes. */
interface HarnessOptions {
  readonly checkout?: string | undefined
  readonly systems?: string | undefined
  readonly cells?: string | undefined
}

/** Undefined where a name is unknown. */
function chosenBy(names: readonly string[], harness: HarnessOptions): readonly Bench[] | undefined {
  const [first, revision] = names
  const { checkout, systems, cells } = harness
  if (first === 'public-harness' && names.length === 1 && checkout !== undefined) {
    return [publicHarness(checkout, { systems: systems?.split(','), kinds: cells?.split(',') })]
  }
  if ([checkout, systems, cells].some((each) => each !== undefined)) return undefined
  if (first === 'against') return revision === undefined || names.length > 2 ? undefined : [against(revision)]
  const chosen = (names.length === 0 ? Object.keys(benches) : names).map((name) => benches[name])
  return chosen.every((bench) => bench !== undefined) ? chosen : undefined
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: 'boolean' },
      smoke: { type: 'boolean' },
      json: { type: 'boolean' },
      keep: { type: 'string' },
      publish: { type: 'boolean' },
      verbose: { type: 'boolean' },
      checkout: { type: 'string' },
      systems: { type: 'string' },
      cells: { type: 'string' },
      help: { type: 'boolean' },
    },
  })
  const chosen = chosenBy(positionals, values)
  const keeps = chosen?.length === 1 && chosen[0]?.keep !== undefined
  const publishes = values.publish === true
  const unknown = positionals.some((name) => benches[name] === undefined)
  const full = values.quick !== true && values.smoke !== true
  if (
    values.help === true ||
    chosen === undefined ||
    (values.keep !== undefined && !keeps) ||
    (publishes && (unknown || !full))
  ) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const thoroughness: RunSize = values.smoke === true ? 'smoke' : values.quick === true ? 'quick' : 'full'
  const machine = machineFacts()
  const date = new Date().toISOString()
  const bar = new ProgressBar(chosen.length)
  const records: BenchRecord[] = []
  let held = true
  for (const bench of chosen) {
    if (values.verbose === true) {
      for (const [baseline, source] of Object.entries(bench.baselines))
        process.stderr.write(`-- ${baseline}\n${source}\n\n`)
    }
    const startedAt = performance.now()
    const tell = (text: string, share?: number): void => bar.tell(text, share)
    const measured =
      values.keep !== undefined && bench.keep !== undefined
        ? await bench.keep(thoroughness, tell, values.keep)
        : await bench.run(thoroughness, tell)
    bar.next()
    records.push({ name: bench.name, seconds: (performance.now() - startedAt) / 1000, ...measured })
    held &&= measured.goals.every((each) => each.holds)
    // With --json the object of a single bench or of the whole run comes last.
    if (values.json !== true)
      printReport({ name: `bench ${bench.name}`, machine: describeMachine(), ...measured }, false)
  }
  const limits = limitRows(records)
  if (values.json !== true && limits.length > 0)
    process.stdout.write(`\nGoals beside their limits\n\n${formatTable(limits)}\n`)
  const record = { date, thoroughness, machine, benches: records }
  if (values.json === true) {
    const [only] = records
    const one = only === undefined ? undefined : { ...only, name: `bench ${only.name}`, machine: machine.text }
    process.stdout.write(`${JSON.stringify(records.length === 1 ? one : record)}\n`)
  }
  if (publishes) {
    const kept = keepRecord(record)
    for (const path of [kept, ...publish(record, { ofTheDay: readRecord(kept) })])
      process.stderr.write(`wrote ${path}\n`)
  }
  if (thoroughness === 'smoke')
    process.stderr.write('A smoke run is too short to judge by: what is said of goals means nothing.\n')
  return held || thoroughness === 'smoke' ? 0 : 1
}

process.exitCode = await main()
