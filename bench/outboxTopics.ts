import { Lockstep } from 'pg-lockstep'
import { goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { openPool } from './harness/openPool.ts'
import { interleave } from './harness/interleave.ts'
import { showSpread } from './harness/spread.ts'
import { CHECKPOINT, vacuum } from './outbox.sql.ts'
import { drain, type Drained, pass } from './outboxDrain.ts'
import { CONNECTIONS, fill } from './outboxEvents.ts'

interface Size {
  readonly rounds: number
  /** Of one topic. */
  readonly backlog: number
  /** Of these, so many are drained. */
  readonly drained: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { rounds: 15, backlog: 1_000_000, drained: 300_000 },
  quick: { rounds: 5, backlog: 200_000, drained: 100_000 },
  smoke: { rounds: 1, backlog: 6000, drained: 3000 },
}

const OTHERS = ['mails.*', 'orders.*', 'users', 'files', 'audit.*', 'prices', 'limits']

type Name =
  | 'all topics'
  | 'a filter that takes all'
  | 'eight topics, the last of which takes all'
  | 'a filter that takes none'

/** What a list of topics costs: where it takes everything, and where it takes nothing. */
export const outboxTopics: Bench = {
  name: 'outbox-topics',
  about: 'draining a backlog with a list of topics and without, and passing unwanted events',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({
      durable: true,
      settings: { synchronous_commit: 'off', max_wal_size: '4GB' },
    })
    const pool = openPool(server.url(), CONNECTIONS)
    const lockstep = new Lockstep(pool) as unknown as Lockstep
    try {
      await lockstep.migrate()
      reportProgress('outbox-topics: filling')
      await fill(lockstep, size.backlog)
      await pool.query(vacuum('lockstep'))
      await pool.query(CHECKPOINT)
      const turn = (work: () => Promise<Drained>) => async () => {
        const { events, ms } = await work()
        return { rate: (events / ms) * 1000 }
      }
      const rounds = await interleave<Name, 'rate'>(
        {
          'all topics': turn(() => drain(lockstep, size.drained)),
          'a filter that takes all': turn(() => drain(lockstep, size.drained, undefined, ['trades'])),
          'eight topics, the last of which takes all': turn(() =>
            drain(lockstep, size.drained, undefined, [...OTHERS, 'tra*']),
          ),
          'a filter that takes none': turn(() => pass(lockstep, size.backlog)),
        },
        size.rounds,
        (text, done, all) => reportProgress(`outbox-topics: ${text}`, done / all),
      )
      const results = (
        [
          'all topics',
          'a filter that takes all',
          'eight topics, the last of which takes all',
          'a filter that takes none',
        ] as const
      ).map((name): ResultRow => {
        const ratio = rounds.ratio(name, 'all topics', 'rate')
        return {
          topics: name,
          'events/s': Math.round(rounds.of(name, 'rate').median),
          'of all topics': Number(ratio.median.toPrecision(3)),
          'middle half': showSpread(ratio),
        }
      })
      const ratioOf = (name: Name): number => rounds.ratio(name, 'all topics', 'rate').median
      const goals = [
        goal('drain through a filter that takes all, in one without', ratioOf('a filter that takes all'), '>=', 0.95),
        goal('the same with eight topics', ratioOf('eight topics, the last of which takes all'), '>=', 0.9),
        goal('unwanted events passed, in events drained', ratioOf('a filter that takes none'), '>=', 1),
      ]
      return { results, goals }
    } finally {
      await lockstep.close()
      await pool.end()
      await server.stop()
    }
  },
}
