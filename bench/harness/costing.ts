import type { Turn } from './interleave.ts'
import type { Spent } from './serverCost.ts'

/** `wal`: bytes for each event; `cpu`: microseconds of the server for each. */
export type Cost = 'rate' | 'wal' | 'cpu'

/** What a turn of so many events cost. */
export async function costing(
  spent: () => Promise<Spent>,
  work: () => Promise<{ rate: number; events: number }>,
): Promise<Turn<Cost>> {
  const before = await spent()
  const { rate, events } = await work()
  const after = await spent()
  return {
    rate,
    wal: (after.walBytes - before.walBytes) / events,
    cpu: ((after.cpuMs - before.cpuMs) * 1000) / events,
  }
}
