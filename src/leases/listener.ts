import { lockId } from '../locks/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { within } from './backgroundTasks.ts'

/** With fewer connections than this, none is kept for listening. */
const MIN_POOL = 3
/** After the last that wanted it has gone, the connection is kept a little for the next. */
const LINGER_MS = 2000
const AGAIN_MS = 500
/** A silent network must not delay close(). */
const BOUND_MS = 1000

/** Gets the payload of each call, or undefined where calls may have been missed. */
export type Hear = (payload: string | undefined) => void

/**
 * Listens on one connection for all of a Lockstep, while there is a subscriber: waiters for the notifications of releases,
 * dispatchers for the bell of the outbox. Behind a pooler that does not work.
 */
export class Listener {
  readonly #context: LockstepContext
  readonly #channel: string
  readonly #hearing = new Set<Hear>()
  #stop: (() => Promise<void>) | undefined
  #starting: Promise<void> | undefined
  #closed = false
  #linger: NodeJS.Timeout | undefined

  constructor(context: LockstepContext) {
    this.#context = context
    this.#channel = `lockstep_${lockId(context.schema, 'listen', 'Leases:all')}`
  }

  get hears(): boolean {
    return this.#stop !== undefined
  }

  /** Wants to hear, as often as it is said. */
  want(hear: Hear): void {
    this.#hearing.add(hear)
    clearTimeout(this.#linger)
    this.#start()
  }

  leave(hear: Hear): void {
    this.#hearing.delete(hear)
    if (this.#hearing.size > 0 || this.#closed) return
    clearTimeout(this.#linger)
    this.#linger = setTimeout(() => void this.#end(), LINGER_MS).unref()
  }

  #call(payload: string | undefined): void {
    for (const hear of this.#hearing) hear(payload)
  }

  #start(): void {
    const { driver, route } = this.#context
    if (this.#stop !== undefined || this.#starting !== undefined || this.#closed || !route.direct) return
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
          if (this.#hearing.size === 0) this.#linger = setTimeout(() => void this.#end(), LINGER_MS).unref()
        },
        () => this.#lost(),
      )
      .finally(() => (this.#starting = undefined))
  }

  #lost(): void {
    this.#stop = undefined
    if (this.#hearing.size === 0) return
    this.#call(undefined)
    setTimeout(() => {
      if (this.#hearing.size > 0) this.#start()
    }, AGAIN_MS).unref()
  }

  async #end(): Promise<void> {
    await within(this.#starting, BOUND_MS)
    // Wanted again meanwhile.
    if (this.#hearing.size > 0) return
    const stop = this.#stop
    this.#stop = undefined
    await within(stop?.(), BOUND_MS)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#hearing.clear()
    clearTimeout(this.#linger)
    await this.#end()
  }
}
