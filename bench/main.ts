import { parseArgs } from 'node:util'
import { endProgress, progress } from '../tools/judge/progress.ts'
import { describeMachine, printReport } from '../tools/judge/report.ts'
import type { Bench, Thoroughness } from './bench.ts'
import { hotKey } from './hotKey.ts'
import { leases } from './leases.ts'
import { locks } from './locks.ts'
import { observe } from './observe.ts'
import { outbox } from './outbox.ts'
import { outboxLatency } from './outboxLatency.ts'
import { sinks } from './sinks.ts'

const benches: Readonly<Record<string, Bench>> = {
  locks,
  observe,
  'hot-key': hotKey,
  leases,
  outbox,
  'outbox-latency': outboxLatency,
  sinks,
}

const USAGE = `npm run bench -- NAME [--quick | --smoke] [--json] [--verbose]

${Object.values(benches)
  .map((bench) => `  ${bench.name.padEnd(14)} ${bench.about}`)
  .join('\n')}

  --quick        ends within 60 s
  --smoke        only shows that it works
  --json         one JSON object on the last line
  --verbose      prints the source of what it is compared with
`

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: 'boolean' },
      smoke: { type: 'boolean' },
      json: { type: 'boolean' },
      verbose: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  const [name = ''] = positionals
  const bench = benches[name]
  if (values.help === true || bench === undefined || positionals.length !== 1) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  if (values.verbose === true) {
    for (const [baseline, source] of Object.entries(bench.baselines))
      process.stderr.write(`-- ${baseline}\n${source}\n\n`)
  }
  const thoroughness: Thoroughness = values.smoke === true ? 'smoke' : values.quick === true ? 'quick' : 'full'
  const measured = await bench.run(thoroughness, progress)
  endProgress()
  return printReport({ name: `bench ${name}`, machine: describeMachine(), ...measured }, values.json === true)
}

process.exitCode = await main()
