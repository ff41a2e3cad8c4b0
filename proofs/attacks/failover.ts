import { existsSync } from 'node:fs'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { type Goal, goal, type ResultRow } from '../../tools/judge/report.ts'
import { missingForCluster } from '../../tools/server/cluster.ts'
import { FAKETIME } from '../../tools/server/fakeClock.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import type { Random } from '../seed.ts'
import { attack, type Findings, type ReportProgress } from './attack.ts'
import { MAKE_RECEIVED, MAKE_TABLES } from './failover/failover.sql.ts'
import { judge, type Judgement, settled } from './failover/judge.ts'
import { type Load, type Moment, startLoad, type Targets, TTL_MS } from './failover/load.ts'
import { CLUSTER_KINDS } from '../faults/cluster.ts'
import { startClusterServers } from './failover/clusterServers.ts'
import { restoreToPoints } from './failover/restoring.ts'
import { type Kind, KINDS, type Replication, type Servers, startPair } from './failover/servers.ts'
import { until } from './failover/until.ts'

interface Size {
  readonly synchronous: number
  readonly asynchronous: number
  readonly controls: number
  readonly restores: number
  /** To servers whose clock is off, with each kind of replication. */
  readonly clocks: number
  /** Of a cluster under Patroni. */
  readonly patroni: number
}

/** So many acknowledged commits, and so many deliveries, are struck by each failover that loses some. */
const COMMITS_LOST = 30
/** Ahead, as the machine is, behind, as the machine is, and so on. */
const CLOCKS_MS = [5000, 0, -5000, 0]
const HELD_BACK: readonly Kind[] = ['crash', 'frozen', 'cut']

type Tools = { readonly reportProgress: ReportProgress; readonly random: Random }

/** Each can be run alone. */
const PARTS: Readonly<Record<string, (size: Size, tools: Tools) => Promise<Findings>>> = {
  synchronous: ({ synchronous }, tools) =>
    replace('synchronous', () => startPair('synchronous'), 'synchronous', synchronous, KINDS, tools),
  asynchronous: ({ asynchronous }, tools) =>
    replace('asynchronous', () => startPair('asynchronous'), 'asynchronous', asynchronous, HELD_BACK, tools),
  control: ({ controls }, tools) =>
    replace(
      'control, synchronous_commit = off',
      () => startPair('synchronous, without waiting for it'),
      'synchronous, without waiting for it',
      controls,
      ['crash'],
      tools,
    ),
  clocks: async ({ clocks }, tools) => {
    if (clocks > 0 && !existsSync(FAKETIME)) return skip('faketime')
    return joined([
      await replace(
        'synchronous, clocks off by 5 s',
        () => startPair('synchronous', CLOCKS_MS),
        'synchronous',
        clocks,
        ['crash'],
        tools,
      ),
      await replace(
        'asynchronous, clocks off by 5 s',
        () => startPair('asynchronous', CLOCKS_MS),
        'asynchronous',
        clocks,
        ['crash'],
        tools,
      ),
    ])
  },
  restore: ({ restores }, { reportProgress }) => restoreToPoints(restores, reportProgress),
  patroni: async ({ patroni }, tools) => {
    const missing = patroni > 0 ? missingForCluster() : undefined
    if (missing !== undefined) throw new Error(`the cluster needs ${missing}: see CONTRIBUTING.md`)
    return replace('synchronous, Patroni', startClusterServers, 'synchronous', patroni, CLUSTER_KINDS, tools)
  },
}

/**
 * Writers, leases, `once`, requests and two dispatchers have one address, behind which servers are replaced: crashed, shut down, frozen and
 * left alone, or cut off. With synchronous replication nothing that was acknowledged is lost. With asynchronous replication the standby is
 * held back: what is lost is counted, and every number that was assigned again is reported. The control does not wait for the standby.
 */
