import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { ADVISORY_LOCKS, ADVISORY_WAITERS } from './leftovers.sql.ts'

/** How long the server has to notice that a client is gone. */
export const GRACE_MS = 2000

/** Waits until no advisory lock is held or waited for, and says how long it took; undefined after the grace. */
export function timeUntilNoLocks(admin: pg.Pool): Promise<number | undefined> {
  return timeUntilNone(admin, ADVISORY_LOCKS)
}

/** The same for waiters, while a holder can still exist. */
export function timeUntilNoWaiters(admin: pg.Pool): Promise<number | undefined> {
  return timeUntilNone(admin, ADVISORY_WAITERS)
}

async function timeUntilNone(admin: pg.Pool, question: string): Promise<number | undefined> {
  const startedAt = performance.now()
  for (;;) {
    const { rows } = await admin.query(question)
    const tookMs = performance.now() - startedAt
    if (rows.length === 0) return tookMs
    if (tookMs > GRACE_MS) return undefined
    await sleep(10)
  }
}

/** Waits until the server shows a state, for those who must strike at the right moment. */
export async function waitFor(admin: pg.Pool, question: string, values: unknown[] = []): Promise<void> {
  const deadline = performance.now() + 10_000
  for (;;) {
    const { rows } = await admin.query<{ yes: boolean }>(question, values)
    if (rows[0]?.yes === true) return
    if (performance.now() > deadline) throw new Error(`The server never came to: ${question}`)
    await sleep(5)
  }
}
