import { key, type Lockstep } from 'pg-lockstep'
import { startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { timeUntilNoLocks } from '../checkers/leftovers.ts'
import { ADVISORY_LOCKS } from '../checkers/leftovers.sql.ts'
import { cancelAtRandom } from '../faults/sessions.ts'
import type { Random } from '../seed.ts'
import { DRIVERS, type Lab } from './lab.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import { CREATE, NOISE, READ, SUM, WRITE } from './cancel.sql.ts'

interface Size {
  readonly durationMs: number
  /** Cancels that a caller saw. */
  readonly atLeast: number
}

const KEYS = 5
const CLIENTS = 4
const POOL_SIZE = 4
const CALLERS_PER_CLIENT = 2
const NOISY = 6
/** Fewer than there are clients: what one of them leaves on a server connection, another one meets. */
const SERVER_CONNECTIONS = 4
const TELL_EVERY_MS = 1000
const QUERY_CANCELED = '57014'
/** A key that is free again comes round in milliseconds; one on which a lock was left never does. */
const WAIT_MS = 10_000

interface Tally {
  done: number
  cancelled: number
  readonly others: Map<string, number>
}

/**
 * An administrator's script cancels statements at random, behind a pooler that gives each transaction another server connection.
 * Whatever statement is struck, and wherever in a hand-over: no lock can stay on a server connection, and a call that was
 * acknowledged has been counted exactly once.
 */
export const cancel = attackInLab<Size>({
  name: 'cancel',
  about: 'statements cancelled at random behind a busy PgBouncer: no lock is left, and every success counts once',
  full: { durationMs: 20_000, atLeast: 50 },
  small: { durationMs: 2000, atLeast: 3 },
  async run(lab, size, reportProgress, random) {
    const bouncer = await startPgBouncer({
      postgresPort: lab.server.port,
      poolMode: 'transaction',
      defaultPoolSize: SERVER_CONNECTIONS,
      // After a cancelled login it would refuse all clients for 15 s.
      settings: { server_login_retry: '1' },
    })
    try {
      await lab.admin.query(CREATE)
      const url = bouncer.url('postgres')
      const results: ResultRow[] = []
      const tallies = await strike(lab, url, size, reportProgress, random)
      // The pools are still open: PgBouncer has closed no server connection on their account.
      const tookMs = await timeUntilNoLocks(lab.admin)
      const { rowCount: left } = await lab.admin.query(ADVISORY_LOCKS)
      const { rows } = await lab.admin.query<{ sum: number }>(SUM)
      const sum = rows[0]?.sum ?? -1
      for (const [who, tally] of tallies) {
        const others = [...tally.others].map(([code, times]) => `${code} x ${times}`).join(', ')
        results.push({ who, done: tally.done, cancelled: tally.cancelled, 'other errors': others || 'none' })
      }
      const callers = [...tallies].filter(([who]) => who !== 'noise').map(([, tally]) => tally)
      return {
        results,
        goals: [
          goal('locks left', tookMs === undefined ? (left ?? -1) : 0, '=', 0),
          goal('sum that was not acknowledged', sum - total(callers, 'done'), '=', 0),
          goal('cancels that struck a caller', total(callers, 'cancelled'), '>=', size.atLeast),
          goal(
            'other errors',
            [...tallies.values()].reduce((errors, { others }) => errors + count(others), 0),
            '=',
            0,
          ),
        ],
      }
    } finally {
      await bouncer.stop()
    }
  },
})

async function strike(
  lab: Lab,
  url: string,
  size: Size,
  reportProgress: ReportProgress,
  random: Random,
): Promise<Map<string, Tally>> {
  const tallies = new Map<string, Tally>()
  const tallyOf = (who: string): Tally => {
    const tally = tallies.get(who) ?? { done: 0, cancelled: 0, others: new Map<string, number>() }
    tallies.set(who, tally)
    return tally
  }
  const striking = { goesOn: true }
  const until = async (tally: Tally, work: () => Promise<unknown>): Promise<void> => {
    while (striking.goesOn)
      await work().then(
        () => tally.done++,
        (error: unknown) => tallyError(tally, error),
      )
  }
  const working: (() => Promise<void>)[] = []
  for (let number = 0; number < CLIENTS; number++) {
    const driver = DRIVERS[number % DRIVERS.length] ?? 'pg'
    // postgres.js asks each new connection for its types by itself, and ends the process when that question is cancelled.
    const { lockstep } = lab.client(driver, url, { poolSize: POOL_SIZE })
    // Asked before the first strike: that question has no transaction to count.
    await lockstep.transaction({}, () => Promise.resolve())
    const tally = tallyOf(driver)
    for (let caller = 0; caller < CALLERS_PER_CLIENT; caller++)
      working.push(() => until(tally, () => addOne(lockstep, random)))
  }
  const noisy = lab.client('pg', url, { poolSize: NOISY })
  const noise = tallyOf('noise')
  for (let number = 0; number < NOISY; number++) working.push(() => until(noise, () => noisy.query(NOISE)))
  const all = working.map((begin) => begin())
  for (let left = size.durationMs; left > 0; left -= TELL_EVERY_MS) {
    reportProgress(`cancel: ${left / 1000} s left`)
    await cancelAtRandom(lab.admin, Math.min(left, TELL_EVERY_MS))
  }
  striking.goesOn = false
  await Promise.all(all)
  return tallies
}

async function addOne(lockstep: Lockstep, random: Random): Promise<void> {
  const id = random.whole(1, KEYS)
  await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable', waitMs: WAIT_MS }, async (tx) => {
    const { rows } = await tx.query<{ balance: number }>(READ, [id])
    await tx.query(WRITE, [id, (rows[0]?.balance ?? 0) + 1])
  })
}

function tallyError(tally: Tally, error: unknown): void {
  const { code = String(error) } = error as { code?: string }
  if (code === QUERY_CANCELED) tally.cancelled++
  else tally.others.set(code, (tally.others.get(code) ?? 0) + 1)
}

function count(others: ReadonlyMap<string, number>): number {
  return [...others.values()].reduce((sum, times) => sum + times, 0)
}

function total(tallies: readonly Tally[], what: 'done' | 'cancelled'): number {
  return tallies.reduce((sum, tally) => sum + tally[what], 0)
}
