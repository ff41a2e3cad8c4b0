import type pg from 'pg'
import { CommitOutcomeUnknownError } from 'pg-lockstep'
import { RECORDED, TOTAL, wrongBalances } from '../attacks/ledger/ledger.sql.ts'
import type { Transfer } from '../attacks/ledger/transfers.ts'

/** What the callers were told, by the transfer's id. */
export class ReportedTransfers {
  readonly #told = new Map<string, 'done' | 'failed' | 'unknown'>()
  /** Failures that are nobody's fault, for the report. */
  readonly surprises: unknown[] = []

  /** Makes the transfer and remembers what it was told. `expected`: errors that are part of the game. */
  async make(
    transfer: Transfer,
    call: (transfer: Transfer) => Promise<true>,
    expected: (error: unknown) => boolean,
  ): Promise<void> {
    try {
      await call(transfer)
      this.#told.set(transfer.id, 'done')
    } catch (error) {
      if (!expected(error)) this.surprises.push(error)
      this.#told.set(transfer.id, error instanceof CommitOutcomeUnknownError ? 'unknown' : 'failed')
    }
  }

  /** Somebody else was told of its success. */
  done(id: string): void {
    this.#told.set(id, 'done')
  }

  get count(): number {
    return this.#told.size
  }

  countOf(what: 'done' | 'failed' | 'unknown'): number {
    return [...this.#told.values()].filter((told) => told === what).length
  }

  /** Compares with the books. */
  async compare(admin: pg.Pool): Promise<{ lost: number; twice: number; phantom: number }> {
    const { rows } = await admin.query<{ id: string; times: number }>(RECORDED)
    const times = new Map(rows.map((row) => [row.id, row.times]))
    let [lost, phantom] = [0, 0]
    for (const [id, told] of this.#told) {
      if (told === 'done' && !times.has(id)) lost++
      if (told === 'failed' && times.has(id)) phantom++
    }
    return { lost, phantom, twice: rows.filter((row) => row.times > 1).length }
  }
}

/** Whether money was made or lost. */
export async function bookErrors(
  admin: pg.Pool,
  accounts: number,
  initial: number,
): Promise<{ off: number; wrong: number }> {
  const total = await admin.query<{ total: number }>(TOTAL)
  const wrong = await admin.query<{ wrong: number }>(wrongBalances(initial))
  return { off: (total.rows[0]?.total ?? Number.NaN) - accounts * initial, wrong: wrong.rows[0]?.wrong ?? Number.NaN }
}