export const failover = attack<Size>({
  name: 'failover',
  about: 'servers are replaced under load: synchronously nothing is lost, asynchronously every loss is noticed',
  full: { synchronous: 50, asynchronous: 12, controls: 3, clocks: 4, restores: 4, patroni: 15 },
  small: { synchronous: 2, asynchronous: 1, controls: 1, clocks: 0, restores: 1, patroni: 0 },
  parts: Object.keys(PARTS),
  async run(size, reportProgress, random, part) {
    if (!redisAvailable()) return skip('redis-server')
    const found: Findings[] = []
    for (const [name, play] of Object.entries(PARTS)) {
      if (part === undefined || part === name) found.push(await play(size, { reportProgress, random }))
    }
    return joined(found)
  },
})

function joined(all: readonly Findings[]): Findings {
  return { results: all.flatMap(({ results }) => results), goals: all.flatMap(({ goals }) => goals) }
}

/** Where `tools/prepare.ts` could not install it. Under CI nothing is skipped. */
function skip(missing: string): Findings {
  const text = `attack failover is SKIPPED: there is no ${missing}`
  if (process.env['CI'] === 'true') throw new Error(`${text}, which CI=true forbids`)
  console.warn(text)
  return { results: [{ replication: text }], goals: [] }
}

/** How long after the fault and after the promotion something happened for the first time on the new primary, in milliseconds. */
interface Recovery {
  readonly kind: Kind
  readonly promotionMs: number
  readonly commitMs: number
  readonly leaseMs: number
  readonly deliveryMs: number
}

interface Ran {
  readonly name: string
  readonly replication: Replication
  readonly failovers: number
  readonly found: Judgement
  readonly recoveries: readonly Recovery[]
  /** Old primaries that `pg_rewind` made standbys. Undefined where nothing rewinds. */
  readonly rewound: number | undefined
}

/** Replaces the primary again and again under load, and judges what is left. */
async function replace(
  name: string,
  start: () => Promise<Servers>,
  replication: Replication,
  failovers: number,
  kinds: readonly Kind[],
  { reportProgress, random }: Tools,
): Promise<Findings> {
  if (failovers === 0) return { results: [], goals: [] }
  const servers = await start()
  const target = await startPostgres()
  const redis = await startRedis()
  const targets: Targets = { url: servers.url, targetUrl: target.url(), redisPort: redis.port }
  const recoveries: Recovery[] = []
  let load: Load | undefined
  try {
    await prepare(targets, replication)
    load = startLoad(targets, random)
    const { record } = load
    for (let number = 0; number < failovers; number++) {
      const kind = kinds[number % kinds.length] as Kind
      reportProgress(`failover: ${name}, ${number + 1} of ${failovers}: ${kind}`)
      await until(() => isFlowing(load as Load), 'load')
      const { struckAt, promotedAt } = await servers.failOver(kind, async () => {
        if (replication === 'synchronous') return
        const before = record.commits.length
        await until(() => record.commits.length >= before + COMMITS_LOST, 'commits that will be lost')
        const sent = record.deliveries.length
        if (replication === 'asynchronous') await until(() => record.deliveries.length > sent + 4, 'deliveries')
      })
      record.round++
      // Every failover begins the next timeline.
      const on = (moments: readonly Moment[]): number =>
        moments.find(({ timeline }) => timeline >= number + 2)?.at ?? Infinity
      const firsts = (): readonly number[] => [record.commits, record.grants, record.deliveries].map(on)
      await until(() => firsts().every((at) => at < Infinity), 'recovery')
      const [commitMs, leaseMs, deliveryMs] = firsts().map((at) => Math.round(at - struckAt)) as [
        number,
        number,
        number,
      ]
      recoveries.push({ kind, promotionMs: Math.round(promotedAt - struckAt), commitMs, leaseMs, deliveryMs })
    }
    await until(() => isFlowing(load as Load), 'load')
    await load.writersEnd()
    await settled(targets)
    await load.stop()
    load = undefined
    const found = await judge(targets, record)
    const ran: Ran = { name, replication, failovers, found, recoveries, rewound: await servers.rewound?.() }
    return { results: rowsOf(ran), goals: goalsOf(ran) }
  } finally {
    // The servers first: after a failure, a COMMIT can wait for a standby that is gone.
    await servers.close()
    await load?.stop()
    await Promise.all([target.stop('immediate'), redis.stop()])
  }
}

