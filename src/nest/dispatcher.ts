import type {
  BeforeApplicationShutdown,
  FactoryProvider,
  InjectionToken,
  OnApplicationBootstrap,
  OptionalFactoryDependency,
} from '@nestjs/common'
import { type Dispatcher, type DispatcherOptions, InvalidOptionError, Lockstep } from '../index.ts'

/** What `provideDispatcher()` takes: a factory of Nest that returns the options of a dispatcher. */
export interface DispatcherProvider {
  /** The token under which it is provided, as an `InjectedDispatcher`. */
  readonly provide: InjectionToken
  readonly inject?: (InjectionToken | OptionalFactoryDependency)[]
  // Its arguments are what `inject` names, as of every factory of Nest.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly useFactory: (...injected: any[]) => DispatcherOptions | Promise<DispatcherOptions>
}

/**
 * A dispatcher that runs as long as the application: it starts when the application has started, and stops before the server does.
 *
 * A dispatcher goes on through restarts of the database. Where it cannot, because an operator has removed it for example, its error is not
 * caught: Node ends the process, so that nobody takes a process without its dispatcher for a working one.
 *
 * @example
 * providers: [
 *   provideDispatcher({
 *     provide: 'TRADES',
 *     inject: [TradesSink],
 *     useFactory: (sink: TradesSink) => ({ name: 'trades', sink }),
 *   }),
 * ]
 */
export function provideDispatcher({
  provide,
  inject = [],
  useFactory,
}: DispatcherProvider): FactoryProvider<Promise<InjectedDispatcher>> {
  if (typeof useFactory !== 'function') {
    throw new InvalidOptionError('provideDispatcher() was given no `useFactory`.', {
      advice: 'Return the options of lockstep.outbox.dispatcher() from it: useFactory: () => ({ sink }).',
    })
  }
  return {
    provide,
    inject: [Lockstep, ...inject],
    useFactory: async (lockstep: Lockstep, ...injected: unknown[]) =>
      new InjectedDispatcher(lockstep.outbox.dispatcher(await useFactory(...injected))),
  }
}

/** A dispatcher with the hooks of Nest. */
export class InjectedDispatcher implements OnApplicationBootstrap, BeforeApplicationShutdown {
  readonly #dispatcher: Dispatcher
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined

  constructor(dispatcher: Dispatcher) {
    this.#dispatcher = dispatcher
  }

  /** The name of the dispatcher. */
  get name(): string {
    return this.#dispatcher.name
  }

  /** Called by Nest. */
  onApplicationBootstrap(): void {
    this.#running = this.#dispatcher.run({ signal: this.#stopping.signal })
  }

  /** Called by Nest. Delivers what it has in hand, and gives its shards to other processes. */
  async beforeApplicationShutdown(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }
}
