/**
 * A dispatcher that is left alone, and looks at itself while it delivers. Its sink is the process that started it, which learns when
 * each batch was there. Arguments: url, batch, ttl in milliseconds.
 */
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'

/** A batch as it reached the sink. */
export interface Drained {
  /** By the machine's clock: see `machineMs`. */
  readonly at: number
  readonly events: readonly (readonly [key: string, seq: number, uuid: string, mark: string])[]
  /** How much memory the process has had at most since its dispatcher was started, above what it had then, in MB. */
  readonly grownMb: number
}

const LOOK_EVERY_MS = 20

const [url, batch] = process.argv.slice(2) as [string, string]
const pool = new pg.Pool({ connectionString: url, max: 5, application_name: 'dispatcher' })
const lockstep = new Lockstep(pool)

const startRss = process.memoryUsage.rss()
let peakRss = startRss
const look = (): void => {
  peakRss = Math.max(peakRss, process.memoryUsage.rss())
}
setInterval(look, LOOK_EVERY_MS).unref()

const stop = new AbortController()
process.on('message', () => stop.abort())

const dispatcher = lockstep.dispatcher({
  batch: Number(batch),
  async sink(events) {
    const at = Number(process.hrtime.bigint()) / 1e6
    look()
    const message: Drained = {
      at,
      events: events.map(({ topic, key, seq, id, payload }) => [
        `${topic}/${key}`,
        seq,
        id,
        (payload as { mark: string }).mark,
      ]),
      grownMb: (peakRss - startRss) / 2 ** 20,
    }
    // Gone into the pipe: what waits before it would be this process's memory.
    await new Promise<void>((resolve) => process.send?.(message, undefined, undefined, () => resolve()))
  },
})
await dispatcher.run({ signal: stop.signal })
await lockstep.close()
await pool.end()
process.disconnect()
