import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { ConnectionLostError, type Key, key, type Lease, LeaseHeldError, LockTimeoutError } from 'pg-lockstep'
import { exclusive, fetchHandler } from 'pg-lockstep/http'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import type { Client } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'
import { CREATE_JOBS, takeJob } from './leaseConnection.sql.ts'

const SIZES = {
  full: { processes: 6, contenders: 20, jobs: 10, rounds: 3 },
  scaledDown: { processes: 2, contenders: 4, jobs: 2, rounds: 1 },
}
type Size = (typeof SIZES)['full']

const POOL_SIZE = 4
const SILENCE_MS = 400
/** Callers that ask once, and callers that wait. */
const WAITS_MS = [0, 50, 700, 1500]
/** How long the naive program waits for its answer. */
const NAIVE_MS = 1500
/** Waits that begin with "held" and end long after the database was heard for the last time. */
const LONG_WAIT_MS = 6000

/** A program with a pool of its own, and its way to the server. */
interface Field {
  readonly arena: Arena
  readonly size: Size
  readonly proxy: Proxy
  readonly processes: readonly Client[]
}

/** Why the database cannot be asked. The function that `strike` returns ends the fault. */
interface Fault {
  readonly name: string
  strike(field: Field): Promise<() => Promise<void>>
}

const FAULTS: readonly Fault[] = [
  {
    name: 'exhausted pool',
    async strike({ processes }) {
      const taken = await Promise.all(
        processes.flatMap(({ pool }) => Array.from({ length: POOL_SIZE }, () => take(pool))),
      )
      return async () => {
        for (const connection of taken) connection.release()
        await Promise.resolve()
      }
    },
  },
  {
    name: 'silent network',
    async strike({ proxy }) {
      proxy.silence()
      await Promise.resolve()
      return async () => {
        proxy.resume()
        proxy.cutAll()
        await Promise.resolve()
      }
    },
  },
  {
    name: 'server down',
    async strike({ arena }) {
      await arena.lab.server.crash()
      return () => arena.lab.server.start()
    },
  },
]

function take(pool: Client['pool']): Promise<{ release(): void }> {
  return pool instanceof pg.Pool ? pool.connect() : pool.reserve()
}

/** How calls ended. */
interface Tally {
  held: number
  'no connection': number
  'connection lost': number
  granted: number
  other: number
}

/**
 * A job that one of many processes has to do: each asks for its lease and skips the job if it is held. No process holds it, but the
 * database cannot be asked: the pools are exhausted, the network is silent, the server is down. No call must receive "held", or every
 * process skips the job. The control is a helper that takes every failure for "held".
 */
export const leaseConnection: Edge = {
  name: 'lease-connection',
  async run(arena) {
    const { lab, driver, scaledDown } = arena
    const size = scaledDown ? SIZES.scaledDown : SIZES.full
    await lab.admin.query(CREATE_JOBS)
    const goals: Goal[] = []
    for (const fault of FAULTS) {
      const proxy = await startProxy({ targetPort: lab.server.port })
      const options = { poolSize: POOL_SIZE, silenceMs: SILENCE_MS }
      const processes = Array.from({ length: size.processes }, () =>
        lab.client(driver, proxy.url(lab.url('direct')), options),
      )
      try {
        goals.push(...(await attack(fault, { arena, size, proxy, processes })))
      } finally {
        proxy.resume()
        proxy.cutAll()
        await Promise.all(processes.map((each) => each.close()))
        await proxy.close()
      }
    }
    return goals
  },
}

async function attack(fault: Fault, field: Field): Promise<Goal[]> {
  const { size, processes, arena } = field
  const tally: Tally = { held: 0, 'no connection': 0, 'connection lost': 0, granted: 0, other: 0 }
  const seen = { skipped: 0, 'not done later': 0, 'naively skipped': 0, 'conflicts over HTTP': 0, 'other answers': 0 }
  for (let round = 0; round < size.rounds; round++) {
    arena.reportProgress(`lease-connection: ${fault.name}, round ${round + 1} of ${size.rounds}`)
    const jobs = Array.from({ length: size.jobs }, (_, job) => key`Job:${fault.name}:${arena.driver}:${round}:${job}`)
    // Each has connections, and knows the server.
    await Promise.all(processes.map((each) => busy(each)))
    const waiters = fault.name === 'silent network' ? await enqueueWaiter(field, round) : undefined
    const heal = await fault.strike(field)
    try {
      const [told, answers] = await Promise.all([
        Promise.all(jobs.map((job) => askFor(field, job))),
        Promise.all(processes.map((each, index) => requestOf(each, key`Request:${round}:${index}`))),
        naively(field, jobs).then((skipped) => (seen['naively skipped'] += skipped)),
      ])
      for (const outcomes of told) {
        for (const outcome of outcomes) tally[outcome]++
        if (outcomes.every((outcome) => outcome === 'held')) seen.skipped++
      }
      seen['conflicts over HTTP'] += answers.filter((status) => status === 409).length
      seen['other answers'] += answers.filter((status) => status !== 409 && status !== 503).length
      for (const outcome of (await waiters?.told) ?? []) tally[outcome]++
    } finally {
      await heal()
    }
    await waiters?.release()
    seen['not done later'] += await doLater(field, jobs)
  }
  const named = (name: string): string => `${fault.name}, ${name}`
  return [
    goal(named('answers "held" though the database could not be asked'), tally.held, '=', 0),
    goal(named('answers that are no connection error'), tally.granted + tally.other, '=', 0),
    ...(fault.name === 'exhausted pool'
      ? [goal(named('answers other than LockTimeoutError for a connection'), tally['connection lost'], '=', 0)]
      : []),
    goal(named('jobs that every process skipped'), seen.skipped, '=', 0),
    goal(named('jobs that could not be done afterwards'), seen['not done later'], '=', 0),
    goal(named('requests that received 409'), seen['conflicts over HTTP'], '=', 0),
    goal(named('requests that received neither 409 nor 503'), seen['other answers'], '=', 0),
    goal(
      `control, ${fault.name}: jobs that every process skipped, with a naive helper`,
      seen['naively skipped'],
      '>=',
      1,
    ),
  ]
}

