import { randomUUID } from 'node:crypto'
import { type EventMap, key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { startRedis } from '../tools/server/redis.ts'
import type { Bench, RunSize } from './bench.ts'
import { compare, type Comparison } from './compare.ts'
import { interleave, type Rounds, type Turn } from './harness/interleave.ts'
import { ensurePeers } from './harness/peers.ts'
import { quantile, showSpread } from './harness/spread.ts'
import {
  CHECKPOINT,
  CREATE_BY_HAND,
  fill,
  GIVE_BACK_BY_HAND,
  RELEASE_AT_LIMIT,
  TAKE_AT_LIMIT,
  TAKE_BY_HAND,
  vacuum,
} from './leases.sql.ts'
import { WAL_POSITION } from './harness/serverCost.sql.ts'
import { REDLOCK_SETTINGS, type RedlockClient, redlockPeer } from './peers/redlock.ts'
import { openPool } from './harness/openPool.ts'

interface Size {
  readonly pairs: number
  readonly count: number
  readonly rounds: number
  readonly bursts: number
  readonly rows: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  // Many short turns: a pause of the machine spoils one of them.
  full: { pairs: 240, count: 25, rounds: 5, bursts: 10, rows: 1_000_000 },
  quick: { pairs: 50, count: 20, rounds: 3, bursts: 5, rows: 1_000_000 },
  smoke: { pairs: 1, count: 20, rounds: 1, bursts: 1, rows: 5000 },
}

const CONTENDERS = 64
const SMALL_ROWS = 1000
const REFUSALS = 500
const TTL_MS = 10_000
const HAND_OFF_MS = 15
const OF_REDLOCK = 0.1
const ROWS_AT_MOST = 1.2
const OF_LIMIT = 1.1
const LIMIT = 'two prepared statements, one flush: the release is not flushed'

/** What a lease costs, beside redlock on a Redis on the same machine; what many rows cost; and what a refusal writes. */
export const leases: Bench = {
  name: 'leases',
  about:
    'acquire and release beside redlock, by hand and the limit; hand-off among 64 contenders; a million rows; WAL of a refusal',
  baselines: {
    redlock: `${JSON.stringify(REDLOCK_SETTINGS)} and otherwise its defaults, on a Redis that keeps nothing\n${acquireAndRelease.toString()}`,
    'by hand': `${TAKE_BY_HAND}\n${GIVE_BACK_BY_HAND}`,
    'the limit': `${TAKE_AT_LIMIT.text}\n${RELEASE_AT_LIMIT.text}\n${LIMIT}`,
  },
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    ensurePeers()
    const server = await startPostgres({ durable: true, settings: { autovacuum: 'off' } })
    const redis = await startRedis()
    const peer = await redlockPeer()
    const connection = peer.connect(redis.port)
    const pool = openPool(server.url(), 10)
    const taking = new pg.Client(server.url())
    const releasing = new pg.Client({ connectionString: server.url(), options: '-c synchronous_commit=off' })
    const lockstep = new Lockstep(pool, { schema: 'small' })
    const large = new Lockstep(pool, { schema: 'large' })
    try {
      await lockstep.migrate()
      await large.migrate()
      await pool.query(CREATE_BY_HAND)
      await Promise.all([taking.connect(), releasing.connect()])
      const redlock = peer.redlock(connection)
      const ours = (count: number): Promise<void> => times(count, (number) => lease(lockstep, number))

      reportProgress('leases: acquire and release, no contention', 0)
      const redlockAlone = await compare(
        (count) => times(count, (number) => acquireAndRelease(redlock, `Bench:${number}`)),
        ours,
        size.pairs,
        size.count,
      )
      reportProgress('leases: acquire and release, beside by hand', 0.1)
      const byHand = await compare(
        (count) => times(count, (number) => byHandOnce(pool, `Bench:${number}`)),
        ours,
        size.pairs,
        size.count,
      )

      reportProgress('leases: acquire and release, beside the limit', 0.15)
      const limit = await compare(
        (count) => times(count, (number) => leaseAtLimit(taking, releasing, `Limit:${number}`)),
        ours,
        size.pairs,
        size.count,
      )

      const handedOff = await interleave(
        {
          redlock: () =>
            handOffs(size.bursts, async () => {
              const lock = await redlock.acquire(['Hot'], TTL_MS)
              return () => lock.release()
            }),
          lockstep: () =>
            handOffs(size.bursts, async () => {
              const held = await lockstep.leases.acquire(key`Hot:${1}`, { ttlMs: TTL_MS, waitMs: false })
              return () => held.release()
            }),
        },
        size.rounds,
        (text, done, all) => reportProgress(`leases: ${CONTENDERS} contenders, ${text}`, 0.2 + (0.4 * done) / all),
      )

      reportProgress(`leases: ${size.rows} rows`, 0.6)
      await pool.query(fill('small', SMALL_ROWS))
      await pool.query(fill('large', size.rows))
      for (const schema of ['small', 'large']) await pool.query(vacuum(schema))
      await pool.query(CHECKPOINT)
      const rows = await compare(
        (count) => times(count, (number) => lease(lockstep, (number * 7919) % SMALL_ROWS)),
        (count) => times(count, (number) => lease(large, (number * 7919) % size.rows)),
        size.pairs,
        size.count,
      )

      reportProgress('leases: refusals', 0.9)
      const wal = await walOfRefusals(pool, lockstep)
      const p99 = handedOff.of('lockstep', 'p99').median
      const ofLimit = goal('acquire and release, in those of the limit', limit.ratio, '<=', OF_LIMIT)
      const goals = [
        ofLimit,
        goal(`hand-off among ${CONTENDERS} contenders: p99 ms`, p99, '<=', HAND_OFF_MS),
        goal(
          'hand-off: p99, in that of redlock',
          handedOff.ratio('lockstep', 'redlock', 'p99').median,
          '<=',
          OF_REDLOCK,
        ),
        goal(`acquire and release with ${size.rows} rows, in those with ${SMALL_ROWS}`, rows.ratio, '<=', ROWS_AT_MOST),
        goal(`WAL of ${REFUSALS} refusals, bytes`, wal, '=', 0),
      ]
      return {
        results: report({ redlockAlone, byHand, limit, rows, handedOff, large: size.rows }),
        goals,
        limits: [
          {
            what: 'acquire and release, no contention',
            unit: 'µs',
            lockstep: limit.candidateUs,
            limit: limit.baselineUs,
            program: LIMIT,
            goal: ofLimit,
          },
        ],
      }
    } finally {
      await lockstep.close()
      await large.close()
      await Promise.all([pool.end(), taking.end(), releasing.end()])
      await connection.quit()
      await redis.stop()
      await server.stop()
    }
  },
}

