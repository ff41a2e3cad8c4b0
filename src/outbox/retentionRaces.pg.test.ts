import { describe, expect, test } from 'vitest'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import type { Lockstep, Retained } from '../index.ts'

/** Retention that meets a new dispatcher, a dump, or an outbox that was restored. */

const bench = await outboxBench({ ownServer: true })

const numbers = async (): Promise<number[]> =>
  (await bench.admin.query<{ seq: number }>('SELECT seq::int FROM lockstep.outbox_events ORDER BY seq')).rows.map(
    ({ seq }) => seq,
  )

/** Begins a new segment; a round that another session blocks does not, and says so. */
const leftBehind = (lockstep: Lockstep): Promise<void> =>
  expect.poll(async () => (await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })).rotated).toBe(true)

/** The first of the two rounds that it takes to empty a segment, once the cursors are past it. */
const madeReady = (lockstep: Lockstep): Promise<void> =>
  expect.poll(async () => (await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 })).readied).toBe(1)

describe('retention', () => {
  /**
   * outbox_drop finds out what every dispatcher has passed, then waits for a lock. Meanwhile a new dispatcher begins with the oldest event.
   * A drop that relies on what was true before takes events that the new dispatcher has not read.
   */
  test('leaves no gap for a dispatcher that comes while segments are dropped', async () => {
    const { lockstep } = bench.open('pg', { max: 8 })
    const first = bench.dispatch(lockstep)
    for (let n = 0; n < 3; n++) await bench.enqueue('a')
    await expect.poll(() => first.names).toEqual(['a#1', 'a#2', 'a#3'])
    await leftBehind(lockstep)
    await madeReady(lockstep)
    await bench.admin.query(`SELECT lockstep.outbox_tick(1)`)
    await bench.enqueue('a')
    await expect.poll(() => first.names.at(-1)).toBe('a#4')
    const behind = async (): Promise<number> =>
      (await lockstep.outbox.status()).shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)
    await expect.poll(behind).toBe(0)
    // As another round of retention has it while it is at work.
    const other = await bench.session()
    await other.query('BEGIN; SELECT FROM lockstep.outbox_ticks FOR UPDATE')
    const blocked = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox_drop%' AND datname = current_database()`
    let dropping: Promise<unknown> | undefined
    // It waits for a third of a second only, and not before the cursors are past the tick: seen at once, or in the next round.
    const seenBlocked = async (): Promise<boolean> => {
      const round = { over: false }
      dropping = lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 }).finally(() => (round.over = true))
      while (!round.over) if ((await bench.admin.query(blocked)).rowCount === 1) return true
      return false
    }
    await expect.poll(seenBlocked).toBe(true)
    const [begun, goOn] = [signal(), signal()]
    const second = bench.dispatch(lockstep, {
      name: 'second',
      batch: 1,
      async sink() {
        begun.give()
        await goOn.given
      },
    })
    await begun.given
    await other.query('COMMIT')
    await dropping
    goOn.give()
    await expect.poll(() => second.names.at(-1)).toBe('a#4')
    expect(second.names).toEqual(['a#1', 'a#2', 'a#3', 'a#4'])
  })

  /**
   * pg_dump has its snapshot before it has locked the tables. A segment that is emptied in between has no events in the dump. If the last
   * numbers of its streams were written in the same step, the dump would not have these either.
   */
  test('writes the last numbers of quiet streams a minute before their events go', async () => {
    const { lockstep } = bench.open('pg')
    const { names } = bench.dispatch(lockstep)
    await bench.enqueue('quiet')
    await leftBehind(lockstep)
    await bench.enqueue('a')
    await expect.poll(() => names).toEqual(['quiet#1', 'a#1'])
    const later = (column: string, ago: string): Promise<unknown> =>
      bench.admin.query(
        `UPDATE lockstep.outbox_segments SET ${column} = ${column} - interval '${ago}' WHERE number = 1`,
      )
    const round = (): Promise<Retained> => lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 3_600_000 })
    const kept = async (): Promise<unknown> => (await bench.admin.query('SELECT key FROM lockstep.outbox_quiet')).rows
    await later('left_at', '58 minutes')
    expect(await round()).toMatchObject({ dropped: 0, readied: 0 })
    await later('left_at', '5 minutes')
    await expect.poll(async () => (await round()).readied).toBe(1)
    expect(await kept()).toEqual([{ key: 'quiet' }])
    expect(await round()).toMatchObject({ dropped: 0, readied: 0 })
    await later('kept_at', '1 minute')
    expect(await round()).toMatchObject({ dropped: 1, readied: 0 })
    await bench.enqueue('quiet')
    await expect.poll(() => names.at(-1)).toBe('quiet#2')
  })

  /**
   * pg_dump reads tables as they were when it began, and sequences as they are when it comes to them. With a change of slots in between, the
   * restored outbox writes to a slot that its table of segments does not know.
   */
  test('delivers events enqueued after a dump during which the slot changed', async () => {
    const { lockstep } = bench.open('pg')
    await bench.enqueue('a')
    const dump = await bench.session()
    await dump.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1')
    await leftBehind(lockstep)
    const segments = await dump.query<{ slot: number }>('SELECT slot FROM lockstep.outbox_segments')
    const slot = await dump.query<{ slot: string }>('SELECT last_value AS slot FROM lockstep.outbox_slot')
    await dump.query('COMMIT')
    // Restored.
    await bench.admin.query('DELETE FROM lockstep.outbox_segments WHERE slot <> ALL($1)', [
      segments.rows.map((row) => row.slot),
    ])
    await bench.admin.query(`UPDATE lockstep.outbox_segments SET left_at = NULL, sealed_xid = NULL`)
    await bench.admin.query(`SELECT setval('lockstep.outbox_slot', $1)`, [slot.rows[0]?.slot])
    await lockstep.outbox.rebase({ deliver: 'undelivered' })
    await bench.enqueue('a')
    const { names } = bench.dispatch(lockstep)
    await expect.poll(() => names).toEqual(['a#1', 'a#2'])
  })

  /** The restored cursors hold the larger ids of another server: by these, everything that was sealed here was passed. */
  test('drops nothing of a restored outbox before the rebase', async () => {
    const { lockstep } = bench.open('pg')
    const before = bench.dispatch(lockstep)
    await bench.enqueue('a')
    await expect.poll(() => before.names).toEqual(['a#1'])
    await before.stop()
    await bench.admin.query(`
      UPDATE lockstep.outbox_events SET xid = '1000000000';
      UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
      UPDATE lockstep.outbox_cursors SET done = true, prev = '2000000000:2000000000:', next = '2000000000:2000000000:'`)
    await bench.enqueue('a')
    for (let round = 0; round < 2; round++) await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
    expect(await numbers()).toContain(2)
  })
})
