import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type EventMap, key, Lockstep, type Transaction } from 'pg-lockstep'
import pg from 'pg'
import { evidence, goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import type { Random } from '../seed.ts'
import { until } from '../until.ts'
import type { Attack, Findings, ReportProgress } from './attack.ts'
import { quiet } from './client.ts'
import {
  CITUS_CATALOG,
  CITUS_NODE,
  COUNTED,
  CREATE,
  DROP,
  END_A_SESSION,
  fillAccounts,
  fillCounters,
  INSERT_TRADE,
  NODES_OF_ACCOUNTS,
  READ_BALANCE,
  READ_COUNTER,
  TOTAL,
  TRADES,
  WORKERS,
  WRITE_BALANCE,
  WRITE_COUNTER,
} from './citus.sql.ts'

interface Size {
  readonly accounts: number
  readonly callers: number
  readonly transfers: number
  readonly kills: number
  readonly leases: number
}

const SIZES: Readonly<Record<'full' | 'small', Size>> = {
  full: { accounts: 64, callers: 16, transfers: 3000, kills: 60, leases: 500 },
  small: { accounts: 8, callers: 4, transfers: 120, kills: 2, leases: 30 },
}

const BALANCE = 1000
const COUNTERS = 4
const SCHEMA = 'lockstep_citus_attack'
const APPLICATION = 'citus attack'
const TOPIC = 'trades'
const KEPT_MS = 120_000
const TTL_MS = 30_000
/** A row that an ended session has prepared on a worker stays locked until Citus recovers it, every minute. */
const WAIT_MS = 240_000
const WORKER_MS = 5000
const WORKER_ADVICE = 'Connect to the coordinator.'

type CitusLockstep = Lockstep<EventMap, pg.Pool>

/**
 * Lockstep on the coordinator of a Citus cluster, with the tables of the application on its workers: transfers between distributed accounts, each with a
 * distributed trade and an event in one transaction, and counters under leases, while sessions are ended. Without a URL nothing is shown, and the
 * verdict says so.
 */
export const citus: Attack = {
  name: 'citus',
  about:
    'distributed accounts, an outbox with distributed trades, and leases on a Citus cluster of yours: --against URL',
  needsUrl: true,
  async run(size, reportProgress, random, _part, against) {
    if (against === undefined) return nothingShown('none was named: use --against URL, of a coordinator')
    const admin = quiet(new pg.Pool({ connectionString: against, max: 2 }))
    try {
      const { rows: catalogs } = await admin.query<{ catalog: string | null }>(CITUS_CATALOG)
      if (catalogs[0]?.catalog == null) return nothingShown('the server has no Citus')
      const { rows: nodes } = await admin.query<{ version: string; own: number }>(CITUS_NODE)
      if (nodes[0]?.own !== 0) return nothingShown('the server is a worker: name the coordinator')
      const { rows: workers } = await admin.query<Worker>(WORKERS)
      if (workers.length === 0) return nothingShown('the cluster has no worker with shards')
      return await play(against, admin, { version: nodes[0].version, workers }, SIZES[size], reportProgress, random)
    } finally {
      await admin.end()
    }
  },
}

/** Skipped, and said so: it is no success. */
function nothingShown(why: string): Findings {
  return {
    results: [{ 'nothing was attacked': why }],
    goals: [evidence(`Citus clusters that were attacked (${why})`, 0, '>=', 1)],
  }
}

interface Worker {
  readonly host: string
  readonly port: number
}

interface Cluster {
  readonly version: string
  readonly workers: readonly Worker[]
}

async function play(
  url: string,
  admin: pg.Pool,
  { version, workers }: Cluster,
  size: Size,
  reportProgress: ReportProgress,
  random: Random,
): Promise<Findings> {
  const pool = quiet(new pg.Pool({ connectionString: url, max: size.callers + 6, application_name: APPLICATION }))
  const lockstep = new Lockstep(pool, { schema: SCHEMA })
  try {
    for (const statement of [...DROP, ...CREATE]) await admin.query(statement)
    await admin.query(fillAccounts(size.accounts, BALANCE))
    await admin.query(fillCounters(COUNTERS))
    await lockstep.migrate()
    const nodes = await number(admin, NODES_OF_ACCOUNTS, 'nodes')
    reportProgress('citus: without locks')
    const lost = await loseUpdates(pool, size, random)
    reportProgress('citus: transfers and trades')
    const delivered = await transferAndDeliver(admin, lockstep, size, random)
    reportProgress('citus: leases')
    const leased = await countUnderLeases(admin, lockstep, size, random)
    reportProgress('citus: workers')
    const refused = await askWorkers(url, workers)
    return {
      results: [
        {
          Citus: version.split(' on ')[0] ?? version,
          workers: workers.length,
          'control: lost updates': lost,
          transfers: delivered.transfers,
          'sessions ended': delivered.ended + leased.ended,
          events: delivered.events,
          'leases granted': leased.grants,
        } satisfies ResultRow,
      ],
      goals: [
        evidence('nodes that have accounts', nodes, '>=', workers.length),
        evidence('control, without locks: lost updates', lost, '>=', 1),
        evidence('transfers', delivered.transfers, '>=', size.transfers),
        evidence('sessions ended in the middle of their work', delivered.ended, '>=', size.kills),
        ...delivered.goals,
        goal('under leases: lost updates', leased.grants - leased.counted, '=', 0),
        goal('leases with two holders', leased.together, '=', 0),
        goal('workers that the doctor did not refuse', workers.length - refused, '=', 0),
      ],
    }
  } finally {
    await lockstep.close()
    await pool.end()
    for (const statement of DROP) await admin.query(statement)
  }
}

async function number(pool: pg.Pool, query: string, column: string): Promise<number> {
  const { rows } = await pool.query<Record<string, number>>(query)
  return rows[0]?.[column] ?? Number.NaN
}

/** The control: read, decide and write without a lock. Says how many of the updates are missing. */
async function loseUpdates(pool: pg.Pool, { callers }: Size, random: Random): Promise<number> {
  let [added, missing] = [0, 0]
  // As often as it takes, with a limit: who meets whom is up to chance.
  for (let round = 0; round < 20 && missing === 0; round++) {
    const [id, before] = [1 + random.below(COUNTERS), await number(pool, COUNTED, 'counted')]
    added = 0
    await Promise.all(
      Array.from({ length: callers }, async () => {
        for (let n = 0; n < 10; n++) {
          const client = await pool.connect()
          try {
            await client.query('BEGIN')
            const { rows } = await client.query<{ value: number }>(READ_COUNTER, [id])
            await client.query(WRITE_COUNTER, [id, (rows[0]?.value ?? 0) + 1])
            await client.query('COMMIT')
            added++
          } finally {
            client.release()
          }
        }
      }),
    )
    missing = added - ((await number(pool, COUNTED, 'counted')) - before)
  }
  return missing
}

interface Delivered {
  readonly transfers: number
  readonly ended: number
  readonly events: number
  readonly goals: readonly Goal[]
}

interface Arrived {
  readonly id: string
  readonly seq: number
}

/** A transfer that was rolled back on purpose, behind everything that it did. */
class ChangedMindError extends Error {}

async function transferAndDeliver(
  admin: pg.Pool,
  lockstep: CitusLockstep,
  size: Size,
  random: Random,
): Promise<Delivered> {
  const arrived = new Map<string, Arrived[]>()
  const stop = new AbortController()
  const running = lockstep.outbox
    .dispatcher({
      retainMs: false,
      sink(events) {
        for (const event of events) {
          const { id } = event.payload as { id: string }
          arrived.set(event.key, [...(arrived.get(event.key) ?? []), { id, seq: event.seq }])
        }
      },
    })
    .run({ signal: stop.signal })
  const acknowledged = new Set<string>()
  let [begun, ended] = [0, 0]
  const strike = async (): Promise<void> => {
    while (begun < size.transfers || ended < size.kills) {
      if (begun >= (ended * size.transfers) / size.kills) ended += await endSession(admin)
      await sleep(5)
    }
  }
  const call = async (): Promise<void> => {
    // Until the last session was ended, too: each of them has to meet work.
    while (begun < size.transfers || ended < size.kills) {
      begun++
      const [from, to] = twoOf(size.accounts, random)
      const changesMind = random.chance(0.1)
      const id = randomUUID()
      try {
        await lockstep.transaction(
          { lock: [key`Account:${from}`, key`Account:${to}`], waitMs: WAIT_MS },
          async (tx) => {
            await transfer(tx, from, to, id)
            if (changesMind) throw new ChangedMindError()
          },
        )
        acknowledged.add(id)
      } catch (error) {
        if (!(error instanceof ChangedMindError)) throw error
      }
    }
  }
  try {
    await Promise.all([strike(), ...Array.from({ length: size.callers }, call)])
    const { rows } = await admin.query<{ id: string }>(TRADES)
    const trades = new Set(rows.map(({ id }) => id))
    const all = (): Arrived[] => [...arrived.values()].flat()
    await until(() => new Set(all().map(({ id }) => id)).size >= trades.size, KEPT_MS)
    const events = new Set(all().map(({ id }) => id))
    const total = await number(admin, TOTAL, 'total')
    return {
      transfers: begun,
      ended,
      events: events.size,
      goals: [
        goal('money lost or made', Math.abs(total - size.accounts * BALANCE), '=', 0),
        goal('accounts below zero', await number(admin, TOTAL, 'negative'), '=', 0),
        goal('transfers that were acknowledged and have no trade', missingFrom(trades, acknowledged), '=', 0),
        goal('trades without an event', missingFrom(events, trades), '=', 0),
        goal('events without a trade', missingFrom(trades, events), '=', 0),
        goal('streams with a gap, or out of order', [...arrived.values()].filter(isBroken).length, '=', 0),
      ],
    }
  } finally {
    stop.abort()
    await running
  }
}

async function endSession(admin: pg.Pool): Promise<number> {
  const { rows } = await admin.query<{ ended: number }>(END_A_SESSION, [APPLICATION])
  return rows[0]?.ended ?? 0
}

function twoOf(accounts: number, random: Random): [number, number] {
  const from = 1 + random.below(accounts)
  return [from, 1 + ((from + random.below(accounts - 1)) % accounts)]
}

async function transfer(tx: Transaction<pg.PoolClient>, from: number, to: number, id: string): Promise<void> {
  const balanceOf = async (account: number): Promise<number> => {
    const { rows } = await tx.query<{ balance: number }>(READ_BALANCE, [account])
    return rows[0]?.balance ?? Number.NaN
  }
  const [had, has] = [await balanceOf(from), await balanceOf(to)]
  const amount = Math.min(had, 10)
  await tx.query(WRITE_BALANCE, [from, had - amount])
  await tx.query(WRITE_BALANCE, [to, has + amount])
  await tx.query(INSERT_TRADE, [from, id, amount])
  await tx.enqueue({ topic: TOPIC, key: `account ${from}`, payload: { id, amount } })
}

function missingFrom(there: ReadonlySet<string>, wanted: ReadonlySet<string>): number {
  return [...wanted].filter((id) => !there.has(id)).length
}

/** First deliveries are 1, 2, 3, …: what comes again was there before. */
function isBroken(stream: readonly Arrived[]): boolean {
  let last = 0
  for (const { seq } of stream) {
    if (seq > last + 1) return true
    last = Math.max(last, seq)
  }
  return false
}

interface Leased {
  readonly grants: number
  readonly counted: number
  readonly together: number
  readonly ended: number
}

/** Read and write in transactions of their own, with a lease around both. */
async function countUnderLeases(admin: pg.Pool, lockstep: CitusLockstep, size: Size, random: Random): Promise<Leased> {
  const before = await number(admin, COUNTED, 'counted')
  const inside = new Set<number>()
  let [grants, together, ended, begun] = [0, 0, 0, 0]
  const call = async (): Promise<void> => {
    while (begun < size.leases) {
      begun++
      const id = 1 + random.below(COUNTERS)
      const lease = await lockstep.leases.acquire(key`Counter:${id}`, { ttlMs: TTL_MS, waitMs: false })
      if (inside.has(id)) together++
      inside.add(id)
      const { rows } = await lease.transaction({}, (tx) => tx.query<{ value: number }>(READ_COUNTER, [id]))
      await lease.transaction({}, (tx) => tx.query(WRITE_COUNTER, [id, (rows[0]?.value ?? 0) + 1]))
      grants++
      inside.delete(id)
      await lease.release()
      if (begun % Math.ceil(size.leases / size.kills) === 0) ended += await endSession(admin)
    }
  }
  await Promise.all(Array.from({ length: size.callers }, call))
  return { grants, counted: (await number(admin, COUNTED, 'counted')) - before, together, ended }
}

/** Asks the doctor at each worker, and says how many were refused with the advice to connect to the coordinator. Nothing is written there. */
async function askWorkers(url: string, workers: readonly Worker[]): Promise<number> {
  let refused = 0
  for (const { host, port } of workers) {
    const own = new URL(url)
    own.hostname = host
    own.port = String(port)
    const pool = quiet(
      new pg.Pool({
        connectionString: own.href,
        max: 2,
        connectionTimeoutMillis: WORKER_MS,
        application_name: APPLICATION,
      }),
    )
    const lockstep = new Lockstep(pool, { schema: SCHEMA })
    try {
      const findings = await lockstep.doctor()
      if (findings.some(({ name, level, advice }) => name === 'locks' && level === 'fail' && advice === WORKER_ADVICE))
        refused++
    } finally {
      await lockstep.close()
      await pool.end()
    }
  }
  return refused
}
