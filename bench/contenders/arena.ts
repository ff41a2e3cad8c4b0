import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { type RequestProcess, startRequestProcess } from '../harness/requestProcess.ts'
import { ensurePeers, peerNode } from '../harness/peers.ts'
import { type Spent, spentBy } from '../harness/serverCost.ts'
import { quantile } from '../harness/spread.ts'
import type { ContenderName } from './all.ts'
import { createDatabase, HOLD_SNAPSHOT, HOLD_TRANSACTION, OTHERS_HERE, ROOM_TAKEN, SHOW_VERSION } from './arena.sql.ts'
import type { Purpose } from './contender.ts'
import type { Arrival, Consumed, Done, Task, TaskIn } from './contenderProcess.ts'
import { openPool } from '../harness/openPool.ts'

const PROCESS = new URL('contenderProcess.ts', import.meta.url)
/** What has not come by then does not come any more. */
const LONGEST_WAIT_MS = 20_000

/** Where Debian has a PostgreSQL with PgQ. */
const DEBIAN_15 = '/usr/lib/postgresql/15/bin'
const PGQ = '/usr/share/postgresql/15/extension/pgq.control'

export type ArenaVersion = 'bundled' | 'Debian 15'

/** Debian's has LLVM, and compiles what it takes for expensive. */
export function debian15IsThere(): boolean {
  return existsSync(join(DEBIAN_15, 'initdb'))
}

export function pgqIsThere(): boolean {
  return existsSync(PGQ) && debian15IsThere()
}

/** As it comes but for the room it has; every commit is on disk before it is answered, for all alike. */
const SETTINGS = { max_connections: '400', max_wal_size: '4GB', synchronous_commit: 'on' }

/** A server for all contenders, each in a database and a process of its own. */
export class Arena {
  readonly server: PostgresServer
  readonly admin: pg.Pool
  readonly #opened: Seat[] = []
  readonly #crews = new Map<ContenderName, Crew>()
  #seats = 0

  private constructor(server: PostgresServer) {
    this.server = server
    this.admin = openPool(server.url(), 1)
  }

  static async open(version: ArenaVersion, settings: Readonly<Record<string, string>> = {}): Promise<Arena> {
    ensurePeers()
    const of15 = (name: string): string => join(DEBIAN_15, name)
    const binaries = { initdb: of15('initdb'), postgres: of15('postgres'), pg_ctl: of15('pg_ctl') }
    const server = await startPostgres({
      durable: true,
      settings: { ...SETTINGS, ...settings },
      ...(version === 'Debian 15' ? { binaries } : {}),
    })
    return new Arena(server)
  }

  /** A place for a contender, with databases of its own. */
  async seat(name: ContenderName): Promise<Seat> {
    const number = ++this.#seats
    const [enqueue, deliver] = (['enqueue', 'deliver'] as const).map((purpose) => `${purpose}_${number}`) as [
      string,
      string,
    ]
    for (const database of [enqueue, deliver]) await this.admin.query(createDatabase(database))
    const crew = this.#crews.get(name) ?? new Crew(name)
    this.#crews.set(name, crew)
    const seat = new Seat(crew, { enqueue: this.server.url(enqueue), deliver: this.server.url(deliver) })
    this.#opened.push(seat)
    await seat.install()
    return seat
  }

  async version(): Promise<string> {
    const { rows } = await this.admin.query<{ server_version: string }>(SHOW_VERSION)
    return rows[0]?.server_version.split(' ')[0] ?? 'unknown'
  }

  spent(): Promise<Spent> {
    return spentBy(this.server, this.admin)
  }

  /** Of both databases of a contender, or of the one in which it enqueues or from which it delivers. */
  async roomTaken(seat: Seat, purposes: readonly Purpose[] = ['enqueue', 'deliver']): Promise<RoomTaken> {
    const names = purposes.map((purpose) => seat.databaseOf(purpose))
    const { rows } = await this.admin.query<RoomTaken>(ROOM_TAKEN, [names])
    return rows[0] ?? { connections: Number.NaN, bytes: Number.NaN }
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((seat) => seat.leave()))
    await Promise.all([...this.#crews.values()].map((crew) => crew.end()))
    await this.admin.end()
    await this.server.stop()
  }
}

export interface RoomTaken {
  readonly connections: number
  readonly bytes: number
}

/** The two processes of a contender: one that writes and one that delivers, each for all of its seats. */
class Crew {
  readonly name: ContenderName
  readonly #processes: Partial<Record<Purpose, Promise<RequestProcess>>> = {}
  #turn: Promise<unknown> = Promise.resolve()

  constructor(name: ContenderName) {
    this.name = name
  }

  /** One after the other: an answer belongs to the question before it. */
  ask<Answer>(who: Purpose, task: TaskIn): Promise<Answer> {
    const answer = this.#turn.then(async () => {
      this.#processes[who] ??= startRequestProcess(peerNode(), PROCESS, [this.name])
      return (await this.#processes[who]).ask<Answer>(task)
    })
    this.#turn = answer.catch(() => undefined)
    return answer
  }

