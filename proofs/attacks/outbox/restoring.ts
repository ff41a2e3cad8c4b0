import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery } from 'pg-lockstep'
import { dumpDatabase, restoreDatabase } from '../../../tools/server/dump.ts'
import type { PostgresServer } from '../../../tools/server/postgres.ts'
import type { Arrival } from '../../checkers/arrivals.ts'
import type { Random } from '../../seed.ts'
import { until } from '../../until.ts'
import { type LockstepDatabase, makeDatabase, onServer } from '../database.ts'
import { RecordingSink, type Run, startRun } from './recording.ts'
import { useUpXids } from './restoring.sql.ts'
import { writeOnce, Writings } from './writers.ts'

/** Two that each get every event. */
export const DISPATCHERS = ['default', 'second'] as const
export type DispatcherName = (typeof DISPATCHERS)[number]

export const KEYS = 60
const WRITERS = 6
const AWAY_MS = 20
const SHARDS = 4
/** Small, so that windows are read in pieces, and a dump finds one that is cut. */
const BATCH = 20
/** A sent batch of each shard may be unknown to its cursor. */
export const IN_HAND = SHARDS * BATCH
/** The shards of the original are free on the copy when their leases have run out. */
const TTL_MS = 1500

/** What has not come by then, the goals find missing. */
export const SETTLED_MS = 60_000

const TOPIC = 'trades'
/** Streams that wait on the original: refused until they are blocked, put off again and again, and paused by an operator. */
const BLOCKED = 'portfolio 0'
const PUT_OFF = 'portfolio 1'
const PAUSED = 'portfolio 2'

/** Has a server give away so many transaction ids. */
export function ageServer(server: PostgresServer, count: number): Promise<void> {
  return onServer(server, useUpXids(count))
}

/** What writers do on a copy: marks continue, and what was rolled back on the original must not turn up. */
export class FurtherWritings extends Writings {
  readonly #earlier: Writings

  constructor(earlier: Writings) {
    super(earlier.random)
    this.#earlier = earlier
    for (const mark of earlier.rolledBack) this.rolledBack.add(mark)
  }

  override mark(): string {
    return this.#earlier.mark()
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
  readonly writings: Writings
}

export type Sinks = Readonly<Record<DispatcherName, RecordingSink>>

/** Sinks that take everything, but for what the answer says of the first one's. */
export function newSinks(random: Random, answer?: (key: string) => Delivery): Sinks {
  return { default: new RecordingSink(random, answer), second: new RecordingSink(random) }
}

/** Starts both dispatchers of a place. The answer stops them. */
export function dispatch({ lockstep }: LockstepDatabase, sinks: Sinks): () => Promise<void> {
  const runs = DISPATCHERS.map((name): Run => {
    const backoffMs = { first: 20 }
    const sink = sinks[name]
    return startRun(lockstep, { name, sink, shards: SHARDS, batch: BATCH, ttlMs: TTL_MS, attempts: 2, backoffMs })
  })
  return async () => void (await Promise.all(runs.map((run) => run.stop())))
}

/** Writes until it is over. */
export function writeOn({ lockstep }: LockstepDatabase, writings: Writings): Promise<unknown> {
  return Promise.all(
    Array.from({ length: WRITERS }, async () => {
      while (!writings.over) {
        const before = writings.committed.size
        await writeOnce(lockstep, writings, KEYS)
        // No dispatcher succeeds: a server that is down is not queried all the time.
        if (writings.committed.size === before) await sleep(AWAY_MS)
      }
    }),
  )
}

/**
 * Makes a database with an outbox, and a dump of it: under writers, with a backlog, streams that wait, and two dispatchers. Those are
 * stopped before the dump is begun (`quiet`), or run all the while.
 */
export async function dumpUnderLoad(
  server: PostgresServer,
  { name, quiet, events, file, random }: { name: string; quiet: boolean; events: number; file: string; random: Random },
): Promise<Dump> {
  const database = await makeDatabase(server, name)
  await database.lockstep.migrate()
  const writings = new Writings(random)
  const writing = writeOn(database, writings)
  try {
    // A backlog first: what a window finds is more than a batch.
    await until(() => writings.committed.size >= events / 2, SETTLED_MS)
    const sinks = newSinks(random, answerOfOriginal)
    const stop = dispatch(database, sinks)
    await until(() => sinks.default.arrivals.count >= events / 8, SETTLED_MS)
    await database.lockstep.outbox.pause({ topic: TOPIC, key: PAUSED }, { reason: 'the proof' })
    await until(async () => sinks.default.arrivals.count >= events / 4 && (await allWait(database)), SETTLED_MS)
    if (quiet) await stop()
    const before = [sinks.default.arrivals.count, sinks.second.arrivals.count] as const
    // A change of segments in the middle: the dump has tables of one moment and sequences of a later one.
    await Promise.all([
      dumpDatabase(database.url, file),
      database.lockstep.outbox.retain({ olderThanMs: DAY_MS, rotateMs: 0 }),
    ])
    if (!quiet) await stop()
    return {
      file,
      writings,
      history: {
        default: { arrivals: sinks.default.arrivals.all, before: before[0] },
        second: { arrivals: sinks.second.arrivals.all, before: before[1] },
      },
    }
  } finally {
    writings.over = true
    await writing
    await database.close()
  }
}

const DAY_MS = 24 * 60 * 60 * 1000

function answerOfOriginal(key: string): Delivery {
  if (key === BLOCKED) return { refused: 'never' }
  return key === PUT_OFF ? { unknown: 'later', retryAfterMs: 300 } : 'sent'
}

/** Whether there is a stream of each kind that waits. */
async function allWait(database: LockstepDatabase): Promise<boolean> {
  const states = new Set((await database.lockstep.outbox.parked()).map(({ state }) => state))
  return states.size === 3
}

/** Restores a dump into a new database of a server. */
export async function restoreInto(server: PostgresServer, name: string, dump: Dump): Promise<LockstepDatabase> {
  const database = await makeDatabase(server, name)
  await restoreDatabase(dump.file, database.url)
  return database
}
