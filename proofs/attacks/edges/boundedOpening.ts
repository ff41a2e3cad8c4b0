import { setTimeout as sleep } from 'node:timers/promises'
import { key, LockAbortedError, LockTimeoutError, type Transaction } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import type { Client } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'

const SIZES = {
  full: { rounds: 8, hangMs: 5000 },
  scaledDown: { rounds: 1, hangMs: 1500 },
}

const POOL_SIZE = 4
const WAIT_MS = 500
const ABORT_MS = 300
/** Time enough for two dead connections and a living one. */
const LONG_WAIT_MS = 6000
const LEVELS = ['read committed', 'repeatable read', 'serializable'] as const
type Level = (typeof LEVELS)[number]

/** Half of the callers must be answered so soon after their time; every one so soon, on a machine that is busy with other things. */
const SOON_MS = 100
const LATE_MS = 1500

const nothing = async (): Promise<void> => Promise.resolve()

/** What was seen. All times are those after the moment at which the caller should have been answered. */
interface Seen {
  readonly timeouts: number[]
  readonly aborts: number[]
  wrong: number
  ran: number
  ranTwice: number
  late: number
}

/**
 * Connections lie idle in the pool and are dead: the network swallows everything, and closes nothing. `silenceMs` is at its default of
 * 30 s. `waitMs` and `signal` must bound the opening all the same; and where only the old connections are dead, callers must come through
 * on new ones. The control is a query of the driver on such a connection.
 */
export const boundedOpening: Edge = {
  name: 'bounded-opening',
  async run(arena) {
    const size = arena.scaledDown ? SIZES.scaledDown : SIZES.full
    const seen: Seen = { timeouts: [], aborts: [], wrong: 0, ran: 0, ranTwice: 0, late: 0 }
    let hung = 0
    for (let round = 0; round < size.rounds; round++) {
      for (const level of LEVELS) {
        arena.reportProgress(`bounded-opening: round ${round + 1} of ${size.rounds}, ${level}`)
        await onDeadNetwork(arena, (client) => askInVain(client, level, seen))
        await onDeadConnections(arena, (client) => askOnOthers(client, level, seen))
      }
      hung += await onDeadNetwork(arena, (client) => plainly(client, size.hangMs))
    }
    const callers = size.rounds * LEVELS.length * POOL_SIZE
    return [
      goal('ms after waitMs, half of the callers', median(seen.timeouts), '<=', SOON_MS),
      goal('ms after waitMs, every caller', Math.max(...seen.timeouts), '<=', LATE_MS),
      goal('ms after the abort, half of the callers', median(seen.aborts), '<=', SOON_MS),
      goal('ms after the abort, every caller', Math.max(...seen.aborts), '<=', LATE_MS),
      goal(
        'callers with another error than LockTimeoutError for a connection, or LockAbortedError',
        seen.wrong,
        '=',
        0,
      ),
      goal('callers that came through on another connection', seen.ran, '=', callers),
      goal('callers that came through after waitMs', seen.late, '=', 0),
      goal('callers whose function ran twice', seen.ranTwice, '=', 0),
      goal(`control: queries that hang for longer than ${size.hangMs} ms`, hung, '>=', 1),
    ] satisfies Goal[]
  },
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Infinity
}

/** A client whose connections are all open and idle. */
async function withIdle<T>({ lab, driver }: Arena, work: (client: Client, proxy: Proxy) => Promise<T>): Promise<T> {
  const proxy = await startProxy({ targetPort: lab.server.port })
  const client = lab.client(driver, proxy.url(lab.url('direct')), { poolSize: POOL_SIZE })
  try {
    await client.lockstep.transaction({}, nothing)
    await Promise.all(Array.from({ length: POOL_SIZE }, () => client.query('SELECT pg_sleep(0.1)')))
    await client.lockstep.transaction({ lock: key`Opening:${'warm'}` }, nothing)
    return await work(client, proxy)
  } finally {
    proxy.resume()
    proxy.cutAll()
    await client.close()
    await proxy.close()
  }
}

function onDeadNetwork<T>(arena: Arena, work: (client: Client) => Promise<T>): Promise<T> {
  return withIdle(arena, (client, proxy) => {
    proxy.silence()
    return work(client)
  })
}

/** What is open is dead; new connections pass. */
function onDeadConnections<T>(arena: Arena, work: (client: Client) => Promise<T>): Promise<T> {
  return withIdle(arena, (client, proxy) => {
    for (const connection of proxy.connections.slice(0, POOL_SIZE / 2)) connection.silence()
    return work(client)
  })
}

/** Half of them with a short wait, half of them with a signal. */
async function askInVain({ lockstep }: Client, isolation: Level, seen: Seen): Promise<void> {
  const calls = Array.from({ length: POOL_SIZE }, async (_, number) => {
    const startedAt = performance.now()
    const aborts = number % 2 === 0
    const options = aborts ? { signal: AbortSignal.timeout(ABORT_MS) } : { waitMs: WAIT_MS }
    const lock = key`Opening:${number}`
    const error: unknown = await lockstep
      .transaction({ lock, isolation, ...options }, nothing)
      .catch((failure: unknown) => failure)
    const tookMs = performance.now() - startedAt
    if (aborts) seen.aborts.push(tookMs - ABORT_MS)
    else seen.timeouts.push(tookMs - WAIT_MS)
    const right = aborts
      ? error instanceof LockAbortedError
      : error instanceof LockTimeoutError && error.waitedFor === 'connection'
    if (!right) seen.wrong++
  })
  await Promise.all(calls)
}

async function askOnOthers({ lockstep }: Client, isolation: Level, seen: Seen): Promise<void> {
  const calls = Array.from({ length: POOL_SIZE }, async (_, number) => {
    const startedAt = performance.now()
    let runs = 0
    const run = async (_tx: Transaction): Promise<void> => Promise.resolve(void runs++)
    const options = { lock: key`Opening:${number}`, isolation, waitMs: LONG_WAIT_MS, retry: false } as const
    await lockstep.transaction(options, run).catch(() => undefined)
    if (runs > 0) seen.ran++
    if (runs > 1) seen.ranTwice++
    if (performance.now() - startedAt > LONG_WAIT_MS + LATE_MS) seen.late++
  })
  await Promise.all(calls)
}

/** How many queries of the driver are still not answered after that time. */
async function plainly(client: Client, hangMs: number): Promise<number> {
  const answers = Array.from({ length: POOL_SIZE }, () => {
    const answer = client.query('SELECT 1').then(
      () => 0,
      () => 0,
    )
    return Promise.race([answer, sleep(hangMs, 1)])
  })
  return (await Promise.all(answers)).reduce((sum, each) => sum + each, 0)
}
