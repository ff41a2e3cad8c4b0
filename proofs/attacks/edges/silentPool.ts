import { setTimeout as sleep } from 'node:timers/promises'
import { key } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { goal } from '../../../tools/judge/report.ts'
import { startProxy } from 'pg-lockstep/testing'
import type { Arena, Edge } from './edge.ts'
import { PROBE } from './starvedPool.sql.ts'

const POOL_SIZE = 4
const SILENCE_MS = 1000
/** One connect, on a machine that has other things to do. */
const CONNECT_MS = 4000

/**
 * A network that loses everything for a while. When it is well again its old sockets stay silent, and nothing closes them. A pool with
 * Lockstep works again within the silence and one connect, for plain callers too. The control is the same pool without Lockstep.
 */
export const silentPool: Edge = {
  name: 'silent-pool',
  async run(arena) {
    const rounds = arena.scaledDown ? 1 : 10
    const back: number[] = []
    let failed = 0
    for (let round = 0; round < rounds; round++) {
      arena.reportProgress(`silent-pool: round ${round + 1} of ${rounds}`)
      const tookMs = await fallSilent(arena)
      if (tookMs === undefined) failed++
      else back.push(tookMs)
    }
    const dead = await plainPoolStaysDead(arena)
    return [
      goal('rounds in which a caller of the pool failed', failed, '=', 0),
      goal('ms until all of the pool worked again, the longest', Math.max(0, ...back), '<=', SILENCE_MS + CONNECT_MS),
      goal('control: the same pool without Lockstep still hangs then', dead ? 1 : 0, '=', 1),
    ]
  },
}

/** How long until every place of the pool works again; undefined where a caller failed. */
async function fallSilent({ lab, driver }: Arena): Promise<number | undefined> {
  const proxy = await startProxy({ targetPort: lab.server.port })
  const client = lab.client(driver, proxy.url(lab.url('direct')), { poolSize: POOL_SIZE, silenceMs: SILENCE_MS })
  const fill = (): Promise<unknown> =>
    Promise.all(
      Array.from({ length: POOL_SIZE }, (_, number) =>
        client.lockstep.transaction({ lock: key`Silent:${number}` }, (tx) => tx.query(PROBE)),
      ),
    )
  try {
    await fill()
    proxy.silence()
    proxy.resume()
    const startedAt = performance.now()
    await fill()
    await Promise.all(Array.from({ length: POOL_SIZE }, () => client.query(PROBE)))
    return performance.now() - startedAt
  } catch {
    return undefined
  } finally {
    proxy.cutAll()
    await proxy.close()
    await client.close()
  }
}

/** Whether plain callers of a pool of their own still wait when Lockstep's would be back. */
async function plainPoolStaysDead({ lab, driver }: Arena): Promise<boolean> {
  const proxy = await startProxy({ targetPort: lab.server.port })
  const url = proxy.url(lab.url('direct'))
  const pool = driver === 'pg' ? plainPg(url) : plainPostgresJs(url)
  const fill = (): Promise<unknown> => Promise.all(Array.from({ length: POOL_SIZE }, () => pool.query()))
  try {
    await fill()
    proxy.silence()
    proxy.resume()
    const answered = fill().then(
      () => true,
      () => true,
    )
    return !(await Promise.race([answered, sleep(SILENCE_MS + CONNECT_MS, false)]))
  } finally {
    proxy.cutAll()
    await proxy.close()
    await pool.end()
  }
}

interface PlainPool {
  query(): Promise<unknown>
  end(): Promise<void>
}

function plainPg(url: string): PlainPool {
  const pool = new pg.Pool({ connectionString: url, max: POOL_SIZE }).on('error', () => undefined)
  return { query: () => pool.query(PROBE), end: () => pool.end() }
}

function plainPostgresJs(url: string): PlainPool {
  const sql = postgres(url, { max: POOL_SIZE, onnotice: () => undefined })
  return { query: async () => sql.unsafe(PROBE), end: () => sql.end({ timeout: 1 }) }
}
