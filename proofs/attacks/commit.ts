import { type Isolation, key, LockstepError } from 'pg-lockstep'
import { startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { timeUntilNoLocks, waitFor } from '../checkers/leftovers.ts'
import { COMMIT_FAULTS, type CommitFault, strikeNextCommit } from '../faults/inCommit.ts'
import { type Client, DRIVERS, type Lab } from './lab.ts'
import { type Findings, attackInLab, type ReportProgress } from './attack.ts'
import { CREATE, NOBODY_PAYS, PAID, PAY } from './commit.sql.ts'
import { commitAndCrash } from './commitAndCrash.ts'

interface Size {
  readonly cuts: number
  readonly crashes: number
  readonly atLeastOfEach: number
}

/** Long enough for an answer over loopback, short enough to wait for two hundred times. */
const SILENCE_MS = 400

/** What the caller received, and what the database says. */
interface Verdict {
  readonly struck: boolean
  readonly told: 'committed' | 'rolledBack' | 'unknown' | 'something else'
  readonly firstCommitted: boolean
  readonly right: boolean
}

/**
 * The connection is cut in COMMIT, in every way that a network has. The caller must receive what the server did. After a crash in
 * between, in which transaction ids are assigned again, it must receive that the outcome is unknown.
 */
export const commit = attackInLab<Size>({
  name: 'commit',
  about:
    'a connection cut in COMMIT is resolved to what the server did; after a crash in between it is reported as unknown',
  full: { cuts: 200, crashes: 12, atLeastOfEach: 40 },
  small: { cuts: 24, crashes: 4, atLeastOfEach: 4 },
  async run(lab, size, reportProgress) {
    const cuts = await cutMany(lab, size, reportProgress)
    const crashes = await commitAndCrash(lab, size.crashes, reportProgress)
    return { results: [...cuts.results, ...crashes.results], goals: [...cuts.goals, ...crashes.goals] }
  },
})

async function cutMany(lab: Lab, size: Size, reportProgress: ReportProgress): Promise<Findings> {
  await lab.admin.query(CREATE)
  const routes = await openRoutes(lab)
  const tally = new Map<CommitFault, { runs: number; committed: number; right: number; struck: number }>()
  try {
    for (let run = 0; run < size.cuts; run++) {
      const fault = COMMIT_FAULTS[run % COMMIT_FAULTS.length] as CommitFault
      const route = routes[Math.floor(run / COMMIT_FAULTS.length) % routes.length] as CutRoute
      const verdict = await cutOnce(lab, route, fault, run)
      const row = tally.get(fault) ?? { runs: 0, committed: 0, right: 0, struck: 0 }
      row.runs++
      if (verdict.struck) row.struck++
      if (verdict.firstCommitted) row.committed++
      if (verdict.right) row.right++
      tally.set(fault, row)
      reportProgress(
        `commit: ${run + 1} of ${size.cuts}, ${fault}, reported as ${verdict.told}${verdict.right ? '' : ' WRONGLY'}`,
      )
    }
  } finally {
    await Promise.all(routes.map((route) => route.close()))
  }
  const rows = [...tally.values()]
  const sum = (pick: (row: (typeof rows)[number]) => number): number =>
    rows.reduce((total, row) => total + pick(row), 0)
  const results: ResultRow[] = [...tally].map(([fault, row]) => ({
    fault,
    runs: row.runs,
    'struck in COMMIT': row.struck,
    'server committed': row.committed,
    'server did not': row.runs - row.committed,
    'reported rightly': row.right,
  }))
  return {
    results,
    goals: [
      goal(
        'cuts that struck COMMIT in flight',
        sum((row) => row.struck),
        '=',
        size.cuts,
      ),
      goal(
        'callers that received what the server did',
        sum((row) => row.right),
        '=',
        size.cuts,
      ),
      goal(
        'of them: the server had committed',
        sum((row) => row.committed),
        '>=',
        size.atLeastOfEach,
      ),
      goal('of them: the server had not', size.cuts - sum((row) => row.committed), '>=', size.atLeastOfEach),
    ],
  }
}

/** A way to the server with a proxy on it. */
interface CutRoute {
  readonly proxy: Proxy
  readonly client: Client
  readonly isolation: Isolation
  close(): Promise<void>
}

/** Both drivers; direct, in front of PgBouncer, and between PgBouncer and the server; both isolations. */
async function openRoutes(lab: Lab): Promise<CutRoute[]> {
  const routes: CutRoute[] = []
  for (const driver of DRIVERS) {
    for (const place of ['direct', 'before the pooler', 'behind the pooler'] as const) {
      const target = place === 'before the pooler' ? Number(new URL(lab.url('pooled')).port) : lab.server.port
      const proxy = await startProxy({ targetPort: target, lingerMs: 20 })
      const bouncer =
        place === 'behind the pooler'
          ? await startPgBouncer({ postgresPort: proxy.port, poolMode: 'transaction' })
          : undefined
      const url = bouncer?.url('postgres') ?? proxy.url(lab.url(place === 'direct' ? 'direct' : 'pooled'))
      const client = lab.client(driver, url, { silenceMs: SILENCE_MS, poolSize: 3 })
      routes.push({
        proxy,
        client,
        isolation: routes.length % 2 === 0 ? 'read committed' : 'serializable',
        close: async () => {
          await client.close()
          await bouncer?.stop()
          await proxy.close()
        },
      })
    }
  }
  return routes
}

async function cutOnce(lab: Lab, route: CutRoute, fault: CommitFault, run: number): Promise<Verdict> {
  const id = `payment-${run}`
  const retries = run % 8 >= 4
  await route.client.lockstep.transaction({}, async () => undefined)
  const strike = strikeNextCommit(route.proxy, fault)
  let attempt = 0
  const told = await route.client.lockstep
    .transaction(
      { lock: key`Payment:${id}`, isolation: route.isolation, ...(retries ? {} : { retry: { attempts: 1 } }) },
      async (tx) => {
        attempt++
        await tx.query(PAY, [id, attempt])
      },
    )
    .then(() => 'committed' as const, toldBy)
  strike.deliver()
  await waitFor(lab.admin, NOBODY_PAYS)
  await timeUntilNoLocks(lab.admin)
  const { rows } = await lab.admin.query<{ attempt: number }>(PAID, [id])
  const written = rows[0]?.attempt
  // With retries the caller always succeeds in the end; the row must be the last attempt's, and there is only one.
  const right = told === 'committed' ? written === attempt : told === 'rolledBack' && written === undefined
  return {
    struck: strike.struck,
    told,
    firstCommitted: written === 1,
    right: right && (!retries || told === 'committed'),
  }
}

export function toldBy(error: unknown): Verdict['told'] {
  if (error instanceof LockstepError && error.code === 'LOCKSTEP_CONNECTION_LOST') return 'rolledBack'
  if (error instanceof LockstepError && error.code === 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN') return 'unknown'
  return 'something else'
}
