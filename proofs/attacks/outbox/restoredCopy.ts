import { dumpDatabase } from '../../../tools/server/dump.ts'
import type { PostgresServer } from '../../../tools/server/postgres.ts'
import { type Arrival, Arrivals } from '../../checkers/arrivals.ts'
import { until } from '../../until.ts'
import type { LockstepDatabase } from '../database.ts'
import { ALL_EVENTS } from './outbox.sql.ts'
import {
  ageServer,
  dispatch,
  type DispatcherName,
  DISPATCHERS,
  type Dump,
  FurtherWritings,
  type History,
  IN_HAND,
  KEYS,
  newSinks,
  restoreInto,
  SETTLED_MS,
  type Sinks,
} from './restoring.ts'
import { CUT_WINDOWS, LARGEST_XID, LAST_NUMBERS, NEXT_XID, UNDELIVERED } from './restoring.sql.ts'
import { writeOnce } from './writers.ts'

/** Cursors are written soon when a segment waits for them. */
const DROP_MS = 20_000

/** What a dump has of a dispatcher's events. */
interface Share {
  /** What had arrived at the original's sink. */
  readonly delivered: readonly Arrival[]
  /** Of that, what had arrived so long before the dump that its cursor must know it. */
  readonly known: ReadonlySet<string>
  /** What is not delivered, by the cursors in the dump; and whether it was parked already. */
  readonly undelivered: ReadonlyMap<string, boolean>
}

/** What the history of a dispatcher shows, the original's deliveries and the copy's. */
export interface Judgement {
  readonly deliveries: number
  readonly duplicates: number
  /** Came again although the cursors in the dump were past it. */
  readonly unexplained: number
  readonly outOfOrder: number
  readonly diverged: number
  /** Are in the database and did not arrive. */
  readonly missing: number
  readonly rolledBack: number
  readonly examples: readonly string[]
}

interface Found {
  readonly shares: Readonly<Record<DispatcherName, Share>>
  readonly cutWindows: number
  readonly largestXid: number
}

/** A restored dump: what it reported before any change, and what arrives from it. */
export class RestoredCopy {
  readonly database: LockstepDatabase
  readonly sinks: Sinks
  readonly found: Found
  readonly #server: PostgresServer
  readonly #writings: FurtherWritings

  private constructor(server: PostgresServer, dump: Dump, database: LockstepDatabase, found: Found) {
    this.#server = server
    this.#writings = new FurtherWritings(dump.writings)
    this.database = database
    this.sinks = newSinks(dump.writings.random)
    this.found = found
  }

  static async restore(server: PostgresServer, name: string, dump: Dump): Promise<RestoredCopy> {
    const database = await restoreInto(server, name, dump)
    return new RestoredCopy(server, dump, database, await look(database, dump))
  }

  close(): Promise<void> {
    return this.database.close()
  }

  /** Starts both dispatchers. The answer stops them. */
  start(): () => Promise<void> {
    return dispatch(this.database, this.sinks)
  }

