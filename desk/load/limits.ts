import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { NO_FAULTS } from '../exchange/index.ts'
import { sendOnce } from './sendOnce.ts'
import type { Client } from './client.ts'
import { setFaults } from './exchangeFaults.ts'
import { ANYTHING, OPENING } from './load.sql.ts'
import type { PositionSender } from './senders/positions.ts'
import { Durations } from './tally.ts'

/** What must hold however many signals are in flight, measured. */
export interface Limits {
  /** By how much a transaction with a free lock is longer than an empty one, both at p99 and in turns. */
  readonly lockMs: number
  readonly signalsInFlight: number
  /** The longest line for a connection that any process has had while the signals were in flight. */
  readonly waiting: number
  /** How often that was looked at. */
  readonly looks: number
  readonly quietReadMs: number
  /** The same question while the signals are in flight. */
  readonly busyReadMs: number
}

/** The median of the rounds counts: on a machine that is busy with something else, some of them show that. */
const LOCK_ROUNDS = 9
const LOCK_SAMPLES = 100
/** Above the size of a process's pool, many times. */
const SIGNALS_PER_PROCESS = 50
/** Signals come in over this time, as they do. */
const SPREAD_MS = 1000
/** So long the exchange keeps each of them waiting, so that all are in flight at once. */
const SLOW_MS = 4000
const LOOK_MS = 2500
const READ_PAUSE_MS = 5
const QUIET_READS = 100

interface LimitsContext {
  readonly client: Client
  readonly databaseUrl: string
  readonly exchangeUrl: string
  readonly processes: number
  readonly positions: PositionSender
}

/** Measured before the traffic begins, so that nothing else is in the way. */
export async function measureLimits(context: LimitsContext): Promise<Limits> {
  const pool = new pg.Pool({ connectionString: context.databaseUrl, max: 2, application_name: 'load' })
  try {
    const lockMs = await measureLock(pool)
    return { lockMs, ...(await measureReads(context, pool)) }
  } finally {
    await pool.end()
  }
}

async function measureLock(pool: pg.Pool): Promise<number> {
  const lockstep = new Lockstep(pool)
  const time = async (durations: Durations, lock: object): Promise<void> => {
    const began = performance.now()
    await lockstep.transaction(lock, (tx) => tx.query(ANYTHING))
    durations.add(performance.now() - began)
  }
  const rounds = new Durations()
  for (let round = 0; round < LOCK_ROUNDS; round++) {
    const [empty, locked] = [new Durations(), new Durations()]
    for (let index = 0; index < LOCK_SAMPLES; index++) {
      await time(empty, {})
      await time(locked, { lock: key`Load:free:${round}:${index}` })
    }
    rounds.add(locked.percentile(0.99) - empty.percentile(0.99))
  }
  await lockstep.close()
  return rounds.percentile(0.5)
}

async function measureReads(
  { client, exchangeUrl, processes, positions }: LimitsContext,
  pool: pg.Pool,
): Promise<Omit<Limits, 'lockMs'>> {
  const { origin } = client
  await client.post('transfers', { path: '/accounts', body: { id: 'load-reader' } })
  let quietReads = 0
  const quiet = await readFor(
    origin,
    () => quietReads < QUIET_READS,
    () => quietReads++,
  )
  await setFaults(exchangeUrl, { slowRate: 1, slowMs: SLOW_MS })
  const symbols = positions.freshSymbols(SIGNALS_PER_PROCESS * processes)
  const progress = { answered: 0 }
  const signals = symbols.map(async (symbol, index) => {
    await sleep((index * SPREAD_MS) / symbols.length)
    await positions.signal(symbol)
    progress.answered++
  })
  const pattern = `${symbols[0]?.slice(0, -1)}%`
  let inFlight = 0
  // All of them have written their row and wait for the exchange: from here on until the first one is back, no request needs a connection.
  try {
    while (inFlight < symbols.length && progress.answered === 0) {
      inFlight = (await pool.query<{ opening: number }>(OPENING, [pattern])).rows[0]?.opening ?? 0
      await sleep(READ_PAUSE_MS)
    }
  } finally {
    await setFaults(exchangeUrl, NO_FAULTS)
  }
  let waiting = 0
  let looks = 0
  const until = performance.now() + LOOK_MS
  const busy = await readFor(
    origin,
    () => progress.answered === 0 && performance.now() < until,
    (queue) => {
      looks++
      waiting = Math.max(waiting, queue)
    },
  )
  await Promise.all(signals)
  return {
    signalsInFlight: inFlight,
    waiting,
    looks,
    quietReadMs: quiet.percentile(0.99),
    busyReadMs: busy.percentile(0.99),
  }
}

/** Asks for an account, on a connection of its own so that each process is asked; and then how long the queue for connections is. */
async function readFor(origin: string, goesOn: () => boolean, look: (waiting: number) => void): Promise<Durations> {
  const durations = new Durations()
  while (goesOn()) {
    const began = performance.now()
    const answer = await sendOnce({ method: 'GET', url: `${origin}/accounts/load-reader`, timeoutMs: 10_000 })
    if (answer.status === 200) durations.add(performance.now() - began)
    const health = await sendOnce({ method: 'GET', url: `${origin}/health`, timeoutMs: 10_000 })
    if ('body' in health && health.status === 200) look((health.body['pool'] as { waiting: number }).waiting)
    await sleep(READ_PAUSE_MS)
  }
  return durations
}
