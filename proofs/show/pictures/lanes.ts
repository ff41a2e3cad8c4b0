import { OrderPerKey } from '../../checkers/keyOrder.ts'
import { numberOf } from '../../checkers/operations.ts'
import { PORTFOLIOS as NAMES } from '../names.ts'
import type { Arrival } from '../state.ts'
import type { PictureSource } from './picture.ts'

const SHOWN = 16

interface Lane {
  readonly arrivals: Arrival[]
  highest: number
}

/** What reached the broker, a lane for each portfolio, in the order of its arrival. */
export function lanes(): PictureSource {
  const all = new Map<string, Lane>()
  const order = new OrderPerKey()
  const laneOf = (stream: string): Lane => {
    // `portfolio 7.2` is the third of round 7.
    const name = NAMES[Number(stream.split('.').at(-1))] ?? stream
    let lane = all.get(name)
    if (lane === undefined) all.set(name, (lane = { arrivals: [], highest: 0 }))
    return lane
  }
  return {
    see(entry) {
      if (entry.what !== 'took') return
      const number = numberOf(entry)
      const lane = laneOf(entry.key)
      const seen = order.see({ key: entry.key, seq: number, id: entry.op })
      lane.arrivals.push({ number, mark: markOf(seen.what, number, lane.highest) })
      if (lane.arrivals.length > SHOWN) lane.arrivals.shift()
      lane.highest = Math.max(lane.highest, number)
    },
    picture: () => ({
      kind: 'lanes',
      lanes: NAMES.map((name) => ({ name, arrivals: [...(all.get(name)?.arrivals ?? [])] })),
    }),
  }
}

function markOf(seen: string, number: number, highest: number): Arrival['mark'] {
  if (seen === 'again') return 'again'
  if (number < highest) return 'late'
  return seen === 'first' && number === highest + 1 ? 'next' : 'overtook'
}
