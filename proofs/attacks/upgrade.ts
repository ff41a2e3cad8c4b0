import { setTimeout as sleep } from 'node:timers/promises'
import type * as Library from 'pg-lockstep'
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { evidence, type Goal, goal, type ResultRow } from '../../tools/judge/report.ts'
import { plantedLibrary } from '../../tools/previousRelease/plantedLibrary.ts'
import { previousRelease } from '../../tools/previousRelease/previousRelease.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import type { BuiltLibrary } from '../../tools/previousRelease/buildLibrary.ts'
import type { Random } from '../seed.ts'
import { until } from '../until.ts'
import { PARTS } from '../workload/workload.ts'
import { LOST_WRITES } from '../workload/workload.sql.ts'
import { THIS_LIBRARY, Workers } from '../workload/workers.ts'
import type { WorkloadPlan } from '../workload/workloadProcess.ts'
import { attack, type ReportProgress } from './attack.ts'
import { DRIVERS, quiet } from './client.ts'
import { makeDatabase } from './database.ts'
import { SCHEMA_VERSION } from './upgrade.sql.ts'
import { migrateBusy } from './upgrade/busyMigration.ts'

interface Size {
  /** Processes of the fleet. */
  readonly fleet: number
  readonly perSecond: number
  /** Between two processes that are replaced. */
  readonly stepMs: number
}

const TTL_MS = 10_000
const RETAIN_MS = 60_000
const STOPPED_MS = 200
const GAP_MS = 100
/** Every process has to do so much of everything between two steps. */
const LEAST_DONE = 2
const WORK_WITHIN_MS = 120_000
/** What fails on a machine that is too busy, and says nothing about versions. */
const OUT_OF_TIME: ReadonlySet<string> = new Set([
  'LOCKSTEP_LEASE_LOST',
  'LOCKSTEP_LEASE_HELD',
  'LOCKSTEP_LOCK_TIMEOUT',
])
const CONTROL_WITHIN_MS = 60_000
const CONTROL_PER_SECOND = 60

/**
 * A fleet of the previous release works on its schema. The schema is migrated under this load, while transactions hold its tables: no other caller
 * may wait long for it, and a run that was ended in the middle is continued by the next. Then the processes are replaced by those of this release,
 * one after the other, some killed and some stopped in order. One goes back to the previous release, which must leave the schema alone. Every process
 * has to do everything, nothing must fail, and the promises hold across both versions. Control: locks that the other version hashes in another
 * way must be found out.
 */
export const upgrade = attack<Size>({
  name: 'upgrade',
  about: 'from the previous release to this one under load: the schema, then process by process, and one of them back',
  full: { fleet: 4, perSecond: 10, stepMs: 5000 },
  small: { fleet: 2, perSecond: 4, stepMs: 200 },
  async run(size, reportProgress, random) {
    const previous = previousRelease()
    if (previous === undefined) throw new Error('The clone does not have the commit of the previous release.')
    await using server = await startPostgres({ settings: { max_connections: '200' } })
    const url = server.url()
    const admin = quiet(new pg.Pool({ connectionString: url, application_name: 'lab', max: 4 }))
    try {
      const roll = await rollFleet(url, admin, previous, size, random, reportProgress)
      reportProgress('upgrade: the control')
      await using control = await makeDatabase(server, 'control').then((database) => ({
        ...database,
        [Symbol.asyncDispose]: () => database.close(),
      }))
      await control.lockstep.migrate()
      const lost = await controlRun(control.url, control.pool, previous)
      return {
        results: roll.results,
        goals: [
          ...roll.goals,
          evidence('control, locks hashed in another way: counters that lost a write', lost, '>=', 1),
        ],
      }
    } finally {
      await admin.end()
    }
  },
})

const entriesOf = ({ entry }: Pick<BuiltLibrary, 'entry'>): WorkloadPlan['library'] => ({
  main: entry.href,
  http: new URL('http/index.js', entry).href,
})

