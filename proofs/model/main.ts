import { parseArgs } from 'node:util'
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { describeMachine, goal, type Goal, printReport, type ResultRow } from '../../tools/judge/report.ts'
import { compareReplay } from './compareReplay.ts'
import { type Configuration, configurations } from './configurations.ts'
import { missingForModel, search } from './spin.ts'

const USAGE = `npm run model -- [NAME…] [--seeds N] [--json]

Visits every state of the models of the protocols, and checks that each mutant of a model is found. NAME is the beginning of a name:

${configurations.map(({ name, bounds }) => `  ${name.padEnd(20)} ${bounds}`).join('\n')}

  --seeds N    random runs of each outbox model that the rules for traces of prove have to accept (default 40)
  --json       one JSON object on the last line
`

const LIMITS = { withinMs: 30 * 60_000, memoryMb: 6000 }

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { seeds: { type: 'string' }, json: { type: 'boolean' }, help: { type: 'boolean' } },
  })
  const chosen = configurations.filter(
    ({ name }) => positionals.length === 0 || positionals.some((wanted) => name.startsWith(wanted)),
  )
  const seeds = Number(values.seeds ?? 40)
  if (values.help === true || chosen.length === 0 || !Number.isSafeInteger(seeds) || seeds < 0) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const missing = missingForModel()
  if (missing !== undefined) {
    process.stderr.write(`npm run model needs ${missing}. On Debian: apt-get install spin gcc.\n`)
    return 2
  }
  const results: ResultRow[] = []
  const goals: Goal[] = []
  for (const configuration of chosen) {
    const checked = await check(configuration, seeds)
    results.push(...checked.results)
    goals.push(...checked.goals)
  }
  endProgress()
  return printReport({ name: 'model', machine: describeMachine(), results, goals }, values.json === true)
}

async function check(configuration: Configuration, seeds: number): Promise<{ results: ResultRow[]; goals: Goal[] }> {
  const { name, model, bounds, defines, properties, mutants, replayed } = configuration
  const results: ResultRow[] = []
  const goals: Goal[] = []
  progress(`model: ${name}`)
  const whole = await search(model, defines, LIMITS)
  results.push({
    model: name,
    'what it is': bounds,
    expected: `${properties.join(', ')} hold`,
    found: whole.broken === undefined ? (whole.complete ? 'they hold' : 'NOT ALL STATES') : `BROKEN: ${whole.broken}`,
    states: whole.states,
    depth: whole.depth,
    seconds: Number(whole.seconds.toFixed(1)),
  })
  goals.push(goal(`${name}: properties that do not hold`, whole.broken === undefined ? 0 : 1, '=', 0))
  goals.push(
    goal(`${name}: searches that were not complete`, whole.complete || whole.broken !== undefined ? 0 : 1, '=', 0),
  )
  let missed = 0
  for (const mutant of mutants) {
    progress(`model: ${name}, ${mutant.name}`)
    const found = await search(model, { ...defines, ...mutant.defines, [mutant.name]: true }, LIMITS)
    if (found.broken !== mutant.breaks) missed++
    results.push({
      model: `  ${mutant.name}`,
      'what it is': mutant.why,
      expected: `${mutant.breaks} is broken`,
      found: found.broken === undefined ? 'SURVIVED' : `${found.broken} is broken`,
      states: found.states,
      depth: found.depth,
      seconds: Number(found.seconds.toFixed(1)),
    })
  }
  if (mutants.length > 0) goals.push(goal(`${name}: mutants that were not found`, missed, '=', 0))
  if (replayed === true) {
    progress(`model: ${name}, compared with the rules for traces`)
    goals.push(...(await compareReplay(configuration, seeds, LIMITS)))
  }
  return { results, goals }
}

process.exitCode = await main()
