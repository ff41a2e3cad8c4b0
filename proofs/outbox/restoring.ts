import { setTimeout as sleep } from 'node:timers/promises'
import { type Delivery, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { dumpDatabase, restoreDatabase } from '../../tools/server/dump.ts'
import type { PostgresServer } from '../../tools/server/postgres.ts'
import type { Arrival } from '../checkers/streamOrder.ts'
import { RecordingSink, type Run, startRun } from './recording.ts'
import { createDatabase, useUpXids } from './restoring.sql.ts'
import { writeOnce, Writings } from './writers.ts'

/** Two that each get every event; the second is behind the first. */
export const DISPATCHERS = ['default', 'second'] as const
export type DispatcherName = (typeof DISPATCHERS)[number]

export const KEYS = 60
const WRITERS = 6
const SHARDS = 4
/** Small, so that windows are read in pieces, and a dump finds one that is cut. */
const BATCH = 20
/** A sent batch of each shard may be unknown to its cursor. */
export const IN_HAND = SHARDS * BATCH
/** The shards of the original are free on the copy when their leases have run out. */
const TTL_MS = 1500

const TOPIC = 'trades'
/** Streams that wait on the original: refused until they are blocked, put off again and again, and paused by an operator. */
const BLOCKED = 'portfolio 0'
const PUT_OFF = 'portfolio 1'
const PAUSED = 'portfolio 2'
/** Those of them that go on when somebody says so, and not before. */
export const HELD = [BLOCKED, PAUSED].map((key) => `${TOPIC}/${key}`)

/** A database with Lockstep on it. */
export interface Place {
  readonly url: string
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
  close(): Promise<void>
}

export function openPlace(url: string): Place {
  const pool = new pg.Pool({ connectionString: url, max: 20 })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  const close = async (): Promise<void> => {
    await lockstep.close()
    await pool.end()
  }
  return { url, pool, lockstep, close }
}

async function makeDatabase(server: PostgresServer, name: string): Promise<string> {
  await onServer(server, createDatabase(name))
  return server.url(name)
}

/** Has a server give away so many transaction ids. */
export function ageServer(server: PostgresServer, count: number): Promise<void> {
  return onServer(server, useUpXids(count))
}

async function onServer(server: PostgresServer, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: server.url() })
  await client.connect()
  try {
    await client.query(text)
  } finally {
    await client.end()
  }
}

/** What had arrived at a sink, in order. The dump was begun after the first `before` of it. */
export interface History {
  readonly arrivals: readonly Arrival[]
  readonly before: number
}

/** A dump, and what the world had seen of its database. */
export interface Dump {
  readonly file: string
  readonly history: Readonly<Record<DispatcherName, History>>
  /** Marks go on on the copy. */
  readonly writings: Writings
}

/** Starts both dispatchers of a place. */
export function dispatch(place: Place, answer?: (key: string) => Delivery): Readonly<Record<DispatcherName, Run>> {
  const start = (name: DispatcherName): Run =>
    startRun(place.lockstep, {
      name,
      sink: new RecordingSink(name === 'default' ? answer : undefined),
      shards: SHARDS,
      batch: BATCH,
      ttlMs: TTL_MS,
      attempts: 2,
      backoffMs: { first: 20 },
    })
  return { default: start('default'), second: start('second') }
}

/** Waits for a state; what comes of it when it does not come in time is for the goals to say. */
export async function until(holds: () => boolean | Promise<boolean>, withinMs = 60_000): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await holds()) && performance.now() < deadline) await sleep(20)
}

export async function write(place: Place, writings: Writings, transactions: number): Promise<void> {
  for (let n = 0; n < transactions; n++) await writeOnce(place.lockstep, writings, KEYS)
}

/**
 * Makes a database with an outbox, and a dump of it: under writers, with a backlog, streams that wait, and two dispatchers. Those are
 * stopped before the dump is begun (`quiet`), or run all the while.
 */
export async function dumpUnderLoad(
  server: PostgresServer,
  { name, quiet, events, file }: { name: string; quiet: boolean; events: number; file: string },
): Promise<Dump> {
  const place = openPlace(await makeDatabase(server, name))
  await place.lockstep.migrate()
  const writings = new Writings()
  const loops = Array.from({ length: WRITERS }, async () => {
    while (!writings.over) await writeOnce(place.lockstep, writings, KEYS)
  })
  try {
    // A backlog first: what a window finds is more than a batch.
    await until(() => writings.committed.size >= events / 2)
    const runs = dispatch(place, answerOfOriginal)
    await until(() => runs.default.sink.arrivals.length >= events / 8)
    await place.lockstep.outbox.pause({ topic: TOPIC, key: PAUSED, reason: 'the proof' })
    await until(async () => runs.default.sink.arrivals.length >= events / 4 && (await allWait(place)))
    if (quiet) await Promise.all([runs.default.stop(), runs.second.stop()])
    const before = countsOf(runs)
    // A change of segments in the middle: the dump has tables of one moment and sequences of a later one.
    const [, rotated] = await Promise.all([
      dumpDatabase(place.url, file),
      place.lockstep.outbox.retain({ olderThanMs: DAY_MS, rotateMs: 0 }),
    ])
    if (rotated.dropped > 0) throw new Error('a segment of today was dropped')
    if (!quiet) await Promise.all([runs.default.stop(), runs.second.stop()])
    const history = (each: DispatcherName): History => ({ arrivals: runs[each].sink.arrivals, before: before[each] })
    return { file, writings, history: { default: history('default'), second: history('second') } }
  } finally {
    writings.over = true
    await Promise.all(loops)
    await place.close()
  }
}

const DAY_MS = 24 * 60 * 60 * 1000

export function countsOf(runs: Readonly<Record<DispatcherName, Run>>): Record<DispatcherName, number> {
  return { default: runs.default.sink.arrivals.length, second: runs.second.sink.arrivals.length }
}

function answerOfOriginal(key: string): Delivery {
  if (key === BLOCKED) return { refused: 'never' }
  return key === PUT_OFF ? { unknown: 'later', retryAfterMs: 300 } : 'sent'
}

/** Whether there is a stream of each kind that waits. */
async function allWait(place: Place): Promise<boolean> {
  const states = new Set((await place.lockstep.outbox.parked()).map(({ state }) => state))
  return states.size === 3
}

/** Lets the streams go on that wait for an operator. */
export async function letGo(place: Place): Promise<void> {
  await place.lockstep.outbox.retry({ topic: TOPIC, key: BLOCKED })
  await place.lockstep.outbox.resume({ topic: TOPIC, key: PAUSED })
}

/** Restores a dump into a new database of a server. */
export async function restoreInto(server: PostgresServer, name: string, dump: Dump): Promise<Place> {
  const url = await makeDatabase(server, name)
  await restoreDatabase(dump.file, url)
  return openPlace(url)
}
