/**
 * A dispatcher in a process of its own for `bench outbox-latency`: notes when each event was in its sink, and reports it when asked.
 * Arguments: url, name of the dispatcher, ttlMs and sleepAfterMs where they are not the defaults.
 */
import { Lockstep, type OutboxEvent } from 'pg-lockstep'
import pg from 'pg'

/** When an event came, by the clock that all processes of a machine share. */
export type Arrival = readonly [number: number, at: number]

/** What a sink notes. */
export function noteArrivals(arrivals: Arrival[]): (events: readonly OutboxEvent[]) => void {
  return (events) => {
    const at = performance.timeOrigin + performance.now()
    for (const { payload } of events) arrivals.push([(payload as { number: number }).number, at])
  }
}

async function run(url: string, name: string, ttlMs = '', sleepAfterMs = ''): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const lockstep = new Lockstep(pool)
  const arrivals: Arrival[] = []
  process.on('message', () => process.send?.(arrivals.splice(0)))
  process.send?.('ready')
  const times = {
    ...(ttlMs === '' ? {} : { ttlMs: Number(ttlMs) }),
    ...(sleepAfterMs === '' ? {} : { sleepAfterMs: Number(sleepAfterMs) }),
  }
  await lockstep.outbox.dispatcher({ name, sink: noteArrivals(arrivals), retainMs: false, ...times }).run()
}

const [, program, url, name, ...times] = process.argv
if (program === import.meta.filename && url !== undefined && name !== undefined) await run(url, name, ...times)
