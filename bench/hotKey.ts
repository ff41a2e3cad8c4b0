import { once } from 'node:events'
import { Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import { type KillableProcess, startProcess } from '../proofs/faults/killableProcess.ts'
import { beginAndLock, createLedger, LOCK_BOTH, RECORD, SET_BALANCE, writeAndCommit } from './ledger/ledger.sql.ts'
import { atLimit, byDocument003 } from './ledger/transfers.ts'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, Limit, RunSize } from './bench.ts'
import { median, showSpread, type Spread, spreadOf } from './harness/spread.ts'
import type { Method, Round, RoundResult } from './hotKeyProcess.ts'
import { openPool } from './harness/openPool.ts'

const SIZES: Readonly<Record<RunSize, { pairs: number; ms: number }>> = {
  full: { pairs: 5, ms: 2500 },
  quick: { pairs: 3, ms: 1500 },
  smoke: { pairs: 1, ms: 150 },
}

const CALLERS = 64
/** What a service has, in all its processes. */
const CONNECTIONS = 20
const ACCOUNTS = 1001

const HOT = 'one hot account'
const COLD = '1,000 cold accounts, 1 process'
const LIMIT = 'two messages and one flush for all calls of a process that wait for the account'

interface Contest {
  readonly name: string
  readonly processes: number
  readonly hot: boolean
  readonly baseline: Method
  readonly goals: (rates: { ratio: number; p99Ratio: number }) => readonly Goal[]
}

const CONTESTS: readonly Contest[] = [
  ...hotContests(1, 30),
  ...hotContests(4, 25),
  ...(['plain', 'ordered row locks', 'the limit'] as const).map((baseline): Contest => ({
    name: COLD,
    processes: 1,
    hot: false,
    baseline,
    // Against ordered row locks for information: their statements have no arrays to plan.
    goals: ({ ratio }) =>
      baseline === 'plain' ? [goal(`${COLD}: cost of a call, in plain transactions`, 1 / ratio, '<=', 1.1)] : [],
  })),
]

function hotContests(processes: number, timesAtLeast: number): Contest[] {
  const name = `${HOT}, ${processes === 1 ? '1 process' : `${processes} processes`}`
  return (['ordered row locks', 'the limit'] as const).map((baseline): Contest => ({
    name,
    processes,
    hot: true,
    baseline,
    goals: ({ ratio, p99Ratio }) =>
      baseline === 'the limit'
        ? []
        : [
            goal(`${name}: times the transfers of ordered row locks`, ratio, '>=', timesAtLeast),
            goal(`${name}: p99 of a caller, in p99 of ordered row locks`, p99Ratio, '<=', 1),
          ],
  }))
}

/** Transfers to one hot account: combined, against ordered row locks; and what combining costs where nothing is hot. */
export const hotKey: Bench = {
  name: 'hot-key',
  about:
    'transfers to one hot account, 64 callers: combine against SELECT … FOR UPDATE and the limit; and on 1,000 cold accounts',
  baselines: {
    'ordered row locks': byDocument003.toString(),
    sql: [LOCK_BOTH, SET_BALANCE, RECORD].join('\n'),
    'the limit': [atLimit, beginAndLock, writeAndCommit].map(String).join('\n'),
  },
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    // As it comes, with every commit on disk before it is answered.
    const server = await startPostgres({
      durable: true,
      settings: { synchronous_commit: 'on', max_connections: '200' },
    })
    const admin = openPool(server.url(), 1)
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const limits: Omit<Limit, 'goal'>[] = []
    try {
      await new Lockstep(admin).migrate()
      for (const contest of CONTESTS) {
        const processes = Array.from({ length: contest.processes }, () =>
          startProcess(new URL('hotKeyProcess.ts', import.meta.url), [
            server.url(),
            String(CONNECTIONS / contest.processes),
          ]),
        )
        try {
          await Promise.all(processes.map(({ child }) => once(child, 'message')))
          const { row, ratio, p99Ratio } = await hold(contest, processes, admin, size, reportProgress)
          results.push(row)
          if (contest.baseline === 'the limit')
            limits.push({
              what: contest.name,
              unit: 'transfers/s',
              lockstep: Number(row['combine/s']),
              limit: Number(row['baseline/s']),
              program: LIMIT,
            })
          goals.push(...contest.goals({ ratio, p99Ratio }))
        } finally {
          await Promise.all(processes.map((each) => each.kill()))
        }
      }
      return { results, goals, limits: limits.flatMap((limit) => withGoal(limit, goals)) }
    } finally {
      await admin.end()
      await server.stop()
    }
  },
}

