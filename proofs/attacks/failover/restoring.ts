import pg from 'pg'
import { type Lease, Lockstep, type OutboxEvent, type Sink } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import { startProxy } from 'pg-lockstep/testing'
import { type Goal, goal, type ResultRow } from '../../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../../tools/server/postgres.ts'
import { copyForRestore } from '../../../tools/server/standby.ts'
import type { Findings, ReportProgress } from '../attack.ts'
import { RESTORE_POINT, SWITCH_WAL } from './failover.sql.ts'
import { TTL_MS } from './load.ts'
import { until } from './until.ts'

/** So many events are delivered before the restore point, and so many after it: those are lost. */
const EVENTS = 3

/** What each of those that come to the restored server noticed. */
interface Noticed {
  /** The dispatcher that was running reported the new history before it delivered anything of it. */
  readonly running: boolean
  /** The inbox reported the first number that came again, from the dispatcher that was running and from a new one. */
  readonly byInbox: { readonly running: boolean; readonly started: boolean }
  /** The holder of a lease that was granted after the restore point lost it at its first call. */
  readonly lostLease: boolean
  /** The holder of a lease that was granted before it has it. */
  readonly keptLease: boolean
  /** No other caller gets either at once. */
  readonly refused: boolean
}

/** Restores a server to a point in time behind the back of two dispatchers and two holders, again and again. */
export async function restoreToPoints(restores: number, reportProgress: ReportProgress): Promise<Findings> {
  const all: Noticed[] = []
  for (let number = 0; number < restores; number++) {
    reportProgress(`failover: restore to a point in time, ${number + 1} of ${restores}`)
    all.push(await restoreOnce())
  }
  if (all.length === 0) return { results: [], goals: [] }
  const missed = (of: (noticed: Noticed) => boolean): number => all.filter((each) => !of(each)).length
  const name = 'restore to a point in time'
  const goals: Goal[] = [
    goal(
      `${name}: not noticed by a running dispatcher before its first delivery`,
      missed(({ running }) => running),
      '=',
      0,
    ),
    goal(
      `${name}: numbers again from a running dispatcher without a report`,
      missed((each) => each.byInbox.running),
      '=',
      0,
    ),
    goal(
      `${name}: numbers again from a new dispatcher without a report`,
      missed((each) => each.byInbox.started),
      '=',
      0,
    ),
    goal(
      `${name}: not noticed by a holder whose row is lost`,
      missed(({ lostLease }) => lostLease),
      '=',
      0,
    ),
    goal(
      `${name}: leases lost although their row is there`,
      missed(({ keptLease }) => keptLease),
      '=',
      0,
    ),
    goal(
      `${name}: leases granted while their holder could trust them`,
      missed(({ refused }) => refused),
      '=',
      0,
    ),
  ]
  const row: ResultRow = { replication: name, failovers: restores }
  return { results: [row], goals }
}

interface Database {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
}

