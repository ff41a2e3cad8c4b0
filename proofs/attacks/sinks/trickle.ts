import { setTimeout as sleep } from 'node:timers/promises'
import type { Lockstep } from 'pg-lockstep'
import type { Random } from '../../seed.ts'

/** How much is written. */
export interface TrickleLoad {
  readonly keys: number
  readonly each: number
  readonly everyMs: number
}

/** Events that are written little by little, until it is over. */
export class Trickle {
  readonly #lockstep: Lockstep
  readonly #topic: string
  readonly #writing: Promise<void>
  #over = false
  #written = 0

  constructor(lockstep: Lockstep, topic: string, load: TrickleLoad, random: Random) {
    this.#lockstep = lockstep
    this.#topic = topic
    this.#writing = this.#write(load, random)
  }

  /** How many events there are. */
  get written(): number {
    return this.#written
  }

  async #write({ keys, each, everyMs }: TrickleLoad, random: Random): Promise<void> {
    while (!this.#over) {
      const events = Array.from({ length: each }, () => {
        const key = `portfolio ${random.below(keys)}`
        return { topic: this.#topic, key, payload: { at: Date.now() } }
      })
      await this.#lockstep.transaction({}, (tx) => tx.enqueueMany(events))
      this.#written += each
      await sleep(everyMs)
    }
  }

  /** No more. */
  async end(): Promise<void> {
    this.#over = true
    await this.#writing
  }
}
