import { key } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import type { Client } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'
import { BEGIN, NAP, PROBE, ROLLBACK } from './starvedPool.sql.ts'

interface Size {
  readonly rounds: number
  /** How much longer than the driver's own transaction ours may wait. On a machine that is shared with tests, only starving shows. */
  readonly ratio: number
  /** Of the lease that is held meanwhile. */
  readonly ttlMs: number
}

const SIZES: { readonly full: Size; readonly scaledDown: Size } = {
  full: { rounds: 30, ratio: 2, ttlMs: 6000 },
  scaledDown: { rounds: 5, ratio: 10, ttlMs: 10_000 },
}

const POOL_SIZE = 4
/** Plain callers, each of which asks again as soon as it is answered: fewer leave a connection idle now and then. */
const CALLERS = 300

/**
 * A pool that plain callers keep busy. A transaction of Lockstep gets a connection about as soon as one of the driver's own, and no
 * lease is lost for want of one. The control asks only when the pool shows an idle connection, and never gets one.
 */
export const starvedPool: Edge = {
  name: 'starved-pool',
  async run(arena) {
    const size = arena.scaledDown ? SIZES.scaledDown : SIZES.full
    const client = arena.lab.client(arena.driver, arena.lab.url('direct'), { poolSize: POOL_SIZE })
    try {
      await client.lockstep.transaction({}, async () => undefined)
      return await starve(arena, client, size, await idleIn(client))
    } finally {
      await client.close()
    }
  },
}

async function starve(
  { reportProgress }: Arena,
  client: Client,
  size: Size,
  hasIdle: HasIdle,
): Promise<readonly Goal[]> {
  const { lockstep } = client
  const lease = await lockstep.leases.acquire(key`Starved:lease`, { ttlMs: size.ttlMs })
  const stopping = new AbortController()
  const allServed: Promise<unknown>[] = []
  const crowd = Array.from({ length: CALLERS }, async () => {
    const first = client.query(NAP)
    allServed.push(first)
    await first
    while (!stopping.signal.aborted) await client.query(NAP)
  })
  try {
    await Promise.all(allServed)
    const waits = { theirs: 0, ours: 0, failed: 0 }
    const until = performance.now() + size.ttlMs + 1000
    for (let round = 0; round < size.rounds || performance.now() < until; round++) {
      reportProgress(`starved-pool: round ${round + 1}`)
      const [theirs, ours] = await Promise.all([
        timed(() => plainTransaction(client)),
        timed(() =>
          lockstep
            .transaction({ lock: key`Starved:${round}` }, async (tx) => void (await tx.query(PROBE)))
            .catch(() => void waits.failed++),
        ),
      ])
      waits.theirs += theirs
      waits.ours += ours
    }
    const got = await findsIdle(client, hasIdle, 2000)
    return [
      goal(
        'the wait of transaction() beside that of the driver’s own, ratio',
        waits.ours / waits.theirs,
        '<=',
        size.ratio,
      ),
      goal('transactions that failed', waits.failed, '=', 0),
      goal('leases that were lost', lease.signal.aborted ? 1 : 0, '=', 0),
      goal('control: asked only while a connection was idle, and got none', got ? 0 : 1, '=', 1),
    ]
  } finally {
    stopping.abort()
    await Promise.all(crowd)
    await lease.release()
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

async function plainTransaction({ pool }: Client): Promise<void> {
  if ('totalCount' in pool) {
    const client = await pool.connect()
    try {
      await client.query(BEGIN)
      await client.query(PROBE)
      await client.query(ROLLBACK)
    } finally {
      client.release()
    }
    return
  }
  // A BEGIN that happens to be the hundredth query on a connection is refused by postgres.js.
  for (let begun = false; !begun;) {
    begun = await pool
      .begin((tx) => tx.unsafe(PROBE))
      .then(
        () => true,
        (error: { code?: string }) => {
          if (error.code !== 'UNSAFE_TRANSACTION') throw error
          return false
        },
      )
  }
}

/** Whether the pool shows an idle connection. */
type HasIdle = () => boolean

/** What postgres.js passes to the hook by which `begin()` learns its connection. */
interface Physical {
  readonly queue: { readonly length: number }
  readonly idleTimer: { start(): void }
}

/** postgres.js does not show its list of idle connections: it is the one that a connection is in when its idle timer starts. */
async function idleIn({ pool }: Client): Promise<HasIdle> {
  if ('totalCount' in pool) {
    const counted = pool
    return () => counted.idleCount > counted.waitingCount
  }
  const found: { idle?: Physical['queue'] } = {}
  const onexecute = (physical: Physical): boolean => {
    const { idleTimer } = physical
    const start = idleTimer.start.bind(idleTimer)
    idleTimer.start = () => {
      found.idle = physical.queue
      idleTimer.start = start
      start()
    }
    return true
  }
  while (found.idle === undefined) await pool.unsafe(PROBE, [], { onexecute } as object)
  return () => (found.idle?.length ?? 0) > 0
}

/** Whether a caller that looks for an idle connection after each of its queries finds one. */
async function findsIdle(client: Client, hasIdle: HasIdle, milliseconds: number): Promise<boolean> {
  const until = performance.now() + milliseconds
  while (performance.now() < until) {
    await client.query(PROBE)
    if (hasIdle()) return true
  }
  return false
}
