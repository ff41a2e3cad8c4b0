import pg from 'pg'
import postgres from 'postgres'
import type * as Library from '../../src/index.ts'
import type { DriverName } from '../server/testing/workbench.ts'
import { DELIVER, ENTER, LEAVE, READ_COUNTER, WRITE_COUNTER } from './sideBySide.sql.ts'

/** Of which of two processes, with which library and driver. */
export interface ParticipantOptions {
  readonly name: string
  readonly url: string
  readonly driver: DriverName
}

/** The name of the dispatcher that both run, and of the consumer of its events. */
export const SHARED = 'mixed'
export const COUNTERS = ['Counter:plain', 'Counter:serializable'] as const
export const STREAMS = 16
export const ROUNDS = 12
const WAIT_MS = 60_000

/** One of two processes of a deployment that rolls: it works on the same locks, leases and streams as the other one. */
export class Participant {
  readonly #name: string
  readonly #pool: pg.Pool | postgres.Sql
  readonly #lockstep: Library.Lockstep
  readonly #stopping = new AbortController()
  #dispatching: Promise<void> | undefined

  constructor({ Lockstep }: typeof Library, { name, url, driver }: ParticipantOptions) {
    this.#name = name
    this.#pool =
      driver === 'pg'
        ? new pg.Pool({ connectionString: url, max: 6 })
        : postgres(url, { max: 6, onnotice: () => undefined })
    this.#lockstep = new Lockstep(this.#pool)
  }

  /** Delivers through the inbox, which reports a gap and knows what came twice. */
  startDispatching(): void {
    const consumer = this.#lockstep.inbox.consumer(SHARED)
    this.#dispatching = this.#lockstep.outbox
      .dispatcher({
        name: SHARED,
        shards: 4,
        holder: this.#name,
        sink: async (batch) => {
          for (const event of batch) {
            await consumer.handle(event, {}, async (tx) => {
              await tx.query(DELIVER, [this.#name, event.key, event.seq])
            })
          }
        },
      })
      .run({ signal: this.#stopping.signal })
    // `stop()` reports the error.
    this.#dispatching.catch(() => undefined)
  }

  async work(): Promise<void> {
    await Promise.all([this.#count(), this.#hold(), this.#enqueue()])
  }

  /** Reads and writes in two statements: without the lock, updates would be lost. */
  async #count(): Promise<void> {
    for (let round = 0; round < ROUNDS; round++) {
      for (const lock of COUNTERS) {
        const isolation = lock === 'Counter:plain' ? 'read committed' : 'serializable'
        await this.#lockstep.transaction({ lock, isolation, waitMs: WAIT_MS }, async (tx) => {
          const { rows } = await tx.query<{ value: number }>(READ_COUNTER, [lock])
          await tx.query(WRITE_COUNTER, [lock, (rows[0]?.value ?? 0) + 1])
        })
      }
    }
  }

  async #hold(): Promise<void> {
    for (let round = 0; round < ROUNDS; round++) {
      await this.#lockstep.lease('Holder:one', { waitMs: WAIT_MS }, async (lease) => {
        const place = await lease.transaction({}, async (tx) => {
          const { rows } = await tx.query<{ place: number }>(ENTER, [this.#name, String(lease.fence)])
          if (rows[0] === undefined) throw new Error('Two processes hold the lease at once.')
          return rows[0].place
        })
        await lease.transaction({}, (tx) => tx.query(LEAVE, [place]))
      })
    }
  }

  async #enqueue(): Promise<void> {
    for (let round = 0; round < ROUNDS; round++) {
      const event = (n: number): { topic: string; key: string; payload: string } => ({
        topic: SHARED,
        key: `k${n}`,
        payload: this.#name,
      })
      await this.#lockstep.transaction({}, (tx) => tx.enqueue(event(round % STREAMS)))
      await this.#lockstep.transaction({}, (tx) => tx.enqueueMany(Array.from({ length: STREAMS }, (_, n) => event(n))))
    }
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#dispatching
    await this.#lockstep.close()
    await this.#pool.end()
  }
}
