import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { leakGuard, testServer } from '../../tools/server/testDatabase.ts'
import { signal, workbench } from '../../tools/server/testing/workbench.ts'
import {
  type DispatcherOptions,
  type Lockstep,
  type OutboxEvent,
  OutboxRebaseNeededError,
  type Retained,
  type SinkFunction,
} from '../index.ts'

/** Interleavings of retention, dumps and the breaker; as in interleavings.pg.test.ts. */

const database = await testServer()
leakGuard(database)
const bench = workbench(database)
const SOON = { interval: 10, timeout: 20_000 }
const EMPTY = `
  UPDATE lockstep.outbox_home SET system = (SELECT system_identifier::text FROM pg_control_system());
  TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet, lockstep.outbox_ticks, lockstep.outbox_dispatchers, lockstep.outbox_cursors,
           lockstep.outbox_parked, lockstep.outbox_parked_events, lockstep.outbox_dead, lockstep.outbox_audit, lockstep.outbox_segments;
  SELECT setval('lockstep.outbox_slot', 0);
  INSERT INTO lockstep.outbox_segments VALUES (0, 1, clock_timestamp())`

let stops: (() => unknown)[] = []
beforeEach(() => bench.admin.query(EMPTY))
afterEach(async () => {
  const running = stops.toReversed()
  stops = []
  for (const stop of running) await stop()
})

async function session(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  stops.push(() => client.end())
  return client
}

/** Runs a dispatcher; what its sink took is told as `key#seq`. */
function dispatch(
  lockstep: Lockstep,
  sink: SinkFunction,
  options: Omit<DispatcherOptions, 'sink'> = {},
): { names: string[]; events: OutboxEvent[]; ended: Promise<unknown>; stop: () => Promise<void> } {
  const controller = new AbortController()
  const [names, events]: [string[], OutboxEvent[]] = [[], []]
  const dispatcher = lockstep.outbox.dispatcher({
    retainMs: false,
    shards: 1,
    ...options,
    sink: async (batch, batchContext) => {
      const answers = (await sink(batch, batchContext)) ?? batch.map(() => 'sent' as const)
      batch.forEach((event, place) => {
        if (answers[place] !== 'sent') return
        names.push(`${event.key}#${event.seq}`)
        events.push(event)
      })
      return answers
    },
  })
  const ended = dispatcher.run({ signal: controller.signal }).catch((error: unknown) => error)
  const stop = async (): Promise<void> => {
    controller.abort()
    const error = await ended
    if (error instanceof Error && !(error instanceof OutboxRebaseNeededError)) throw error
  }
  stops.push(stop)
  return { names, events, ended, stop }
}

const takeAll = (): undefined => undefined

async function enqueue(key: string, payload: unknown = {}): Promise<void> {
  await bench.admin.query(`SELECT lockstep.enqueue('t', $1, $2)`, [key, JSON.stringify(payload)])
}

const numbers = async (): Promise<unknown[]> =>
  (await bench.admin.query<{ seq: string }>('SELECT seq FROM lockstep.outbox_events ORDER BY seq')).rows.map(
    ({ seq }) => Number(seq),
  )

/** Begins a new segment; a round that somebody is in the way of does not, and says so. */
const leftBehind = (lockstep: Lockstep): Promise<void> =>
  expect
    .poll(async () => (await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })).rotated, SOON)
    .toBe(true)

/** The first of the two rounds that it takes to empty a segment, once the cursors are past it. */
const madeReady = (lockstep: Lockstep): Promise<void> =>
  expect.poll(async () => (await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 })).readied, SOON).toBe(1)

