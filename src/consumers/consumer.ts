import { checkOptions } from '../checkOptions.ts'
import type { EventMap } from '../events/index.ts'
import type {
  Dispatcher,
  DispatcherOptions,
  DispatcherRunOptions,
  Drained,
  DrainOptions,
  OutboxEvent,
  Sink,
} from '../outbox/index.ts'
import { onAbort } from '../postgres/index.ts'
import { CONSUMER_OPTIONS, type ConsumerOptions, planHandling } from './consumerOptions.ts'
import type { EventHandler, ListHandler } from './handler.ts'
import { applierOf, type HandlingDependencies } from './handling.ts'
import { Lanes } from './lanes.ts'
import type { Applier } from './applier.ts'

/** A consumer of the outbox of its own database, as `lockstep.consumer()` makes it. Any number of processes may run one of the same name. */
export interface Consumer extends AsyncDisposable {
  readonly name: string
  /**
   * Handles events until the signal says stop, or `stop()` is called. It ends what it has begun, and leaves the rest to the others.
   *
   * @example
   * await lockstep.consumer('billing', { topics: ['orders'] }, handler).run({ signal })
   */
  run(options?: DispatcherRunOptions): Promise<void>
  /** Handles what there is, once, for a serverless function or cron. */
  drain(options?: DrainOptions): Promise<Drained>
  /** Ends `run()`, and comes back when it has ended. The end of an `await using` block does the same. */
  stop(): Promise<void>
}

/** What a consumer needs of its Lockstep. */
export interface ConsumerDependencies extends Omit<HandlingDependencies, 'durable'> {
  readonly dispatcher: (options: DispatcherOptions) => Dispatcher
}

/** How many transactions the dispatcher reads ahead for each shard. */
const READ_AHEAD = 2

export function makeConsumer<Client = unknown, Events extends object = EventMap>(
  dependencies: ConsumerDependencies,
  name: string,
  options: ConsumerOptions,
  handler: EventHandler<never, Client, Events> | ListHandler<never, Client, Events>,
): Consumer {
  checkOptions('consumer()', options, CONSUMER_OPTIONS)
  const plan = planHandling('consumer()', options, handler)
  const {
    concurrency: _concurrency,
    batch: _batch,
    lists: _lists,
    sharedTransactions: _shared,
    limitBy: _limitBy,
    handlesTombstones: _handlesTombstones,
    isolation: _isolation,
    timeoutMs: _timeoutMs,
    attempts = 20,
    ...rest
  } = options
  // The dispatcher begins with the oldest event that is there: what a stream begins with is right.
  const applier = applierOf<OutboxEvent>(
    { ...dependencies, durable: false },
    plan,
    handler as unknown as EventHandler<OutboxEvent>,
    ({ seq }) => seq,
  )
  const sink = sinkOf(name, applier, new Lanes(applier, plan))
  const batch = Math.min(10_000, plan.batch * READ_AHEAD)
  const dispatcher = dependencies.dispatcher({ ...rest, name, attempts, batch, sink })
  return new RunningConsumer(dispatcher)
}

function sinkOf(name: string, applier: Applier<OutboxEvent>, lanes: Lanes<OutboxEvent>): Sink {
  return {
    name: `consumer ${name}`,
    // A number is accepted behind the one before, once: by the inbox.
    enforcesFences: true,
    send: (events, { signal, owned, slowAfterMs }) => lanes.apply(events, { signal, owned, slowAfterMs }),
    healthy: () => applier.healthy(),
    close: () => lanes.settled(),
  }
}

class RunningConsumer implements Consumer {
  readonly name: string
  readonly #dispatcher: Dispatcher
  readonly #stopping = new Set<AbortController>()
  readonly #running = new Set<Promise<unknown>>()

  constructor(dispatcher: Dispatcher) {
    this.#dispatcher = dispatcher
    this.name = dispatcher.name
  }

  run(options: DispatcherRunOptions = {}): Promise<void> {
    return this.#until(options, (signal) => this.#dispatcher.run({ ...options, signal }))
  }

  drain(options: DrainOptions = {}): Promise<Drained> {
    return this.#until(options, (signal) => this.#dispatcher.drain({ ...options, signal }))
  }

  async stop(): Promise<void> {
    for (const controller of this.#stopping) controller.abort()
    await Promise.allSettled(this.#running)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #until<T>(options: { readonly signal?: AbortSignal }, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController()
    const forget = options.signal === undefined ? undefined : onAbort(options.signal, () => controller.abort())
    this.#stopping.add(controller)
    const running = work(controller.signal)
    this.#running.add(running)
    try {
      return await running
    } finally {
      forget?.()
      this.#stopping.delete(controller)
      this.#running.delete(running)
    }
  }
}
