/**
 * Enqueues very many events in one transaction, in a process of its own: preparing them keeps a process busy, and what others wait
 * for would be that. Arguments: driver, url.
 */
import { type DriverName, openClient } from '../client.ts'

/** So many events, over so many keys in turn. */
export interface BulkOrder {
  readonly topic: string
  readonly events: number
  readonly keys: number
}

/** How it went. */
export interface BulkTimes {
  /** From its first message to the answer to COMMIT. */
  readonly totalMs: number
  /** From the end of the function to the answer to COMMIT: what is locked is locked within. */
  readonly flushMs: number
  /** Why it failed. */
  readonly error?: string
}

const [driver, url] = process.argv.slice(2) as [DriverName, string]
// A million events take longer to be written than an answer to COMMIT may be silent by default.
const { lockstep } = openClient(driver, url, { silenceMs: 600_000 })

process.on('message', (order: BulkOrder) => {
  void write(order).then((times) => process.send?.(times))
})

async function write({ topic, events, keys }: BulkOrder): Promise<BulkTimes> {
  const startedAt = performance.now()
  let returnedAt = startedAt
  const end = (): BulkTimes => ({ totalMs: performance.now() - startedAt, flushMs: performance.now() - returnedAt })
  try {
    await lockstep.transaction({ retry: { attempts: 1 } }, async (tx) => {
      await tx.enqueueMany(
        Array.from({ length: events }, (_, n) => ({
          topic,
          key: `key ${n % keys}`,
          payload: { mark: `${topic} ${n}` },
        })),
      )
      returnedAt = performance.now()
    })
    return end()
  } catch (error) {
    return { ...end(), error: String(error) }
  }
}
