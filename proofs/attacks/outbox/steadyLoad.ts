import { setTimeout as sleep } from 'node:timers/promises'
import type { Lockstep } from 'pg-lockstep'
import type { Random } from '../../seed.ts'

/** Transactions of one event each, begun at a steady pace whether the last ones have ended or not. */
export class SteadyLoad {
  readonly #lockstep: Lockstep
  readonly #topic: string
  readonly #keys: number
  readonly #random: Random
  readonly #committed: (mark: string) => void
  readonly #timer: NodeJS.Timeout
  #begun = 0
  #open = 0
  #failures = 0

  constructor(
    lockstep: Lockstep,
    { perSecond, keys, topic, random }: { perSecond: number; keys: number; topic: string; random: Random },
    committed: (mark: string) => void,
  ) {
    this.#lockstep = lockstep
    this.#topic = topic
    this.#keys = keys
    this.#random = random
    this.#committed = committed
    const startedAt = performance.now()
    this.#timer = setInterval(() => {
      const due = ((performance.now() - startedAt) / 1000) * perSecond
      while (this.#begun < due) void this.#write(`load ${this.#begun++}`)
    }, 1000 / perSecond)
  }

  get failures(): number {
    return this.#failures
  }

  async #write(mark: string): Promise<void> {
    const key = `portfolio ${this.#random.below(this.#keys)}`
    this.#open++
    try {
      await this.#lockstep.transaction({}, (tx) => tx.enqueue({ topic: this.#topic, key, payload: { mark } }))
      this.#committed(mark)
    } catch {
      this.#failures++
    } finally {
      this.#open--
    }
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer)
    while (this.#open > 0) await sleep(5)
  }
}
