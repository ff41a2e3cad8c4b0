/**
 * What Lockstep reports while it works.
 *
 * The idea: every lock that is asked for, waited for, granted and released is an event on `node:diagnostics_channel`. A few
 * listeners are enough for metrics: who waits, for what, how long.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'

export interface EventsResult {
  readonly acquired: number
  /** How many of them had to wait for another one. */
  readonly contended: number
  readonly longestWaitMs: number
  readonly outcomes: Readonly<Record<string, number>>
}

export async function run(pool: pg.Pool): Promise<EventsResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()

  let acquired = 0
  let contended = 0
  let longestWaitMs = 0
  const outcomes: Record<string, number> = {}
  const stops = [
    on('lock.acquired', (event) => {
      acquired++
      if (event.contended) contended++
      longestWaitMs = Math.max(longestWaitMs, event.waitMs)
    }),
    on('lock.released', ({ outcome }) => {
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
    }),
  ]

  const work = (number: number): Promise<void> =>
    lockstep.transaction({ lock: key`Report:${'daily'}` }, async () => {
      await delay(20)
      if (number === 3) throw new Error('the report has no data')
    })
  await Promise.allSettled([1, 2, 3].map(work))

  for (const stop of stops) stop()
  await lockstep.close()
  return { acquired, contended, longestWaitMs, outcomes }
}