async function prepare(targets: Targets, replication: Replication): Promise<void> {
  for (const [url, tables] of [
    [targets.url, MAKE_TABLES],
    [targets.targetUrl, MAKE_RECEIVED],
  ] as const) {
    const pool = new pg.Pool({ connectionString: url, max: 2 })
    pool.on('error', () => undefined)
    const lockstep = new Lockstep(pool)
    await lockstep.migrate({ maxTtlMs: TTL_MS, synchronousFailover: replication === 'synchronous' })
    await pool.query(tables)
    await lockstep.close()
    await pool.end()
  }
}

/** Whether something of every kind has happened within the last moments: what is struck must be at work. */
function isFlowing({ record }: Load): boolean {
  const now = performance.now()
  return [record.commits, record.deliveries].every((moments) => now - (moments.at(-1)?.at ?? 0) < 500)
}

function rowsOf({ name, failovers, found, recoveries, rewound }: Ran): ResultRow[] {
  const kinds = [...new Set(recoveries.map(({ kind }) => kind))]
  const median = (kind: Kind, of: (recovery: Recovery) => number): number => {
    const sorted = recoveries
      .filter((each) => each.kind === kind)
      .map(of)
      .toSorted((one, next) => one - next)
    return sorted[Math.floor(sorted.length / 2)] as number
  }
  return [
    {
      replication: name,
      failovers,
      'commits acknowledged': found.committed,
      lost: found.lost,
      'unknown, reported': found.unknown,
      delivered: found.delivered,
      'numbers that diverged': found.divergedNumbers,
      'streams that diverged': found.divergedStreams,
      'not reported': found.silent,
      leases: found.grants,
      ...(rewound === undefined ? {} : { 'old primaries rewound': rewound }),
    },
    ...kinds.map((kind) => ({
      replication: name,
      kind,
      failovers: recoveries.filter((each) => each.kind === kind).length,
      'new primary, ms': median(kind, ({ promotionMs }) => promotionMs),
      'first commit, ms': median(kind, ({ commitMs }) => commitMs),
      'first lease, ms': median(kind, ({ leaseMs }) => leaseMs),
      'first delivery, ms': median(kind, ({ deliveryMs }) => deliveryMs),
    })),
  ]
}

function goalsOf({ name, replication, failovers, found, rewound }: Ran): Goal[] {
  const losses = goal(`${name}: acknowledged commits that are lost`, found.lost, '>=', 1)
  if (replication === 'synchronous, without waiting for it') return [losses]
  const always = [
    goal(`${name}: server epochs that began on another timeline`, found.epochs, '=', failovers),
    goal(`${name}: two holders that both trust one lease`, found.overlaps, '=', 0),
    goal(`${name}: fences that did not grow`, found.fencesBack, '=', 0),
    goal(`${name}: streams with a gap, or out of order`, found.outOfOrder, '=', 0),
    goal(`${name}: numbers assigned again without a report`, found.silent, '=', 0),
    goal(`${name}: events that did not arrive, of streams that no operator has to look at`, found.missing, '=', 0),
  ]
  if (replication === 'asynchronous') {
    return [...always, losses, goal(`${name}: numbers that diverged`, found.divergedNumbers, '>=', 1)]
  }
  return [
    ...always,
    goal(`${name}: acknowledged commits that are lost`, found.lost, '=', 0),
    goal(`${name}: numbers at a sink that are another event in the database, or none`, found.divergedNumbers, '=', 0),
    goal(`${name}: things that were created twice`, found.madeTwice, '=', 0),
    goal(`${name}: requests that had two effects`, found.paidTwice, '=', 0),
    goal(`${name}: requests that had two answers`, found.answeredTwice, '=', 0),
    ...(rewound === undefined ? [] : [goal(`${name}: old primaries that pg_rewind made standbys`, rewound, '>=', 1)]),
  ]
}
