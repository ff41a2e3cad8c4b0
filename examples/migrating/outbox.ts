/** The events of pg-boss.ts through Lockstep's outbox: the second event waits until the first one is delivered. */
import type pg from 'pg'
import { Lockstep } from 'pg-lockstep'

/** The numbers of the events, in the order in which they were delivered. */
export async function after(pool: pg.Pool): Promise<number[]> {
  const lockstep = new Lockstep<{ trades: { number: number } }>(pool)
  for (const number of [1, 2]) {
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: 'growth', payload: { number } }))
  }

  const delivered: number[] = []
  let broken = true
  const stop = new AbortController()
  await lockstep.outbox
    .dispatcher({
      backoffMs: { first: 20, longest: 50 },
      async sink(events) {
        for (const { payload } of events) {
          if (broken) {
            broken = false
            throw new Error('the receiver is not reachable')
          }
          delivered.push((payload as { number: number }).number)
        }
        if (delivered.length === 2) stop.abort()
      },
    })
    .run({ signal: stop.signal })
  await lockstep.close()
  return delivered
}
