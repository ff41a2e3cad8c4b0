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
  /** Of what waits, at most; a slow one gets as many as it handles in so long. */
  readonly events: number
  readonly slowMs: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { rounds: 5, events: 100_000, slowMs: 10_000 },
  quick: { rounds: 1, events: 20_000, slowMs: 2000 },
  smoke: { rounds: 1, events: 1000, slowMs: 300 },
}

const GRAPHILE = 'graphile-worker, a queue a key, local queue'
const PG_BOSS = 'pg-boss key_strict_fifo'
const NAMES = [
  'Lockstep',
  PG_BOSS,
  GRAPHILE,
  'effects alone',
  'Lockstep, lists',
  'pg-boss key_strict_fifo, lists',
] as const satisfies readonly ContenderName[]
/** Of the rate of `effects alone`: what is left is between handlers that write one event at a time and any consumer. */
const LEAST_OF_LIMIT = 0.75
const LEAST_TIMES = 5
/** Far below what the events that wait would take. */
const MOST_MB = 150

type Cost = 'rate' | 'mb'

const ABOUT_EFFECTS: Readonly<Record<(typeof NAMES)[number], string>> = {
  Lockstep: `lockstep.consumer() with concurrency ${CONCURRENCY}: effect and position in one transaction.`,
  'Lockstep, lists': 'Effects and position in one transaction.',
  [PG_BOSS]: `The jobs of a batch are handled ${CONCURRENCY} at a time. Their effects are not in the transaction in which they are completed.`,
  'pg-boss key_strict_fifo, lists': 'The effects are not in the transaction in which the jobs are completed.',
  [GRAPHILE]: `Here concurrentJobs ${CONCURRENCY}. The effect of a job is not in the transaction in which it is completed.`,
  'effects alone': INSERT_EFFECT,
}

/** Consumers of a backlog, one process each, with the same effect: one INSERT for each event, in order per key. */
export const consumers: Bench = {
  name: 'consumers',
  about: `handling a backlog over ${KEYS} keys in order, ${CONCURRENCY} at a time in one process, beside pg-boss and graphile-worker`,
  baselines: Object.fromEntries(
    NAMES.map((name) => [
      name,
      `${contenders[name].settings}
${ABOUT_EFFECTS[name]}`,
    ]),
  ),
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
        if (contenders[seat.name].order !== 'none') wrong += await seat.askDatabase(WRONG_EFFECTS)
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
  const times = (name: ContenderName, other: ContenderName): number => rounds.ratio(name, other, 'rate').median
  const memory = (name: ContenderName): Goal =>
    goal(`${name}: the most memory, above the start, MB`, Math.max(...rounds.of(name, 'mb').samples), '<=', MOST_MB)
  return [
    goal(
      'one event at a time: of the rate of the effects alone',
      times('Lockstep', 'effects alone'),
      '>=',
      LEAST_OF_LIMIT,
    ),
    ...[PG_BOSS, GRAPHILE].map((peer) =>
      goal(`one event at a time: times ${peer}`, times('Lockstep', peer as ContenderName), '>=', 2),
    ),
    goal(`lists: times ${PG_BOSS}`, times('Lockstep, lists', 'pg-boss key_strict_fifo, lists'), '>=', LEAST_TIMES),
    goal(`lists: times ${GRAPHILE}`, times('Lockstep, lists', GRAPHILE), '>=', LEAST_TIMES),
    memory('Lockstep'),
    memory('Lockstep, lists'),
    goal('effects that are there twice, or out of the order of their key', wrong, '=', 0),
  ]
}
