import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Lockstep } from 'pg-lockstep'
import type { Random } from '../../seed.ts'
import { DRIVERS, type Lab } from '../lab.ts'
import { LOCK_SOME, LOCK_TABLES } from './bystanders.sql.ts'
import { BEGIN, COMMIT } from './outbox.sql.ts'

const LOCKERS = 6
const PRODUCERS_EACH = 4
const KEYS = 500

/** Those who are there as well: some take locks of all kinds, some enqueue single events. */
export class Bystanders {
  readonly errors: unknown[] = []
  readonly #running: Promise<void>[]
  readonly #pool: pg.Pool
  readonly #random: Random
  #over = false
  #enqueued = 0
  #longestMs = 0

  constructor(lab: Lab, random: Random) {
    this.#random = random
    const clients = DRIVERS.map((driver) => lab.client(driver, lab.url('direct'), { poolSize: PRODUCERS_EACH }))
    this.#pool = lab.pool(LOCKERS)
    this.#running = [
      ...clients.flatMap(({ lockstep }) => Array.from({ length: PRODUCERS_EACH }, () => this.#produce(lockstep))),
      ...Array.from({ length: LOCKERS }, (_, number) => this.#lock(number)),
    ]
  }

  get enqueued(): number {
    return this.#enqueued
  }

  /** The longest that a transaction of one event took since the last time it was asked. */
  takeLongestMs(): number {
    const longest = this.#longestMs
    this.#longestMs = 0
    return longest
  }

  async #produce(lockstep: Lockstep): Promise<void> {
    while (!this.#over) {
      const startedAt = performance.now()
      const mark = `single ${this.#enqueued++}`
      const event = { topic: 'singles', key: `key ${this.#random.below(KEYS)}`, payload: { mark } }
      // Once: what is tried again was an error as well.
      await lockstep
        .transaction({ retry: { attempts: 1 } }, (tx) => tx.enqueue(event))
        .catch((error: unknown) => this.errors.push(error))
      this.#longestMs = Math.max(this.#longestMs, performance.now() - startedAt)
      await this.#pause()
    }
  }

  async #lock(number: number): Promise<void> {
    while (!this.#over) {
      const client = await this.#pool.connect()
      try {
        await client.query(BEGIN)
        await client.query(LOCK_SOME, [number])
        await client.query(LOCK_TABLES)
      } catch (error) {
        this.errors.push(error)
      } finally {
        await client.query(COMMIT)
        client.release()
      }
      await this.#pause()
    }
  }

  /** They are many on few cores: at full speed they would be what is measured. */
  #pause(): Promise<void> {
    return sleep(5 + this.#random.below(10))
  }

  async stop(): Promise<void> {
    this.#over = true
    await Promise.all(this.#running)
  }
}