/** The goal of the same contest, against what users would have instead. */
function withGoal(limit: Omit<Limit, 'goal'>, goals: readonly Goal[]): Limit[] {
  const own = goals.find(({ name }) => name.startsWith(limit.what))
  return own === undefined ? [] : [{ ...limit, goal: own }]
}

async function hold(
  contest: Contest,
  processes: readonly KillableProcess[],
  admin: pg.Pool,
  size: { pairs: number; ms: number },
  tell: (text: string) => void,
): Promise<{ row: ResultRow; ratio: number; p99Ratio: number }> {
  const rounds: Record<'baseline' | 'combine', { rate: number; p50: number; p99: number }[]> = {
    baseline: [],
    combine: [],
  }
  const play = (way: Method, ms = size.ms): Promise<{ rate: number; p50: number; p99: number }> =>
    playRound(processes, { way, ms, callers: CALLERS / processes.length, hot: contest.hot, accounts: ACCOUNTS })
  await admin.query(createLedger(ACCOUNTS, 1_000_000_000))
  await play(contest.baseline, size.ms / 3)
  await play('combine', size.ms / 3)
  for (let pair = 0; pair < size.pairs; pair++) {
    tell(`hot-key: ${contest.name}, against ${contest.baseline}, ${pair + 1} of ${size.pairs}`)
    // Both begin with books of the same size.
    for (const side of pair % 2 === 0 ? (['baseline', 'combine'] as const) : (['combine', 'baseline'] as const)) {
      await admin.query(createLedger(ACCOUNTS, 1_000_000_000))
      rounds[side].push(await play(side === 'baseline' ? contest.baseline : 'combine'))
    }
  }
  const over = (side: 'baseline' | 'combine', what: 'rate' | 'p50' | 'p99'): number =>
    median(rounds[side].map((round) => round[what]))
  const pairwise = (what: 'rate' | 'p99'): Spread =>
    spreadOf(rounds.combine.map((round, index) => round[what] / (rounds.baseline[index]?.[what] ?? Number.NaN)))
  return {
    ratio: pairwise('rate').median,
    p99Ratio: pairwise('p99').median,
    row: {
      contest: contest.name,
      against: contest.baseline,
      'baseline/s': Math.round(over('baseline', 'rate')),
      'combine/s': Math.round(over('combine', 'rate')),
      ratio: pairwise('rate').median,
      'middle half': showSpread(pairwise('rate')),
      'baseline p50 ms': over('baseline', 'p50'),
      'p99 ms': over('baseline', 'p99'),
      'combine p50 ms': over('combine', 'p50'),
      'combine p99 ms': over('combine', 'p99'),
    },
  }
}

async function playRound(
  processes: readonly KillableProcess[],
  round: Round,
): Promise<{ rate: number; p50: number; p99: number }> {
  const results = await Promise.all(processes.map((each) => each.ask<RoundResult>(round)))
  const latencies = results.flatMap((result) => result.latencies).toSorted((a, b) => a - b)
  const at = (share: number): number => latencies[Math.floor(latencies.length * share)] ?? Number.NaN
  const rate = results.reduce((sum, { transfers, tookMs }) => sum + (transfers / tookMs) * 1000, 0)
  return { rate, p50: at(0.5), p99: at(0.99) }
}
