import { readFile } from 'node:fs/promises'
import { type CapacityCosts, COST_NAMES } from './capacityCosts.ts'
import {
  BUSY_AT_MOST,
  type Capacity,
  capacityOf,
  CONNECTIONS_AT_MOST,
  LARGEST_SERVER_CORES,
  type Limit,
  type Load,
  type Resource,
  systemOf,
} from './capacityModel.ts'
import { type Simulated, simulate } from './capacitySimulation.ts'
import type { Call, Command, OptionName, Outcome } from './command.ts'
import { count, formatSize } from './formatting.ts'
import { table } from './table.ts'
import { UsageError } from './usageError.ts'

export const capacityCommand: Command = {
  name: 'capacity',
  summary: 'Estimate what a load needs of the database, and its first bottleneck. Needs no database',
  usage: '',
  details: `Multiplies measured costs of the outbox, leases and locked transactions by the load: database cores, WAL, disk,
connections and shards. Latency comes from a simulation of queues, with a fixed seed. The costs are those of one server:
\`npm run bench -- cost --keep FILE\`, in a checkout of the repository, measures and writes them.
It assumes that every process runs the dispatcher and that all keys are equally hot. It does not include your own statements.`,
  examples: [
    { line: 'pg-lockstep capacity --events-per-s 2000 --costs costs.json', does: '2,000 events per second' },
    {
      line: 'pg-lockstep capacity --events-per-s 20000 --keys 100000 --processes 40 --payload-bytes 1000 --cores 32 --costs costs.json',
      does: 'on a server with 32 cores',
    },
    {
      line: 'pg-lockstep capacity --leases-per-s 500 --transactions-per-s 3000 --costs costs.json --json',
      does: 'leases and transactions only',
    },
  ],
  options: [
    'events-per-s',
    'keys',
    'processes',
    'payload-bytes',
    'leases-per-s',
    'transactions-per-s',
    'sink-per-s',
    'cores',
    'costs',
    'json',
  ],
  words: [],
  async run({ values }): Promise<Outcome> {
    const load = loadOf(values)
    const costs = await readCosts(values.costs)
    const capacity = capacityOf(load, costs)
    const simulated = simulate(systemOf(load, capacity, costs))
    return {
      exitCode: 0,
      json: { ok: true, command: 'capacity', ...asJson(load, capacity, simulated, costs) },
      text: ({ columns }) => asText(load, capacity, simulated, costs, columns),
    }
  },
}

const MOST_PER_S = 1_000_000
const MOST_PROCESSES = 10_000
const MOST_KEYS = 1_000_000_000

function loadOf(values: Call['values']): Load {
  const number = (option: OptionName, byDefault: number, least: number, most: number): number =>
    values[option] === undefined ? byDefault : numberOf(option, values[option], least, most)
  const load = {
    eventsPerS: number('events-per-s', 0, 0, MOST_PER_S),
    keys: number('keys', 1000, 1, MOST_KEYS),
    processes: number('processes', 2, 1, MOST_PROCESSES),
    payloadBytes: number('payload-bytes', 250, 0, 100_000_000),
    leasesPerS: number('leases-per-s', 0, 0, MOST_PER_S),
    transactionsPerS: number('transactions-per-s', 0, 0, MOST_PER_S),
    sinkPerS: number('sink-per-s', 10_000, 1, MOST_PER_S),
    cores: values.cores === undefined ? undefined : numberOf('cores', values.cores, 1, 1024),
  }
  if (load.eventsPerS + load.leasesPerS + load.transactionsPerS > 0) return load
  throw new UsageError(
    'No load was given.',
    'Write --events-per-s N, --leases-per-s N or --transactions-per-s N; `pg-lockstep help capacity` has examples.',
  )
}

function numberOf(option: OptionName, text: string, least: number, most: number): number {
  const number = Number(text)
  if (/^\d{1,10}$/.test(text) && number >= least && number <= most) return number
  throw new UsageError(
    `--${option} cannot be ${JSON.stringify(text)}.`,
    `Use a whole number from ${least} to ${most}, without commas.`,
  )
}

async function readCosts(file: string | undefined): Promise<CapacityCosts> {
  if (file === undefined) {
    throw new UsageError(
      'No costs were given.',
      'Measure them with `npm run bench -- cost --keep costs.json` in a checkout of the repository, and add --costs costs.json.',
    )
  }
  let read: unknown
  try {
    read = JSON.parse(await readFile(file, 'utf8'))
  } catch (error) {
    throw new UsageError(
      `The costs cannot be read from ${file}: ${error instanceof Error ? error.message : String(error)}.`,
      'Use a file that `npm run bench -- cost --keep FILE` has written.',
    )
  }
  const missing = missingIn(read)
  if (missing === undefined) return read as CapacityCosts
  throw new UsageError(
    `${file} has no ${missing}.`,
    'Use a file that `npm run bench -- cost --keep FILE` has written, with this version.',
  )
}

/** The first cost of which there is nothing, or nothing sensible. */
function missingIn(read: unknown): string | undefined {
  for (const [name, wanted] of Object.entries(COST_NAMES)) {
    const found = (read as Record<string, unknown> | null)?.[name]
    if (typeof wanted !== 'string') {
      const missing = wanted.find((part) => !isCost((found as Record<string, unknown> | undefined)?.[part]))
      if (missing !== undefined) return `${name}.${missing}`
    } else if (wanted === 'text' ? typeof found !== 'string' : !isCost(found)) return name
  }
  return undefined
}

function isCost(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
}

