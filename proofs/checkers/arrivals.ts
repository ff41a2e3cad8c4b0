import { type Numbered, OrderPerKey, type OrderReport } from './keyOrder.ts'

/** What arrived of an event. */
export interface Arrival extends Numbered {
  /** What its writer calls it. */
  readonly mark: string
}

/** All that arrived somewhere, in its order, and what it shows: about the order, and about what writers say that they wrote. */
export class Arrivals {
  readonly all: Arrival[] = []
  readonly marks = new Set<string>()
  readonly #order = new OrderPerKey()

  constructor(all: readonly Arrival[] = []) {
    for (const each of all) this.see(each)
  }

  see(arrival: Arrival): void {
    this.all.push(arrival)
    this.marks.add(arrival.mark)
    this.#order.see(arrival)
  }

  get count(): number {
    return this.all.length
  }

  /** How many of the marks have not arrived. */
  missing(marks: Iterable<string>): number {
    let missing = 0
    for (const mark of marks) if (!this.marks.has(mark)) missing++
    return missing
  }

  /** How many of the marks have arrived. */
  arrived(marks: Iterable<string>): number {
    let arrived = 0
    for (const mark of marks) if (this.marks.has(mark)) arrived++
    return arrived
  }

  /** How many of the first that arrived are not among these, under their number and their id. */
  notIn(stored: readonly Arrival[], first = this.count): number {
    const there = new Map(stored.map(({ key, seq, id }) => [`${key} ${seq}`, id]))
    return this.all.slice(0, first).filter(({ key, seq, id }) => there.get(`${key} ${seq}`) !== id).length
  }

  report(): OrderReport {
    return this.#order.report()
  }
}
