/** What is over the bound. */
export const OTHER = 'other'

/** How many different values a label or an attribute may have by default. */
export const DEFAULT_MAX_VALUES = 200

/** Keeps the first distinct values up to a limit; all others become `other`. */
export class LabelBound {
  readonly #max: number
  readonly #seen = new Set<string>()

  constructor(max: number) {
    this.#max = max
  }

  bounded(value: string): string {
    if (this.#seen.has(value)) return value
    if (this.#seen.size >= this.#max) return OTHER
    this.#seen.add(value)
    return value
  }
}

/** What a key is about: all up to its first colon. */
export function operationOf(key: string): string {
  const colon = key.indexOf(':')
  return colon === -1 ? key : key.slice(0, colon)
}
