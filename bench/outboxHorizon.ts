import { goal, type ResultRow } from '../tools/judge/report.ts'
import type { Bench, Measured, ReportProgress, RunSize } from './bench.ts'
import { type ContenderName, contenders } from './contenders/all.ts'
import { Arena, type Seat } from './contenders/arena.ts'
import { heldHorizon } from './outboxHeldHorizon.ts'
import { showSpread, type Spread, spreadOf } from './harness/spread.ts'

interface Size {
  /** How long the snapshot is held, and how many rounds of its second half are wanted. */
  readonly ms: number
  readonly rounds: number
  readonly singles: number
  /** A backlog for Lockstep, and for the others, of which each gets so long. */
  readonly many: number
  readonly fewer: number
  readonly longestMs: number
  readonly names: readonly ContenderName[]
}

/** Those that keep pace with the minute; one of each kind. */
const NAMES: readonly ContenderName[] = [
  'Lockstep',
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key, local queue',
  'graphile-worker, unordered',
  'a query that locks as it reads',
]

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { ms: 60_000, rounds: 5, singles: 500, many: 60_000, fewer: 4000, longestMs: 2000, names: NAMES },
  quick: { ms: 12_000, rounds: 2, singles: 200, many: 10_000, fewer: 2000, longestMs: 1000, names: NAMES },
  // One beside Lockstep: the smoke of bench outbox has them all.
  smoke: { ms: 300, rounds: 1, singles: 16, many: 2000, fewer: 1000, longestMs: 200, names: NAMES.slice(0, 2) },
}

/** An old snapshot keeps what was updated or deleted from being cleaned up: a program that does either for each event gets slower and slower. */
export const outboxHorizon: Bench = {
  name: 'outbox-horizon',
  about: 'enqueue and drain while a session holds an old snapshot, or a transaction id, against the same without',
  baselines: Object.fromEntries(NAMES.map((name) => [name, contenders[name].settings])),
  async run(thoroughness, reportProgress) {
    const snapshot = await underSnapshot(SIZES[thoroughness], reportProgress)
    const held = await heldHorizon(thoroughness, reportProgress)
    return { results: [...snapshot.results, ...held.results], goals: [...snapshot.goals, ...held.goals] }
  },
}

async function underSnapshot(size: Size, reportProgress: ReportProgress): Promise<Measured> {
  const arena = await Arena.open('bundled')
  try {
    reportProgress('outbox-horizon: setting up')
    const sides = await Promise.all(size.names.map((name) => openSides(arena, name, size)))
    const rounds = await holdAndPlay(sides, size, reportProgress)
    const results: ResultRow[] = []
    for (const name of size.names) {
      for (const what of ['enqueue', 'drain'] as const) {
        const { held, free, ratio } = spreads(rounds, name, what)
        results.push({
          who: name,
          what,
          'held/s': Math.round(held.median),
          'without/s': Math.round(free.median),
          ratio: ratio.median,
          'middle half': showSpread(ratio),
        })
      }
    }
    const judged = (['enqueue', 'drain'] as const).map((what) => {
      const name = `${what} under a snapshot of ${size.ms / 1000} s, in the rate without`
      return goal(name, spreads(rounds, 'Lockstep', what).ratio.median, '>=', 0.9)
    })
    return { results, goals: judged }
  } finally {
    await arena.close()
  }
}

interface Rates {
  readonly enqueue: number
  readonly drain: number
}

/** The same contender twice: under a snapshot, and without. */
interface Sides {
  readonly name: ContenderName
  readonly held: Side
  readonly free: Side
}

interface Side {
  readonly seat: Seat
  play(): Promise<Rates>
}

interface Round {
  readonly name: ContenderName
  readonly held: Rates
  readonly free: Rates
}

async function openSides(arena: Arena, name: ContenderName, size: Size): Promise<Sides> {
  const [held, free] = await Promise.all([arena.seat(name), arena.seat(name)])
  return { name, held: sideOf(held, size), free: sideOf(free, size) }
}

function sideOf(seat: Seat, size: Size): Side {
  const wanted = seat.name === 'Lockstep' ? size.many : size.fewer
  let left = 0
  return {
    seat,
    async play() {
      const enqueued = await seat.enqueue(size.singles)
      if (left < wanted) left += await seat.fill(wanted - left)
      const drained = await seat.drain(wanted, size.longestMs)
      left -= drained.delivered
      return { enqueue: (enqueued.events / enqueued.ms) * 1000, drain: (drained.events / drained.ms) * 1000 }
    },
  }
}

/**
 * The snapshots are taken at once in all databases on the one side, which delays VACUUM there and only there. All play in turns, so
 * that what slows the machine down slows all. What an old snapshot costs grows with its age: only the second half counts.
 */
async function holdAndPlay(sides: readonly Sides[], size: Size, reportProgress: ReportProgress): Promise<Round[]> {
  for (const { held, free } of sides) for (const side of [held, free]) await side.play()
  const letGo = await Promise.all(sides.map(({ held }) => held.seat.holdSnapshots()))
  try {
    const late: Round[] = []
    const startedAt = performance.now()
    const age = (): number => performance.now() - startedAt
    const enough = (): boolean => age() >= size.ms && late.length >= size.rounds * sides.length
    for (let number = 0; !enough(); number++) {
      const counts = age() >= size.ms / 2
      for (const { name, held, free } of sides) {
        reportProgress(
          `outbox-horizon: a snapshot of ${Math.round(age() / 1000)} s, ${name}`,
          Math.min(1, age() / size.ms),
        )
        const first = await (number % 2 === 0 ? held : free).play()
        const second = await (number % 2 === 0 ? free : held).play()
        if (!counts) continue
        late.push(number % 2 === 0 ? { name, held: first, free: second } : { name, held: second, free: first })
      }
    }
    return late
  } finally {
    await Promise.all(letGo.map((each) => each()))
  }
}

function spreads(
  rounds: readonly Round[],
  who: ContenderName,
  what: keyof Rates,
): { held: Spread; free: Spread; ratio: Spread } {
  const own = rounds.filter(({ name }) => name === who)
  return {
    held: spreadOf(own.map(({ held }) => held[what])),
    free: spreadOf(own.map(({ free }) => free[what])),
    ratio: spreadOf(own.map(({ held, free }) => held[what] / free[what])),
  }
}
