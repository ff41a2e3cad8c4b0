import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type EventMap, Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import { describeMachine, goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { nodeArguments } from '../tools/server/nodeArguments.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, ReportProgress, RunSize } from './bench.ts'
import type { Contender } from './compare.ts'
import { type ContenderName, contenders } from './contenders/all.ts'
import { Arena, percentiles, pgqIsThere } from './contenders/arena.ts'
import { SHOW_VERSION } from './contenders/arena.sql.ts'
import { COUNT_CLIENTS } from './cost.sql.ts'
import {
  atPace,
  deliver,
  FIRST_COUNTED,
  measureParts,
  type MeasuredParts,
  type Meter,
  meterOf,
  openOutbox,
  type Outbox,
  type PartsSize,
} from './costOfParts.ts'
import { type Cost, costing } from './harness/costing.ts'
import { interleave, type Rounds, type Turn } from './harness/interleave.ts'
import { openPool } from './harness/openPool.ts'
import { byHandOnce, lease } from './leases.ts'
import { CREATE_BY_HAND } from './leases.sql.ts'
import { withLockstep, withPgByHand } from './locks.ts'
import { CREATE } from './locks.sql.ts'
import { CONNECTIONS, onAllConnections } from './outboxEvents.ts'

interface Size extends PartsSize {
  readonly names: readonly ContenderName[]
  /** Of a backlog, at most; a slow one gets as many as it drains in so long. */
  readonly slowMs: number
  readonly operations: number
  readonly mixMs: number
}

const NAMES: readonly ContenderName[] = [
  'Lockstep',
  'plain INSERT',
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key, local queue',
  'graphile-worker, unordered',
  'pg-transactional-outbox',
]
const ON_15: readonly ContenderName[] = ['Lockstep', 'PgQ']

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: {
    names: NAMES,
    rounds: 5,
    enqueued: 3000,
    drained: 50_000,
    slowMs: 8000,
    singles: 500,
    operations: 2000,
    paceMs: 15_000,
    settleMs: 6000,
    memberLooks: 500,
    moreDispatchers: 7,
    mixMs: 20_000,
  },
  quick: {
    names: NAMES.slice(0, 3),
    rounds: 2,
    enqueued: 600,
    drained: 10_000,
    slowMs: 1000,
    singles: 100,
    operations: 400,
    paceMs: 3000,
    settleMs: 3000,
    memberLooks: 100,
    moreDispatchers: 7,
    mixMs: 4000,
  },
  // The kernel counts processor time in steps of 10 ms: less would be none.
  smoke: {
    // The smoke of bench outbox has them all.
    names: NAMES.slice(0, 1),
    rounds: 1,
    enqueued: 100,
    drained: 1000,
    slowMs: 150,
    singles: 5,
    operations: 96,
    paceMs: 200,
    settleMs: 50,
    memberLooks: 3,
    moreDispatchers: 1,
    mixMs: 400,
  },
}

/** The load that is predicted and measured, a second. */
const MIX = { events: 300, leases: 60, transactions: 200 } as const
/** How far prediction and measurement may be apart: the larger one in the smaller one. */
const APART = { cores: 1.5, wal: 1.33, latency: 2.5, key: 2 } as const

/** What events, leases and locked transactions cost the server, beside peers; and whether `pg-lockstep capacity` predicts a load from that. */
export const cost: Bench = {
  name: 'cost',
  about:
    'processor time, WAL, disk and connections for a million events, leases and locked transactions, beside peers; predicts a load',
  baselines: {
    ...Object.fromEntries(NAMES.map((name) => [name, contenders[name].settings])),
    'a row by hand': 'as in bench leases',
    'BEGIN, lock and COMMIT by hand': 'as in bench locks',
  },
  async run(thoroughness, reportProgress) {
    const { costs: _, ...measured } = await measure(thoroughness, reportProgress)
    return measured
  },
  async keep(thoroughness, reportProgress, file) {
    const { costs, ...measured } = await measure(thoroughness, reportProgress)
    keepCosts(costs, file)
    return measured
  },
}

type Costs = MeasuredParts & {
  readonly date: string
  readonly machine: string
  readonly postgres: string
  readonly command: string
  readonly lease: OperationCost
  readonly transaction: OperationCost
}

interface OperationCost {
  readonly cpuUs: number
  readonly walBytes: number
}

