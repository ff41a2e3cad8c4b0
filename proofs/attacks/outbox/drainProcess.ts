/**
 * A dispatcher that is left alone, and looks at its own memory while it delivers. Its sink is the process that started it, which
 * learns when each batch got there. Arguments: url, batch.
 */
import { machineMs } from '../../machineClock.ts'
import { openClient } from '../client.ts'

/** A batch as it reached the sink. */
export interface DrainedBatch {
  readonly at: number
  readonly events: readonly (readonly [key: string, seq: number, id: string, mark: string])[]
  /** The most memory that the process has had so far, above what it had before it began, in MB. */
  readonly grownMb: number
}

const LOOK_EVERY_MS = 20

const [url, batch] = process.argv.slice(2) as [string, string]
const { lockstep } = openClient('pg', url, { poolSize: 5, application: 'dispatcher' })

const startRss = process.memoryUsage.rss()
let peakRss = startRss
const look = (): void => {
  peakRss = Math.max(peakRss, process.memoryUsage.rss())
}
setInterval(look, LOOK_EVERY_MS)

const dispatcher = lockstep.outbox.dispatcher({
  batch: Number(batch),
  async sink(events) {
    const at = machineMs()
    look()
    const message: DrainedBatch = {
      at,
      events: events.map(({ topic, key, seq, id, payload }) => [
        `${topic}/${key}`,
        seq,
        id,
        (payload as { mark: string }).mark,
      ]),
      grownMb: (peakRss - startRss) / 2 ** 20,
    }
    // Until it is in the pipe: what waits before it would count as this process's memory.
    await new Promise<void>((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve())
    })
  },
})
await dispatcher.run()
