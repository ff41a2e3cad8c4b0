import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type EventToEnqueue, Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import type { PostgresServer } from '../tools/server/postgres.ts'
import type { ReportProgress } from './bench.ts'
import { createDatabase } from './contenders/arena.sql.ts'
import {
  addMembers,
  ANALYZE_LEASES,
  DATABASE_SIZE,
  LOOK_FOR_MEMBERS,
  RELOAD,
  REMOVE_MEMBERS,
  setFlush,
} from './cost.sql.ts'
import { type Cost, costing } from './harness/costing.ts'
import { interleave, type Turn } from './harness/interleave.ts'
import { openPool } from './harness/openPool.ts'
import { type Spent, spentBy } from './harness/serverCost.ts'
import { median, quantile } from './harness/spread.ts'
import { drain } from './outboxDrain.ts'
import { CONNECTIONS, eventOf, inChunks, onAllConnections } from './outboxEvents.ts'

export interface PartsSize {
  readonly rounds: number
  readonly enqueued: number
  readonly drained: number
  readonly singles: number
  /** At an even pace. */
  readonly paceMs: number
  readonly settleMs: number
  readonly memberLooks: number
  /** Beside the first one. */
  readonly moreDispatchers: number
}

export const PACE = 250
/** What a payload has more, in the second kind of events. It does not compress. */
const MORE_BYTES = 4000
const MEMBERS = 1000
const AT_ONCE = 500
const LONGEST_WAIT_MS = 60_000

/** A server, and what it has spent so far. */
export interface Meter {
  readonly server: PostgresServer
  readonly admin: pg.Pool
  readonly spent: () => Promise<Spent>
}

export function meterOf(server: PostgresServer): Meter {
  const admin = openPool(server.url(), 1)
  return { server, admin, spent: () => spentBy(server, admin) }
}

/** A database with an outbox, and its events. */
export interface Outbox {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
  readonly eventOf: (number: number) => EventToEnqueue
  close(): Promise<void>
}

export async function openOutbox({ server, admin }: Meter, database: string, moreBytes = 0): Promise<Outbox> {
  await admin.query(createDatabase(database))
  const pool = openPool(server.url(database), CONNECTIONS)
  const lockstep = new Lockstep(pool) as unknown as Lockstep
  await lockstep.migrate()
  const more = moreBytes === 0 ? {} : { more: randomBytes((moreBytes * 3) / 4).toString('base64') }
  return {
    pool,
    lockstep,
    eventOf: (number) => {
      const event = eventOf(number)
      return { ...event, payload: { ...(event.payload as object), ...more } }
    },
    async close() {
      await lockstep.close()
      await pool.end()
    },
  }
}

export type MeasuredParts = Awaited<ReturnType<typeof measureParts>>

/** What single parts of the outbox cost the server: the numbers that `pg-lockstep capacity` multiplies. */
export async function measureParts(meter: Meter, size: PartsSize, reportProgress: ReportProgress) {
  const small = await openOutbox(meter, 'small_events')
  const large = await openOutbox(meter, 'large_events', MORE_BYTES)
  try {
    const enqueued = await enqueueBoth(meter, { small, large }, size, reportProgress)
    reportProgress('cost: one connection', 0.3)
    const latencies = await latenciesAlone(meter, small, size.singles)
    reportProgress('cost: drain', 0.4)
    const drained = await drainBoth(meter, { small, large }, size)
    reportProgress('cost: at an even pace', 0.5)
    const alone = await atEvenPace(meter, small, 1, size)
    reportProgress(`cost: at an even pace, ${1 + size.moreDispatchers} dispatchers`, 0.7)
    const shared = await atEvenPace(meter, small, 1 + size.moreDispatchers, size)
    reportProgress('cost: many processes', 0.9)
    const memberCpuUs = await costOfMembers(meter, small, size.memberLooks)
    const { cpu: eventCpu, wal: eventWal } = enqueued.small
    const perByte = (of: (turn: typeof enqueued.small) => number): number =>
      Math.max(0, of(enqueued.large) - of(enqueued.small)) / MORE_BYTES
    // By the events that came, not by those that should have come: a busy machine does not keep the pace.
    const look = alone.cpuUsPerS / alone.eventsPerS - eventCpu
    const spentOn = (paced: Paced, of: 'cpuUsPerS' | 'walBytesPerS', each: number): number =>
      paced[of] - paced.eventsPerS * each
    const [lookCpu, lookWal] = [Math.max(0, look), Math.max(0, alone.walBytesPerS / alone.eventsPerS - eventWal)]
    const flushMs = Math.max(0.01, latencies.flushed - latencies.unflushed)
    return {
      payloadBytes: JSON.stringify(small.eventOf(1).payload).length,
      event: { cpuUs: eventCpu, walBytes: eventWal, diskBytes: enqueued.small.disk },
      payloadByte: {
        cpuUs: perByte(({ cpu }) => cpu),
        walBytes: perByte(({ wal }) => wal),
        diskBytes: perByte(({ disk }) => disk),
        readCpuUs: Math.max(0, drained.large.cpu - drained.small.cpu) / MORE_BYTES,
      },
      delivery: { cpuUs: drained.small.cpu, walBytes: Math.max(0, drained.small.wal) },
      look: {
        cpuUs: lookCpu,
        walBytes: lookWal,
        waitMs: Math.max(0, alone.p50Ms - lookCpu / 1000),
      },
      process: {
        cpuUsPerS: Math.max(0, spentOn(shared, 'cpuUsPerS', eventCpu + lookCpu) / size.moreDispatchers),
        walBytesPerS: Math.max(0, spentOn(shared, 'walBytesPerS', eventWal + lookWal) / size.moreDispatchers),
      },
      memberCpuUs,
      clientMs: Math.max(0, latencies.unflushed - eventCpu / 1000),
      flushMs,
      readPerS: drained.small.rate,
    }
  } finally {
    await small.close()
    await large.close()
  }
}