describe('retention', () => {
  /**
   * outbox_drop finds out what every dispatcher has passed, then waits: for ticks that another round of retention is deleting, for
   * the slot's lock. Meanwhile a new dispatcher comes and begins with the oldest event. Then the slot is emptied by what was true
   * before: the new dispatcher has a#1 and goes on with a#4.
   */
  test('a dispatcher that comes while segments are dropped sees no gap', { timeout: 90_000 }, async () => {
    const { lockstep } = bench.open('pg', { max: 8 })
    const first = dispatch(lockstep, takeAll)
    for (let n = 0; n < 3; n++) await enqueue('a')
    await expect.poll(() => first.names, SOON).toEqual(['a#1', 'a#2', 'a#3'])
    await leftBehind(lockstep)
    await madeReady(lockstep)
    await bench.admin.query(`SELECT lockstep.outbox_tick(1)`)
    await enqueue('a')
    await expect.poll(() => first.names.at(-1), SOON).toBe('a#4')
    const behind = async (): Promise<number> =>
      (await lockstep.outbox.status()).shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)
    await expect.poll(behind, SOON).toBe(0)
    // As another round of retention has it while it is at work.
    const other = await session()
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
    await expect.poll(seenBlocked, SOON).toBe(true)
    const [begun, goOn] = [signal(), signal()]
    const second = dispatch(
      lockstep,
      async () => {
        begun.give()
        await goOn.given
      },
      { name: 'second', batch: 1 },
    )
    await begun.given
    await other.query('COMMIT')
    await dropping
    goOn.give()
    await expect.poll(() => second.names.at(-1), SOON).toBe('a#4')
    expect(second.names).toEqual(['a#1', 'a#2', 'a#3', 'a#4'])
  })

  /**
   * pg_dump has its snapshot before it has locked the tables. A segment that is emptied in between has no events in the dump, and if the
   * last numbers of its streams were written in the same step, these are not in it either. So they are written before, by a minute at
   * least where events are kept that long.
   */
  test('the last numbers of quiet streams are there for a minute before their events go', async () => {
    const { lockstep } = bench.open('pg')
    const { names } = dispatch(lockstep, takeAll)
    await enqueue('quiet')
    await leftBehind(lockstep)
    await enqueue('a')
    await expect.poll(() => names, SOON).toEqual(['quiet#1', 'a#1'])
    const later = (column: string, ago: string): Promise<unknown> =>
      bench.admin.query(
        `UPDATE lockstep.outbox_segments SET ${column} = ${column} - interval '${ago}' WHERE number = 1`,
      )
    const round = (): Promise<Retained> => lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 3_600_000 })
    const kept = async (): Promise<unknown> => (await bench.admin.query('SELECT key FROM lockstep.outbox_quiet')).rows
    await later('left_at', '58 minutes')
    expect(await round()).toMatchObject({ dropped: 0, readied: 0 })
    await later('left_at', '5 minutes')
    await expect.poll(async () => (await round()).readied, SOON).toBe(1)
    expect(await kept()).toEqual([{ key: 'quiet' }])
    expect(await round()).toMatchObject({ dropped: 0, readied: 0 })
    await later('kept_at', '1 minute')
    expect(await round()).toMatchObject({ dropped: 1, readied: 0 })
    await enqueue('quiet')
    await expect.poll(() => names.at(-1), SOON).toBe('quiet#2')
  })
})

describe('a restored dump', () => {
  /**
   * pg_dump reads tables as they were when it began, and sequences as they are when it comes to them. With a change of slots in
   * between, the restored outbox writes to a slot that its table of segments does not know. Nobody reads there, and since the current
   * segment is not known either, there is never another one: nothing that is enqueued from then on is delivered.
   */
  test('what is enqueued after a dump during which the slot was changed is delivered', async () => {
    const { lockstep } = bench.open('pg')
    await enqueue('a')
    const dump = await session()
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
    await enqueue('a')
    const { names } = dispatch(lockstep, takeAll)
    await expect.poll(() => names, SOON).toEqual(['a#1', 'a#2'])
  })

  /**
   * The restored cursors are the other server's, whose ids are far ahead. Before anybody has run rebase, retention takes them at
   * their word: whatever was sealed here has a smaller id, has been "passed", and is dropped undelivered.
   */
  test('before the rebase nothing is dropped', async () => {
    const { lockstep } = bench.open('pg')
    const before = dispatch(lockstep, takeAll)
    await enqueue('a')
    await expect.poll(() => before.names, SOON).toEqual(['a#1'])
    await before.stop()
    await bench.admin.query(`
      UPDATE lockstep.outbox_events SET xid = '1000000000';
      UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
      UPDATE lockstep.outbox_cursors SET done = true, prev = '2000000000:2000000000:', next = '2000000000:2000000000:'`)
    await enqueue('a')
    for (let round = 0; round < 2; round++) await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
    expect(await numbers()).toContain(2)
  })
})

