import { parseArgs } from 'node:util'
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { describeMachine, printReport } from '../../tools/judge/report.ts'
import { newSeed, random } from '../seed.ts'
import { attacks } from './index.ts'

const USAGE = `npm run attack -- NAME [--small] [--part PART] [--against URL] [--seed N] [--json]

${Object.values(attacks)
  .map((attack) => `  ${attack.name.padEnd(12)} ${attack.about}`)
  .join('\n')}

  --small      a scaled-down run, as in npm cit
  --part PART  one part of an attack that has several: ${Object.values(attacks)
    .filter(({ parts }) => parts !== undefined)
    .map(({ name, parts }) => `${name} (${parts?.join(', ')})`)
    .join('; ')}
  --against URL  the server that an attack needs: ${Object.values(attacks)
    .filter(({ needsUrl }) => needsUrl === true)
    .map(({ name }) => name)
    .join(', ')}. It creates tables there, and drops them
  --seed N     what is left to chance is drawn from it; the name of the report has it
  --json       one JSON object on the last line
`

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      small: { type: 'boolean' },
      part: { type: 'string' },
      against: { type: 'string' },
      seed: { type: 'string' },
      json: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  const [name = ''] = positionals
  const attack = attacks[name]
  const seed = values.seed === undefined ? newSeed() : Number(values.seed)
  const knowsPart = values.part === undefined || attack?.parts?.includes(values.part) === true
  if (
    values.help === true ||
    attack === undefined ||
    positionals.length !== 1 ||
    !knowsPart ||
    (values.against !== undefined && attack.needsUrl !== true) ||
    !Number.isSafeInteger(seed)
  ) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const size = values.small === true ? 'small' : 'full'
  const findings = await attack.run(size, progress, random(seed, name), values.part, values.against)
  endProgress()
  return printReport(
    { name: `attack ${name}, seed ${seed}`, machine: describeMachine(), ...findings },
    values.json === true,
  )
}

process.exitCode = await main()