async function restoreOnce(): Promise<Noticed> {
  const ends: (() => Promise<unknown>)[] = []
  const open = (url: string): Database => {
    const pool = new pg.Pool({ connectionString: url, max: 8 })
    pool.on('error', () => undefined)
    const lockstep = new Lockstep(pool)
    ends.push(async () => {
      await lockstep.close()
      await pool.end()
    })
    return { pool, lockstep }
  }
  const start = async (): Promise<PostgresServer> => {
    const server = await startPostgres()
    ends.push(() => server.stop('immediate'))
    return server
  }
  try {
    const primary = await start()
    const before = open(primary.url())
    await before.lockstep.migrate({ maxTtlMs: 5 * TTL_MS })
    const target = open((await start()).url())
    await target.lockstep.migrate()
    let { port } = primary
    const proxy = await startProxy({
      get targetPort() {
        return port
      },
    })
    ends.push(() => proxy.close())
    const through = open(proxy.url(primary.url()))
    const running = dispatch(through.lockstep, target.lockstep, 'running', ends)
    const later = (): Dispatching => dispatch(through.lockstep, target.lockstep, 'started', ends)
    const first = later()
    const kept = await through.lockstep.leases.acquire('Job:kept', { ttlMs: 5 * TTL_MS })
    for (let n = 0; n < EVENTS; n++) await enqueue(before.lockstep)
    const copy = await copyForRestore(primary)
    await before.pool.query(RESTORE_POINT)
    const lost = await through.lockstep.leases.acquire('Job:lost', { ttlMs: 5 * TTL_MS })
    for (let n = 0; n < EVENTS; n++) await enqueue(before.lockstep)
    await until(() => [running, first].every(({ verdicts }) => verdicts.length === 2 * EVENTS), 'delivery')
    await first.stop()
    await before.pool.query(SWITCH_WAL)

    const restored = await copy.restore('here')
    ends.push(() => restored.stop('immediate'))
    const after = open(restored.server.url())
    await enqueue(after.lockstep)
    port = restored.server.port
    proxy.cutAll()
    const holds = async (lease: Lease): Promise<boolean> => {
      // Connections were cut: the outcome of the first call can be that one.
      let code = 'LOCKSTEP_CONNECTION_LOST'
      await until(async () => {
        code = await lease.transaction({}, async () => '').catch((error: { code?: string }) => error.code ?? 'other')
        return code === '' || code === 'LOCKSTEP_LEASE_LOST'
      }, 'an answer about a lease')
      return code === ''
    }
    const keptLease = await holds(kept)
    const lostLease = !(await holds(lost))
    const refusals = await Promise.all(
      (['Job:kept', 'Job:lost'] as const).map((key) => after.lockstep.leases.tryAcquire(key, { ttlMs: TTL_MS })),
    )
    await until(() => running.verdicts.length > 2 * EVENTS, 'the first number that comes again')
    const started = later()
    await until(() => started.verdicts.length > 0, 'the first number that comes again, by a new dispatcher')
    return {
      running: running.changedAfter === 2 * EVENTS,
      byInbox: {
        running: running.verdicts[2 * EVENTS] === 'HistoryDivergedError',
        // What it delivers again is what the inbox knows; the first number that is another event is reported.
        started: started.verdicts.at(-1) === 'HistoryDivergedError',
      },
      keptLease,
      lostLease,
      refused: refusals.every((lease) => lease === undefined),
    }
  } finally {
    for (const end of ends.toReversed()) await end().catch(() => undefined)
  }
}

interface Dispatching {
  /** What the inbox said of each event that was delivered. */
  readonly verdicts: string[]
  /** How many were delivered when the dispatcher reported another history. */
  changedAfter: number | undefined
  stop(): Promise<void>
}

function dispatch(producer: Lockstep, consumer: Lockstep, name: string, ends: (() => Promise<unknown>)[]): Dispatching {
  const inbox = consumer.inbox.consumer(name)
  const stopping = new AbortController()
  const sink: Sink = {
    name: 'inbox',
    async send(events: readonly OutboxEvent[]) {
      for (const event of events) {
        const verdict = await inbox.handle(event, {}, async () => undefined).catch((error: Error) => error.name)
        if (verdict !== 'duplicate') dispatching.verdicts.push(verdict)
      }
      return events.map(() => 'sent' as const)
    },
  }
  const off = on('outbox.historyChanged', ({ dispatcher }) => {
    if (dispatcher === name) dispatching.changedAfter ??= dispatching.verdicts.length
  })
  const options = { name, sink, shards: 1, ttlMs: TTL_MS, retainMs: false } as const
  const ended = (async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await producer.outbox
        .dispatcher(options)
        .run({ signal: stopping.signal })
        .catch(() => undefined)
    }
  })()
  const dispatching: Dispatching = {
    verdicts: [],
    changedAfter: undefined,
    async stop() {
      off()
      stopping.abort()
      await ended
    },
  }
  ends.push(() => dispatching.stop())
  return dispatching
}

async function enqueue(lockstep: Lockstep): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: 'one', payload: {} }))
}
