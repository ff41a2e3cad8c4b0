import type { LeaseInfo, LockListing, OutboxStatus, ParkedStream } from '../index.ts'
import { epochList, quoteIdentifier } from '../postgres/index.ts'
import {
  type EpochRow,
  headOfStream,
  type HeadRow,
  leaseCounts,
  type LeaseCountsRow,
  PING,
  position,
  pulse,
  type PulseRow,
  SERVER,
  type ServerRow,
} from './console.sql.ts'
import type { ConsoleLockstep } from './consoleOptions.ts'
import { readOwnRows } from './ownRows.ts'
import { guardRow, MAX_ROWS } from './snapshots.ts'
import type { GuardList, GuardRow, Tab } from './wire.ts'

/** The outbox at a moment. */
export interface Delivery {
  readonly status: OutboxStatus
  /** How many events had been given a place when the status was asked for. */
  readonly position: number
  readonly at: number
}

/** What is asked of the database, each by itself and at a pace of its own. */
export interface QueryResults {
  readonly leaseCounts: LeaseCountsRow
  readonly delivery: Delivery
  readonly pulse: PulseRow
  readonly locks: LockListing
  readonly leases: readonly LeaseInfo[]
  readonly parked: readonly ParkedStream[]
}

export type QueryName = keyof QueryResults

/** In the order in which they are asked where several are due: what a tab needs beside its own comes before it. */
export const QUERIES: readonly QueryName[] = ['leaseCounts', 'delivery', 'pulse', 'locks', 'leases', 'parked']

/** What each tab is made of. With an answer to the last of them it is made again. */
export const TAB_QUERIES: Readonly<Record<Tab, readonly QueryName[]>> = {
  overview: ['leaseCounts', 'delivery', 'pulse'],
  locks: ['locks'],
  leases: ['leaseCounts', 'leases'],
  outbox: ['delivery', 'parked'],
}

/** How often each is asked, in units of `everyMs`. */
export const POLL_INTERVALS: Readonly<Record<QueryName, number>> = {
  leaseCounts: 2,
  delivery: 2,
  pulse: 1,
  locks: 1,
  leases: 2,
  parked: 2,
}

/** How often each goes there and back, where a ping, which is a transaction, does so three times. */
export const ROUND_TRIPS: Readonly<Record<QueryName, number>> = {
  leaseCounts: 3,
  delivery: 7,
  pulse: 3,
  locks: 1,
  leases: 2,
  parked: 1,
}
export const PING_ROUND_TRIPS = 3

/** More of them say nothing about today. */
const MAX_EPOCHS = 20
/** More are listed on the command line. */
const MAX_GUARDS = 50
const SAMPLES = 5
/** Larger payloads are for other tools. */
export const MAX_PAYLOAD_BYTES = 1_000_000

/** The questions, each on one connection of the pool while it is asked. */
export class ConsoleQueries {
  readonly #lockstep: ConsoleLockstep
  readonly #schema: string

  constructor(lockstep: ConsoleLockstep) {
    this.#lockstep = lockstep
    this.#schema = quoteIdentifier(lockstep.schema)
  }

  readonly ask: { readonly [Name in QueryName]: () => Promise<QueryResults[Name]> } = {
    pulse: () => this.#row<PulseRow>(pulse(this.#schema)),
    leaseCounts: () => this.#row<LeaseCountsRow>(leaseCounts(this.#schema)),
    delivery: async () => {
      const row = await this.#row<{ position: string }>(position(this.#schema))
      const at = performance.now()
      return { status: await this.#lockstep.outbox.status(), position: Number(row.position), at }
    },
    locks: () => this.#lockstep.locks.list(),
    leases: () => this.#lockstep.leases.list({ limit: MAX_ROWS }),
    parked: () => this.#lockstep.outbox.parked({ limit: MAX_ROWS }),
  }

  async ping(): Promise<void> {
    await this.#query(PING, [])
  }

  server(): Promise<ServerRow> {
    return this.#row<ServerRow>(SERVER)
  }

  /** The event at the head of a stream that waits; undefined where there is none. */
  async head(dispatcher: string, topic: string, key: string): Promise<HeadRow | undefined> {
    const [row] = await this.#query<HeadRow>(headOfStream(this.#schema, MAX_PAYLOAD_BYTES), [dispatcher, topic, key])
    return row
  }

  epochs(): Promise<EpochRow[]> {
    return this.#query<EpochRow>(epochList(this.#schema, MAX_EPOCHS), [])
  }

  /** All guards, and of those that found something the newest samples. */
  async guards(): Promise<GuardList> {
    const { guards } = this.#lockstep
    const rows: GuardRow[] = []
    for (const guard of (await guards.list()).slice(0, MAX_GUARDS)) {
      const { table, key } = guard
      const samples = guard.unlocked === 0 ? [] : await guards.samples(table, { key, limit: SAMPLES })
      rows.push(guardRow(guard, samples))
    }
    return { guards: rows }
  }

  async #row<Row>(text: string): Promise<Row> {
    const [row] = await this.#query<Row>(text, [])
    return row as Row
  }

  #query<Row>(text: string, values: readonly string[]): Promise<Row[]> {
    return readOwnRows<Row>(this.#lockstep, text, values)
  }
}
