import { Redis } from 'ioredis'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { readRedisEntry, redisStreamName } from 'pg-lockstep/redis'
import { ALL_EVENTS, ALL_MARKS, ALL_RECEIVED, EPOCHS, MADE_TWICE, PAID } from './failover.sql.ts'
import type { Holding, Record, Targets } from './load.ts'
import { until } from './until.ts'

/** More streams than an attack has. */
const ALL = 100_000

interface Delivered {
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string
}

/** The outcome of everything. */
export interface Judgement {
  readonly committed: number
  readonly unknown: number
  /** Acknowledged, and not there. */
  readonly lost: number
  readonly delivered: number
  /** Numbers that the sink has and the database does not, or has for another event. */
  readonly divergedNumbers: number
  readonly divergedStreams: number
  /** Of streams with such numbers for another event: those of which nothing was reported. */
  readonly silent: number
  /** Streams whose numbers at a sink have a gap or are not in order. */
  readonly outOfOrder: number
  /** Events of streams that do not wait, and did not arrive. */
  readonly missing: number
  readonly madeTwice: number
  readonly paidTwice: number
  /** Requests with two different answers. */
  readonly answeredTwice: number
  readonly grants: number
  /** Pairs of holders that both trusted one lease. */
  readonly overlaps: number
  /** Leases whose fence was not above the one before. */
  readonly fencesBack: number
  /** Server epochs that began on another timeline. */
  readonly epochs: number
}

/** Looks when the load has ended: first everything that can be delivered is. */
export async function judge(targets: Targets, record: Record): Promise<Judgement> {
  const [pool, target] = [targets.url, targets.targetUrl].map(
    (url) => new pg.Pool({ connectionString: url, max: 4 }),
  ) as [pg.Pool, pg.Pool]
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  const client = new Redis({ host: '127.0.0.1', port: targets.redisPort })
  try {
    const events = (await pool.query<Delivered>(ALL_EVENTS)).rows
    const marks = new Set((await pool.query<{ mark: string }>(ALL_MARKS)).rows.map(({ mark }) => mark))
    const sinks: { readonly name: string; readonly delivered: readonly Delivered[] }[] = [
      { name: 'redis', delivered: await inRedis(client, events) },
      { name: 'inbox', delivered: (await target.query<Delivered>(ALL_RECEIVED)).rows },
    ]
    const streams = sinks.map((sink) => compare(events, sink.delivered))
    const parked = await Promise.all(
      sinks.map(async ({ name }) => {
        const waiting = await lockstep.outbox.parked({ dispatcher: name, limit: ALL })
        return new Set(waiting.map(({ topic, key }) => `${topic}/${key}`))
      }),
    )
    const paid = (await pool.query<{ name: string; count: number }>(PAID)).rows
    const twice = (await pool.query<{ count: number }>(MADE_TWICE)).rows[0]?.count ?? 0
    const epochs = (await pool.query<{ kind: string; count: number }>(EPOCHS)).rows
    const sum = (of: (compared: Compared, place: number) => number): number =>
      streams.reduce((total, each, place) => total + of(each, place), 0)
    return {
      committed: record.committed.size,
      unknown: record.unknown.size,
      lost: [...record.committed].filter((mark) => !marks.has(mark)).length,
      delivered: sum(({ delivered }) => delivered),
      divergedNumbers: sum(({ diverged }) => diverged.length),
      divergedStreams: sum(({ conflicting }) => conflicting.size),
      silent: sum(({ conflicting }, place) => [...conflicting].filter((name) => !parked[place]?.has(name)).length),
      outOfOrder: sum(({ outOfOrder }) => outOfOrder),
      missing: sum(({ missing }, place) => missing.filter((name) => !parked[place]?.has(name)).length),
      madeTwice: twice,
      paidTwice: paid.filter(({ count }) => count > 1).length,
      answeredTwice: [...record.answers.values()].filter(({ size }) => size > 1).length,
      grants: record.holdings.length,
      ...judgeLeases(record.holdings),
      epochs: epochs.find(({ kind }) => kind === 'timeline')?.count ?? 0,
    }
  } finally {
    client.disconnect()
    await lockstep.close()
    await Promise.all([pool.end(), target.end()])
  }
}

interface Compared {
  readonly delivered: number
  readonly diverged: readonly string[]
  /** Streams in which the database has another event under a number that was delivered. */
  readonly conflicting: ReadonlySet<string>
  readonly missing: readonly string[]
  readonly outOfOrder: number
}

function compare(events: readonly Delivered[], delivered: readonly Delivered[]): Compared {
  const stored = new Map(events.map(({ topic, key, seq, id }) => [`${topic}/${key} ${seq}`, id]))
  const there = new Map(delivered.map(({ topic, key, seq, id }) => [`${topic}/${key} ${seq}`, id]))
  const diverged = [...there].filter(([name, id]) => stored.get(name) !== id).map(([name]) => name)
  const conflicting = new Set(
    diverged.filter((name) => stored.has(name)).map((name) => name.slice(0, name.lastIndexOf(' '))),
  )
  const counts = new Map<string, { most: number; count: number }>()
  for (const { topic, key, seq } of delivered) {
    const found = counts.get(`${topic}/${key}`) ?? { most: 0, count: 0 }
    counts.set(`${topic}/${key}`, { most: Math.max(found.most, seq), count: found.count + 1 })
  }
  return {
    delivered: delivered.length,
    diverged,
    conflicting,
    missing: [...stored.keys()].filter((name) => !there.has(name)).map((name) => name.slice(0, name.lastIndexOf(' '))),
    outOfOrder: [...counts.values()].filter(({ most, count }) => most !== count).length,
  }
}

async function inRedis(client: Redis, events: readonly Delivered[]): Promise<Delivered[]> {
  const names = new Set(events.map(({ topic, key }) => redisStreamName({ topic, key })))
  const all = await Promise.all([...names].map((name) => client.xrangeBuffer(name, '-', '+')))
  return all.flat().map(([, fields]) => {
    const { topic, key, seq, id } = readRedisEntry(fields)
    return { topic, key, seq, id }
  })
}

/** Comes back when everything that is not waiting for an operator has arrived. */
export async function settled(targets: Targets): Promise<void> {
  const pool = new pg.Pool({ connectionString: targets.url, max: 2 })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  try {
    await until(async () => {
      const { dispatchers } = await statusOf(lockstep)
      return dispatchers
    }, 'delivery')
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

async function statusOf(lockstep: Lockstep): Promise<{ dispatchers: boolean }> {
  const status = await lockstep.outbox.status().catch(() => undefined)
  if (status === undefined) return { dispatchers: false }
  const waiting = (await lockstep.outbox.parked({ limit: ALL })).filter(({ state }) => state === 'parked')
  return { dispatchers: status.shards.every(({ lagEvents }) => lagEvents === 0) && waiting.length === 0 }
}

/** One holder at a time, and fences that grow. */
export function judgeLeases(holdings: readonly Holding[]): { overlaps: number; fencesBack: number } {
  let [overlaps, fencesBack] = [0, 0]
  for (const key of new Set(holdings.map((each) => each.key))) {
    const own = holdings.filter((each) => each.key === key).toSorted((one, next) => one.from - next.from)
    for (const [place, next] of own.entries()) {
      const last = own[place - 1]
      if (last === undefined) continue
      if (last.to > next.from) overlaps++
      if (last.fence >= next.fence) fencesBack++
    }
  }
  return { overlaps, fencesBack }
}
