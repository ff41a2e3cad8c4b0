import type { LockstepContext } from '../transactions/index.ts'
import { within } from './backgroundTasks.ts'

/** With fewer connections than this, none is kept for listening. */
const MIN_POOL = 3
/** After the last waiter has gone, the connection is kept a little for the next. */
const LINGER_MS = 2000
const AGAIN_MS = 500
/** A network that swallows everything must not hold up whoever closes. */
const BOUND_MS = 1000

/** Listens for the calls of those who give leases back, on one connection, while somebody waits. Behind a pooler nobody can. */
export class ReleaseListener {
  readonly #context: LockstepContext
  readonly #channel: string
  readonly #call: (payload: string | undefined) => void
  #stop: (() => Promise<void>) | undefined
  #starting: Promise<void> | undefined
  #wanted = false
  #closed = false
  #linger: NodeJS.Timeout | undefined

  /** `call` gets the payload, or undefined where calls may have been missed. */
  constructor(context: LockstepContext, channel: string, call: (payload: string | undefined) => void) {
    this.#context = context
    this.#channel = channel
    this.#call = call
  }

  get hears(): boolean {
    return this.#stop !== undefined
  }

  wanted(wanted: boolean): void {
    this.#wanted = wanted
    clearTimeout(this.#linger)
    if (wanted) this.#start()
    else this.#linger = setTimeout(() => void this.#end(), LINGER_MS).unref()
  }

  #start(): void {
    const { driver, route } = this.#context
    if (this.#stop !== undefined || this.#starting !== undefined || !route.direct) return
    if (driver.name === 'pg' && driver.poolSize < MIN_POOL) return
    this.#starting = driver
      .listen(
        this.#channel,
        (payload) => this.#call(payload),
        () => this.#lost(),
      )
      .then(
        (stop) => {
          if (this.#closed) {
            void stop()
            return
          }
          this.#stop = stop
          // What was called before is not heard.
          this.#call(undefined)
          if (!this.#wanted) this.wanted(false)
        },
        () => this.#lost(),
      )
      .finally(() => (this.#starting = undefined))
  }

  #lost(): void {
    this.#stop = undefined
    if (!this.#wanted) return
    this.#call(undefined)
    setTimeout(() => {
      if (this.#wanted) this.#start()
    }, AGAIN_MS).unref()
  }

  async #end(): Promise<void> {
    await within(this.#starting, BOUND_MS)
    // Wanted again meanwhile.
    if (this.#wanted) return
    const stop = this.#stop
    this.#stop = undefined
    await within(stop?.(), BOUND_MS)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#wanted = false
    clearTimeout(this.#linger)
    await this.#end()
  }
}