/** What a dump leaves behind where it is restored, told from within: everything is as it was, and names another server. */
describe('a restored dump under a dispatcher that runs', () => {
  const RESTORED = `
    UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
    UPDATE lockstep.incarnation SET system = 1`
  const cursor = async (): Promise<unknown> =>
    (await bench.admin.query('SELECT max(version) AS version FROM lockstep.outbox_cursors')).rows[0]

  test.each(['outbox_home', 'outbox_dispatchers'])('by %s alone it is told, and run() ends', async (table) => {
    const { lockstep } = bench.open('pg')
    const { names, ended } = dispatch(lockstep, takeAll)
    await enqueue('a')
    await expect.poll(() => names, SOON).toEqual(['a#1'])
    await bench.admin.query(`UPDATE lockstep.${table} SET system = '1'`)
    expect(await ended).toBeInstanceOf(OutboxRebaseNeededError)
  })

  test('a batch in hand does not move the cursor', async () => {
    const { lockstep } = bench.open('pg')
    const [sending, goOn] = [signal(), signal()]
    const { names, ended } = dispatch(lockstep, async () => {
      sending.give()
      await goOn.given
    })
    await enqueue('a')
    await sending.given
    const before = await cursor()
    await bench.admin.query(RESTORED)
    await enqueue('a')
    goOn.give()
    expect(await ended).toBeInstanceOf(OutboxRebaseNeededError)
    expect(names).toEqual(['a#1'])
    expect(await cursor()).toEqual(before)
  })

  test('streams that wait are not tried, and no shard is taken', async () => {
    const { lockstep } = bench.open('pg')
    let refusing = true
    const sink: SinkFunction = (batch) => batch.map(() => (refusing ? { refused: 'not yet' } : 'sent'))
    const first = dispatch(lockstep, sink, { backoffMs: { first: 60_000, longest: 60_000 } })
    await enqueue('a')
    await expect.poll(async () => (await lockstep.outbox.parked()).length, SOON).toBe(1)
    await first.stop()
    refusing = false
    const fence = 9_000_000_000_000_000
    const shards = Number((await bench.admin.query('SELECT shards FROM lockstep.outbox_dispatchers')).rows[0]?.shards)
    const history = '(SELECT value::text FROM lockstep.incarnation)'
    await bench.admin.query(`SELECT lockstep.outbox_take('default', 0::smallint, ${fence}, ${history}, ${shards})`)
    await bench.admin.query(`UPDATE lockstep.outbox_parked SET next_attempt_at = clock_timestamp()`)
    const due = `SELECT key FROM lockstep.outbox_parked_due('default', 0::smallint, ${fence}, ${history}, 10, 10)`
    expect((await bench.admin.query(due)).rows).toEqual([{ key: 'a' }])
    await bench.admin.query(RESTORED)
    expect((await bench.admin.query(due)).rows).toEqual([])
    const taking = `SELECT lockstep.outbox_take('default', 0::smallint, ${fence + 1}, ${history}, ${shards}) AS taken`
    expect((await bench.admin.query(taking)).rows).toEqual([{ taken: 'elsewhere' }])
  })
})

describe('the breaker', () => {
  /** The sink says that it is not healthy. The breaker is told, and the batch is risked all the same, every time. */
  test('a sink that is not healthy is not sent to', async () => {
    const { lockstep } = bench.open('pg')
    let [sent, asked] = [0, 0]
    const controller = new AbortController()
    const running = lockstep.outbox
      .dispatcher({
        shards: 1,
        retainMs: false,
        sink: {
          name: 'down',
          send: async () => {
            sent++
            return Promise.reject(new Error('down'))
          },
          healthy: async () => Promise.resolve(++asked < 0),
        },
      })
      .run({ signal: controller.signal })
    stops.push(async () => {
      controller.abort()
      await running
    })
    await enqueue('a')
    await expect.poll(() => asked, SOON).toBeGreaterThan(2)
    // Once together, once the stream by itself.
    expect(sent).toBe(2)
  })

  /**
   * An answer that is no answer is to count as unknown. For null, `'refused' in null` throws outside of what is caught: the shard
   * ends, is taken again, sends the same batch again, and never moves its cursor, nor parks the stream.
   */
  test('an answer of null is one that is not known', async () => {
    const { lockstep } = bench.open('pg')
    dispatch(lockstep, (events) => events.map(({ key }) => (key === 'bad' ? (null as never) : 'sent')))
    await enqueue('good')
    await enqueue('bad')
    await expect.poll(async () => (await lockstep.outbox.parked()).map(({ key }) => key), SOON).toEqual(['bad'])
  })
})
