import { exactlyOnce } from '../../proofs/checkers/exactlyOnce.ts'
import { EFFECT } from '../../proofs/checkers/foundKeys.ts'
import type { Entry, What } from '../../proofs/history.ts'
import type { Finding } from '../desk.ts'
import type { Outcome } from './client.ts'

/** What the database has under a mark. */
export interface Found {
  readonly mark: string
  readonly id: string
}

/** What each end of a request is in a history. */
const ENDS: Readonly<Record<Outcome['kind'], What>> = { acknowledged: 'done', refused: 'failed', unknown: 'unknown' }

/**
 * What the clients know of their requests: each has a mark of its own, which the database has kept beside the effect. So every effect
 * can be held against what was said about it.
 */
export class Memory {
  readonly #what: string
  readonly #requests: Entry[] = []

  constructor(what: string) {
    this.#what = what
  }

  /** `id`: what the answer called it. */
  remember(mark: string, outcome: Outcome, id?: string): void {
    this.#requests.push({ ...this.#entry(ENDS[outcome.kind], mark), ...(id !== undefined && { value: id }) })
  }

  /**
   * Holds it against the database, all effects of this run, one row each: what was acknowledged is there once, as it was acknowledged; what
   * was refused is not there; what got no answer is there once at most; and nothing is there that no client asked for.
   */
  compare(found: readonly Found[]): Finding {
    const effects = found.map(({ mark, id }) => ({
      ...this.#entry('found', mark),
      key: EFFECT + this.#what,
      value: id,
    }))
    const entries = [...this.#requests, ...effects]
    const violations = exactlyOnce.check({ scenario: 'load', form: 'lockstep', entries, faults: [] })
    return {
      invariant: `every ${this.#what} is there as it was acknowledged`,
      looked: this.#requests.length,
      violations: violations.map(({ text }) => text),
    }
  }

  #entry(what: What, op: string): Entry {
    return { at: 0, by: 'client', scenario: 'load', op, what, key: this.#what }
  }
}

export function finding<T>(
  invariant: string,
  things: readonly (readonly [string, T])[],
  wrong: (mark: string, thing: T) => string | undefined,
): Finding {
  return { invariant, looked: things.length, violations: things.flatMap(([mark, thing]) => wrong(mark, thing) ?? []) }
}
