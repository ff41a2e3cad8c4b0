import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import type { Bench, RunSize } from './bench.ts'
import { type ContenderName, contenders } from './contenders/all.ts'
import { Arena, type Seat } from './contenders/arena.ts'
import { CONCURRENCY } from './contenders/contender.ts'
import { COUNT_EFFECTS, INSERT_EFFECT, WRONG_EFFECTS } from './contenders/effects.sql.ts'
import { interleave, type Rounds, type Turn } from './harness/interleave.ts'
import { showSpread } from './harness/spread.ts'
import { KEYS } from './outboxEvents.ts'

interface Size {
  readonly rounds: number
  /** Of what waits, at the most; a slow one gets as many as it handles in so long. */
  readonly events: number
  readonly slowMs: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { rounds: 5, events: 100_000, slowMs: 10_000 },
  quick: { rounds: 1, events: 20_000, slowMs: 2000 },
  smoke: { rounds: 1, events: 1000, slowMs: 300 },
}

const NAMES: readonly ContenderName[] = [
  'Lockstep',
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key, local queue',
]
const PEERS = NAMES.slice(1)
const LEAST_TIMES = 5
/** Far below what the events that wait would take. */
const MOST_MB = 150

type Cost = 'rate' | 'mb'

/** Consumers of a backlog, one process each, with the same effect: one INSERT for each event, in order per key. */
export const consumers: Bench = {
  name: 'consumers',
  about: `handling a backlog over ${KEYS} keys in order, ${CONCURRENCY} at a time in one process, beside pg-boss and graphile-worker`,
  baselines: {
    effect: INSERT_EFFECT,
    Lockstep: `lockstep.consumer() with concurrency ${CONCURRENCY}: effect and position in one transaction`,
    'pg-boss key_strict_fifo': `${contenders['pg-boss key_strict_fifo'].settings}
The jobs of a batch are handled ${CONCURRENCY} at a time. Their effects are not in the transaction in which they are completed.`,
    'graphile-worker, a queue a key, local queue': `${contenders['graphile-worker, a queue a key, local queue'].settings}
Here concurrentJobs ${CONCURRENCY}. The effect of a job is not in the transaction in which it is completed.`,
  },
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const arena = await Arena.open('bundled')
    try {
      reportProgress('consumers: setting up')
      const seats = await Promise.all(NAMES.map((name) => arena.seat(name)))
      const play = (seat: Seat) => [seat.name, turnsOf(seat, size)] as const
      const rounds = await interleave(
        Object.fromEntries(seats.map(play)) as Record<ContenderName, (round: number) => Promise<Turn<Cost>>>,
        size.rounds,
        (text, done, all) => reportProgress(`consumers: ${text}`, done / all),
      )
      const results: ResultRow[] = []
      let wrong = 0
      for (const seat of seats) {
        wrong += await seat.askDatabase(WRONG_EFFECTS)
        results.push({ ...rowOf(seat.name, rounds), effects: await seat.askDatabase(COUNT_EFFECTS) })
      }
      return { results, goals: goalsOf(rounds, wrong) }
    } finally {
      await arena.close()
    }
  },
}

/** A backlog and one consumer. The first round finds out how many a slow one gets. */
function turnsOf(seat: Seat, size: Size): (round: number) => Promise<Turn<Cost>> {
  let [wanted, left] = [Math.min(size.events, contenders[seat.name].most ?? Infinity), 0]
  return async (round) => {
    if (left < wanted) left += await seat.fill(wanted - left)
    const { events, ms, delivered, grownMb } = await seat.consume(wanted, round === 0 ? size.slowMs : size.slowMs * 2)
    left -= delivered
    // Whole thousands: in each of them every key is there once.
    if (round === 0) wanted = Math.min(wanted, Math.max(1000, Math.floor(delivered / 1000) * 1000))
    return { rate: (events / ms) * 1000, mb: grownMb }
  }
}

function rowOf(name: ContenderName, rounds: Rounds<ContenderName, Cost>): ResultRow {
  const rate = rounds.of(name, 'rate')
  return {
    who: name,
    order: contenders[name].order,
    'handled/s': Math.round(rate.median),
    'middle half': showSpread(rate),
    'most memory, MB': Math.round(Math.max(...rounds.of(name, 'mb').samples)),
  }
}

function goalsOf(rounds: Rounds<ContenderName, Cost>, wrong: number): Goal[] {
  return [
    ...PEERS.map((peer) => goal(`times ${peer}`, rounds.ratio('Lockstep', peer, 'rate').median, '>=', LEAST_TIMES)),
    goal(
      'Lockstep: the most memory, above the start, MB',
      Math.max(...rounds.of('Lockstep', 'mb').samples),
      '<=',
      MOST_MB,
    ),
    goal('effects that are there twice, or out of the order of their key', wrong, '=', 0),
  ]
}