async function measure(
  thoroughness: RunSize,
  reportProgress: ReportProgress,
): Promise<{ results: ResultRow[]; goals: Goal[]; costs: Costs }> {
  const size = SIZES[thoroughness]
  const machine = describeMachine(`, load before it ${(loadavg()[0] ?? 0).toFixed(0)}`)
  const results: ResultRow[] = []
  results.push(...(await eventsOn('bundled', size.names, size, (text) => reportProgress(text, 0.1))))
  if (pgqIsThere() && thoroughness === 'full')
    results.push(...(await eventsOn('Debian 15', ON_15, size, (text) => reportProgress(text, 0.3))))
  const meter = meterOf(await startPostgres({ durable: true, settings: { max_wal_size: '4GB' } }))
  try {
    const { rows: versions } = await meter.admin.query<{ server_version: string }>(SHOW_VERSION)
    const postgres = versions[0]?.server_version.split(' ')[0] ?? 'unknown'
    const operations = await operationsOn(meter, size, (text) => reportProgress(text, 0.4))
    for (const what of OPERATIONS) results.push(rowOf(what, postgres, operations))
    const parts = await measureParts(meter, size, (text, share = 0) => reportProgress(text, 0.5 + share * 0.4))
    const of = (name: Operation): OperationCost => ({
      cpuUs: operations.of(name, 'cpu').median,
      walBytes: operations.of(name, 'wal').median,
    })
    const costs: Costs = {
      date: new Date().toISOString().slice(0, 10),
      machine,
      postgres,
      command: 'npm run bench -- cost --keep FILE',
      ...parts,
      lease: of('lease'),
      transaction: of('transaction with a lock'),
    }
    reportProgress('cost: a load', 0.95)
    const checked = await checkPrediction(meter, costs, size)
    results.push(...checked.rows)
    return { results, goals: checked.goals, costs }
  } finally {
    await meter.admin.end()
    await meter.server.stop()
  }
}

const MILLION = 1_000_000

/** Of a million: seconds of a processor, megabytes. */
function perMillion({ cpuUs, walBytes, diskBytes }: { cpuUs: number; walBytes: number; diskBytes?: number }): {
  cpu: number
  wal: number
  disk: number | string
} {
  return {
    cpu: Math.round(cpuUs),
    wal: Math.round((walBytes * MILLION) / 2 ** 20),
    disk: diskBytes === undefined ? '' : Math.round((diskBytes * MILLION) / 2 ** 20),
  }
}

