import type { Checker, Entry, Violation } from '../history.ts'
import { numberOf } from './operations.ts'
import { ms } from './wording.ts'

/** Numbers of a stream that were passed over, and how many of them came later. */
interface Gap {
  readonly from: number
  readonly to: number
  readonly entry: Entry
  cameLate: number
}

interface Stream {
  /** Which operation's event each number was when it came first. */
  readonly seen: Map<number, string>
  highest: number
  readonly gaps: Gap[]
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
      const streams = new Map<string, Stream>()
      const violations: Violation[] = []
      const tell = ({ key, op, at }: Entry, text: string, ...others: readonly string[]): void => {
        const ops = [...others, op].filter((id) => id !== '')
        violations.push({ invariant: name, scenario, key, text, ops, at })
      }
      for (const entry of entries) {
        if (entry.what !== 'took') continue
        const { key, op } = entry
        const number = numberOf(entry)
        let stream = streams.get(key)
        if (stream === undefined) streams.set(key, (stream = { seen: new Map(), highest: 0, gaps: [] }))
        const first = stream.seen.get(number)
        if (first !== undefined) {
          if (first !== op) tell(entry, `${key} #${number} came twice, as the event of ${first} and of ${op}`, first)
          else if (!repeats) tell(entry, `${key} #${number} came again at ${ms(entry.at)}`)
        } else if (number < 1 || !Number.isInteger(number))
          tell(entry, `${key} #${number} came, a number that no event has`)
        else arrive(stream, number, entry)
      }
      for (const [key, { gaps }] of streams) for (const gap of gaps) tell(gap.entry, spoken(key, gap))
      return violations
    },
  }
}

/** Something that came for the first time. */
function arrive(stream: Stream, number: number, entry: Entry): void {
  const { seen, highest, gaps } = stream
  seen.set(number, entry.op)
  if (number < highest) {
    const gap = gapAround(gaps, number)
    if (gap !== undefined) gap.cameLate++
    return
  }
  if (number > highest + 1) gaps.push({ from: highest + 1, to: number - 1, entry, cameLate: 0 })
  stream.highest = number
}

/** Gaps lie in ascending order: halving finds the last one that begins at or below the number. */
function gapAround(gaps: readonly Gap[], number: number): Gap | undefined {
  let [low, high] = [0, gaps.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((gaps[middle]?.from ?? Infinity) <= number) low = middle + 1
    else high = middle
  }
  return gaps[low - 1]
}

function spoken(key: string, { from, to, entry, cameLate }: Gap): string {
  const size = to - from + 1
  const range = size === 1 ? `#${from}` : `#${from} to #${to}`
  const later =
    cameLate === 0 ? 'never came' : cameLate === size ? 'came later' : `came later, but for ${size - cameLate} of them`
  return `${key} #${entry.value} came when #${from} was next; ${range} ${later}`
}
