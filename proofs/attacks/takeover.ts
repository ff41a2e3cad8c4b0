import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Broker } from '../../tools/brokers/broker.ts'
import { evidence, goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { orderOf } from '../checkers/keyOrder.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { Random } from '../seed.ts'
import { until } from '../until.ts'
import { attack, type ReportProgress } from './attack.ts'
import { makeDatabase } from './database.ts'
import type { SinkNews, SinkProcessOptions } from './processes/sinkProcess.ts'
import { brokerNamed } from './sinks/brokers.ts'
import { Trickle } from './sinks/trickle.ts'
import { SHARDS_OF, TAKEN_AWAY_FROM } from './takeover.sql.ts'

interface Size {
  readonly brokers: readonly string[]
  readonly kills: number
  readonly controlKills: number
  readonly freezes: number
  readonly ttlMs: number
  readonly load: { readonly keys: number; readonly each: number; readonly everyMs: number }
}

const SHARDS = 8
const PROCESSES = 3
const TIMEOUT_MS = 5000
const LIMIT_MS = 60_000
/** A process does not judge others before it has been connected for this long. */
const SETTLED_MS = 3500
/** Of the ttl: so long an owner is stopped. */
const FROZEN = 0.5

/**
 * Three processes share eight shards and deliver to a broker that takes a number only behind the one before. One after the other is killed with
 * -9 while it sends: measured is the time until another process has got an event of each of its shards through. Owners that are stopped, and
 * not dead, keep their shards until their ttl ends. The control, with a sink that takes whatever comes, has to wait for the ttl.
 */
export const takeover = attack<Size>({
  name: 'takeover',
  about:
    'a dispatcher killed with -9 at full load: its shards go on within a second, in order, and one that is only stopped keeps its own',
  full: {
    brokers: ['redis', 'postgres', 'nats'],
    kills: 20,
    controlKills: 2,
    freezes: 3,
    ttlMs: 10_000,
    load: { keys: 200, each: 40, everyMs: 10 },
  },
  small: {
    brokers: ['redis'],
    kills: 1,
    controlKills: 0,
    freezes: 0,
    ttlMs: 30_000,
    load: { keys: 50, each: 20, everyMs: 20 },
  },
  async run(size, reportProgress, random) {
    const source = await startPostgres({ settings: { max_connections: '200' } })
    try {
      const results: ResultRow[] = []
      const goals: Goal[] = []
      for (const name of size.brokers) {
        const found = await besiege(source, brokerNamed(name), size, random, reportProgress)
        results.push({ broker: name, fences: 'enforced', ...rowOf(found) })
        goals.push(
          goal(`${name}: processes killed while they sent`, found.times.length, '=', size.kills),
          goal(
            `${name}: p95 of the time until all their shards went on, ms`,
            percentile(found.times, 0.95),
            '<=',
            1000,
          ),
          goal(`${name}: out of order, or there twice`, found.outOfOrder + found.duplicates, '=', 0),
          goal(`${name}: gaps, and events that are not there`, found.gaps + found.missing, '=', 0),
          goal(`${name}: shards taken from an owner that was only stopped`, found.takenFromFrozen, '=', 0),
        )
      }
      if (size.controlKills > 0) {
        const controlled = { ...size, kills: size.controlKills, freezes: 0 }
        const found = await besiege(source, brokerNamed('redis'), controlled, random, reportProgress, true)
        results.push({ broker: 'redis', fences: 'none, control', ...rowOf(found) })
        const shortest = Math.min(...found.times)
        goals.push(
          evidence('control, without fences: the shortest time until shards went on, ms', shortest, '>=', 1000),
        )
      }
      return { results, goals }
    } finally {
      await source.stop('immediate')
    }
  },
})

interface Found {
  /** Of each kill, until the last of its shards continued. */
  readonly times: readonly number[]
  readonly events: number
  readonly outOfOrder: number
  readonly duplicates: number
  readonly gaps: number
  readonly missing: number
  readonly takenFromFrozen: number
}

function rowOf({ times, events, duplicates, outOfOrder }: Found): ResultRow {
  const ms = (part: number): number => Math.round(percentile(times, part))
  return {
    events,
    kills: times.length,
    'p50 ms': ms(0.5),
    'p95 ms': ms(0.95),
    'longest ms': ms(1),
    duplicates,
    outOfOrder,
  }
}

function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((one, other) => one - other)
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? 0
}

/** A process that dispatches, and when it last got something of each shard through. */
interface Member {
  readonly process: KillableProcess
  readonly through: Map<number, number>
  /** Batches that are not answered. */
  unanswered: number
}