async function rollFleet(
  url: string,
  admin: pg.Pool,
  previous: BuiltLibrary,
  size: Size,
  random: Random,
  reportProgress: ReportProgress,
): Promise<{ results: ResultRow[]; goals: Goal[] }> {
  const old = (await import(previous.entry.href)) as typeof Library
  const oldLockstep = new old.Lockstep(admin)
  const before = await oldLockstep.migrate()
  const workers = new Workers(admin, { url, seed: random.below(2 ** 31), ttlMs: TTL_MS, retainMs: RETAIN_MS, ...size })
  const names = Array.from({ length: size.fleet }, (_, n) => `worker-${n + 1}`)
  const library = entriesOf(previous)
  const start = (name: string, n: number): Promise<void> =>
    workers.start({ name, driver: DRIVERS[n % DRIVERS.length]!, library, consumes: false })
  let idle = 0
  try {
    await workers.prepare()
    await Promise.all(names.map(start))
    idle += await idleParts(workers, names)
    reportProgress('upgrade: the schema')
    const seen = await migrateBusy(url, random)
    idle += await idleParts(workers, names)
    for (const [n, name] of names.entries()) {
      reportProgress(`upgrade: process ${n + 1} of ${names.length}`)
      await (n % 2 === 0
        ? workers.redeploy(name, { library: THIS_LIBRARY })
        : workers.replace(name, { library: THIS_LIBRARY }))
      idle += await idleParts(workers, names)
      await sleep(size.stepMs)
    }
    reportProgress('upgrade: one goes back')
    const again = await oldLockstep.migrate()
    await workers.redeploy(names[0]!, { library })
    idle += await idleParts(workers, names)
    await sleep(size.stepMs)
    const broken = await workers.finish()
    for (const each of broken) reportProgress(`upgrade: ${each}`)
    for (const [code, count] of Object.entries(workers.failed)) reportProgress(`upgrade: ${count} times ${code}`)
    const { rows } = await admin.query<{ version: number }>(SCHEMA_VERSION)
    const failuresOf = (outOfTime: boolean): number =>
      Object.entries(workers.failed).reduce((sum, [code, n]) => sum + (OUT_OF_TIME.has(code) === outOfTime ? n : 0), 0)
    const row = { 'from version': before.to, 'to version': seen.reached, processes: size.fleet, ...workers.endedByPart }
    return {
      results: [
        {
          ...row,
          'out of time': failuresOf(true),
          'runs of migrate() that gave up': seen.gaveUp,
          'looks at a migration that waits': seen.waited,
        },
      ],
      goals: [
        goal('broken promises', broken.length, '=', 0),
        goal('operations that failed, but for lack of time', failuresOf(false), '=', 0),
        goal('parts in which a process did nothing after a step', idle, '=', 0),
        goal('version at which the second run of migrate() continued', seen.resumedFrom, '>=', before.to + 1),
        goal('the longest that others waited for the migration, ms', seen.stoppedMs, '<=', STOPPED_MS),
        evidence('the longest between two looks at who waits, ms', seen.gapMs, '<=', GAP_MS),
        goal('migrations that the previous release applied when it came back', again.applied.length, '=', 0),
        goal('version of the schema afterwards', rows[0]?.version ?? 0, '=', seen.reached),
        goal('findings of the doctor that fail', await failingFindings(admin), '=', 0),
      ],
    }
  } finally {
    await workers.kill()
    await oldLockstep.close()
  }
}

/** How many parts there are of which a process does not do enough, in as much time as a busy machine may need. */
async function idleParts(workers: Workers, names: readonly string[]): Promise<number> {
  const left = new Map(names.flatMap((name) => PARTS.map((part) => [`${name} ${part}`, LEAST_DONE])))
  await until(async () => {
    for (const name of names) {
      const { ended } = await workers.sample(name)
      for (const part of PARTS) {
        const key = `${name} ${part}`
        left.set(key, (left.get(key) ?? 0) - ended[part])
      }
    }
    return [...left.values()].every((count) => count <= 0)
  }, WORK_WITHIN_MS)
  return [...left.values()].filter((count) => count > 0).length
}

async function failingFindings(admin: pg.Pool): Promise<number> {
  const lockstep = new Lockstep(admin)
  try {
    return (await lockstep.doctor()).filter(({ level }) => level === 'fail').length
  } finally {
    await lockstep.close()
  }
}

/** Beside this release a previous one whose locks have other numbers. */
async function controlRun(url: string, admin: pg.Pool, previous: BuiltLibrary): Promise<number> {
  await using planted = plantedLibrary(previous, 'dist/locks/lockId.js', "createHash('sha256')", "createHash('sha512')")
  const options = { perSecond: CONTROL_PER_SECOND, ttlMs: TTL_MS, retainMs: RETAIN_MS }
  const workers = new Workers(admin, { url, seed: 1, ...options })
  try {
    await workers.prepare()
    await Promise.all([
      workers.start({ name: 'worker-1', driver: 'pg', consumes: false }),
      workers.start({ name: 'worker-2', driver: 'pg', library: entriesOf(planted), consumes: false }),
    ])
    let lost = 0
    await until(async () => {
      lost = (await admin.query(LOST_WRITES)).rows.length
      return lost > 0
    }, CONTROL_WITHIN_MS)
    return lost
  } finally {
    await workers.kill()
  }
}