  /** Writes some transactions, and gives the marks of what they committed. */
  async write(transactions: number): Promise<ReadonlySet<string>> {
    const { committed } = this.#writings
    const before = new Set(committed)
    for (let n = 0; n < transactions; n++) await writeOnce(this.database.lockstep, this.#writings, KEYS)
    return new Set([...committed].filter((mark) => !before.has(mark)))
  }

  async events(): Promise<Arrival[]> {
    return (await this.database.pool.query<Arrival>(ALL_EVENTS)).rows
  }

  /** Streams that wait for an operator; the other dispatcher has none. */
  async held(): Promise<Set<string>> {
    const streams = await this.database.lockstep.outbox.parked({ dispatcher: 'default', limit: 1000 })
    return new Set(streams.filter(({ state }) => state !== 'parked').map(({ topic, key }) => `${topic}/${key}`))
  }

  /** The operator lets them continue. */
  async letGo(): Promise<void> {
    const { outbox } = this.database.lockstep
    for (const { topic, key, state } of await outbox.parked({ dispatcher: 'default', limit: 1000 })) {
      if (state === 'paused') await outbox.resume({ topic, key })
      if (state === 'blocked') await outbox.retry({ topic, key })
    }
  }

  /** Waits until everything in the database has arrived, here or at the original; of the first dispatcher, but for these streams. */
  async settled(without: ReadonlySet<string> = new Set()): Promise<void> {
    const events = await this.events()
    for (const name of DISPATCHERS) {
      const { marks } = this.sinks[name].arrivals
      const before = new Set(this.found.shares[name].delivered.map(({ mark }) => mark))
      const expected = events.filter(({ key, mark }) => !before.has(mark) && !(name === 'default' && without.has(key)))
      await until(() => expected.every(({ mark }) => marks.has(mark)), SETTLED_MS)
    }
  }

  /** Has this server's transaction ids pass those of the events in the dump. */
  async passXids(): Promise<void> {
    const { rows } = await this.database.pool.query<{ next: number }>(NEXT_XID)
    const ahead = this.found.largestXid - (rows[0]?.next ?? 0)
    if (ahead >= 0) await ageServer(this.#server, ahead + 1)
  }

  /** Empties segments while the dispatchers run, until at least one is gone. */
  async dropSegments(): Promise<number> {
    let dropped = 0
    await until(async () => {
      dropped += (await this.database.lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })).dropped
      return dropped > 0
    }, DROP_MS)
    return dropped
  }

  async judge(name: DispatcherName): Promise<Judgement> {
    const { delivered, known, undelivered } = this.found.shares[name]
    const here = this.sinks[name].arrivals.all
    const both = new Arrivals([...delivered, ...here])
    const { duplicates, outOfOrder, diverged, examples } = both.report()
    const earlier = new Set(delivered.map(({ id }) => id))
    const seen = new Set<string>()
    let unexplained = 0
    for (const { id } of here) {
      if (seen.has(id) || (earlier.has(id) && (known.has(id) || !undelivered.has(id)))) unexplained++
      seen.add(id)
    }
    const marks = (await this.events()).map(({ mark }) => mark)
    return {
      deliveries: here.length,
      duplicates: duplicates - new Arrivals(delivered).report().duplicates,
      unexplained,
      outOfOrder,
      diverged,
      missing: both.missing(marks),
      rolledBack: both.arrived(this.#writings.rolledBack),
      examples,
    }
  }

  /** A dump of the copy, with its dispatchers stopped. */
  async dumpAgain(file: string): Promise<Dump> {
    await dumpDatabase(this.database.url, file)
    const history = (name: DispatcherName): History => {
      const arrivals = [...this.found.shares[name].delivered, ...this.sinks[name].arrivals.all]
      return { arrivals, before: arrivals.length }
    }
    return { file, writings: this.#writings, history: { default: history('default'), second: history('second') } }
  }
}

async function look({ pool }: LockstepDatabase, dump: Dump): Promise<Found> {
  const { rows: numbers } = await pool.query<{ key: string; last: number }>(LAST_NUMBERS)
  const { rows: cut } = await pool.query<{ cut: number }>(CUT_WINDOWS)
  const { rows: xids } = await pool.query<{ largest: number }>(LARGEST_XID)
  const { rows: open } = await pool.query<{ dispatcher: string; id: string; waits: boolean }>(UNDELIVERED)
  const last = new Map(numbers.map((each) => [each.key, each.last]))
  const shareOf = (name: DispatcherName): Share => {
    const { arrivals, before } = dump.history[name]
    const mine = open.filter(({ dispatcher }) => dispatcher === name)
    return {
      // What came after the dump was made is not part of its history.
      delivered: arrivals.filter(({ key, seq }) => seq <= (last.get(key) ?? 0)),
      known: new Set(arrivals.slice(0, Math.max(0, before - IN_HAND)).map(({ id }) => id)),
      undelivered: new Map(mine.map(({ id, waits }) => [id, waits])),
    }
  }
  const shares = { default: shareOf('default'), second: shareOf('second') }
  return { shares, cutWindows: cut[0]?.cut ?? 0, largestXid: xids[0]?.largest ?? 0 }
}