type Both<T> = Readonly<Record<'small' | 'large', T>>

const enqueueOne =
  ({ lockstep, eventOf: own }: Outbox) =>
  (number: number): Promise<void> =>
    lockstep.transaction({}, (tx) => tx.enqueue(own(number)))

/** One event a transaction. The disk that it takes, too. */
async function enqueueBoth(
  meter: Meter,
  both: Both<Outbox>,
  { rounds, enqueued }: PartsSize,
  reportProgress: ReportProgress,
): Promise<Both<Turn<Cost> & { readonly disk: number }>> {
  const turnOf = (outbox: Outbox) => (): Promise<Turn<Cost>> =>
    costing(meter.spent, async () => {
      const startedAt = performance.now()
      await onAllConnections(enqueueOne(outbox))(enqueued)
      return { rate: (enqueued / (performance.now() - startedAt)) * 1000, events: enqueued }
    })
  const before = { small: await sizeOf(both.small), large: await sizeOf(both.large) }
  const turns = await interleave({ small: turnOf(both.small), large: turnOf(both.large) }, rounds, (text, done, all) =>
    reportProgress(`cost: enqueue, ${text}`, (0.3 * done) / all),
  )
  const of = async (name: 'small' | 'large'): Promise<Turn<Cost> & { readonly disk: number }> => ({
    rate: turns.of(name, 'rate').median,
    wal: turns.of(name, 'wal').median,
    cpu: turns.of(name, 'cpu').median,
    disk: ((await sizeOf(both[name])) - before[name]) / (enqueued * (rounds + 1)),
  })
  return { small: await of('small'), large: await of('large') }
}

async function sizeOf({ pool }: Outbox): Promise<number> {
  const { rows } = await pool.query<{ bytes: number }>(DATABASE_SIZE)
  return rows[0]?.bytes ?? Number.NaN
}

/** One transaction at a time, with the flush of its COMMIT and without. */
async function latenciesAlone(
  { admin }: Meter,
  outbox: Outbox,
  count: number,
): Promise<{ flushed: number; unflushed: number }> {
  const enqueue = enqueueOne(outbox)
  const of = async (flush: boolean): Promise<number> => {
    await admin.query(setFlush(flush))
    await admin.query(RELOAD)
    const samples: number[] = []
    for (let number = 0; number < count; number++) {
      const startedAt = performance.now()
      await enqueue(number)
      samples.push(performance.now() - startedAt)
    }
    return median(samples)
  }
  const unflushed = await of(false)
  return { flushed: await of(true), unflushed }
}

async function drainBoth(
  { spent }: Meter,
  both: Both<Outbox>,
  { rounds, drained }: PartsSize,
): Promise<Both<Turn<Cost>>> {
  for (const { lockstep, eventOf: own } of [both.small, both.large])
    await inChunks(drained, AT_ONCE, (numbers) =>
      lockstep.transaction({}, (tx) => tx.enqueueMany(numbers.map((number) => own(number)))),
    )
  const turnOf = (outbox: Outbox) => (): Promise<Turn<Cost>> =>
    costing(spent, async () => {
      const { events, ms } = await drain(outbox.lockstep, drained)
      return { rate: (events / ms) * 1000, events: drained }
    })
  const turns = await interleave(
    { small: turnOf(both.small), large: turnOf(both.large) },
    Math.min(3, rounds),
    () => undefined,
  )
  const of = (name: 'small' | 'large'): Turn<Cost> => ({
    rate: turns.of(name, 'rate').median,
    wal: turns.of(name, 'wal').median,
    cpu: turns.of(name, 'cpu').median,
  })
  return { small: of('small'), large: of('large') }
}

