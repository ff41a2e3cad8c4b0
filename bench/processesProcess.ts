/**
 * One of several processes for `bench processes` and `bench growth`: delivers, enqueues, or acquires and releases a lease, as requested. Arguments:
 * url, name of the dispatcher, its shards.
 */
import { key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { eventOf } from './outboxEvents.ts'

export type ProcessRequest =
  /** Takes shards and delivers whatever there is. */
  | { readonly task: 'deliver' }
  /** While the gate is closed, a batch of each shard is in progress and nothing more is read. */
  | { readonly task: 'gate'; readonly open: boolean }
  | { readonly task: 'heard' }
  | { readonly task: 'contend'; readonly contenders: number; readonly ms: number }
  /** One event a transaction, each caller the next as soon as it has its answer. */
  | { readonly task: 'enqueue'; readonly callers: number; readonly ms: number }
  | { readonly task: 'close' }

/** How many events have come, and when the last of them, by the clock that all processes of a machine share. */
export interface Arrivals {
  readonly events: number
  readonly lastAt: number
}

const TTL_MS = 10_000

function run(url: string, name: string, shards: number): void {
  const pool = new pg.Pool({ connectionString: url, max: 10 })
  const lockstep = new Lockstep(pool)
  const stop = new AbortController()
  let running: Promise<void> | undefined
  let [events, lastAt] = [0, 0]
  // Processes begin at different keys.
  let enqueued = process.pid
  let gate: Promise<void> = Promise.resolve()
  let open: () => void = () => undefined

  const deliver = (): void => {
    running = lockstep.outbox
      .dispatcher({
        name,
        shards,
        retainMs: false,
        async sink(batch) {
          await gate
          events += batch.length
          lastAt = performance.timeOrigin + performance.now()
        },
      })
      .run({ signal: stop.signal })
  }
  const contend = async (contenders: number, ms: number): Promise<number> => {
    let grants = 0
    const startedAt = performance.now()
    await Promise.all(
      Array.from({ length: contenders }, async () => {
        while (performance.now() - startedAt < ms) {
          const lease = await lockstep.leases.acquire(key`Hot:${1}`, { ttlMs: TTL_MS, waitMs: false })
          if (performance.now() - startedAt < ms) grants++
          await lease.release()
        }
      }),
    )
    return grants
  }
  const enqueue = async (callers: number, ms: number): Promise<number> => {
    let committed = 0
    const startedAt = performance.now()
    await Promise.all(
      Array.from({ length: callers }, async () => {
        while (performance.now() - startedAt < ms) {
          await lockstep.transaction({}, (tx) => tx.enqueue(eventOf(enqueued++) as never))
          committed++
        }
      }),
    )
    return committed
  }
  const perform = async (question: ProcessRequest): Promise<unknown> => {
    switch (question.task) {
      case 'deliver':
        return deliver()
      case 'gate':
        open()
        if (!question.open) gate = new Promise((resolve) => (open = resolve))
        return undefined
      case 'heard':
        return { events, lastAt } satisfies Arrivals
      case 'contend':
        return contend(question.contenders, question.ms)
      case 'enqueue':
        return enqueue(question.callers, question.ms)
      case 'close':
        break
    }
    open()
    stop.abort()
    await running
    await lockstep.close()
    return pool.end()
  }
  process.on('message', (question: ProcessRequest) => {
    void perform(question).then(
      (answer) => process.send?.({ answer: answer ?? null }),
      (error: unknown) => process.send?.({ failed: error instanceof Error ? error.stack : String(error) }),
    )
  })
  process.send?.({ answer: 'ready' })
}

const [, program, url, name, shards] = process.argv
if (program === import.meta.filename && url !== undefined && name !== undefined) run(url, name, Number(shards))
