import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { EXCHANGES } from '../exchange/index.ts'
import { UNDER_WAY } from './load.sql.ts'

interface UnderWay {
  readonly events: number
  readonly positions: number
  readonly round: number
  readonly rounds: number
  readonly differences: number
}

const PATIENCE_MS = 90_000
const LOOK_EVERY_MS = 200

/**
 * Waits until nothing is in progress: every event is booked, no position is half open, and the reconciler of each exchange has looked once more
 * and found nothing to do. Gives false where that does not come; the checks will say what is left.
 */
export async function untilQuiet(pool: pg.Pool, tell: (line: string) => void): Promise<boolean> {
  const deadline = performance.now() + PATIENCE_MS
  let first: number | undefined
  for (;;) {
    const [now] = (await pool.query<UnderWay>(UNDER_WAY, [EXCHANGES, first ?? 0])).rows as [UnderWay]
    // The first of them may have begun before.
    const looked = first !== undefined && now.rounds >= 2
    first ??= now.round
    if (now.events === 0 && now.positions === 0 && now.differences === 0 && looked) return true
    if (performance.now() > deadline) return false
    tell(`waiting until it is quiet: ${now.events} events and ${now.positions} positions are in progress`)
    await sleep(LOOK_EVERY_MS)
  }
}
