import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { CHARGE, VOID_CHARGE } from './instances.sql.ts'

/** The part of the time that goes by before the effect. */
const BEFORE = 0.8

/**
 * A provider of payments, simulated: a foreign system that takes its time. It makes one charge of one id, however often it is asked, as real
 * ones do with an idempotency key. An id that was voided is never charged.
 */
export class Payments {
  readonly #pool: pg.Pool
  readonly takesMs: number

  constructor(pool: pg.Pool, takesMs: number) {
    this.#pool = pool
    this.takesMs = takesMs
  }

  async charge(id: string, signal: AbortSignal): Promise<void> {
    await delay(this.takesMs * BEFORE, undefined, { signal })
    const { rows } = await this.#pool.query<{ status: string }>(CHARGE, [id])
    if (rows[0]?.status !== 'charged') throw new Error(`The charge ${id} was voided.`)
    await delay(this.takesMs * (1 - BEFORE), undefined, { signal })
  }

  /** False where it is charged already. Otherwise it never will be, also if a request for it is on its way. */
  async void(id: string): Promise<boolean> {
    const { rows } = await this.#pool.query<{ status: string }>(VOID_CHARGE, [id])
    return rows[0]?.status === 'void'
  }
}