  /** Only of those that were ever needed. */
  async close(url: string): Promise<void> {
    for (const who of Object.keys(this.#processes) as Purpose[]) {
      await this.ask(who, { task: 'close', url }).catch(() => undefined)
    }
  }

  async end(): Promise<void> {
    await this.#turn
    for (const running of Object.values(this.#processes)) await (await running).end()
  }
}

type Urls = Readonly<Record<Purpose, string>>

/** One contender with databases of its own. Enqueuing is timed in a database from which nothing is delivered. */
export class Seat {
  readonly #crew: Crew
  readonly #urls: Urls
  #delivered = 0

  constructor(crew: Crew, urls: Urls) {
    this.#crew = crew
    this.#urls = urls
  }

  get name(): ContenderName {
    return this.#crew.name
  }

  databaseOf(purpose: Purpose): string {
    return new URL(this.#urls[purpose]).pathname.slice(1)
  }

  /** All that was delivered so far. */
  get delivered(): number {
    return this.#delivered
  }

  #ask<Answer>(who: Purpose, where: Purpose, task: Task): Promise<Answer> {
    return this.#crew.ask(who, { ...task, url: this.#urls[where] })
  }

  async install(): Promise<void> {
    for (const purpose of ['enqueue', 'deliver'] as const)
      await this.#ask('enqueue', purpose, { task: 'install', purpose })
  }

  enqueue(count: number): Promise<Done> {
    return this.#ask('enqueue', 'enqueue', { task: 'enqueue', count })
  }

  /** Fills what is delivered from. */
  fill(count: number): Promise<number> {
    return this.#ask('enqueue', 'deliver', { task: 'fill', count })
  }

  async drain(upTo: number, longestMs: number): Promise<Done> {
    const done = await this.#ask<Done>('deliver', 'deliver', { task: 'drain', upTo, longestMs })
    this.#delivered += done.delivered
    return done
  }

  async consume(upTo: number, longestMs: number): Promise<Consumed> {
    const consumed = await this.#ask<Consumed>('deliver', 'deliver', { task: 'consume', upTo, longestMs })
    this.#delivered += consumed.delivered
    return consumed
  }

  /** From COMMIT's answer to the sink, in milliseconds, at an even pace: one process writes and another delivers. */
  async latencies(perSecond: number, warmUpMs: number, ms: number): Promise<number[]> {
    const produce = (forMs: number): Promise<Arrival[]> =>
      this.#ask('enqueue', 'deliver', { task: 'produce', perSecond, ms: forMs })
    await this.#ask('deliver', 'deliver', { task: 'listen' })
    try {
      await this.#arrivals(await produce(warmUpMs))
      const committed = await produce(ms)
      const arrived = await this.#arrivals(committed)
      // The sink can be faster than the answer to COMMIT.
      return committed.map(([number, at]) => Math.max(0, (arrived.get(number) ?? Infinity) - at))
    } finally {
      await this.#ask('deliver', 'deliver', { task: 'hush' })
    }
  }

  async #arrivals(committed: readonly Arrival[]): Promise<Map<number, number>> {
    const arrived = new Map<number, number>()
    for (const deadline = performance.now() + LONGEST_WAIT_MS; ; await sleep(20)) {
      for (const [number, at] of await this.#ask<Arrival[]>('deliver', 'deliver', { task: 'heard' }))
        arrived.set(number, at)
      if (arrived.size < committed.length && performance.now() < deadline) continue
      this.#delivered += arrived.size
      return arrived
    }
  }

  /** A session holds an old snapshot in both of its databases, until the returned function is called. */
  holdSnapshots(): Promise<() => Promise<void>> {
    return this.#hold(HOLD_SNAPSHOT)
  }

  /** A session holds a transaction id in both of its databases, until the returned function is called. */
  holdTransactions(): Promise<() => Promise<void>> {
    return this.#hold(HOLD_TRANSACTION)
  }

  /** A connection to the database from which it delivers. */
  async connectToDelivery(): Promise<pg.Client> {
    const client = new pg.Client(this.#urls.deliver)
    await client.connect()
    return client
  }

  async #hold(statement: string): Promise<() => Promise<void>> {
    const holders = Object.values(this.#urls).map((url) => new pg.Client(url))
    for (const holder of holders) {
      await holder.connect()
      await holder.query(statement)
    }
    return async () => void (await Promise.all(holders.map((holder) => holder.end())))
  }

  /** Asks the database from which it was delivered. Its connections are closed by then: only then are the statistics complete. */
  async askDatabase(question: string): Promise<number> {
    await this.leave()
    const client = new pg.Client(this.#urls.deliver)
    await client.connect()
    try {
      // A backend has reported its statistics by the time that it has ended.
      for (const deadline = performance.now() + LONGEST_WAIT_MS; performance.now() < deadline; await sleep(10)) {
        const { rows: others } = await client.query(OTHERS_HERE)
        if (others.length === 0) break
      }
      const { rows } = await client.query<{ answer: number }>(question)
      return rows[0]?.answer ?? Number.NaN
    } finally {
      await client.end()
    }
  }

  async leave(): Promise<void> {
    for (const url of Object.values(this.#urls)) await this.#crew.close(url)
  }
}

export function percentiles(latencies: readonly number[]): { p50: number; p99: number } {
  return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) }
}
