import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { type Goal, goal, type ResultRow } from '../../tools/judge/report.ts'
import { missingForCluster } from '../../tools/server/cluster.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import type { Random } from '../seed.ts'
import { attack, type Findings, type ReportProgress } from './attack.ts'
import { MAKE_RECEIVED, MAKE_TABLES } from './failover/failover.sql.ts'
import { judge, type Judgement, settled } from './failover/judge.ts'
import { type Load, startLoad, type Targets, TTL_MS } from './failover/load.ts'
import { CLUSTER_KINDS, startClusterServers } from './failover/clusterServers.ts'
import { type Kind, KINDS, type Replication, type Servers, startPair } from './failover/servers.ts'
import { until } from './failover/until.ts'

interface Size {
  readonly synchronous: number
  readonly asynchronous: number
  readonly controls: number
  /** Of a cluster under Patroni: minutes. */
  readonly cluster: number
}

/** So many acknowledged commits, and so many deliveries, are struck by each failover that loses some. */
const COMMITS_LOST = 30

/**
 * Writers, leases, `once`, requests and two dispatchers have one address, behind which servers are replaced: crashed, shut down, frozen and
 * left alone, or cut off. With synchronous replication nothing that was acknowledged is lost. With asynchronous replication the standby is
 * held back: what is lost is counted, and every number that was given out again is reported. The control does not wait for the standby.
 */
export const failover = attack<Size>({
  name: 'failover',
  about: 'servers are replaced under load: synchronously nothing is lost, asynchronously every loss is noticed',
  full: { synchronous: 50, asynchronous: 12, controls: 3, cluster: 12 },
  small: { synchronous: 2, asynchronous: 1, controls: 1, cluster: 0 },
  async run(size, reportProgress, random) {
    if (!redisAvailable()) return skip('redis-server')
    const runs: Ran[] = []
    for (const [replication, failovers, kinds] of [
      ['synchronous', size.synchronous, KINDS],
      ['asynchronous', size.asynchronous, ['crash', 'frozen', 'cut']],
      ['synchronous, without waiting for it', size.controls, ['crash']],
    ] as const) {
      runs.push(await run(await startPair(replication), replication, failovers, kinds, { reportProgress, random }))
    }
    if (size.cluster > 0) {
      const missing = missingForCluster()
      if (missing !== undefined) throw new Error(`the cluster needs ${missing}: see CONTRIBUTING.md`)
      const { cluster } = size
      runs.push(
        await run(await startClusterServers(), 'synchronous', cluster, CLUSTER_KINDS, { reportProgress, random }),
      )
    }
    return { results: runs.flatMap(rowsOf), goals: runs.flatMap(goalsOf) }
  },
})

/** Where `tools/prepare.ts` could not install it. Under CI nothing is skipped. */
function skip(missing: string): Findings {
  const text = `attack failover is SKIPPED: there is no ${missing}`
  if (process.env['CI'] === 'true') throw new Error(`${text}, which CI=true forbids`)
  console.warn(text)
  return { results: [{ replication: text }], goals: [] }
}

/** How long after a promotion something happened for the first time, in milliseconds. */
interface Recovery {
  readonly kind: Kind
  readonly commitMs: number
  readonly leaseMs: number
  readonly deliveryMs: number
}

interface Ran {
  readonly servers: string
  readonly replication: Replication
  readonly failovers: number
  readonly found: Judgement
  readonly recoveries: readonly Recovery[]
}

async function run(
  servers: Servers,
  replication: Replication,
  failovers: number,
  kinds: readonly Kind[],
  { reportProgress, random }: { readonly reportProgress: ReportProgress; readonly random: Random },
): Promise<Ran> {
  const name = servers.countedFrom === 'fault' ? 'Patroni' : 'a pair'
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
      reportProgress(`failover: ${name}, ${replication}, ${number + 1} of ${failovers}: ${kind}`)
      await until(() => isFlowing(load as Load), 'load')
      const promotedAt = await servers.failOver(kind, async () => {
        if (replication === 'synchronous') return
        const before = record.commits.length
        await until(() => record.commits.length >= before + COMMITS_LOST, 'commits that will be lost')
        const sent = record.deliveries.length
        if (replication === 'asynchronous') await until(() => record.deliveries.length > sent + 4, 'deliveries')
      })
      record.round++
      const after = (moments: readonly number[]): number => moments.find((at) => at > promotedAt) ?? Infinity
      const first = (): readonly number[] => [record.commits, record.grants, record.deliveries].map(after)
      await until(() => first().every((at) => at < Infinity), 'recovery')
      const [commitMs, leaseMs, deliveryMs] = first().map((at) => Math.round(at - promotedAt)) as [
        number,
        number,
        number,
      ]
      recoveries.push({ kind, commitMs, leaseMs, deliveryMs })
    }
    await until(() => isFlowing(load as Load), 'load')
    await load.writersEnd()
    await settled(targets)
    await load.stop()
    load = undefined
    return { servers: name, replication, failovers, found: await judge(targets, record), recoveries }
  } finally {
    await load?.stop()
    await Promise.all([servers.close(), target.stop('immediate'), redis.stop()])
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
  return [record.commits, record.deliveries].every((moments) => now - (moments.at(-1) ?? 0) < 500)
}

function rowsOf({ servers, replication, failovers, found, recoveries }: Ran): ResultRow[] {
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
      servers,
      replication,
      failovers,
      'commits acknowledged': found.committed,
      lost: found.lost,
      'unknown, reported': found.unknown,
      delivered: found.delivered,
      'numbers that diverged': found.divergedNumbers,
      'streams that diverged': found.divergedStreams,
      'not reported': found.silent,
      leases: found.grants,
    },
    ...kinds.map((kind) => ({
      servers,
      replication,
      kind,
      'first commit, ms': median(kind, ({ commitMs }) => commitMs),
      'first lease, ms': median(kind, ({ leaseMs }) => leaseMs),
      'first delivery, ms': median(kind, ({ deliveryMs }) => deliveryMs),
    })),
  ]
}

function goalsOf({ servers, replication, failovers, found }: Ran): Goal[] {
  const name =
    servers === 'Patroni'
      ? 'synchronous, Patroni'
      : replication === 'synchronous, without waiting for it'
        ? 'control, synchronous_commit = off'
        : replication
  const always = [
    goal(`${name}: server epochs that began on another timeline`, found.epochs, '=', failovers),
    goal(`${name}: two holders that both trust one lease`, found.overlaps, '=', 0),
    goal(`${name}: fences that did not grow`, found.fencesBack, '=', 0),
    goal(`${name}: streams with a gap, or out of order`, found.outOfOrder, '=', 0),
    goal(`${name}: numbers given out again without a report`, found.silent, '=', 0),
  ]
  if (replication === 'synchronous') {
    return [
      ...always,
      goal(`${name}: acknowledged commits that are lost`, found.lost, '=', 0),
      goal(`${name}: numbers at a sink that are another event in the database, or none`, found.divergedNumbers, '=', 0),
      goal(`${name}: events that did not arrive`, found.missing, '=', 0),
      goal(`${name}: things that were created twice`, found.madeTwice, '=', 0),
      goal(`${name}: requests that had two effects`, found.paidTwice, '=', 0),
      goal(`${name}: requests that had two answers`, found.answeredTwice, '=', 0),
    ]
  }
  const losses = goal(`${name}: acknowledged commits that are lost`, found.lost, '>=', 1)
  if (replication !== 'asynchronous') return [losses]
  return [...always, losses, goal(`${name}: numbers that diverged`, found.divergedNumbers, '>=', 1)]
}
