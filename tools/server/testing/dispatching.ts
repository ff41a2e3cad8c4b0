import { setTimeout as sleep } from 'node:timers/promises'
import type { DispatcherOptions, Lockstep, OutboxEvent, SinkFunction } from '../../../src/index.ts'

/** A dispatcher that runs in the test, and what it has delivered. */
export interface Dispatching {
  /** `topic/key#seq`, in the order of delivery; a tombstone has a cross behind it. */
  readonly delivered: string[]
  readonly events: OutboxEvent[]
  /** Comes back when so many were delivered. */
  until(count: number): Promise<void>
  /** Stops it, and waits until it has ended. */
  stop(): Promise<void>
}

/** Runs a dispatcher that notes what it delivers. `sink` may refuse. */
export function dispatching(
  lockstep: Lockstep,
  options: Partial<DispatcherOptions> & { readonly sink?: SinkFunction } = {},
): Dispatching {
  const stopping = new AbortController()
  const delivered: string[] = []
  const events: OutboxEvent[] = []
  const { sink, ...rest } = options
  const running = lockstep.outbox
    .dispatcher({
      ttlMs: 2000,
      backoffMs: { first: 10, longest: 50 },
      ...rest,
      async sink(batch, context) {
        const answers = (await sink?.(batch, context)) ?? batch.map(() => 'sent' as const)
        batch.forEach((event, place) => {
          if (answers[place] !== 'sent') return
          events.push(event)
          delivered.push(`${event.topic}/${event.key}#${event.seq}${event.tombstone === undefined ? '' : '†'}`)
        })
        return answers
      },
    })
    .run({ signal: stopping.signal })
  // Whoever stops it hears of the error.
  running.catch(() => undefined)
  return {
    delivered,
    events,
    async until(count) {
      while (delivered.length < count)
        await Promise.race([sleep(2), running.then(() => ended(delivered.length, count))])
    },
    async stop() {
      stopping.abort()
      await running
    },
  }
}

function ended(count: number, wanted: number): never {
  throw new Error(`The dispatcher has ended with ${count} of ${wanted} events.`)
}

/** Comes back when the condition holds. */
export async function eventually(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await sleep(5)
}
