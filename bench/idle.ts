import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import { startProxy } from 'pg-lockstep/testing'
import { startProcess } from '../proofs/faults/killableProcess.ts'
import { goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { percentiles } from './contenders/arena.ts'
import { openPool } from './harness/openPool.ts'
import { ENQUEUE_AND_RING } from './idle.sql.ts'
import type { Arrival } from './outboxLatencyProcess.ts'

/** `restMs`: a dispatcher with a ttl of a second lets its shards rest in less than that. */
const SIZES: Readonly<Record<RunSize, { idleMs: number; wakeUps: number; restMs: number }>> = {
  full: { idleMs: 130_000, wakeUps: 40, restMs: 6000 },
  quick: { idleMs: 20_000, wakeUps: 4, restMs: 6000 },
  smoke: { idleMs: 500, wakeUps: 1, restMs: 0 },
}

const DISPATCHER = new URL('outboxLatencyProcess.ts', import.meta.url)
const LONGEST_WAIT_MS = 90_000
let numbers = 0

/** What a dispatcher that has nothing to do sends, and how long it takes to wake it from its rest. */
export const idle: Bench = {
  name: 'idle',
  about: 'messages a minute of a dispatcher that has nothing to do; from COMMIT to the sink of one whose shards rest',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true })
    const pool = openPool(server.url(), 4)
    const lockstep = new Lockstep(pool) as unknown as Lockstep
    try {
      await lockstep.migrate()
      const sent: Record<string, number> = {}
      for (const [name, how, sleepAfterMs] of [
        ['idle', 'rests', ''],
        ['asleep', 'asleep', '1000'],
      ] as const) {
        const proxy = await startProxy({ targetPort: Number(new URL(server.url()).port) })
        const dispatching = startProcess(DISPATCHER, [proxy.url(server.url()), name, '1000', sleepAfterMs])
        try {
          await once(dispatching.child, 'message')
          await wakeUp(
            () => dispatching.ask<Arrival[]>('tell'),
            (number) => write(lockstep, number),
          )
          reportProgress(`idle: until it ${how}`)
          // One that sleeps looks once more before it does, a second after its shards began to rest.
          await sleep(size.restMs * (sleepAfterMs === '' ? 1 : 2))
          reportProgress(`idle: ${how}`)
          proxy.roundTrips = 0
          await sleep(size.idleMs)
          sent[how] = (proxy.roundTrips / size.idleMs) * 60_000
        } finally {
          await dispatching.kill()
          await proxy.close()
        }
      }
      const dispatching = startProcess(DISPATCHER, [server.url(), 'woken', '1000', ''])
      const woken: Record<'library' | 'sql', number[]> = { library: [], sql: [] }
      try {
        await once(dispatching.child, 'message')
        const tell = (): Promise<Arrival[]> => dispatching.ask<Arrival[]>('tell')
        await wakeUp(tell, (number) => write(lockstep, number))
        for (let round = 0; round < size.wakeUps; round++) {
          reportProgress(`idle: woken ${round} of ${size.wakeUps} times`, round / size.wakeUps)
          await sleep(size.restMs)
          woken.library.push(await wakeUp(tell, (number) => write(lockstep, number)))
          await sleep(size.restMs)
          woken.sql.push(await wakeUp(tell, (number) => writeInSql(pool, number)))
        }
      } finally {
        await dispatching.kill()
      }
      const results: ResultRow[] = [
        { dispatcher: 'its shards rest', 'messages/min': sent['rests'] ?? Number.NaN },
        { dispatcher: 'asleep (sleepAfterMs)', 'messages/min': sent['asleep'] ?? Number.NaN },
        { dispatcher: 'woken by another process', ...rounded(percentiles(woken.library)) },
        { dispatcher: 'woken by SQL that rings', ...rounded(percentiles(woken.sql)) },
      ]
      return {
        results,
        goals: [
          goal('messages a minute of an idle dispatcher', sent['rests'] ?? Number.NaN, '<=', 1),
          goal('messages a minute of one that is asleep', sent['asleep'] ?? Number.NaN, '=', 0),
          goal('woken by another process: p50 ms', percentiles(woken.library).p50, '<=', 10),
          goal('woken by SQL that rings: p50 ms', percentiles(woken.sql).p50, '<=', 10),
        ],
      }
    } finally {
      await lockstep.close()
      await pool.end()
      await server.stop()
    }
  },
}

function rounded({ p50, p99 }: { p50: number; p99: number }): ResultRow {
  return { 'p50 ms': Number(p50.toPrecision(3)), 'p99 ms': Number(p99.toPrecision(3)) }
}

const write = (lockstep: Lockstep, number: number): Promise<void> =>
  lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: `p${number % 7}`, payload: { number } }))

const writeInSql = async (pool: pg.Pool, number: number): Promise<void> =>
  void (await pool.query(ENQUEUE_AND_RING, [`p${number % 7}`, JSON.stringify({ number })]))

/** From the answer to COMMIT until it was in the sink, in milliseconds. */
async function wakeUp(tell: () => Promise<Arrival[]>, commit: (number: number) => Promise<void>): Promise<number> {
  const number = ++numbers
  await commit(number)
  const at = performance.timeOrigin + performance.now()
  for (const deadline = performance.now() + LONGEST_WAIT_MS; performance.now() < deadline; await sleep(20)) {
    const arrival = (await tell()).find(([arrived]) => arrived === number)
    if (arrival !== undefined) return Math.max(0, arrival[1] - at)
  }
  throw new Error(`Event ${number} has not come.`)
}
