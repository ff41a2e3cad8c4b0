import { setTimeout as sleep } from 'node:timers/promises'
import {
  type DispatcherOptions,
  type Lockstep,
  type OutboxEvent,
  OutboxRebaseNeededError,
  type SinkFunction,
} from '../../../src/index.ts'
import { signal } from './workbench.ts'

export type DispatchingOptions = Partial<DispatcherOptions> & { readonly sink?: SinkFunction }

/** A dispatcher that runs in the test, and what it has delivered. */
export interface Dispatching {
  /** `topic/key#seq`, in the order of delivery; a tombstone has a cross behind it. */
  readonly delivered: string[]
  /** The same as `key#seq`. */
  readonly names: string[]
  readonly events: OutboxEvent[]
  /** Resolves when run() has ended, with its error if it had one. */
  readonly ended: Promise<unknown>
  /** Resolves when so many were delivered. */
  until(count: number): Promise<void>
  /** Stops it, and waits until it has ended. Throws its error, unless that says that the outbox needs a rebase. */
  stop(): Promise<void>
}

/** Runs a dispatcher that notes what it delivers. `sink` can refuse. */
export function dispatching(lockstep: Lockstep, options: DispatchingOptions = {}): Dispatching {
  const stopping = new AbortController()
  const [delivered, names, events]: [string[], string[], OutboxEvent[]] = [[], [], []]
  const { sink, ...rest } = options
  let arrived = signal()
  const running = lockstep.outbox
    .dispatcher({
      // Longer than any pause of a busy machine: a shard that changes hands delivers twice.
      ttlMs: 30_000,
      backoffMs: { first: 10, longest: 50 },
      ...rest,
      async sink(batch, context) {
        const answers = (await sink?.(batch, context)) ?? batch.map(() => 'sent' as const)
        batch.forEach((event, place) => {
          if (answers[place] !== 'sent') return
          events.push(event)
          names.push(`${event.key}#${event.seq}`)
          delivered.push(`${event.topic}/${event.key}#${event.seq}${event.tombstone === undefined ? '' : '†'}`)
        })
        arrived.give()
        arrived = signal()
        return answers
      },
    })
    .run({ signal: stopping.signal })
  const finished = running.catch((error: unknown) => error)
  return {
    delivered,
    names,
    events,
    ended: finished,
    async until(count) {
      const failed = running.then(() => ended(delivered.length, count))
      failed.catch(() => undefined)
      while (delivered.length < count) await Promise.race([arrived.given, failed])
    },
    async stop() {
      stopping.abort()
      const error = await finished
      if (error instanceof Error && !(error instanceof OutboxRebaseNeededError)) throw error
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
