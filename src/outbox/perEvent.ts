import { checkFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import { checkNumber } from './checkNumber.ts'
import type { OutboxEvent } from './event.ts'
import type { BatchContext, Sink } from './sink.ts'
import { ConcurrentStreams } from './concurrentStreams.ts'

/** What `perEvent()` takes before the function. */
export interface PerEventOptions {
  /** How many events of a shard are in progress at once, each of another stream. Default 16. */
  readonly concurrency?: number
  /**
   * How many events of all shards are in progress at once in this process, through this sink. Slow events that continue separately do not
   * count. Default: no limit except `concurrency`.
   */
  readonly processConcurrency?: number
  readonly name?: string
}

const PER_EVENT_OPTIONS: OptionNames<PerEventOptions> = { concurrency: true, processConcurrency: true, name: true }

const MAX_CONCURRENCY = 100_000

/**
 * A sink that handles one event at a time: streams in parallel, the events of a stream one after the other. To throw means that it
 * failed: its stream waits, or, where nothing gets through at all, everything does. Throw `new EventRefusedError(reason)` where it is the
 * event that cannot be taken.
 *
 * @example
 * lockstep.outbox.dispatcher({ sink: perEvent({}, async (event) => { await publish(event.topic, event.payload) }) })
 */
export function perEvent(
  options: PerEventOptions,
  handler: (event: OutboxEvent, context: BatchContext) => Promise<void> | void,
): Sink {
  checkOptions('perEvent()', options, PER_EVENT_OPTIONS)
  checkFunction('perEvent()', handler)
  const { concurrency = 16, processConcurrency, name = 'perEvent' } = options
  checkNumber('concurrency', concurrency, 1, MAX_CONCURRENCY)
  if (processConcurrency !== undefined) checkNumber('processConcurrency', processConcurrency, 1, MAX_CONCURRENCY)
  const streams = new ConcurrentStreams({
    concurrency,
    ...(processConcurrency !== undefined && { processConcurrency }),
  })
  return {
    name,
    send(events, context) {
      return streams.send(events, context, async (event) => {
        await handler(event, context)
        return 'sent'
      })
    },
    close: () => streams.settled(),
  }
}
