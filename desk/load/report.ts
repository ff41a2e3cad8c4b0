import { describeMachine, evidence, type Goal, goal, type Report } from '../../tools/judge/report.ts'
import type { Bursts } from './bursts.ts'
import type { ConsoleShare } from './consoleShare.ts'
import type { LoadOptions } from './options.ts'
import type { Outcome } from './run.ts'
import type { Durations } from './tally.ts'

/** What the requirements of a signal and its surroundings are, in milliseconds. */
const LIMITS = { lockMs: 5, waitMs: 5000, signalMs: 5000, syncMs: 2000, readMs: 250, consolePercent: 2 }

/**
 * Where an empty transaction takes longer than this at p99, the machine is busy with something else. A limit that is not kept there says nothing about
 * the desk.
 */
const BUSY_MS = 20

/** Where nothing was measured, a limit was not kept. */
const measured = (count: number, value: number): number => (count > 0 ? value : Infinity)

const p99 = (durations: Durations): number => measured(durations.count, durations.percentile(0.99))

export function reportOf(outcome: Outcome, options: LoadOptions): Report {
  const { client, examined, limits, signals, rounds, struck, emptyP99Ms } = outcome
  const limit = emptyP99Ms > BUSY_MS ? evidence : goal
  return {
    name: `load, ${options.minutes} min, ${options.rate}/s, contention ${options.contention}, seed ${options.seed}`,
    machine: describeMachine(`, an empty transaction ${emptyP99Ms.toFixed(1)} ms at p99`),
    results: examined.map(({ system, looked, violations }) => {
      const { requests, acknowledged, refused, unknown, retried } = client.tally(system)
      return { system, requests, acknowledged, refused, unknown, retried, 'looked at': looked, violations }
    }),
    goals: [
      ...examined.map(({ system, violations }) => goal(`${system}: violations`, violations, '=', 0)),
      goal('requests without an answer or a reset', outcome.hanging, '=', 0),
      evidence('systems in which nothing was looked at', examined.filter(({ looked }) => looked === 0).length, '=', 0),
      goal('things left in progress at the end', outcome.quiet ? 0 : 1, '=', 0),
      limit('uncontended lock over an empty transaction, p99 ms', limits.lockMs, '<=', LIMITS.lockMs),
      limit('signal, p99 ms', p99(signals.alone), '<=', LIMITS.signalMs),
      // Without contention there are none.
      ...(signals.hot.count === 0 ? [] : [hotSignals(limit, signals.hot)]),
      limit('sync, slowest round, ms', measured(rounds.count, rounds.percentile(1)), '<=', LIMITS.syncMs),
      evidence('signals in flight while that was measured', limits.signalsInFlight, '>=', 50 * options.processes),
      goal('waiting for a connection meanwhile', measured(limits.looks, limits.waiting), '=', 0),
      limit('an unrelated read meanwhile, p99 ms', measured(limits.looks, limits.busyReadMs), '<=', LIMITS.readMs),
      ...burstGoals(limit, outcome.bursts),
      ...(outcome.console === undefined ? [] : consoleGoals(limit, outcome.console)),
      ...(struck === undefined ? [] : faultGoals(struck, options)),
    ],
  }
}

function hotSignals(limit: typeof goal, durations: Durations): Goal {
  return limit('signal on a hot symbol, with its wait, p99 ms', p99(durations), '<=', LIMITS.waitMs + LIMITS.signalMs)
}

function burstGoals(
  limit: typeof goal,
  { size, signals, signalsFailed, positions, transfersFailed, reads }: Bursts,
): Goal[] {
  const [burst, transfers] = [`${size.signals} signals at once`, `${size.transfers} transfers at once`]
  return [
    goal(`${burst}: not answered with the position`, signalsFailed, '=', 0),
    goal(`${burst}: positions opened`, positions, '=', 1),
    limit(`${burst}, p99 ms`, p99(signals), '<=', LIMITS.signalMs),
    goal(`${transfers}: failed`, transfersFailed, '=', 0),
    limit(`${transfers}: an unrelated read meanwhile, p99 ms`, p99(reads), '<=', LIMITS.readMs),
  ]
}

function consoleGoals(limit: typeof goal, { percent, questions }: ConsoleShare): Goal[] {
  return [
    limit('the console’s share of the database’s time, percent', percent, '<=', LIMITS.consolePercent),
    evidence('questions that it asked', questions, '>=', 1),
  ]
}

/** A run with faults that struck nothing has shown nothing. */
function faultGoals(struck: NonNullable<Outcome['struck']>, { running, processes }: LoadOptions): Goal[] {
  const kills = [
    evidence('processes killed', struck.kills, '>=', 1),
    evidence('requests cut off by that', struck.cutRequests, '>=', 1),
  ]
  return [
    ...(running === undefined && processes > 1 ? kills : []),
    ...(running === undefined ? [evidence('sessions ended at work', struck.sessions, '>=', 1)] : []),
    evidence('requests that the exchange failed', struck.exchange, '>=', 1),
  ]
}

/** A line for each violation, a few of each kind. */
export function violationLines({ examined }: Outcome, most = 5): string[] {
  return examined.flatMap(({ system, findings }) =>
    findings.flatMap(({ invariant, violations }) =>
      violations.length === 0
        ? []
        : [
            `${system}: ${invariant}: ${violations.length} violations`,
            ...violations.slice(0, most).map((line) => `  ${line}`),
          ],
    ),
  )
}

/** Why requests had to be sent again. */
export function retryLine({ client }: Outcome): string {
  const reasons = [...client.retries].toSorted((a, b) => b[1] - a[1]).map(([why, times]) => `${why}: ${times}`)
  return reasons.length === 0 ? 'No request was sent twice.' : `Sent again because of ${reasons.join(', ')}.`
}
