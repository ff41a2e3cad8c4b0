import type { BeforeApplicationShutdown, OnApplicationShutdown, OnModuleInit } from '@nestjs/common'
import type { HttpAdapterHost, ModulesContainer } from '@nestjs/core'
import { type Console, createConsole } from '../console/index.ts'
import type { Lockstep } from '../index.ts'
import { checkGuardedMethods } from './guardedMethods.ts'
import type { LockstepModuleOptions } from './lockstepModuleOptions.ts'

/** Mounts the console, and closes what the module has opened. */
export class ApplicationLifecycle implements OnModuleInit, BeforeApplicationShutdown, OnApplicationShutdown {
  readonly #options: LockstepModuleOptions
  readonly #lockstep: Lockstep
  readonly #modules: ModulesContainer
  readonly #site: Console | undefined
  /** Nest calls its hooks again where an application is closed twice. */
  #closed: Promise<void> | undefined

  /** Before the application is initialized, so the console is mounted before the parsers: it reads bodies by itself. */
  constructor(
    options: LockstepModuleOptions,
    lockstep: Lockstep,
    modules: ModulesContainer,
    // An application context without a server has none.
    adapter: HttpAdapterHost['httpAdapter'] | undefined,
  ) {
    this.#options = options
    this.#lockstep = lockstep
    this.#modules = modules
    const { console: wanted } = options
    if (wanted === undefined || adapter === undefined) return
    this.#site = createConsole(lockstep, wanted)
    adapter.use(wanted.base, this.#site.listener)
  }

  /** All modules are there, and no request has come. */
  onModuleInit(): void {
    checkGuardedMethods(this.#modules)
  }

  /** The server waits for its connections next, and the page of the console keeps one open. */
  async beforeApplicationShutdown(): Promise<void> {
    await this.#site?.close()
  }

  /** No request runs any more, and no dispatcher. */
  onApplicationShutdown(): Promise<void> {
    return (this.#closed ??= this.#close())
  }

  async #close(): Promise<void> {
    await this.#lockstep.close()
    if (this.#options.endPool === true) await (this.#options.pool as unknown as { end(): Promise<void> }).end()
  }
}
