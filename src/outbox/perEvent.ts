import { checkFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import type { OutboxEvent } from './event.ts'
import type { BatchContext, Sink } from './sink.ts'
import { ConcurrentStreams } from './concurrentStreams.ts'

/** What `perEvent()` takes before the function. */
export interface PerEventOptions {
  readonly concurrency?: number
  readonly name?: string
}

const PER_EVENT_OPTIONS: OptionNames<PerEventOptions> = { concurrency: true, name: true }

/**
 * A sink that handles one event at a time: streams side by side, the events of a stream one after the other. To throw means that it
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
  const { concurrency = 16, name = 'perEvent' } = options
  const streams = new ConcurrentStreams({ concurrency })
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