async function times(count: number, work: (number: number) => Promise<void>): Promise<void> {
  for (let number = 1; number <= count; number++) await work(number)
}

export async function lease(lockstep: Lockstep<EventMap, pg.Pool>, number: number): Promise<void> {
  const held = await lockstep.leases.acquire(key`Bench:${number}`, { ttlMs: TTL_MS })
  await held.release()
}

async function acquireAndRelease(redlock: RedlockClient, name: string): Promise<void> {
  const lock = await redlock.acquire([name], TTL_MS)
  await lock.release()
}

export async function byHandOnce(pool: pg.Pool, name: string): Promise<void> {
  const token = randomUUID()
  await pool.query(TAKE_BY_HAND, [name, token, TTL_MS])
  await pool.query(GIVE_BACK_BY_HAND, [name, token])
}

/** No lease can take less that is on disk before it is answered: no fence, no queue, no trust, no renewal. */
async function leaseAtLimit(taking: pg.Client, releasing: pg.Client, name: string): Promise<void> {
  const token = randomUUID()
  await taking.query({ ...TAKE_AT_LIMIT, values: [name, token, TTL_MS] })
  await releasing.query({ ...RELEASE_AT_LIMIT, values: [name, token] })
}

type HandOffs = Turn<'perSecond' | 'p50' | 'p99'>

/**
 * From the moment before one releases it to the moment in which the next one's code runs: so many come at once, each of them once, and
 * release it as soon as they have it. Were they to ask again at once, two of those who only look now and then would hand it to each
 * other as quickly as can be, and the others would starve.
 */
async function handOffs(bursts: number, acquire: () => Promise<() => Promise<unknown>>): Promise<HandOffs> {
  const gaps: number[] = []
  const startedAt = performance.now()
  for (let burst = 0; burst < bursts; burst++) {
    let releasedAt: number | undefined
    await Promise.all(
      Array.from({ length: CONTENDERS }, async () => {
        const release = await acquire()
        if (releasedAt !== undefined) gaps.push(performance.now() - releasedAt)
        releasedAt = performance.now()
        await release()
      }),
    )
  }
  const tookMs = performance.now() - startedAt
  return { perSecond: (gaps.length / tookMs) * 1000, p50: quantile(gaps, 0.5), p99: quantile(gaps, 0.99) }
}

/** The least of a few tries: the server writes for reasons of its own, too. */
async function walOfRefusals(pool: pg.Pool, lockstep: Lockstep<EventMap, pg.Pool>): Promise<number> {
  const held = await lockstep.leases.acquire(key`Refused:${1}`, { ttlMs: 60_000 })
  const position = async (): Promise<number> =>
    (await pool.query<{ bytes: number }>(WAL_POSITION)).rows[0]?.bytes ?? Number.NaN
  let least = Infinity
  for (let attempt = 0; attempt < 3 && least > 0; attempt++) {
    const before = await position()
    for (let number = 0; number < REFUSALS; number++) await lockstep.leases.tryAcquire(held.key)
    least = Math.min(least, (await position()) - before)
  }
  await held.release()
  return least
}

interface Found {
  readonly redlockAlone: Comparison
  readonly byHand: Comparison
  readonly limit: Comparison
  readonly rows: Comparison
  readonly handedOff: Rounds<'redlock' | 'lockstep', 'perSecond' | 'p50' | 'p99'>
  readonly large: number
}

function report({ redlockAlone, byHand, limit, rows, handedOff, large }: Found): ResultRow[] {
  const compared = (what: string, of: string, { candidateUs, baselineUs, spread }: Comparison): ResultRow => ({
    what,
    lockstep: candidateUs,
    beside: baselineUs,
    of,
    ratio: spread.median,
    'middle half': showSpread(spread),
  })
  const inTurns = (what: string, measure: 'perSecond' | 'p50' | 'p99'): ResultRow => {
    const ratio = handedOff.ratio('lockstep', 'redlock', measure)
    return {
      what,
      lockstep: handedOff.of('lockstep', measure).median,
      beside: handedOff.of('redlock', measure).median,
      of: 'redlock on Redis',
      ratio: ratio.median,
      'middle half': showSpread(ratio),
    }
  }
  return [
    compared('acquire and release, µs', 'redlock on Redis', redlockAlone),
    compared('acquire and release, µs', 'a row by hand', byHand),
    compared('acquire and release, µs', 'the limit', limit),
    inTurns(`hand-offs a second, ${CONTENDERS} contenders`, 'perSecond'),
    inTurns('hand-off p50, ms', 'p50'),
    inTurns('hand-off p99, ms', 'p99'),
    compared(`acquire and release with ${large} rows, µs`, `${SMALL_ROWS} rows`, rows),
  ]
}
