import { setTimeout as sleep } from 'node:timers/promises'

/** How the exchange misbehaves: each rate is the share of requests that it strikes, from 0 to 1. */
export interface Faults {
  /** It is done, and the answer never comes: the connection is cut. */
  readonly lostRate: number
  /** 503, and nothing was done. */
  readonly failingRate: number
  /** The answer takes longer by `slowMs`. */
  readonly slowRate: number
  readonly slowMs: number
}

export const NO_FAULTS: Faults = { lostRate: 0, failingRate: 0, slowRate: 0, slowMs: 1000 }

/** What has struck, so far. */
export interface Struck {
  lost: number
  failing: number
  slow: number
}

/** Adjustable while it runs. */
export class FaultDice {
  readonly struck: Struck = { lost: 0, failing: 0, slow: 0 }
  #faults: Faults

  constructor(faults: Partial<Faults> = {}) {
    this.#faults = { ...NO_FAULTS, ...faults }
  }

  get faults(): Faults {
    return this.#faults
  }

  set(faults: Partial<Faults>): void {
    this.#faults = { ...this.#faults, ...faults }
  }

  fails(): boolean {
    return this.#falls(this.#faults.failingRate, 'failing')
  }

  loses(): boolean {
    return this.#falls(this.#faults.lostRate, 'lost')
  }

  async slowDown(): Promise<void> {
    if (this.#falls(this.#faults.slowRate, 'slow')) await sleep(this.#faults.slowMs)
  }

  #falls(rate: number, kind: keyof Struck): boolean {
    const falls = Math.random() < rate
    if (falls) this.struck[kind]++
    return falls
  }
}

/** What of a request's body are faults, or why it is none. */
export function readFaults(given: unknown): Partial<Faults> | string {
  if (typeof given !== 'object' || given === null) return 'a JSON object is needed'
  const wanted: Partial<Record<keyof Faults, number>> = {}
  for (const [name, value] of Object.entries(given)) {
    const most = name === 'slowMs' ? 60_000 : 1
    if (!(name in NO_FAULTS)) return `${name} is no fault; there are ${Object.keys(NO_FAULTS).join(', ')}`
    if (typeof value !== 'number' || !(value >= 0 && value <= most)) return `${name} must be from 0 to ${most}`
    wanted[name as keyof Faults] = value
  }
  return wanted
}