async function eventsOn(
  version: 'bundled' | 'Debian 15',
  names: readonly ContenderName[],
  size: Size,
  tell: (text: string) => void,
): Promise<ResultRow[]> {
  const arena = await Arena.open(version)
  const spent = arena.spent.bind(arena)
  try {
    const rows: ResultRow[] = []
    const postgres = await arena.version()
    for (const name of names) {
      tell(`cost: ${name}, PostgreSQL ${postgres}`)
      const seat = await arena.seat(name)
      await seat.enqueue(Math.ceil(size.enqueued / 10))
      const before = await arena.roomTaken(seat, ['enqueue'])
      const turns: Turn<Cost>[] = []
      for (let round = 0; round < size.rounds; round++)
        turns.push(
          await costing(spent, async () => {
            const { events, ms } = await seat.enqueue(size.enqueued)
            return { rate: events / ms, events }
          }),
        )
      const after = await arena.roomTaken(seat, ['enqueue'])
      const enqueued = {
        cpuUs: mean(turns.map(({ cpu }) => cpu)),
        walBytes: mean(turns.map(({ wal }) => wal)),
        diskBytes: (after.bytes - before.bytes) / (size.enqueued * size.rounds),
      }
      const [own, shown] = [contenders[name], perMillion(enqueued)]
      let delivered: { cpu: number | string; wal: number | string } = { cpu: '', wal: '' }
      if (own.enqueueOnly !== true) {
        const wanted = Math.min(size.drained, own.most ?? Infinity)
        await seat.fill(wanted)
        const turn = await costing(spent, async () => {
          const done = await seat.drain(wanted, size.slowMs)
          return { rate: done.events / done.ms, events: done.delivered }
        })
        delivered = perMillion({ cpuUs: turn.cpu, walBytes: turn.wal })
      }
      rows.push({
        what: 'event',
        who: name,
        PostgreSQL: postgres,
        'CPU s': shown.cpu,
        'WAL MB': shown.wal,
        'disk MB': shown.disk,
        'delivery CPU s': delivered.cpu,
        'delivery WAL MB': delivered.wal,
        connections: (await arena.roomTaken(seat)).connections,
        measured: '',
        predicted: '',
      })
      await seat.leave()
    }
    return rows
  } finally {
    await arena.close()
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

const OPERATIONS = [
  'lease',
  'lease, a row by hand',
  'transaction with a lock',
  'transaction with a lock, by hand',
] as const
type Operation = (typeof OPERATIONS)[number]

/** On 8 connections. */
async function operationsOn(
  { server, spent }: Meter,
  size: Size,
  tell: (text: string) => void,
): Promise<Rounds<Operation, Cost>> {
  const pool = openPool(server.url(), CONNECTIONS)
  const lockstep = new Lockstep(pool)
  try {
    await lockstep.migrate()
    await pool.query(CREATE)
    await pool.query(CREATE_BY_HAND)
    const turn = (work: (count: number) => Promise<unknown>) => (): Promise<Turn<Cost>> =>
      costing(spent, async () => {
        const startedAt = performance.now()
        await work(size.operations)
        return { rate: (size.operations / (performance.now() - startedAt)) * 1000, events: size.operations }
      })
    const shared = (contender: Contender) => (count: number) =>
      Promise.all(Array.from({ length: CONNECTIONS }, () => contender(Math.ceil(count / CONNECTIONS))))
    return await interleave<Operation, Cost>(
      {
        lease: turn(onAllConnections((number) => lease(lockstep, number))),
        'lease, a row by hand': turn(onAllConnections((number) => byHandOnce(pool, `Bench:${number}`))),
        'transaction with a lock': turn(shared(withLockstep(lockstep, 'read committed'))),
        'transaction with a lock, by hand': turn(shared(withPgByHand(pool, 'read committed'))),
      },
      size.rounds,
      (text) => tell(`cost: ${text}`),
    )
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

function rowOf(what: Operation, postgres: string, operations: Rounds<Operation, Cost>): ResultRow {
  const [own, byHand = 'Lockstep'] = what.split(', ')
  const { cpu, wal } = perMillion({
    cpuUs: operations.of(what, 'cpu').median,
    walBytes: operations.of(what, 'wal').median,
  })
  return {
    what: own ?? what,
    who: byHand,
    PostgreSQL: postgres,
    'CPU s': cpu,
    'WAL MB': wal,
    'disk MB': '',
    'delivery CPU s': '',
    'delivery WAL MB': '',
    connections: CONNECTIONS,
    measured: '',
    predicted: '',
  }
}

/** What this reads of the command's answer. */
interface Predicted {
  readonly busyCores: number
  readonly walBytesPerS: number
  readonly connections: number
  readonly latency: { readonly commitMs: { readonly p50: number }; readonly deliveryMs: { readonly p50: number } }
  readonly limits: readonly { readonly resource: string; readonly times: number | null }[]
}

const execute = promisify(execFile)

/** As a user asks it. */
async function predict(costs: Costs, options: Readonly<Record<string, number>>): Promise<Predicted> {
  const folder = mkdtempSync(join(tmpdir(), 'lockstep-cost-'))
  try {
    const file = join(folder, 'costs.json')
    keepCosts(costs, file)
    const given = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)])
    const main = nodeArguments(new URL('../src/cli/main.ts', import.meta.url))
    const { stdout } = await execute(process.execPath, [...main, 'capacity', '--json', '--costs', file, ...given])
    return JSON.parse(stdout) as Predicted
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A load of all kinds, and one key that all want: measured, and predicted from the costs of this run. */
async function checkPrediction(meter: Meter, costs: Costs, size: Size): Promise<{ rows: ResultRow[]; goals: Goal[] }> {
  const outbox = await openOutbox(meter, 'mix')
  try {
    await outbox.pool.query(CREATE)
    const measured = await measureMix(meter, outbox, size)
    const mix = await predict(costs, {
      // As many as came: a busy machine does not keep the pace.
      'events-per-s': Math.max(1, Math.round(MIX.events * measured.kept)),
      'leases-per-s': Math.max(1, Math.round(MIX.leases * measured.kept)),
      'transactions-per-s': Math.max(1, Math.round(MIX.transactions * measured.kept)),
      processes: 1,
      'payload-bytes': costs.payloadBytes,
      cores: cpus().length,
    })
    const startedAt = performance.now()
    await onAllConnections(() =>
      outbox.lockstep.transaction({}, (tx) => tx.enqueue({ ...outbox.eventOf(1), key: 'hot' })),
    )(size.operations)
    const keyPerS = (size.operations / (performance.now() - startedAt)) * 1000
    const hot = await predict(costs, {
      'events-per-s': 100,
      keys: 1,
      processes: 1,
      'payload-bytes': costs.payloadBytes,
    })
    const hotPerS = 100 * (hot.limits.find(({ resource }) => resource === 'one key')?.times ?? Number.NaN)
    const both: [what: string, measured: number, predicted: number, apart: number][] = [
      ['busy cores', measured.cores, mix.busyCores, APART.cores],
      ['WAL bytes/s', measured.walBytesPerS, mix.walBytesPerS, APART.wal],
      ['COMMIT p50, ms', measured.commitMs, mix.latency.commitMs.p50, APART.latency],
      ['COMMIT to sink p50, ms', measured.deliveryMs, mix.latency.deliveryMs.p50, APART.latency],
      ['events/s of one key', keyPerS, hotPerS, APART.key],
    ]
    const load = `${MIX.events} events/s, ${MIX.leases} leases/s, ${MIX.transactions} transactions/s; ${Math.round(measured.kept * 100)} % of the pace kept`
    const rows = both.map(([what, real, foretold]) =>
      checkedRow(what.includes('key') ? '8 writers' : load, what, real, foretold),
    )
    rows.push(checkedRow(load, 'connections', measured.connections, mix.connections))
    const goals = both.map(([what, real, foretold, apart]) =>
      goal(
        `${what}: prediction and measurement, the larger in the smaller`,
        Math.max(real / foretold, foretold / real),
        '<=',
        apart,
      ),
    )
    goals.push(goal('connections that are used, in those predicted', measured.connections / mix.connections, '<=', 1))
    return { rows, goals }
  } finally {
    await outbox.close()
  }
}

function checkedRow(load: string, what: string, measured: number, predicted: number): ResultRow {
  return {
    what,
    who: load,
    PostgreSQL: '',
    'CPU s': '',
    'WAL MB': '',
    'disk MB': '',
    'delivery CPU s': '',
    'delivery WAL MB': '',
    connections: '',
    measured: Number(measured.toPrecision(3)),
    predicted: Number(predicted.toPrecision(3)),
  }
}

interface MeasuredMix {
  /** Of the pace. */
  readonly kept: number
  readonly cores: number
  readonly walBytesPerS: number
  readonly commitMs: number
  readonly deliveryMs: number
  readonly connections: number
}

async function measureMix(meter: Meter, outbox: Outbox, size: Size): Promise<MeasuredMix> {
  await using delivering = await deliver(meter, outbox, 1)
  const { lockstep, pool } = outbox
  const locked = withLockstep(lockstep, 'read committed')
  const committedAt = new Map<number, number>()
  const commitMs: number[] = []
  const all = (ms: number, from: number, counts: boolean): Promise<unknown> =>
    Promise.all([
      atPace(MIX.events, ms, async (number) => {
        const startedAt = performance.now()
        await lockstep.transaction({}, (tx) => tx.enqueue(outbox.eventOf(from + number)))
        if (!counts) return
        committedAt.set(from + number, performance.now())
        commitMs.push(performance.now() - startedAt)
      }),
      atPace(MIX.leases, ms, (number) => lease(lockstep as unknown as Lockstep<EventMap, pg.Pool>, number)),
      atPace(MIX.transactions, ms, () => locked(1)),
    ])
  await all(size.settleMs / 2, 0, false)
  const before = { ...(await meter.spent()), at: performance.now() }
  await all(size.mixMs, FIRST_COUNTED, true)
  const { rows } = await pool.query<{ clients: number }>(COUNT_CLIENTS)
  const latencies = await delivering.latencies(committedAt)
  const seconds = (performance.now() - before.at) / 1000
  const after = await meter.spent()
  return {
    kept: committedAt.size / seconds / MIX.events,
    cores: (after.cpuMs - before.cpuMs) / 1000 / seconds,
    walBytesPerS: (after.walBytes - before.walBytes) / seconds,
    commitMs: percentiles(commitMs).p50,
    deliveryMs: percentiles(latencies).p50,
    // The one that counts them is one of them; the one that meters is not.
    connections: rows[0]?.clients ?? Number.NaN,
  }
}

function keepCosts(costs: Costs, file: string): void {
  const rounded = JSON.stringify(
    costs,
    (_name, value: unknown) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value),
    2,
  )
  writeFileSync(file, `${rounded}\n`)
}
