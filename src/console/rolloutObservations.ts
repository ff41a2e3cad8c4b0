import { on } from '../observe/index.ts'

interface Observed {
  wouldWait: number
  longestWaitMs: number
  duplicates: number
}

/** The limit of keys: beyond it, the key that was seen longest ago is dropped. */
const MAX_KEYS = 1000

/** What this process has observed of keys that are not locked, from when the console was made until it is closed. */
export class RolloutObservations {
  readonly since = new Date()
  readonly #schema: string
  readonly #keys = new Map<string, Observed>()
  readonly #ends: readonly (() => void)[]

  constructor(schema: string) {
    this.#schema = schema
    this.#ends = [
      on('lock.wouldWait', ({ schema: of, key, waitMs }) => {
        const observed = this.#at(of, key)
        if (observed === undefined) return
        observed.wouldWait++
        observed.longestWaitMs = Math.max(observed.longestWaitMs, waitMs)
      }),
      on('rollout.duplicateFound', ({ schema: of, key }) => {
        const observed = this.#at(of, key)
        if (observed !== undefined) observed.duplicates++
      }),
    ]
  }

  /** Of the keys whose longest rule this is. */
  under(prefix: string, prefixes: readonly string[]): Readonly<Observed> {
    const sum: Observed = { wouldWait: 0, longestWaitMs: 0, duplicates: 0 }
    for (const [key, observed] of this.#keys) {
      const longest = prefixes.reduce(
        (best, each) => (key.startsWith(each) && each.length > best.length ? each : best),
        '',
      )
      if (longest !== prefix) continue
      sum.wouldWait += observed.wouldWait
      sum.duplicates += observed.duplicates
      sum.longestWaitMs = Math.max(sum.longestWaitMs, observed.longestWaitMs)
    }
    return sum
  }

  close(): void {
    for (const end of this.#ends) end()
  }

  #at(schema: string, key: string): Observed | undefined {
    if (schema !== this.#schema) return undefined
    const observed = this.#keys.get(key) ?? { wouldWait: 0, longestWaitMs: 0, duplicates: 0 }
    // Seen again, it stands behind the others.
    this.#keys.delete(key)
    this.#keys.set(key, observed)
    const [oldest] = this.#keys.keys()
    if (this.#keys.size > MAX_KEYS && oldest !== undefined) this.#keys.delete(oldest)
    return observed
  }
}
