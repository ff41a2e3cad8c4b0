import { setTimeout as sleep } from 'node:timers/promises'
import { type Numbered, orderOf, type OrderCounts } from '../../checkers/keyOrder.ts'
import type { Random } from '../../seed.ts'
import { ALL_EFFECTS, COUNT_EFFECTS, COUNT_WRITTEN, CREATE_EFFECTS, UNMATCHED } from '../consumers.sql.ts'
import type { LockstepDatabase } from '../database.ts'

const EACH_TRANSACTION = 50
const LOOK_EVERY_MS = 50
/** A server that crashed is there again by then. */
const ASK_FOR_MS = 60_000

/** What was found of the effects, in the end. */
export interface Judged extends OrderCounts {
  readonly written: number
  /** Events without an effect. */
  readonly missing: number
  /** Effects of events that are not there. */
  readonly invented: number
}

/** What was written to the outbox of a database, and the effects that it has had there. */
export class Books {
  readonly #database: LockstepDatabase
  readonly #topic: string
  readonly #keys: number
  readonly #random: Random
  #written = 0

  constructor(database: LockstepDatabase, topic: string, keys: number, random: Random) {
    this.#database = database
    this.#topic = topic
    this.#keys = keys
    this.#random = random
  }

  get written(): number {
    return this.#written
  }

  async open(): Promise<void> {
    await this.#database.lockstep.migrate()
    await this.#database.pool.query(CREATE_EFFECTS)
  }

  /** So many events more. The server may crash meanwhile: then what is there counts. */
  async write(count: number): Promise<void> {
    const goal = this.#written + count
    while (this.#written < goal) {
      const events = Array.from({ length: Math.min(EACH_TRANSACTION, goal - this.#written) }, () => ({
        topic: this.#topic,
        key: `account ${this.#random.below(this.#keys)}`,
        payload: {},
      }))
      try {
        await this.#database.lockstep.transaction({}, (tx) => tx.enqueueMany(events))
        this.#written += events.length
      } catch {
        this.#written = await this.#count()
      }
    }
  }

  /** Until there are so many effects, or none came for so long. */
  async reached(effects: number, silentMs: number): Promise<void> {
    await this.#wait(silentMs, (counted) => counted.effects >= effects)
  }

  /** Until every event has an effect, and one has two where that is what is waited for; or nothing came for so long. */
  async settled(silentMs: number, doubled: boolean): Promise<void> {
    await this.#wait(silentMs, ({ effects, events }) => events >= this.#written && (!doubled || effects > events))
  }

  async judge(): Promise<Judged> {
    const [unmatched] = await this.#ask<{ missing: number; invented: number }>(UNMATCHED, [this.#topic])
    const written = await this.#count()
    const { missing = written, invented = 0 } = unmatched ?? {}
    return { ...orderOf(await this.#ask<Numbered>(ALL_EFFECTS)), written, missing, invented }
  }

  async #count(): Promise<number> {
    return (await this.#ask<{ written: number }>(COUNT_WRITTEN, [this.#topic]))[0]?.written ?? 0
  }

  async #wait(silentMs: number, holds: (counted: { effects: number; events: number }) => boolean): Promise<void> {
    let before = -1
    for (let deadline = Infinity; performance.now() < deadline; await sleep(LOOK_EVERY_MS)) {
      const [counted = { effects: 0, events: 0 }] = await this.#ask<{ effects: number; events: number }>(COUNT_EFFECTS)
      if (holds(counted)) return
      if (counted.effects === before) continue
      before = counted.effects
      deadline = performance.now() + silentMs
    }
  }

  async #ask<Row extends object>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    for (const deadline = performance.now() + ASK_FOR_MS; ; await sleep(LOOK_EVERY_MS)) {
      try {
        return (await this.#database.pool.query<Row>(text, [...values])).rows
      } catch (error) {
        if (performance.now() > deadline) throw error
      }
    }
  }
}
