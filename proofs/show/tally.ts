import { ENDS, type Entry, type Violation } from '../history.ts'
import { plainText } from './plainText.ts'
import type { Broken } from './state.ts'

/** The newest answers from which the percentile is taken. */
const LATENCIES = 4096
const SLICE_MS = 250
const SLICES = 8

/** Counts the operations of one side. */
export class Tally {
  readonly #askedAt = new Map<string, number>()
  readonly #latenciesMs: number[] = []
  /** Operations that are done, by quarter of a second. */
  readonly #slices = new Map<number, number>()
  asked = 0
  done = 0
  notDone = 0

  see({ what, op, at }: Entry): void {
    if (op === '') return
    if (what === 'asked') {
      this.asked++
      this.#askedAt.set(op, at)
      return
    }
    if (!ENDS.has(what)) return
    const askedAt = this.#askedAt.get(op)
    this.#askedAt.delete(op)
    if (what !== 'done') {
      this.notDone++
      return
    }
    this.#latenciesMs[this.done++ % LATENCIES] = (at - (askedAt ?? at)) / 1000
    const slice = Math.floor(at / 1000 / SLICE_MS)
    this.#slices.set(slice, (this.#slices.get(slice) ?? 0) + 1)
    if (this.#slices.size > 4 * SLICES) this.#slices.delete(this.#slices.keys().next().value as number)
  }

  /** Over the last two seconds. */
  perSecond(nowMs: number): number {
    const now = Math.floor(nowMs / SLICE_MS)
    let sum = 0
    for (let slice = now - SLICES; slice < now; slice++) sum += this.#slices.get(slice) ?? 0
    return Math.round(sum / (Math.min(SLICES * SLICE_MS, Math.max(nowMs, SLICE_MS)) / 1000))
  }

  get p99Ms(): number {
    const sorted = this.#latenciesMs.toSorted((one, other) => one - other)
    return Math.round(sorted[Math.ceil(sorted.length * 0.99) - 1] ?? 0)
  }
}

/** By invariant, with the newest example of each. */
export function brokenBy(violations: readonly Violation[]): Broken[] {
  const all = new Map<string, Broken>()
  for (const { invariant, text } of violations) {
    all.set(invariant, { invariant, count: (all.get(invariant)?.count ?? 0) + 1, example: text })
  }
  return [...all.values()].map((each) => ({ ...each, example: plainText(each.example) }))
}