/** All connections of the pool at once, so that all are open. */
async function busy(client: Client): Promise<void> {
  await Promise.all(Array.from({ length: POOL_SIZE }, () => client.query('SELECT pg_sleep(0.05)')))
  await client.lockstep.leases.inspect(key`Job:${'none'}`)
}

/** Every contender of every process asks for the job. */
function askFor({ processes, size }: Field, job: Key): Promise<(keyof Tally)[]> {
  const calls = processes.flatMap(({ lockstep }) =>
    Array.from({ length: size.contenders }, (_, number) =>
      outcomeOf(lockstep.leases.tryAcquire(job, { waitMs: WAITS_MS[number % WAITS_MS.length] as number })),
    ),
  )
  return Promise.all(calls)
}

async function outcomeOf(asking: Promise<Lease | undefined>): Promise<keyof Tally> {
  try {
    const lease = await asking
    void lease?.release()
    return lease === undefined ? 'held' : 'granted'
  } catch (error) {
    if (error instanceof LeaseHeldError) return 'held'
    if (error instanceof LockTimeoutError && error.waitedFor === 'connection') return 'no connection'
    return error instanceof ConnectionLostError ? 'connection lost' : 'other'
  }
}

/** A request that only one at a time may work on; gives the status of its answer. */
async function requestOf({ lockstep }: Client, name: Key): Promise<number> {
  const guard = exclusive(lockstep, { key: () => name, lease: { waitMs: 300 } })
  const handle = fetchHandler(guard, async () => Promise.resolve(new Response('done')))
  const response = await handle(new Request('http://localhost/', { method: 'POST' })).catch(() => undefined)
  return response?.status ?? 500
}

/** Every process waits for a lease whose holder has no fault. They are queued when this returns. */
async function enqueueWaiter(
  { arena, processes }: Field,
  round: number,
): Promise<{ readonly told: Promise<(keyof Tally)[]>; release(): Promise<void> }> {
  const { lab, driver } = arena
  const other = lab.client(driver, lab.url('direct'))
  const name = key`Held:${driver}:${round}`
  const lease = await other.lockstep.leases.acquire(name)
  const told = Promise.all(
    processes.map(({ lockstep }) => outcomeOf(lockstep.leases.acquire(name, { waitMs: LONG_WAIT_MS }))),
  )
  while ((await other.lockstep.leases.inspect(name)).waiters.length < processes.length) await sleep(20)
  return {
    told,
    release: async () => {
      await lease.release()
      await other.close()
    },
  }
}

/** When the fault is over, a caller that had an error does the job. Gives for how many of them none could. */
async function doLater({ processes }: Field, jobs: readonly Key[]): Promise<number> {
  const [process] = processes as [Client]
  const done = jobs.map(async (job) => {
    const lease = await process.lockstep.leases.tryAcquire(job, { waitMs: 30_000 }).catch(() => undefined)
    await lease?.release()
    return lease !== undefined
  })
  return (await Promise.all(done)).filter((each) => !each).length
}

/** The same with a helper that treats every failure as "held". Returns how many jobs were not done. */
async function naively({ processes, size }: Field, jobs: readonly Key[]): Promise<number> {
  const tryLock = async (client: Client, job: Key): Promise<boolean> => {
    try {
      const answer = client.query(takeJob(job))
      answer.catch(() => undefined)
      const rows = await Promise.race([answer, sleep(NAIVE_MS, undefined)])
      return rows !== undefined && rows.length > 0
    } catch {
      return false
    }
  }
  const skipped = await Promise.all(
    jobs.map(async (job) => {
      const calls = processes.flatMap((each) => Array.from({ length: size.contenders }, () => tryLock(each, job)))
      return (await Promise.all(calls)).every((locked) => !locked)
    }),
  )
  return skipped.filter(Boolean).length
}
