import { parseArgs } from 'node:util'
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { describeMachine, printReport } from '../../tools/judge/report.ts'
import { attacks } from './index.ts'

const USAGE = `npm run attack -- NAME [--small] [--json]

${Object.values(attacks)
  .map((attack) => `  ${attack.name.padEnd(12)} ${attack.about}`)
  .join('\n')}

  --small      the size that npm cit runs
  --json       one JSON object on the last line
`

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { small: { type: 'boolean' }, json: { type: 'boolean' }, help: { type: 'boolean' } },
  })
  const [name = ''] = positionals
  const attack = attacks[name]
  if (values.help === true || attack === undefined || positionals.length !== 1) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const findings = await attack.run(values.small === true ? 'small' : 'full', progress)
  endProgress()
  return printReport({ name: `attack ${name}`, machine: describeMachine(), ...findings }, values.json === true)
}

process.exitCode = await main()
