import pg from 'pg'
import { beforeAll, describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'

/**
 * Each UPDATE and each DELETE leaves a dead row, which VACUUM cannot remove while a session holds an old snapshot. The outbox changes rows
 * for each move of a cursor and for each renewal of a lease, never for an event. The server counts them, for every table of the schema.
 */

const bench = await testBench()

const KEYS = 10
/** More than a hundred: a dispatcher deletes old cursors at every hundredth version. */
const TURNS = 110
/** No lease is renewed while a test lasts. */
const LONG_MS = 60 * 60 * 1000
/** A dispatcher without events writes its cursor this often. */
const REFRESH_MS = 20_000
/** Leases of the member and of the shard are taken and released, and a shard's cursor is written when it is taken. */
const STARTS_AND_STOPS = 8
const APPLICATION = 'dead rows'

// The first call on a server writes the server epoch, and migrate() writes its settings there. No run counts that: the sessions have ended,
// and what they reported at their end has arrived.
beforeAll(async () => {
  const pool = new pg.Pool({ connectionString: bench.url, max: 1, application_name: APPLICATION })
  await pool.query('SELECT lockstep.ensure_incarnation()')
  const lockstep = new Lockstep(pool)
  await lockstep.migrate({ maxTtlMs: LONG_MS })
  await lockstep.close()
  await pool.end()
  await eventually(noneConnected)
  await eventually(async () => total(await counts(), 'inserted', 'incarnation') > 0)
  await eventually(async () => ((await counts())['epoch']?.updated ?? 0) >= 2)
})

interface Counts {
  readonly inserted: number
  readonly updated: number
  /** Updates within a page: the next session that reads the page removes what they leave. */
  readonly deleted: number
  readonly dead: number
}

type Tables = Readonly<Record<string, Counts>>

const NOTHING: Counts = { inserted: 0, updated: 0, deleted: 0, dead: 0 }

/** What the server has counted so far for each table of the schema. */
async function counts(): Promise<Tables> {
  const { rows } = await bench.admin.query<Counts & { name: string }>(
    `SELECT relname AS name, n_tup_ins::int AS inserted, n_tup_upd::int AS updated,
            n_tup_del::int AS deleted, n_dead_tup::int AS dead
       FROM pg_stat_user_tables WHERE schemaname = 'lockstep'`,
  )
  return Object.fromEntries(rows.map(({ name, ...counted }) => [name, counted]))
}

function difference(before: Tables, after: Tables): Tables {
  return Object.fromEntries(
    Object.entries(after).map(([name, now]) => {
      const then = before[name] ?? NOTHING
      const counted = Object.entries(now).map(([what, count]) => [what, count - then[what as keyof Counts]])
      return [name, Object.fromEntries(counted)]
    }),
  )
}

function total(tables: Tables, what: keyof Counts, prefix = ''): number {
  return Object.entries(tables).reduce((sum, [name, each]) => sum + (name.startsWith(prefix) ? each[what] : 0), 0)
}

/** The tables of which rows were updated or deleted. */
function changedTables(tables: Tables): string[] {
  return Object.keys(tables)
    .filter((name) => (tables[name]?.updated ?? 0) + (tables[name]?.deleted ?? 0) > 0)
    .toSorted()
}

interface Run {
  readonly events: number
  /** How often the sink received events. */
  readonly batches: number
  /** How many cursors were written. */
  readonly moves: number
  /** How many rows of all tables were updated or deleted. */
  readonly changed: number
  /** How many more are dead than before. */
  readonly dead: number
  readonly tables: Tables
}

async function cursorVersion(): Promise<number> {
  const { rows } = await bench.admin.query<{ n: number }>(
    'SELECT COALESCE(max(version), 0)::int AS n FROM lockstep.outbox_cursors',
  )
  return rows[0]?.n ?? 0
}

async function noneConnected(): Promise<boolean> {
  const sessions = 'SELECT FROM pg_stat_activity WHERE application_name = $1'
  return (await bench.admin.query(sessions, [APPLICATION])).rowCount === 0
}

/** Enqueues so many events in each turn, by the library and in SQL, and waits until the dispatcher has delivered them. */
async function deliverInTurns(eventsPerTurn: number): Promise<Run> {
  const startedAt = performance.now()
  const [before, firstVersion] = [await counts(), await cursorVersion()]
  const pool = new pg.Pool({ connectionString: bench.url, max: 6, application_name: APPLICATION })
  const lockstep = new Lockstep(pool)
  let batches = 0
  const sink = (batch: readonly unknown[]): 'sent'[] => {
    batches++
    return batch.map(() => 'sent')
  }
  const dispatcher = dispatching(lockstep, { shards: 1, retainMs: false, ttlMs: LONG_MS, sink })
  const half = eventsPerTurn / 2
  for (let turn = 1; turn <= TURNS; turn++) {
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'library', key: 'one', payload: turn })
      await tx.enqueueMany(
        Array.from({ length: half - 1 }, (_, n) => ({ topic: 'library', key: `k${n % KEYS}`, payload: n })),
      )
      await tx.query(`SELECT lockstep.enqueue('sql', 'k' || n % ${KEYS}, '1') FROM generate_series(1, ${half}) AS n`)
    })
    await dispatcher.until(turn * eventsPerTurn)
  }
  await dispatcher.stop()
  await lockstep.close()
  await pool.end()
  const events = TURNS * eventsPerTurn
  const moves = (await cursorVersion()) - firstVersion
  // A session reports its counts at its end. Before PostgreSQL 15 they arrive a moment later.
  await eventually(noneConnected)
  await eventually(async () => {
    const now = difference(before, await counts())
    return total(now, 'inserted', 'outbox_events') >= events && total(now, 'inserted', 'outbox_cursors') >= moves
  })
  const tables = difference(before, await counts())
  const refreshes = Math.ceil((performance.now() - startedAt) / REFRESH_MS)
  // One batch a turn and one move a batch: neither grows with the events.
  expect(batches).toBeLessThan(2 * TURNS)
  expect(moves).toBeLessThanOrEqual(batches + refreshes + STARTS_AND_STOPS)
  const changed = total(tables, 'updated') + total(tables, 'deleted')
  return { events, batches, moves, changed, dead: total(tables, 'dead'), tables }
}

