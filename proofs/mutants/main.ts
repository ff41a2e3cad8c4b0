import { basename } from 'node:path'
import { parseArgs } from 'node:util'
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { describeMachine, goal, printReport, type ResultRow } from '../../tools/judge/report.ts'
import { makeBrokenCopy, removeCopy } from './brokenCopy.ts'
import { tryToCatch, type Verdict } from './catching.ts'
import { endCommands } from './command.ts'
import { LEAST_MUTANTS, mutants } from './index.ts'
import { type CatchingLab, type Mutant, PatchDoesNotFitError } from './mutant.ts'

/** Mutants that show in the outbox of the race lab. */
const TRACED: readonly string[] = ['window-without-horizon', 'open-writers-forgotten', 'stream-not-parked']
const BY_TRACE: CatchingLab = { by: 'lab', scenario: 'outbox', invariant: 'model, ', trace: true }

const USAGE = `npm run prove:mutants -- [NAME…] [--json] [--intact] [--trace]

Breaks our own protocols one by one, in a copy, and shows what finds each of them out.

${mutants.map(({ name, why }) => `  ${name.padEnd(32)} ${why}`).join('\n')}

  --trace      mutants of the outbox, which the model of a trace (prove --trace) has to reject: ${TRACED.join(', ')}
  --intact     the same commands with nothing broken: none of them may find anything
  --json       one JSON object on the last line
`

/** What is found by chance is looked for so often before it counts as not found. */
const TRIES = 3
/** Of what a checker says, as much stands in the table. */
const LONGEST = 100

interface Tried {
  readonly mutant: Mutant
  readonly verdict: Verdict
  readonly seconds: number
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: 'boolean' },
      intact: { type: 'boolean' },
      trace: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  const wanted = positionals.map((name) => mutants.find((mutant) => mutant.name === name))
  if (values.help === true || wanted.includes(undefined)) {
    process.stderr.write(USAGE)
    return values.help === true ? 0 : 2
  }
  const traced = values.trace === true
  const named =
    positionals.length > 0
      ? (wanted as Mutant[])
      : traced
        ? mutants.filter(({ name }) => TRACED.includes(name))
        : mutants
  const chosen = traced ? named.map((mutant): Mutant => ({ ...mutant, caughtBy: BY_TRACE })) : named
  const intact = values.intact === true
  const json = values.json === true
  const tried: Tried[] = []
  for (const mutant of chosen) {
    const told =
      tried.length === 0 ? '' : `, ${tried.filter(({ verdict }) => verdict.caught !== undefined).length} caught`
    progress(`mutants: ${tried.length + 1} of ${chosen.length}${told}; ${mutant.name}, by ${nameOf(mutant)}`)
    tried.push(await tryOne(mutant, intact))
  }
  endProgress()
  const survivors = tried.filter(({ verdict }) => verdict.caught === undefined)
  const goals = intact
    ? [goal('found where nothing is broken', tried.length - survivors.length, '=', 0)]
    : [
        ...(positionals.length === 0 && !traced ? [goal('mutants', tried.length, '>=', LEAST_MUTANTS)] : []),
        goal('mutants that were not found out', survivors.length, '=', 0),
      ]
  const name = intact ? 'nothing broken' : 'mutants'
  return printReport(
    { name, machine: describeMachine(), results: tried.map((each) => rowOf(each, intact, json)), goals },
    json,
  )
}

async function tryOne(mutant: Mutant, intact: boolean): Promise<Tried> {
  const startedAt = performance.now()
  const tries = intact ? 1 : TRIES
  const folder = await makeBrokenCopy(intact ? undefined : mutant)
  copies.add(folder)
  try {
    let verdict = await tryToCatch(folder, mutant.caughtBy, 1)
    for (let attempt = 2; verdict.caught === undefined && attempt <= tries; attempt++) {
      verdict = await tryToCatch(folder, mutant.caughtBy, attempt)
    }
    return { mutant, verdict, seconds: (performance.now() - startedAt) / 1000 }
  } finally {
    await removeCopy(folder)
    copies.delete(folder)
  }
}

function rowOf({ mutant, verdict, seconds }: Tried, intact: boolean, whole: boolean): ResultRow {
  const { caught, failure } = verdict
  const nothing = `${intact ? 'nothing' : 'SURVIVED'}${failure === undefined ? '' : ` (${failure})`}`
  const said = caught ?? nothing
  return {
    mutant: mutant.name,
    'what is broken': intact ? 'nothing' : mutant.why,
    'caught by': `${nameOf(mutant)}: ${whole || said.length <= LONGEST ? said : `${said.slice(0, LONGEST)}…`}`,
    seconds: Number(seconds.toFixed(1)),
  }
}

function nameOf({ caughtBy }: Mutant): string {
  if (caughtBy.by === 'attack') return `attack ${caughtBy.attack}`
  if (caughtBy.by === 'test') return `test in ${basename(caughtBy.file)}, ${caughtBy.test}`
  const { scenario, fault } = caughtBy
  return `lab, ${scenario}${fault === undefined ? '' : fault === 'none' ? ' without faults' : ` with ${fault}`}`
}

const copies = new Set<string>()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => {
    endCommands()
    void Promise.all([...copies].map(removeCopy)).finally(() => process.exit(130))
  })
}

try {
  process.exitCode = await main()
} catch (error) {
  endProgress()
  if (!(error instanceof PatchDoesNotFitError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 1
}