/** What was measured while events came at an even pace. */
export interface Paced {
  readonly eventsPerS: number
  readonly cpuUsPerS: number
  readonly walBytesPerS: number
  /** From the answer of COMMIT to the sink. */
  readonly p50Ms: number
  readonly p99Ms: number
}

/** Events at an even pace, and so many dispatchers with pools of their own, as in as many processes. */
async function atEvenPace(meter: Meter, outbox: Outbox, dispatchers: number, size: PartsSize): Promise<Paced> {
  await using delivering = await deliver(meter, outbox, dispatchers)
  const enqueue = enqueueOne(outbox)
  await atPace(PACE, size.settleMs, enqueue)
  const before = { ...(await meter.spent()), at: performance.now() }
  const committedAt = new Map<number, number>()
  await atPace(PACE, size.paceMs, async (number) => {
    await enqueue(FIRST_COUNTED + number)
    committedAt.set(FIRST_COUNTED + number, performance.now())
  })
  const latencies = await delivering.latencies(committedAt)
  const seconds = (performance.now() - before.at) / 1000
  const after = await meter.spent()
  return {
    eventsPerS: committedAt.size / seconds,
    cpuUsPerS: ((after.cpuMs - before.cpuMs) * 1000) / seconds,
    walBytesPerS: (after.walBytes - before.walBytes) / seconds,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
  }
}

/** Numbers of events whose latency counts: no other event has them. */
export const FIRST_COUNTED = 1_000_000_000

export interface Delivering extends AsyncDisposable {
  /** From the answer of COMMIT to the sink, when all of them have arrived. The sink can be faster than the answer. */
  latencies(committedAt: ReadonlyMap<number, number>): Promise<number[]>
}

let names = 0

/** Dispatchers that have delivered what was there when they began. */
export async function deliver({ server }: Meter, outbox: Outbox, count: number): Promise<Delivering> {
  const stop = new AbortController()
  const name = `cost-${++names}`
  const arrivedAt = new Map<number, number>()
  const database = new URL(outbox.pool.options.connectionString ?? '').pathname.slice(1)
  const pools = Array.from({ length: count }, () => openPool(server.url(database), 4))
  const all = pools.map((pool) => new Lockstep(pool))
  const running = all.map((lockstep) =>
    lockstep.outbox
      .dispatcher({
        name,
        retainMs: false,
        sink(events) {
          for (const { payload } of events) arrivedAt.set((payload as { id: number }).id, performance.now())
        },
      })
      .run({ signal: stop.signal }),
  )
  const arrived = async (numbers: Iterable<number>): Promise<void> => {
    for (const deadline = performance.now() + LONGEST_WAIT_MS; ; await sleep(20)) {
      if ([...numbers].every((number) => arrivedAt.has(number))) return
      if (performance.now() > deadline) throw new Error('events have not been delivered')
    }
  }
  // Behind the backlog, in all shards.
  const last = Array.from({ length: 100 }, (_, place) => FIRST_COUNTED * 2 + place)
  for (const number of last) await enqueueOne(outbox)(number)
  await arrived(last)
  return {
    async latencies(committedAt) {
      await arrived(committedAt.keys())
      return [...committedAt].map(([number, at]) => Math.max(0, (arrivedAt.get(number) ?? Infinity) - at))
    },
    async [Symbol.asyncDispose]() {
      stop.abort()
      await Promise.all(running)
      await Promise.all(all.map((lockstep) => lockstep.close()))
      await Promise.all(pools.map((pool) => pool.end()))
    },
  }
}

/** Begins so many a second, whether those before have ended or not, and waits for all. */
export async function atPace(perS: number, ms: number, work: (number: number) => Promise<unknown>): Promise<void> {
  const startedAt = performance.now()
  const count = Math.max(1, Math.round((perS * ms) / 1000))
  const all: Promise<unknown>[] = []
  for (let number = 0; number < count; number++) {
    const waitMs = startedAt + (number * 1000) / perS - performance.now()
    if (waitMs > 1) await sleep(waitMs)
    all.push(work(number))
  }
  await Promise.all(all)
}

/** What a process pays for the row of another one, when it looks who is there. */
async function costOfMembers({ spent }: Meter, { pool }: Outbox, looks: number): Promise<number> {
  const look = async (): Promise<number> => {
    await pool.query(LOOK_FOR_MEMBERS)
    const before = await spent()
    for (let number = 0; number < looks; number++) await pool.query(LOOK_FOR_MEMBERS)
    return ((await spent()).cpuMs - before.cpuMs) * 1000
  }
  const without = await look()
  await pool.query(addMembers(MEMBERS))
  await pool.query(ANALYZE_LEASES)
  const among = await look()
  await pool.query(REMOVE_MEMBERS)
  return Math.max(0, among - without) / looks / MEMBERS
}