function asJson(
  load: Load,
  capacity: Capacity,
  { commitMs, deliveryMs, overloaded }: Simulated,
  costs: CapacityCosts,
): Record<string, unknown> {
  const { bottleneck: first, limits, busyWith, ...figures } = capacity
  return {
    load: { ...load, cores: load.cores ?? null },
    ...roundAll(figures),
    busyWith: roundAll(busyWith),
    latency: {
      commitMs: roundAll(commitMs),
      deliveryMs: load.eventsPerS === 0 ? null : roundAll(deliveryMs),
      overloaded,
    },
    bottleneck: { ...limitAsJson(first), advice: adviceFor(first.resource, load, capacity) },
    limits: limits.map(limitAsJson),
    costs: { date: costs.date, machine: costs.machine, postgres: costs.postgres, command: costs.command },
  }
}

function limitAsJson({ resource, used, times }: Limit): Record<string, unknown> {
  return { resource, used: round(used), times: Number.isFinite(times) ? round(times) : null }
}

function roundAll(values: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]: [string, unknown]) => [
      name,
      typeof value === 'number' ? round(value) : value,
    ]),
  )
}

function round(value: number): number {
  return Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(3))
}

function asText(
  load: Load,
  capacity: Capacity,
  { commitMs, deliveryMs, overloaded }: Simulated,
  costs: CapacityCosts,
  columns: number,
): string {
  const { busyWith, bottleneck: first, limits } = capacity
  const ms = ({ p50, p99 }: { p50: number; p99: number }): string => `p50 ${round(p50)} ms, p99 ${round(p99)} ms`
  const needs: string[][] = [
    [
      'database CPU',
      `${cores(capacity.busyCores)} busy: ${round(busyWith.commits)} for commits, ${round(busyWith.delivery)} for delivery, ${round(busyWith.upkeep)} for the processes`,
    ],
    [
      'cores',
      `${capacity.databaseCores}${load.cores === undefined ? `, so that at most ${BUSY_AT_MOST * 100} % of them are busy` : ', as given'}`,
    ],
    ['WAL', `${formatSize(capacity.walBytesPerS)}/s`],
    ['disk', `${formatSize(capacity.diskBytesPerDay)} for each day that events stay`],
    ['connections', `${capacity.connections}, ${capacity.connectionsPerProcess} in each process`],
    ['shards', String(capacity.shards)],
    ['latency of COMMIT', overloaded ? 'does not keep up' : `${ms(commitMs)}, simulated`],
    ...(load.eventsPerS === 0 || overloaded ? [] : [['COMMIT to sink', `${ms(deliveryMs)}, simulated`]]),
  ]
  const reached = limits.map(({ resource, used, times }) => [resource, `${round(used * 100)} %`, holds(times)])
  return [
    describeLoad(load),
    table(needs, columns),
    table([['LIMIT', 'USED', 'HOLDS'], ...reached], columns),
    `${capacity.fits ? 'The first bottleneck' : 'It does not fit'}: ${first.resource}. ${adviceFor(first.resource, load, capacity)}`,
    `Costs of ${costs.date}: ${costs.machine}, PostgreSQL ${costs.postgres}, \`${costs.command}\`. Another server has others.`,
  ].join('\n\n')
}

function cores(value: number): string {
  return count(round(value), 'core')
}

function describeLoad(load: Load): string {
  const parts = [
    load.eventsPerS > 0 && `${load.eventsPerS} events/s of ${load.payloadBytes} bytes over ${count(load.keys, 'key')}`,
    load.leasesPerS > 0 && `${load.leasesPerS} leases/s`,
    load.transactionsPerS > 0 && `${load.transactionsPerS} locked transactions/s`,
  ]
  const processes = load.processes === 1 ? '1 process' : `${load.processes} processes`
  return `For ${parts.filter((part) => part !== false).join(', ')}, in ${processes}:`
}

function holds(times: number): string {
  if (times === 0) return 'not even without a load'
  return Number.isFinite(times) ? `${round(times)} times this load` : 'any'
}

/** What to do when this is the bottleneck. */
function adviceFor(resource: Resource, load: Load, capacity: Capacity): string {
  return ADVICE[resource](load, capacity)
}

const ADVICE: Readonly<Record<Resource, (load: Load, capacity: Capacity) => string>> = {
  'database CPU': adviceForCpu,
  'one key': () =>
    'Events of one key are committed one after the other. Use finer keys, or enqueue several events in one transaction. More shards or servers do not help.',
  delivery: ({ processes }, { shards }) =>
    processes >= shards
      ? 'The sinks take no more. Use a sink that takes batches, or Kafka behind the outbox for many consumers.'
      : `The sinks take no more. Run the dispatcher in more processes, up to the number of shards (${shards}; \`pg-lockstep outbox split\` makes more), or use a sink that takes batches.`,
  connections: () =>
    `Put PgBouncer in transaction mode between: more than ${CONNECTIONS_AT_MOST} connections are assumed to be too many.`,
}

function adviceForCpu({ cores: given }: Load, { busyWith, databases, databaseCores }: Capacity): string {
  if (busyWith.upkeep > busyWith.commits + busyWith.delivery)
    return 'Most of it is for processes that look for each other. Run the dispatcher in fewer processes; the others only enqueue.'
  if (databases === 1 || (given !== undefined && databaseCores < LARGEST_SERVER_CORES))
    return `Use a server with more cores, and enqueue several events in one transaction. Beyond ${LARGEST_SERVER_CORES} cores: a database per tenant.`
  return `Divide it: ${databases} databases, one Lockstep for each tenant or range of keys. Citus takes your own tables off this server, not the tables of Lockstep. If few producers have many consumers, one dispatcher to Kafka serves them all.`
}
