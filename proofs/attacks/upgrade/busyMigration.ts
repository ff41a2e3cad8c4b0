import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep, MigrationFailedError, type MigrateResult } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import pg from 'pg'
import { endSessions } from '../../faults/sessions.ts'
import type { Random } from '../../seed.ts'
import { until } from '../../until.ts'
import { quiet } from '../client.ts'
import {
  APPLIED_VERSION,
  BEGIN,
  COMMIT,
  HOLD_LATER,
  HOLD_TABLES,
  MIGRATOR_WAITS,
  STOPPED_BY_MIGRATOR,
} from '../upgrade.sql.ts'

/** What others saw of a migration. */
export interface MigrationSeen {
  /** The longest that a session waited for a table because of the migrator. */
  readonly stoppedMs: number
  /** Between two looks: a wait can have been so much longer than it was seen. */
  readonly gapMs: number
  /** Looks at which the migrator itself waited. */
  readonly waited: number
  /** What the run that was ended in the middle had reached, by what the next one says. */
  readonly resumedFrom: number
  /** Runs that gave up, because the tables were in use for a minute. */
  readonly gaveUp: number
  readonly reached: number
}

const MIGRATOR = 'migrator'
const LOOK_EVERY_MS = 5
const HELD_MS = 600
const FREE_MS = 400
/** A run gives up after a minute. */
const MOST_RUNS = 5

/**
 * Migrates a database that is in use. A transaction holds the tables: the migration waits and steps back. Its session is ended there, and a second
 * run begins, beside transactions that hold the tables again and again. All the time it is watched who waits because of it.
 */
export async function migrateBusy(url: string, random: Random): Promise<MigrationSeen> {
  const pool = quiet(new pg.Pool({ connectionString: url, application_name: 'lab', max: 6 }))
  const watch = new Watch(pool)
  let waitedBefore: number | undefined
  const stopListening = on('migration.applied', () => (waitedBefore = watch.waited))
  const holder = new Holder(pool)
  try {
    let gaveUp = await endInTheMiddle(
      url,
      pool,
      holder,
      () => waitedBefore !== undefined && watch.waited > waitedBefore,
    )
    const over = new AbortController()
    const holding = (async () => {
      while (!over.signal.aborted) {
        await holder.hold(HOLD_TABLES)
        await sleep(HELD_MS * (0.5 + random.next()))
        await holder.release()
        await sleep(FREE_MS * (0.5 + random.next()))
      }
    })()
    try {
      for (let from: number | undefined; ; gaveUp++) {
        const ended = await migrateOnce(url).catch((error: unknown) => error as Error)
        if (!(ended instanceof Error)) {
          return { ...(await watch.stop()), gaveUp, resumedFrom: from ?? ended.from, reached: ended.to }
        }
        // On a busy machine the tables might not be free for a minute. The next run continues.
        if (!(ended instanceof MigrationFailedError) || gaveUp >= MOST_RUNS) throw ended
        from ??= await appliedVersion(pool)
      }
    } finally {
      over.abort()
      await holding
    }
  } finally {
    stopListening()
    await holder.release()
    await watch.stop()
    await pool.end()
  }
}

/** Ends a run when it has applied something and waits for what comes next. Gives how many runs had given up before. */
async function endInTheMiddle(url: string, pool: pg.Pool, holder: Holder, isStuck: () => boolean): Promise<number> {
  await holder.hold(HOLD_LATER)
  for (let gaveUp = 0; ; gaveUp++) {
    let hasEnded = false
    const run = migrateOnce(url)
      .catch((error: unknown) => error)
      .finally(() => (hasEnded = true))
    await until(() => isStuck() || hasEnded)
    if (!hasEnded) await endSessions(pool, { application: MIGRATOR })
    const ended = await run
    if (!(ended instanceof Error)) throw new Error('The migration did not end with its session.')
    if (isStuck()) {
      await holder.release()
      return gaveUp
    }
    if (!(ended instanceof MigrationFailedError) || gaveUp >= MOST_RUNS) throw ended
  }
}

async function appliedVersion(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query<{ version: number }>(APPLIED_VERSION)
  return rows[0]?.version ?? 0
}

async function migrateOnce(url: string): Promise<MigrateResult> {
  const pool = quiet(new pg.Pool({ connectionString: url, application_name: MIGRATOR, max: 1 }))
  const lockstep = new Lockstep(pool)
  try {
    return await lockstep.migrate()
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

/** A transaction that uses the tables which the migration alters. */
class Holder {
  readonly #pool: pg.Pool
  #client: pg.PoolClient | undefined

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  async hold(statement: string): Promise<void> {
    this.#client = await this.#pool.connect()
    await this.#client.query(BEGIN)
    await this.#client.query(statement)
  }

  async release(): Promise<void> {
    await this.#client?.query(COMMIT)
    this.#client?.release()
    this.#client = undefined
  }
}

/** Looks again and again who waits. */
class Watch {
  readonly #running: Promise<void>
  #over = false
  #stoppedMs = 0
  #gapMs = 0
  waited = 0

  constructor(pool: pg.Pool) {
    this.#running = this.#look(pool)
  }

  async #look(pool: pg.Pool): Promise<void> {
    let lookedAt = performance.now()
    while (!this.#over) {
      const [stopped, migrator] = await Promise.all([
        pool.query<{ sessions: number; waitedMs: number }>(STOPPED_BY_MIGRATOR, [MIGRATOR]),
        pool.query<{ waits: boolean }>(MIGRATOR_WAITS, [MIGRATOR]),
      ])
      this.#stoppedMs = Math.max(this.#stoppedMs, stopped.rows[0]?.waitedMs ?? 0)
      if (migrator.rows[0]?.waits === true) this.waited++
      this.#gapMs = Math.max(this.#gapMs, performance.now() - lookedAt)
      lookedAt = performance.now()
      await sleep(LOOK_EVERY_MS)
    }
  }

  async stop(): Promise<Pick<MigrationSeen, 'stoppedMs' | 'gapMs' | 'waited'>> {
    this.#over = true
    await this.#running
    return { stoppedMs: this.#stoppedMs, gapMs: this.#gapMs, waited: this.waited }
  }
}
