import type { Checker, Entry, Violation } from '../history.ts'
import { numberOf } from './operations.ts'
import { ms } from './wording.ts'

/** Something that arrived: a number of a key, and whose it is. One number that comes with two ids is two events. */
export interface Numbered {
  readonly key: string
  readonly seq: number
  readonly id: string
}

/** Numbers of a key that were passed over, by what came instead, and how many of them came later. */
interface Gap<Of> {
  readonly from: number
  readonly to: number
  readonly by: Of
  cameLate: number
}

interface Stream<Of> {
  /** The id of each number when it came first. */
  readonly ids: Map<number, string>
  highest: number
  readonly gaps: Gap<Of>[]
}

/** What was seen of all keys. */
export interface OrderCounts {
  readonly deliveries: number
  /** First deliveries. */
  readonly events: number
  /** Came again, with the id that it had. */
  readonly duplicates: number
  /** Of these, behind a later number of their key. */
  readonly late: number
  /** First deliveries that were not the next number of their key: after a gap, or behind a later one. */
  readonly outOfOrder: number
  /** First deliveries behind a later one of their key. */
  readonly inversions: number
  /** Numbers that are missing before one that came. */
  readonly gaps: number
  /** Came with another id than before. */
  readonly diverged: number
}

export interface OrderReport extends OrderCounts {
  /** The first that were wrong. */
  readonly examples: readonly string[]
}

const MAX_EXAMPLES = 5

/** The outcome of an arrival: it was the first of its number, came again, came with another id, or has a number that no event has. */
export type Seen =
  | { readonly what: 'first' | 'again' | 'no number' }
  | { readonly what: 'other id'; readonly id: string }

/**
 * The order of what arrives: of each key first 1, then 2, then 3, without a gap. All that look at order look at it with this: the lab at a
 * history, attacks at what sinks and brokers got.
 */
export class OrderPerKey<Of extends Numbered = Numbered> {
  readonly #streams = new Map<string, Stream<Of>>()
  readonly #examples: string[] = []
  readonly #counts = { deliveries: 0, events: 0, duplicates: 0, late: 0, outOfOrder: 0, inversions: 0, diverged: 0 }

  see(arrival: Of): Seen {
    const { key, seq, id } = arrival
    const counts = this.#counts
    counts.deliveries++
    let stream = this.#streams.get(key)
    if (stream === undefined) this.#streams.set(key, (stream = { ids: new Map(), highest: 0, gaps: [] }))
    const known = stream.ids.get(seq)
    if (known === id) {
      counts.duplicates++
      if (seq < stream.highest) counts.late++
      return { what: 'again' }
    }
    if (known !== undefined) {
      counts.diverged++
      this.#remember(`${key} #${seq} came with two ids`)
      return { what: 'other id', id: known }
    }
    if (seq < 1 || !Number.isInteger(seq)) {
      counts.outOfOrder++
      this.#remember(`${key} #${seq} came, a number that no event has`)
      return { what: 'no number' }
    }
    counts.events++
    if (seq !== stream.highest + 1) {
      counts.outOfOrder++
      this.#remember(`${key} #${seq} came when #${stream.highest + 1} was next`)
    }
    if (seq < stream.highest) counts.inversions++
    arrive(stream, arrival)
    return { what: 'first' }
  }

  #remember(example: string): void {
    if (this.#examples.length < MAX_EXAMPLES) this.#examples.push(example)
  }

  /** Each gap by what came instead, and its outcome. */
  gaps(): { readonly by: Of; readonly text: string }[] {
    return [...this.#streams.values()].flatMap(({ gaps }) => gaps.map((gap) => ({ by: gap.by, text: spoken(gap) })))
  }

  counts(): OrderCounts {
    let gaps = 0
    for (const { highest, ids } of this.#streams.values()) gaps += highest - ids.size
    return { ...this.#counts, gaps }
  }

  report(): OrderReport {
    return { ...this.counts(), examples: this.#examples }
  }
}

/** The order of all that is there. */
export function orderOf(all: readonly Numbered[]): OrderCounts {
  const order = new OrderPerKey()
  for (const each of all) order.see(each)
  return order.counts()
}

/** Something that came for the first time. */
function arrive<Of extends Numbered>(stream: Stream<Of>, arrival: Of): void {
  const { ids, highest, gaps } = stream
  const { seq } = arrival
  ids.set(seq, arrival.id)
  if (seq < highest) {
    const gap = gapAround(gaps, seq)
    if (gap !== undefined) gap.cameLate++
    return
  }
  if (seq > highest + 1) gaps.push({ from: highest + 1, to: seq - 1, by: arrival, cameLate: 0 })
  stream.highest = seq
}

/** Gaps lie in ascending order: halving finds the last one that begins at or below the number. */
function gapAround<Of>(gaps: readonly Gap<Of>[], number: number): Gap<Of> | undefined {
  let [low, high] = [0, gaps.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((gaps[middle]?.from ?? Infinity) <= number) low = middle + 1
    else high = middle
  }
  return gaps[low - 1]
}

function spoken({ from, to, by: { key, seq }, cameLate }: Gap<Numbered>): string {
  const size = to - from + 1
  const range = size === 1 ? `#${from}` : `#${from} to #${to}`
  const later =
    cameLate === 0 ? 'never came' : cameLate === size ? 'came later' : `came later, but for ${size - cameLate} of them`
  return `${key} #${seq} came when #${from} was next; ${range} ${later}`
}

export interface KeyOrderOptions {
  /** Whether what has come may come again, as it may at a sink; an inbox lets it through once. */
  readonly repeats: boolean
}

/** What comes of a key comes first as number 1, then 2, then 3, without a gap. */
export function keyOrder({ repeats }: KeyOrderOptions): Checker {
  const name = 'order per key'
  return {
    name,
    promise: `The events of a key arrive as 1, 2, 3, without a gap${repeats ? '; what has arrived may arrive again' : ', each of them once'}.`,
    check({ scenario, entries }) {
      const order = new OrderPerKey<Numbered & { readonly entry: Entry }>()
      const violations: Violation[] = []
      const tell = ({ key, op, at }: Entry, text: string, ...others: readonly string[]): void => {
        const ops = [...others, op].filter((id) => id !== '')
        violations.push({ invariant: name, scenario, key, text, ops, at })
      }
      for (const entry of entries) {
        if (entry.what !== 'took') continue
        const { key, op: id } = entry
        const seq = numberOf(entry)
        const seen = order.see({ key, seq, id, entry })
        if (seen.what === 'other id')
          tell(entry, `${key} #${seq} came twice, as the event of ${seen.id} and of ${id}`, seen.id)
        else if (seen.what === 'no number') tell(entry, `${key} #${seq} came, a number that no event has`)
        else if (seen.what === 'again' && !repeats) tell(entry, `${key} #${seq} came again at ${ms(entry.at)}`)
      }
      for (const { by, text } of order.gaps()) tell(by.entry, text)
      return violations
    },
  }
}
