import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { ANYTHING } from './load.sql.ts'
import { Durations } from './tally.ts'

const PAUSE_MS = 50

/**
 * Empty transactions, one after the other, beside everything else. What they take is what the machine takes: where they are slow, nothing is quick,
 * and that says nothing about the desk.
 */
export class EmptyTransactions {
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  readonly #durations = new Durations()

  constructor(databaseUrl: string) {
    this.#running = this.#run(new pg.Pool({ connectionString: databaseUrl, max: 1, application_name: 'load-empty' }))
  }

  get p99Ms(): number {
    return this.#durations.percentile(0.99)
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }

  async #run(pool: pg.Pool): Promise<void> {
    const { signal } = this.#stop
    const lockstep = new Lockstep(pool)
    try {
      while (!signal.aborted) {
        const began = performance.now()
        await lockstep.transaction({}, (tx) => tx.query(ANYTHING))
        this.#durations.add(performance.now() - began)
        await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined)
      }
    } finally {
      await lockstep.close()
      await pool.end()
    }
  }
}
