import type { Call, Command, Outcome } from './command.ts'
import { codeOf } from '../postgres/index.ts'
import { DriverMissingError } from './driverMissingError.ts'
import { untilInterrupted } from './interrupt.ts'
import { UsageError } from './usageError.ts'

/** What this file uses of the race lab, which is no part of the library: it is loaded when it is asked for. */
interface RaceLab {
  readonly scenarioNames: readonly string[]
  readonly faultNames: readonly string[]
  missingForCluster(): string | undefined
  prove(wanted: {
    readonly scenarios: readonly string[]
    readonly faults: readonly string[]
    readonly forms: readonly string[]
    readonly seed: number
    readonly minutes: number
    readonly against: string | undefined
    readonly anyway: boolean
    readonly cluster: 'synchronous' | 'asynchronous' | undefined
    readonly report: string
    readonly picture: string | undefined
    readonly trace: string | undefined
    readonly signal: AbortSignal
  }): Promise<{
    readonly verdict: 'holds' | 'violated' | 'inconclusive'
    readonly exitCode: number
    readonly json: Readonly<Record<string, unknown>>
    text(): string
  }>
}

const FORMS = ['naive', 'lockstep']
const LARGEST_SEED = 2 ** 31
const MOST_MINUTES = 24 * 60

export const proveCommand: Command = {
  name: 'prove',
  summary: 'Run the race lab: common recipes break, Lockstep holds, on your machine',
  usage: '',
  details: `Runs ten scenarios, first with a common recipe and then with Lockstep, in several processes at once. Meanwhile it kills
and stops processes, cuts connections, ends sessions and crashes the server, on a seeded schedule. Checkers examine the
results. Exit code 0: the checkers caught every recipe, and Lockstep held. 1: Lockstep broke a guarantee. 3: inconclusive:
Lockstep held, but a recipe was not caught or too few faults struck. Such a run first continues, for up to three times
its minutes.
It creates the schema lockstep_prove, drops it at the end, and touches nothing else. It does not read DATABASE_URL: name
your server with --against. It refuses a server that looks like production. On your server it does not use the pooler, or
faults that would affect other users (a crash of the server, slow commits).
With --cluster it runs on three servers under Patroni behind HAProxy, on this machine, and replaces the primary in every
round. With --asynchronous it first delays the standbys: lost commits are counted, and Lockstep must notice them.
With --trace it records what the outbox read, sent, committed and owned, and replays that against the model of its
protocol. A step that the model does not allow fails the run.`,
  examples: [
    { line: 'pg-lockstep prove', does: 'run all scenarios, in three minutes' },
    { line: 'pg-lockstep prove --scenario wallet,outbox --minutes 1', does: 'run two scenarios' },
    { line: 'pg-lockstep prove --form lockstep --seed 7', does: 'run only Lockstep, and repeat a run' },
    { line: 'pg-lockstep prove --cluster --minutes 6', does: 'run on a cluster, with failovers' },
    {
      line: 'pg-lockstep prove --scenario outbox --form lockstep --trace outbox.jsonl',
      does: 'check the outbox against its model',
    },
  ],
  options: [
    'scenario',
    'fault',
    'form',
    'seed',
    'minutes',
    'against',
    'anyway',
    'cluster',
    'asynchronous',
    'report',
    'picture',
    'trace',
    'json',
  ],
  words: [],
  async run({ values }): Promise<Outcome> {
    const lab = await raceLab()
    const minutes = numberOf('minutes', values.minutes ?? '3', MOST_MINUTES)
    const seed =
      values.seed === undefined
        ? 1 + Math.floor(Math.random() * (LARGEST_SEED - 1))
        : numberOf('seed', values.seed, LARGEST_SEED)
    if (!Number.isInteger(seed)) throw new UsageError(`--seed is ${values.seed}.`, 'Use a whole number.')
    const wanted = {
      scenarios: chosen('scenario', values.scenario, lab.scenarioNames),
      faults: values.fault === 'none' ? [] : chosen('fault', values.fault, lab.faultNames),
      forms: chosen('form', values.form, FORMS),
      seed,
      minutes,
      against: values.against,
      anyway: values.anyway === 'true',
      cluster: replicationOf(lab, values),
      report: values.report ?? 'lockstep-prove.html',
      picture: values.picture,
      trace: traceOf(values),
    }
    const proved = await untilInterrupted((signal) => lab.prove({ ...wanted, signal }))
    const { verdict, exitCode, json } = proved
    return { exitCode, json: { ok: verdict === 'holds', command: 'prove', ...json }, text: () => proved.text() }
  },
}

/** The file of a trace. The model of a trace has one server and one history. */
function traceOf(values: Call['values']): string | undefined {
  const { trace, cluster, scenario, form } = values
  if (trace === undefined) return undefined
  if (cluster === 'true') throw new UsageError('--trace was given with --cluster.', 'Leave out one of them.')
  const names = scenario?.split(',').map((name) => name.trim())
  if ((names !== undefined && !names.includes('outbox')) || form === 'naive')
    throw new UsageError('--trace records the outbox, which this run leaves out.', 'Use it with --scenario outbox.')
  return trace
}

/** Of the cluster that is asked for; undefined for one server. */
function replicationOf(lab: RaceLab, values: Call['values']): 'synchronous' | 'asynchronous' | undefined {
  const asynchronous = values.asynchronous === 'true'
  if (values.cluster !== 'true') {
    if (asynchronous) throw new UsageError('--asynchronous was given without --cluster.', 'Add --cluster.')
    return undefined
  }
  if (values.against !== undefined)
    throw new UsageError('--cluster starts servers of its own.', 'Leave out --against, or --cluster.')
  const missing = lab.missingForCluster()
  if (missing === undefined) return asynchronous ? 'asynchronous' : 'synchronous'
  throw new UsageError(
    `--cluster needs ${missing}.`,
    'On Debian: apt-get install patroni python3-etcd etcd-server haproxy postgresql-15.',
  )
}

/** In the package it stands beside this folder, in the repository it is a folder of its own. */
async function raceLab(): Promise<RaceLab> {
  const place = import.meta.url.endsWith('.ts') ? '../../proofs/index.ts' : '../lab/proofs/index.js'
  try {
    return (await import(new URL(place, import.meta.url).href)) as RaceLab
  } catch (error) {
    // The recipes are written for it.
    if (codeOf(error) === 'ERR_MODULE_NOT_FOUND') throw new DriverMissingError(['pg'], process.cwd())
    throw error
  }
}

function chosen(option: string, given: string | undefined, all: readonly string[]): readonly string[] {
  if (given === undefined) return all
  const names = given.split(',').map((name) => name.trim())
  const strange = names.find((name) => !all.includes(name))
  if (strange === undefined) return all.filter((name) => names.includes(name))
  throw new UsageError(`--${option} is ${strange}.`, `There are ${all.join(', ')}.`)
}

function numberOf(option: string, given: string, most: number): number {
  const number = Number(given)
  if (given.trim() !== '' && number > 0 && number <= most) return number
  throw new UsageError(`--${option} is ${given}.`, `Use a number above 0, up to ${most}.`)
}