async function besiege(
  source: PostgresServer,
  broker: Broker,
  size: Size,
  random: Random,
  reportProgress: ReportProgress,
  unguarded = false,
): Promise<Found> {
  const name = `${broker.name}_${unguarded ? 'control' : 'takeover'}`
  const database = await makeDatabase(source, name)
  await database.lockstep.migrate()
  const topic = `takeover-${name}`
  const running = await broker.run()
  const options: SinkProcessOptions = {
    url: database.url,
    broker: broker.name,
    address: running.address,
    ttlMs: size.ttlMs,
    shards: SHARDS,
    timeoutMs: TIMEOUT_MS,
    unguarded,
  }
  const members = Array.from({ length: PROCESSES }, () => start(options))
  const trickle = new Trickle(database.lockstep, topic, size.load, random)
  try {
    const times: number[] = []
    for (let kill = 1; kill <= size.kills; kill++) {
      reportProgress(`takeover: ${name}, ${kill} of ${size.kills} kills`)
      await shared(database.pool, members)
      await sleep(SETTLED_MS)
      const victim = members.shift() as Member
      await must('it sends', () => victim.unanswered > 0)
      const shards = await shardsOf(database.pool, victim)
      await victim.process.kill()
      const at = performance.now()
      await must('its shards go on', () =>
        shards.every((shard) => members.some(({ through }) => (through.get(shard) ?? 0) > at)),
      )
      times.push(
        Math.max(...shards.map((shard) => Math.min(...members.map(({ through }) => timeOf(through, shard, at))))),
      )
      members.push(start(options))
    }
    let takenFromFrozen = 0
    for (let freeze = 1; freeze <= size.freezes; freeze++) {
      reportProgress(`takeover: ${name}, ${freeze} of ${size.freezes} stopped`)
      await shared(database.pool, members)
      const [frozen] = members as [Member]
      const before = await takenAwayFrom(database.pool, frozen)
      frozen.process.stop()
      await sleep(size.ttlMs * FROZEN)
      takenFromFrozen += (await takenAwayFrom(database.pool, frozen)) - before
      frozen.process.continue()
    }
    await trickle.end()
    const read = async (): Promise<ReturnType<typeof orderOf>> => orderOf(await running.received(topic))
    const deadline = performance.now() + LIMIT_MS
    let report = await read()
    while (report.events < trickle.written && performance.now() < deadline) {
      await sleep(200)
      report = await read()
    }
    const { events, outOfOrder, duplicates, gaps } = report
    return { times, events, outOfOrder, duplicates, gaps, missing: trickle.written - events, takenFromFrozen }
  } finally {
    await Promise.all(members.map(({ process }) => process.kill()))
    await trickle.end()
    await database.close()
    await running.stop()
  }
}

/** The first that came through after the kill is the one that counts. */
function timeOf(through: ReadonlyMap<number, number>, shard: number, at: number): number {
  const then = through.get(shard) ?? 0
  return then > at ? then - at : Infinity
}

function start(options: SinkProcessOptions): Member {
  const process = startProcess(new URL('processes/sinkProcess.ts', import.meta.url), [JSON.stringify(options)])
  const member: Member = { process, through: new Map(), unanswered: 0 }
  process.child.on('message', (news: SinkNews) => {
    if ('sending' in news) {
      member.unanswered++
      return
    }
    member.unanswered--
    if (news.answers.includes('sent')) member.through.set(news.shard, performance.now())
  })
  return member
}

const shardsOf = async (pool: pg.Pool, { process }: Member): Promise<number[]> =>
  (await pool.query<{ shard: number }>(SHARDS_OF, [String(process.child.pid)])).rows.map(({ shard }) => shard)

const takenAwayFrom = async (pool: pg.Pool, { process }: Member): Promise<number> =>
  (await pool.query<{ taken: number }>(TAKEN_AWAY_FROM, [String(process.child.pid)])).rows[0]?.taken ?? 0

/** Until every process has its part of the shards. */
async function shared(pool: pg.Pool, members: readonly Member[]): Promise<void> {
  const deadline = performance.now() + LIMIT_MS
  for (;;) {
    const counts = await Promise.all(members.map(async (member) => (await shardsOf(pool, member)).length))
    const least = Math.floor(SHARDS / PROCESSES)
    if (counts.every((count) => count >= least) && counts.reduce((sum, count) => sum + count, 0) === SHARDS) return
    if (performance.now() > deadline) throw new Error(`the shards are not shared: ${counts.join(', ')}`)
    await sleep(50)
  }
}

async function must(what: string, holds: () => boolean): Promise<void> {
  if (!(await until(holds, LIMIT_MS))) throw new Error(`after ${LIMIT_MS} ms still not: ${what}`)
}
