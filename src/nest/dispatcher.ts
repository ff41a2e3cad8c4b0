import type {
  BeforeApplicationShutdown,
  FactoryProvider,
  InjectionToken,
  OnApplicationBootstrap,
  OptionalFactoryDependency,
} from '@nestjs/common'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
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

const DISPATCHER_PROVIDER: OptionNames<DispatcherProvider> = {
  provide: 'never undefined',
  inject: true,
  useFactory: true,
}

/**
 * A dispatcher that runs as long as the application: it starts when the application has started, and stops before the server does.
 *
 * A dispatcher continues through restarts of the database. If it cannot continue, for example because an operator has removed it, its error is
 * not caught, and Node ends the process: a process without its dispatcher must not look healthy.
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
export function provideDispatcher(options: DispatcherProvider): FactoryProvider<Promise<InjectedDispatcher>> {
  checkOptions('provideDispatcher()', options, DISPATCHER_PROVIDER)
  const { provide, inject = [], useFactory } = options
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

  /** Called by Nest. Delivers the batch that it has read, and releases its shards for other processes. */
  async beforeApplicationShutdown(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }
}
