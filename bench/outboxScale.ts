import { Lockstep } from 'pg-lockstep'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { interleave, type Rounds, type Turn } from './harness/interleave.ts'
import { showSpread } from './harness/spread.ts'
import { CHECKPOINT, vacuum } from './outbox.sql.ts'
import { drain } from './outboxDrain.ts'
import { CONNECTIONS, eventOf, fill, onAllConnections } from './outboxEvents.ts'
import { openPool } from './harness/openPool.ts'

interface Cell {
  readonly keys: number
  readonly backlog: number
  /** Whether it may cost no more than the smallest: with a handful of keys, those who enqueue wait for each other. */
  readonly judged: boolean
}

interface Size {
  readonly rounds: number
  readonly singles: number
  /** The first is the one that the others are compared with. */
  readonly cells: readonly Cell[]
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: {
    rounds: 25,
    singles: 2000,
    cells: [
      { keys: 1000, backlog: 10_000, judged: false },
      { keys: 1000, backlog: 500_000, judged: true },
      { keys: 1000, backlog: 5_000_000, judged: true },
      { keys: 10, backlog: 500_000, judged: false },
      { keys: 100_000, backlog: 500_000, judged: false },
      { keys: 1_000_000, backlog: 1_000_000, judged: false },
    ],
  },
  quick: {
    rounds: 3,
    singles: 500,
    cells: [
      { keys: 1000, backlog: 10_000, judged: false },
      { keys: 1000, backlog: 500_000, judged: true },
      { keys: 10, backlog: 50_000, judged: false },
      { keys: 100_000, backlog: 100_000, judged: false },
    ],
  },
  smoke: {
    rounds: 1,
    singles: 40,
    cells: [
      { keys: 1000, backlog: 3000, judged: false },
      { keys: 1000, backlog: 6000, judged: true },
      { keys: 10, backlog: 3000, judged: false },
    ],
  },
}

/** Of the smallest backlog, so much is drained against the clock: its last batches are smaller than any of a large one. */
const MEASURED_SHARE = 0.8
const AT_MOST = 1.2

/** What an event costs with few keys and with many, behind a small backlog and behind a large one. */
export const outboxScale: Bench = {
  name: 'outbox-scale',
  about: 'what an event costs with 10 to 1,000,000 keys, and with a backlog of 10,000 to 5,000,000',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({
      durable: true,
      // What costs the disk hides what costs the backlog.
      settings: { synchronous_commit: 'off', max_wal_size: '4GB' },
    })
    const pool = openPool(server.url(), CONNECTIONS)
    const opened: Lockstep[] = []
    try {
      const [smallest] = size.cells
      if (smallest === undefined) throw new Error('there is nothing to compare with')
      const drained = smallest.backlog * MEASURED_SHARE
      const turns: Record<string, () => Promise<Turn<'enqueue' | 'drain'>>> = {}
      for (const [place, cell] of size.cells.entries()) {
        const name = nameOf(cell)
        reportProgress(`outbox-scale: filling ${name}`, (0.5 * place) / size.cells.length)
        const schema = `scale_${place}`
        const lockstep = new Lockstep(pool, { schema }) as unknown as Lockstep
        opened.push(lockstep)
        await lockstep.migrate()
        await fill(lockstep, cell.backlog, cell.keys)
        await pool.query(vacuum(schema))
        turns[name] = turnOf(lockstep, cell.keys, size.singles, drained)
      }
      await pool.query(CHECKPOINT)
      const rounds = await interleave(turns, size.rounds, (text, done, all) =>
        reportProgress(`outbox-scale: ${text}`, 0.5 + (0.5 * done) / all),
      )
      return report(size.cells, rounds)
    } finally {
      await Promise.all(opened.map((each) => each.close()))
      await pool.end()
      await server.stop()
    }
  },
}

function nameOf({ keys, backlog }: Cell): string {
  return `${keys} keys, backlog of ${backlog}`
}

/** Microseconds for one event: single ones to all keys in turn, and the oldest of the backlog. */
function turnOf(
  lockstep: Lockstep,
  keys: number,
  singles: number,
  drained: number,
): () => Promise<Turn<'enqueue' | 'drain'>> {
  return async () => {
    const startedAt = performance.now()
    await onAllConnections((number) => lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number, keys))))(singles)
    const enqueueMs = performance.now() - startedAt
    const { events, ms } = await drain(lockstep, drained)
    return { enqueue: (enqueueMs * 1000) / singles, drain: (ms * 1000) / events }
  }
}

function report(
  cells: readonly Cell[],
  rounds: Rounds<string, 'enqueue' | 'drain'>,
): { results: ResultRow[]; goals: Goal[] } {
  const smallest = nameOf(cells[0] as Cell)
  const results = cells.map((cell): ResultRow => {
    const name = nameOf(cell)
    const [enqueue, drained] = [rounds.ratio(name, smallest, 'enqueue'), rounds.ratio(name, smallest, 'drain')]
    return {
      keys: cell.keys,
      backlog: cell.backlog,
      'enqueue µs': rounds.of(name, 'enqueue').median,
      'of the smallest': enqueue.median,
      'middle half': showSpread(enqueue),
      'drain µs': rounds.of(name, 'drain').median,
      'of its smallest': drained.median,
      'its middle half': showSpread(drained),
    }
  })
  const goals = cells
    .filter(({ judged }) => judged)
    .flatMap((cell) =>
      (['enqueue', 'drain'] as const).map((what) => {
        const name = `${what} with a ${nameOf(cell).replace(/^.*, /, '')}, in those with ${cells[0]?.backlog}`
        return goal(name, rounds.ratio(nameOf(cell), smallest, what).median, '<=', AT_MOST)
      }),
    )
  return { results, goals }
}
