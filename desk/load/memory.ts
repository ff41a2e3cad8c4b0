import type { Finding } from '../desk.ts'
import type { Outcome } from './client.ts'

/** What the database has under a mark. */
export interface Found {
  readonly mark: string
  readonly id: string
}

interface Remembered {
  readonly outcome: Outcome['kind']
  /** What the answer called it. */
  readonly id: string | undefined
}

/**
 * What the clients know of their requests: each has a mark of its own, which the database has kept beside the effect. So every effect
 * can be held against what was said about it.
 */
export class Memory {
  readonly #what: string
  readonly #requests = new Map<string, Remembered>()

  constructor(what: string) {
    this.#what = what
  }

  remember(mark: string, outcome: Outcome, id?: string): void {
    this.#requests.set(mark, { outcome: outcome.kind, id })
  }

  /** Holds it against the database: all effects of this run, one row each. */
  compare(found: readonly Found[]): Finding[] {
    const ids = new Map<string, string[]>()
    for (const { mark, id } of found) ids.set(mark, [...(ids.get(mark) ?? []), id])
    const of = (kind: Outcome['kind']): [string, Remembered][] =>
      [...this.#requests].filter(([, { outcome }]) => outcome === kind)
    const count = (mark: string): number => ids.get(mark)?.length ?? 0
    return [
      finding(`every acknowledged ${this.#what} is there exactly once`, of('acknowledged'), (mark, { id }) => {
        if (count(mark) !== 1) return `${mark} was acknowledged and is there ${count(mark)} times`
        const there = ids.get(mark)?.[0]
        return id === undefined || there === id ? undefined : `${mark} was acknowledged as ${id} and is ${there}`
      }),
      finding(`no ${this.#what} that was refused is there`, of('refused'), (mark) =>
        count(mark) === 0 ? undefined : `${mark} was refused and is there ${count(mark)} times`,
      ),
      finding(`a ${this.#what} without an answer is there once or not at all`, of('unknown'), (mark) =>
        count(mark) <= 1 ? undefined : `${mark} got no answer and is there ${count(mark)} times`,
      ),
      finding(`every ${this.#what} that is there was asked for`, [...ids], (mark) =>
        this.#requests.has(mark) ? undefined : `${mark} is there, and nobody asked for it`,
      ),
    ]
  }
}

export function finding<T>(
  invariant: string,
  things: readonly (readonly [string, T])[],
  wrong: (mark: string, thing: T) => string | undefined,
): Finding {
  return { invariant, looked: things.length, violations: things.flatMap(([mark, thing]) => wrong(mark, thing) ?? []) }
}
