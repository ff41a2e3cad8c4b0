import { type EventMap, key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { startRedis } from '../tools/server/redis.ts'
import type { Bench, Thoroughness } from './bench.ts'
import { compare, type Comparison, median } from './compare.ts'
import { CHECKPOINT, fill, vacuum, WAL_POSITION } from './leases.sql.ts'
import { redlockPeers, type RedlockClient } from './peers/redlock.ts'

const SIZES: Readonly<Record<Thoroughness, { pairs: number; count: number; handOffs: number; rows: number }>> = {
  full: { pairs: 30, count: 200, handOffs: 2000, rows: 1_000_000 },
  quick: { pairs: 10, count: 100, handOffs: 500, rows: 1_000_000 },
  smoke: { pairs: 2, count: 20, handOffs: 130, rows: 5000 },
}

const CONTENDERS = 64
const SMALL_ROWS = 1000
const REFUSALS = 500
const TTL_MS = 10_000
/** Redlock's own pace makes it slow under contention: fewer hand-offs tell as much. */
const REDLOCK_HAND_OFFS = 100

/** What a lease costs, beside redlock on a Redis on the same machine; what many rows cost; and what a refusal writes. */
export const leases: Bench = {
  name: 'leases',
  about: 'acquire and release beside redlock on Redis; hand-off among 64 contenders; a million rows; WAL of a refusal',
  baselines: { redlock: acquireAndRelease.toString() },
  async run(thoroughness, tell) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true, settings: { autovacuum: 'off' } })
    const redis = await startRedis()
    const peers = redlockPeers()
    const connection = peers.connect(redis.port)
    const pool = new pg.Pool({ connectionString: server.url(), max: 10 })
    const lockstep = new Lockstep(pool, { schema: 'small' })
    const large = new Lockstep(pool, { schema: 'large' })
    const goals: Goal[] = []
    try {
      await lockstep.migrate()
      await large.migrate()
      const redlock = peers.redlock(connection)

      tell('leases: acquire and release, nobody else')
      const alone = await compare(
        (count) => times(count, (number) => acquireAndRelease(redlock, `Bench:${number}`)),
        (count) => times(count, (number) => lease(lockstep, number)),
        size.pairs,
        size.count,
      )

      tell(`leases: ${CONTENDERS} contenders`)
      const theirs = await handOffs(Math.min(size.handOffs, REDLOCK_HAND_OFFS), async () => {
        const lock = await redlock.acquire(['Hot'], TTL_MS)
        return () => lock.release()
      })
      const ours = await handOffs(size.handOffs, async () => {
        const held = await lockstep.leases.acquire(key`Hot:${1}`, { ttlMs: TTL_MS, waitMs: false })
        return () => held.release()
      })
      goals.push(
        goal(`hand-off among ${CONTENDERS} contenders: p99 ms`, ours.p99, '<=', thoroughness === 'smoke' ? 1000 : 15),
      )

      tell(`leases: ${size.rows} rows`)
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
      goals.push(
        goal(
          `acquire and release with ${size.rows} rows, in those with ${SMALL_ROWS}`,
          rows.ratio,
          '<=',
          thoroughness === 'smoke' ? 3 : 1.2,
        ),
      )

      tell('leases: refusals')
      goals.push(goal(`WAL of ${REFUSALS} refusals, bytes`, await walOfRefusals(pool, lockstep), '=', 0))
      return { results: report(alone, rows, size.rows, ours, theirs), goals }
    } finally {
      await lockstep.close()
      await large.close()
      await pool.end()
      await connection.quit()
      await redis.stop()
      await server.stop()
    }
  },
}

async function times(count: number, work: (number: number) => Promise<void>): Promise<void> {
  for (let number = 1; number <= count; number++) await work(number)
}

async function lease(lockstep: Lockstep<EventMap, pg.Pool>, number: number): Promise<void> {
  const held = await lockstep.leases.acquire(key`Bench:${number}`, { ttlMs: TTL_MS })
  await held.release()
}

async function acquireAndRelease(redlock: RedlockClient, name: string): Promise<void> {
  const lock = await redlock.acquire([name], TTL_MS)
  await lock.release()
}

interface HandOffs {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
}

/** From the moment before one gives it back to the moment in which the next one's code runs. */
async function handOffs(count: number, acquire: () => Promise<() => Promise<unknown>>): Promise<HandOffs> {
  const gaps: number[] = []
  let releasedAt: number | undefined
  let left = count
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: CONTENDERS }, async () => {
      while (left > 0) {
        const release = await acquire()
        if (releasedAt !== undefined) gaps.push(performance.now() - releasedAt)
        left--
        releasedAt = performance.now()
        await release()
      }
    }),
  )
  const tookMs = performance.now() - startedAt
  const sorted = gaps.toSorted((a, b) => a - b)
  return {
    perSecond: (gaps.length / tookMs) * 1000,
    p50: median(gaps),
    p99: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
  }
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

function report(alone: Comparison, rows: Comparison, large: number, ours: HandOffs, theirs: HandOffs): ResultRow[] {
  return [
    { what: 'acquire and release, µs', lockstep: alone.candidateUs, beside: alone.baselineUs, of: 'redlock on Redis' },
    {
      what: `hand-offs a second, ${CONTENDERS} contenders`,
      lockstep: ours.perSecond,
      beside: theirs.perSecond,
      of: 'redlock on Redis',
    },
    { what: 'hand-off p50, ms', lockstep: ours.p50, beside: theirs.p50, of: 'redlock on Redis' },
    { what: 'hand-off p99, ms', lockstep: ours.p99, beside: theirs.p99, of: 'redlock on Redis' },
    {
      what: `acquire and release with ${large} rows, µs`,
      lockstep: rows.candidateUs,
      beside: rows.baselineUs,
      of: `${SMALL_ROWS} rows`,
    },
  ]
}
