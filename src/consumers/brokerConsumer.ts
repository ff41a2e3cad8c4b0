import { setTimeout as sleep } from 'node:timers/promises'
import { type CallWithFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import { InboxGapError, InvalidOptionError } from '../errors.ts'
import { checkContracts, type EventContracts, type EventMap, type Stream } from '../events/index.ts'
import type { InboxConsumer, InboxEvent } from '../inbox/index.ts'
import { consumerApplied, consumerFailed, consumerStopped } from '../observe/index.ts'
import { type BackoffOptions, checkNumber, type DispatcherRunOptions } from '../outbox/index.ts'
import { onAbort } from '../postgres/index.ts'
import type { Transaction, TransactionOptions } from '../transactions/index.ts'
import { Applier } from './applier.ts'
import { HANDLING_OPTIONS, type HandlingOptions, planHandling } from './consumerOptions.ts'
import type { ConsumedEvent, EventHandler, ListHandler } from './handler.ts'
import { applierOf } from './handling.ts'
import type { Message } from './message.ts'
import { startOf, type StreamStartOption } from './streamStart.ts'
import { type StoppedKey, Window } from './window.ts'

/** What a consumer needs of a Lockstep: that of the database in which the effects are. */
export interface ConsumingLockstep<Client = unknown, Events extends object = EventMap> {
  readonly schema: string
  transaction<T>(options: TransactionOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
  readonly inbox: { consumer(name: string): InboxConsumer<Client, Events> }
}

/** A number that has not come. */
export interface ConsumerGap {
  readonly topic: string
  readonly key: string
  /** The number that the consumer expects. */
  readonly expected: number
  /** The number that came. */
  readonly seq: number
}

/** What every consumer of a broker takes. */
export interface BrokerConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends HandlingOptions {
  /** A Lockstep on the database in which the effects are, migrated. */
  readonly lockstep: ConsumingLockstep<Client, Events>
  /**
   * The contracts of the producer’s payloads, from `defineEvents()`. An event that does not fit fails, as if its handler had thrown.
   * `limitBy` and `giveUp` receive events unchecked. Default: payloads are not checked.
   */
  readonly events?: EventContracts<object, Consumed>
  /** The number with which a stream begins if this consumer has no position in it. Default 1. */
  readonly start?: StreamStartOption
  /** The maximum number of messages in memory: those that wait and those in a handler. Default 1,000. */
  readonly maxInFlight?: number
  /** The same in bytes of their bodies. Default 64 MiB. */
  readonly maxBytes?: number
  /** How often an event can fail before `giveUp` is called. Default 20. */
  readonly attempts?: number
  /** The first pause of a stream before another try, doubled each time, and the longest. Default 200 and 60,000. */
  readonly backoffMs?: BackoffOptions
  /**
   * Handles an event that has failed too often, in the transaction in which the consumer moves past it: for example, writes it to a table
   * of dead letters. Default: its stream waits, and the event is tried again.
   */
  readonly giveUp?: (event: ConsumedEvent, reason: string, tx: Transaction<Client, Events>) => Promise<unknown> | void
  /**
   * Called when a number is missing, after each pause of its stream: ask the producer for a replay (`outbox.replay()`). The stream waits for
   * the missing number in any case.
   */
  readonly onGap?: (gap: ConsumerGap) => Promise<unknown> | void
  /** What is done with a message that no sink of Lockstep has sent. `stop`: `run()` fails. `skip`: it is acknowledged. Default `stop`. */
  readonly unreadable?: 'stop' | 'skip'
}

const BACKOFF_OPTIONS: OptionNames<BackoffOptions> = { first: true, longest: true }

/** The names of these options, for those of each broker. */
export const BROKER_CONSUMER_OPTIONS: OptionNames<BrokerConsumerOptions> = {
  ...HANDLING_OPTIONS,
  lockstep: true,
  events: true,
  start: true,
  maxInFlight: true,
  maxBytes: true,
  attempts: true,
  backoffMs: true,
  giveUp: true,
  onGap: true,
  unreadable: true,
}

/** Where messages go. */
export interface Intake {
  /** How many may be asked for now. */
  readonly free: number
  readonly maxInFlight: number
  /** How many messages of a stream are in memory. */
  countOf(stream: Stream): number
  /** Comes back when there is room, or when the signal of `read()` was aborted. */
  room(): Promise<void>
  /** Never throws. */
  take(message: Message): void
  /** A session is lost: its messages are delivered again, here or elsewhere. */
  forget(session: object): void
  /** A message that cannot be read. `skip` acknowledges it. */
  unreadable(error: unknown, skip: () => unknown): void
}

/** What messages come from. */
export interface Source {
  readonly name: string
  /** Reads until the signal is aborted. What it rejects with is reported, and it is called again after a pause. */
  read(intake: Intake, signal: AbortSignal): Promise<void>
  /** After the last message was finished or returned to the broker. */
  close?(): Promise<void>
}

/** A consumer of a broker. */
export interface BrokerConsumer extends AsyncDisposable {
  readonly name: string
  /** Handles messages until the signal says stop, or `stop()` is called. It ends what it has begun; the rest goes back to the broker. */
  run(options?: DispatcherRunOptions): Promise<void>
  /** Ends `run()`, and comes back when it has ended. */
  stop(): Promise<void>
}

const DAY_MS = 24 * 60 * 60 * 1000
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5000
/** A source that is to stop may wait for a broker that does not answer: after this time it is left alone. */
const STOP_MS = 5000

/** The window of a consumer, and who reports what happens in it. `goesBack`: whether the messages of a stream that stopped are not kept. */
export function openWindow(
  where: CallWithFunction,
  source: string,
  name: string,
  options: BrokerConsumerOptions,
  handler: EventHandler | ListHandler,
  goesBack: (stop: StoppedKey<ConsumedEvent>) => boolean = () => false,
): Window<ConsumedEvent> {
  if (typeof options.lockstep?.transaction !== 'function' || typeof options.lockstep.inbox?.consumer !== 'function') {
    throw new InvalidOptionError(`${where} was given no \`lockstep\`.`, {
      advice: 'Pass a Lockstep on the database in which the effects are.',
    })
  }
  if (options.backoffMs !== undefined) checkOptions('backoffMs', options.backoffMs, BACKOFF_OPTIONS)
  const { lockstep, giveUp, onGap } = options
  const plan = planHandling<ConsumedEvent>(where, options, handler)
  const transaction = <T>(wanted: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> =>
    lockstep.transaction(wanted, fn)
  const begins = startOf(options.start)
  const start = (event: InboxEvent): number => {
    const from = begins(event)
    return from === 'anywhere' ? event.seq : from
  }
  const contracts = checkContracts(where, options.events)
  const dependencies = { transaction, inbox: lockstep.inbox.consumer(name), durable: true }
  const { schema } = lockstep
  const failed = (error: unknown): void => {
    if (consumerFailed.hasSubscribers) consumerFailed.publish({ schema, consumer: name, source, error })
  }
  const stopped = (stop: StoppedKey<ConsumedEvent>): boolean => {
    const { event, kind, reason, cause, attempts, stops } = stop
    const { topic, key, seq } = event
    const back = goesBack(stop)
    if (consumerStopped.hasSubscribers) {
      consumerStopped.publish({ schema, consumer: name, source, topic, key, seq, kind, reason, attempts })
    }
    // Where processes share a queue, the number that is missing is on its way at first.
    if (cause instanceof InboxGapError && onGap !== undefined && (back || stops > 1)) {
      const { expected } = cause
      Promise.resolve()
        .then(() => onGap({ topic, key, expected, seq }))
        .catch(failed)
    }
    return back
  }
  return new Window<ConsumedEvent>(applierOf({ ...dependencies, contracts }, plan, handler, start), {
    ...plan,
    maxInFlight: checkNumber('maxInFlight', options.maxInFlight ?? 1000, 1, 1_000_000),
    maxBytes: checkNumber('maxBytes', options.maxBytes ?? 64 * 1024 * 1024, 1),
    attempts: checkNumber('attempts', options.attempts ?? 20, 1, 1_000_000),
    firstBackoffMs: checkNumber('backoffMs.first', options.backoffMs?.first ?? 200, 1, DAY_MS),
    longestBackoffMs: checkNumber('backoffMs.longest', options.backoffMs?.longest ?? 60_000, 1, DAY_MS),
    giveUp:
      giveUp &&
      (async (event, reason) => {
        const giving = { ...plan, lists: false, handlesTombstones: true }
        const applier: Applier<ConsumedEvent> = applierOf(
          dependencies,
          giving,
          (each: ConsumedEvent, tx: Transaction) => giveUp(each, reason, tx),
          start,
        )
        const [answer] = await applier.apply([event], { signal: NEVER })
        return answer ?? { unknown: 'nothing was answered' }
      }),
    applied(events, tookMs) {
      if (consumerApplied.hasSubscribers) consumerApplied.publish({ schema, consumer: name, source, events, tookMs })
    },
    stopped,
    failed,
  })
}

const NEVER = new AbortController().signal

/** A consumer that reads from this source. */
export function brokerConsumer(
  where: CallWithFunction,
  name: string,
  options: BrokerConsumerOptions,
  handler: EventHandler | ListHandler,
  open: () => Source,
): BrokerConsumer {
  // Wrong options are an error here, not in run().
  openWindow(where, '', name, options, handler)
  return new RunningBrokerConsumer(where, name, options, handler, open)
}

class RunningBrokerConsumer implements BrokerConsumer {
  readonly name: string
  readonly #where: CallWithFunction
  readonly #options: BrokerConsumerOptions
  readonly #handler: EventHandler | ListHandler
  readonly #open: () => Source
  readonly #running = new Map<AbortController, Promise<void>>()

  constructor(
    where: CallWithFunction,
    name: string,
    options: BrokerConsumerOptions,
    handler: EventHandler | ListHandler,
    open: () => Source,
  ) {
    this.#where = where
    this.name = name
    this.#options = options
    this.#handler = handler
    this.#open = open
  }

  async run(options: DispatcherRunOptions = {}): Promise<void> {
    checkOptions(`${this.#where}.run()`, options, { signal: true })
    const stopping = new AbortController()
    const forget = options.signal && onAbort(options.signal, () => stopping.abort())
    const running = this.#run(stopping)
    this.#running.set(stopping, running)
    try {
      await running
    } finally {
      forget?.()
      this.#running.delete(stopping)
    }
  }

  async stop(): Promise<void> {
    for (const stopping of this.#running.keys()) stopping.abort()
    await Promise.allSettled(this.#running.values())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #run(stopping: AbortController): Promise<void> {
    const source = this.#open()
    const { unreadable = 'stop', maxInFlight = 1000, lockstep } = this.#options
    const window = openWindow(this.#where, source.name, this.name, this.#options, this.#handler)
    const forget = onAbort(stopping.signal, () => window.end())
    let fatal: Error | undefined
    const failed = (error: unknown): void => {
      if (!consumerFailed.hasSubscribers) return
      consumerFailed.publish({ schema: lockstep.schema, consumer: this.name, source: source.name, error })
    }
    const end = (error: unknown): void => {
      fatal ??= error instanceof Error ? error : new Error(String(error))
      stopping.abort()
    }
    const acknowledge = async (work: () => unknown): Promise<void> => {
      try {
        await work()
      } catch (error) {
        failed(error)
      }
    }
    const intake: Intake = {
      get free() {
        return window.free
      },
      maxInFlight,
      countOf: (stream) => window.countOf(stream),
      room: () => window.room(),
      take(message) {
        try {
          window.take(message)
        } catch (error) {
          // Of the caller's `tenant`. The message was not handled: the broker has it still.
          failed(error)
          end(error)
        }
      },
      forget: (session) => window.forget(session),
      unreadable(error, skip) {
        failed(error)
        if (unreadable === 'skip') void acknowledge(skip)
        else end(error)
      },
    }
    try {
      for (let failures = 0; !stopping.signal.aborted;) {
        const startedAt = performance.now()
        try {
          await endedOrLeft(source.read(intake, stopping.signal), stopping.signal)
          if (!stopping.signal.aborted) throw new Error(`${source.name} has ended.`)
        } catch (error) {
          if (error instanceof InvalidOptionError) throw error
          failed(error)
          failures = performance.now() - startedAt > LONGEST_PAUSE_MS ? 1 : failures + 1
          const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10))
          await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
        }
      }
    } finally {
      forget()
      await window.close()
      await source.close?.()
    }
    if (fatal !== undefined) throw fatal
  }
}

/** Waits for a source. Once the signal is aborted, no longer than STOP_MS: what it takes afterwards goes back to the broker. */
async function endedOrLeft(reading: Promise<void>, signal: AbortSignal): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  let forget = (): void => undefined
  const left = new Promise<void>((resolve) => {
    forget = onAbort(signal, () => (timer = setTimeout(resolve, STOP_MS)))
  })
  try {
    await Promise.race([reading, left])
  } finally {
    forget()
    clearTimeout(timer)
    reading.catch(() => undefined)
  }
}
