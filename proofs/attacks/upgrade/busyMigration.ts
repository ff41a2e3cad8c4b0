import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep, type MigrateResult } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import pg from 'pg'
import { endSessions } from '../../faults/sessions.ts'
import type { Random } from '../../seed.ts'
import { until } from '../../until.ts'
import { quiet } from '../client.ts'
import { BEGIN, COMMIT, HOLD_LATER, HOLD_TABLES, MIGRATOR_WAITS, STOPPED_BY_MIGRATOR } from '../upgrade.sql.ts'

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
  readonly reached: number
}

const MIGRATOR = 'migrator'
const LOOK_EVERY_MS = 5
const HELD_MS = 600
const FREE_MS = 400
const STUCK_WITHIN_MS = 60_000

/**
 * Migrates a database that is in use. A transaction holds the tables: the migration waits and steps back. Its session is ended there, and a second
 * run begins, beside transactions that hold the tables again and again. All the time it is watched who waits because of it.
 */
export async function migrateBusy(url: string, random: Random): Promise<MigrationSeen> {
  const pool = quiet(new pg.Pool({ connectionString: url, application_name: 'lab', max: 6 }))
  const watch = new Watch(pool)
  let waitedBefore: number | undefined
  const stopListening = on('migration.applied', () => (waitedBefore = watch.waited))
  try {
    const holder = new Holder(pool)
    await holder.hold(HOLD_LATER)
    const first = migrateOnce(url).catch((error: unknown) => error)
    // It has applied something, and waits for what comes next.
    const isStuck = (): boolean => waitedBefore !== undefined && watch.waited > waitedBefore
    if (!(await until(isStuck, STUCK_WITHIN_MS))) throw new Error('The migration did not wait for the tables.')
    await endSessions(pool, { application: MIGRATOR })
    const ended = await first
    if (!(ended instanceof Error)) throw new Error('The migration did not end with its session.')
    await holder.release()
    const over = new AbortController()
    const holding = (async () => {
      while (!over.signal.aborted) {
        await holder.hold(HOLD_TABLES)
        await sleep(HELD_MS * (0.5 + random.next()))
        await holder.release()
        await sleep(FREE_MS * (0.5 + random.next()))
      }
    })()
    const result = await migrateOnce(url).finally(() => over.abort())
    await holding
    return { ...(await watch.stop()), resumedFrom: result.from, reached: result.to }
  } finally {
    stopListening()
    await watch.stop()
    await pool.end()
  }
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