/** What a run can change at most. A hundred versions of a cursor can be left from the run before. */
function mostChanges({ moves }: Run): number {
  return moves + 100 + STARTS_AND_STOPS
}

describe('a dispatcher that keeps up', () => {
  test('updates and deletes rows for its batches, not for their events', async () => {
    const few = await deliverInTurns(20)
    const many = await deliverInTurns(60)
    expect([few.events, many.events]).toEqual([2200, 6600])
    for (const run of [few, many]) {
      expect(run.changed).toBeLessThanOrEqual(mostChanges(run))
      // Whether it listens is written a few times, if it has nothing to do for a moment; that locks work, when a process starts.
      const changed = changedTables(run.tables).filter((name) => name !== 'outbox_listeners' && name !== 'lock_trials')
      expect(changed).toEqual(['leases', 'outbox_cursors'])
      expect(total(run.tables, 'updated', 'outbox_cursors')).toBe(0)
    }
    // It shows that the counts are not of other tables or too early.
    expect(total(many.tables, 'deleted', 'outbox_cursors')).toBeGreaterThanOrEqual(TURNS - 100)
  })

  test('leaves no more dead rows than batches while another session holds an old snapshot', async () => {
    const holder = new pg.Client({ connectionString: bench.url })
    await holder.connect()
    bench.cleanUp(() => holder.end())
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lockstep.outbox_events')
    bench.cleanUp(() => holder.query('COMMIT'))
    for (const run of [await deliverInTurns(20), await deliverInTurns(60)]) {
      expect(run.dead).toBeLessThanOrEqual(mostChanges(run))
      expect(run.changed).toBeLessThanOrEqual(mostChanges(run))
    }
  })
})

test('a dispatcher without events changes the rows of its leases, and at most that it listens', async () => {
  const before = await counts()
  const pool = new pg.Pool({ connectionString: bench.url, max: 6, application_name: APPLICATION })
  const lockstep = new Lockstep(pool)
  // Renewed several times a second.
  const dispatcher = dispatching(lockstep, { name: 'idle', shards: 4, retainMs: false, ttlMs: 500 })
  const renewals = async (): Promise<number> => total(difference(before, await counts()), 'updated', 'leases')
  await eventually(async () => (await renewals()) >= 20)
  await dispatcher.stop()
  await lockstep.close()
  await pool.end()
  await eventually(noneConnected)
  const tables = difference(before, await counts())
  // Whether it listens is written again only if it did so before it stopped.
  expect(changedTables(tables).filter((name) => name !== 'outbox_listeners')).toEqual(['leases'])
})
