/**
 * A dispatcher in a process of its own for `bench outbox-latency`: notes when each event was in its sink, and tells when it is asked.
 * Arguments: url, name of the dispatcher.
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

async function run(url: string, name: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const lockstep = new Lockstep(pool)
  const arrivals: Arrival[] = []
  process.on('message', () => process.send?.(arrivals.splice(0)))
  process.send?.('ready')
  await lockstep.outbox.dispatcher({ name, sink: noteArrivals(arrivals), retainMs: false }).run()
}

const [, program, url, name] = process.argv
if (program === import.meta.filename && url !== undefined && name !== undefined) await run(url, name)
