import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { signal, workbench } from '../../tools/server/testing/workbench.ts'
import { type DispatcherOptions, type Lockstep, type OutboxEvent, OutboxRebaseNeededError } from '../index.ts'

/**
 * Interleavings that break what the outbox promises. Each is told and played; Mended since.
 */

const database = await testDatabase()
leakGuard(database)
const bench = workbench(database)
const SOON = { interval: 10, timeout: 4000 }
const EMPTY = `
  UPDATE lockstep.outbox_home SET system = (SELECT system_identifier::text FROM pg_control_system());
  TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet, lockstep.outbox_ticks, lockstep.outbox_dispatchers, lockstep.outbox_cursors,
           lockstep.outbox_parked, lockstep.outbox_parked_events, lockstep.outbox_dead, lockstep.outbox_audit`

let stops: (() => Promise<void>)[] = []
beforeEach(() => bench.admin.query(EMPTY))
afterEach(async () => {
  const running = stops
  stops = []
  for (const stop of running) await stop()
})

/** A session of its own; after the test it is gone, whatever it was at. */
async function session(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  stops.push(() => client.end())
  return client
}

interface Dispatch {
  readonly names: string[]
  readonly events: OutboxEvent[]
  readonly ended: Promise<unknown>
  stop(): Promise<void>
}

/** Runs a dispatcher; what its sink took is told as `key#seq`. */
function dispatch(
  lockstep: Lockstep,
  sink: (
    events: readonly OutboxEvent[],
  ) => ReturnType<Extract<DispatcherOptions['sink'], (...given: never[]) => unknown>>,
  options: Omit<DispatcherOptions, 'sink'> = {},
): Dispatch {
  const controller = new AbortController()
  const [names, events]: [string[], OutboxEvent[]] = [[], []]
  const dispatcher = lockstep.outbox.dispatcher({
    retainMs: false,
    ...options,
    sink: async (batch) => {
      const answers = (await sink(batch)) ?? batch.map(() => 'sent' as const)
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
    await ended
  }
  stops.push(stop)
  return { names, events, ended, stop }
}

const takeAll = (): undefined => undefined

async function enqueue(key: string, payload: unknown = {}): Promise<number> {
  const { rows } = await bench.admin.query<{ seq: string }>(`SELECT lockstep.enqueue('t', $1, $2) AS seq`, [
    key,
    JSON.stringify(payload),
  ])
  return Number(rows[0]?.seq)
}

describe('dispatching', () => {
  /**
   * A window that holds exactly `batch` events is written back with done = false, for there might be more. The next reading goes on
   * in it, finds nothing, and ends there (`EXIT WHEN … tick IS NULL`) instead of going on to the next window: the shard sees nothing
   * new until its cursor is refreshed, 20 s later. With 500 events in one enqueueMany, or batch: 1, that is the normal case.
   */
  test('after a window of exactly one batch the shard goes on at once', async () => {
    const { lockstep } = bench.open('pg')
    const { names } = dispatch(lockstep, takeAll, { batch: 2, shards: 1 })
    await lockstep.transaction({}, (tx) => tx.enqueueMany([1, 2].map((payload) => ({ topic: 't', key: 'a', payload }))))
    await expect.poll(() => names, SOON).toEqual(['a#1', 'a#2'])
    await enqueue('a')
    await expect.poll(() => names, SOON).toEqual(['a#1', 'a#2', 'a#3'])
  })

  /**
   * The reason of a refusal goes into jsonb. PostgreSQL takes neither \u0000 nor half a surrogate pair there, and an error text cut
   * at some length ends in the middle of an emoji easily. Then the message that parks the stream fails, and with it the cursors of
   * all shards that are in it; it is sent again as it is, for ever. Whoever takes the shards over comes to the same place.
   */
  test.each([
    ['half an emoji', 'not taken: \ud83d'],
    ['a zero', 'unexpected token \u0000'],
  ])('a stream that is refused with %s in the reason does not stop the others', async (_, reason) => {
    const { lockstep } = bench.open('pg')
    const { names } = dispatch(
      lockstep,
      (events) => events.map(({ key }) => (key === 'bad' ? { refused: reason } : 'sent')),
      { shards: 1 },
    )
    await enqueue('bad')
    await enqueue('good')
    await expect.poll(() => names, SOON).toEqual(['good#1'])
    await enqueue('good')
    await expect.poll(() => names, SOON).toEqual(['good#1', 'good#2'])
  })
})

describe('enqueuing', () => {
  /**
   * `tx.query` of the outer transaction, called inside a savepoint, belongs to the savepoint and is undone with it. `tx.enqueue` goes
   * to the outer one's buffer and is not: the event of something that was rolled back is delivered.
   */
  test('an event enqueued through the outer tx inside a savepoint goes with the savepoint', async () => {
    const { lockstep } = bench.open('pg')
    await lockstep.transaction({}, async (tx) => {
      const undone = tx.savepoint(async () => {
        await tx.query(`INSERT INTO notes VALUES ('order')`)
        await tx.enqueue({ topic: 't', key: 'order', payload: 'placed' })
        throw new Error('no')
      })
      await undone.catch(() => undefined)
    })
    expect(await bench.notes()).toEqual([])
    const { rows } = await bench.admin.query('SELECT key FROM lockstep.outbox_events')
    expect(rows).toEqual([])
  })
})

describe('parked streams', () => {
  const owner = `'default', 0::smallint`
  const history = '(SELECT value::text FROM lockstep.incarnation)'

  /**
   * `a` is parked and has nothing left. Its owner's unpark looks for parked events in its snapshot, then waits for the row, which an
   * operator's skip has locked. The owner's lease runs out; the next owner takes the shard, reads a#1, finds `a` parked and puts it
   * aside. The operator commits, the late unpark goes on with its old snapshot and deletes the row. a#1 is stranded: no list knows
   * it, and a#2 overtakes it.
   */
  test('a late unpark does not strand what the next owner has put aside', async () => {
    const { lockstep } = bench.open('pg')
    const call = async (text: string): Promise<void> => void (await bench.admin.query(`SELECT lockstep.${text}`))
    await bench.admin.query(`INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
      SELECT 'default', 1, system::text, database::text, 1 FROM lockstep.ensure_incarnation()`)
    await call(`outbox_take(${owner}, 1, ${history}, 1)`)
    await call(`outbox_operate('pause', 'default', 't', 'a', NULL, NULL)`)
    await call(`outbox_operate('resume', 'default', 't', 'a', NULL, NULL)`)
    const [operator, next] = [await session(), await session()]
    await operator.query('BEGIN')
    // There is nothing to skip; the row is locked nevertheless, until the operator's transaction ends.
    await operator.query(`SELECT lockstep.outbox_operate('skip', 'default', 't', 'a', 1, 'x')`)
    const late = call(`outbox_unpark(${owner}, 1, ${history}, ARRAY['t'], ARRAY['a'])`)
    const waits = (what: string): string =>
      `SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${what}(%'`
    await expect.poll(async () => (await next.query(waits('_unpark'))).rows, SOON).toEqual([{ n: 1 }])
    // The next owner. It has to wait until what the last one had begun is over.
    const taking = next.query(`SELECT lockstep.outbox_take(${owner}, 2, ${history}, 1)`)
    await expect.poll(async () => (await bench.admin.query(waits('outbox_take'))).rows, SOON).toEqual([{ n: 1 }])
    await operator.query('COMMIT')
    await taking
    await next.query(`SELECT lockstep.enqueue('t', 'a', '1')`)
    const { rows } = await next.query(
      `SELECT * FROM lockstep.outbox_read('default', ARRAY[0]::smallint[], ARRAY[2]::bigint[], ARRAY[500], 1)`,
    )
    const [window] = rows as Record<string, string>[]
    // It may have come in time; then the stream is like any other.
    if (window?.['flags'] === ' ') {
      await late
      return
    }
    const waiting = JSON.stringify([{ topic: 't', key: 'a', seqs: [1] }])
    await next.query(
      `SELECT lockstep.outbox_advance(${owner}, 2, $1, $2, $3::pg_snapshot, $4::pg_snapshot, $5, true, 0, $6)`,
      [
        window?.['version'],
        window?.['life'],
        window?.['prev'],
        window?.['next'],
        Number(`0x${window?.['ids']}`),
        waiting,
      ],
    )
    await late
    await enqueue('a')
    const { names } = dispatch(lockstep, takeAll)
    await expect.poll(() => names.length, SOON).toBeGreaterThan(0)
    await expect.poll(() => names, { ...SOON, timeout: 1500 }).toEqual(['a#1', 'a#2'])
  })

  /**
   * The operator sees a#1 at the head of a parked stream and skips it. By the time that arrives, another try has got a#1 through:
   * `skip` takes whatever is at the head by now, and a#2, which nobody meant, is given up.
   */
  test('skip gives up the event that the operator has seen at the head, or none', async () => {
    const { lockstep } = bench.open('pg')
    const [second, goOn] = [signal(), signal()]
    let [refusing, trying] = [true, false]
    const { names, events } = dispatch(
      lockstep,
      async (batch) => {
        if (refusing) return batch.map(() => ({ refused: 'no' }))
        // a#1 is taken; of a#2 nothing is known yet.
        if (batch.some(({ seq }) => seq === 1))
          return batch.map(({ seq }) => (seq === 1 ? 'sent' : { refused: 'not yet' }))
        if (trying) return batch.map(() => 'sent' as const)
        trying = true
        second.give()
        await goOn.given
        return batch.map(() => ({ refused: 'in a moment' }))
      },
      { shards: 1, backoffMs: { first: 20, longest: 20 }, attempts: 1000 },
    )
    await enqueue('a', 'poison')
    await enqueue('a', 'innocent')
    await expect.poll(async () => (await lockstep.outbox.parked())[0]?.events, SOON).toBe(2)
    const [seen] = await lockstep.outbox.parked()
    expect(seen?.head).toBe(1)
    refusing = false
    await second.given
    await lockstep.outbox
      .skip({ topic: 't', key: 'a', seq: seen?.head ?? 0 }, { reason: 'poison' })
      .catch(() => undefined)
    goOn.give()
    await expect.poll(() => names, SOON).toEqual(['a#1', 'a#2'])
    expect(events.map(({ tombstone }) => tombstone)).toEqual([undefined, undefined])
  })
})

describe('a restored dump', () => {
  /** What a dump brings along from a server whose transaction ids are far ahead of this one's. */
  async function comesFromABusierServer(): Promise<void> {
    const shifted = (column: string): string => `(${column}::text::bigint + 1000000000)::text::xid8`
    await bench.admin.query(`
      UPDATE lockstep.outbox_events SET xid = ${shifted('xid')};
      UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
      UPDATE lockstep.outbox_cursors SET done = true, prev = '2000000000:2000000000:', next = '2000000000:2000000000:'`)
  }

  /**
   * Between the restore and the rebase the application already runs and enqueues. Rebase asks the restored cursors, which are full of
   * the other server's larger ids, whether these new events were delivered: "visible" means yes, and they are never sent.
   */
  test('what was enqueued after the restore and before the rebase is delivered', async () => {
    const { lockstep } = bench.open('pg')
    const before = dispatch(lockstep, takeAll, { shards: 1 })
    await enqueue('a')
    await expect.poll(() => before.names, SOON).toEqual(['a#1'])
    await before.stop()
    await comesFromABusierServer()
    await enqueue('a')
    expect(await dispatch(lockstep, takeAll).ended).toBeInstanceOf(OutboxRebaseNeededError)
    await lockstep.outbox.rebase({ deliver: 'undelivered' })
    const after = dispatch(lockstep, takeAll)
    await expect.poll(() => after.names, SOON).toEqual(['a#2'])
  })

  /**
   * The same inside a savepoint, or a block with EXCEPTION in a trigger: the row's own xmin is the subtransaction's, so that it does
   * not tell either that the event was enqueued here.
   */
  test('so is what was enqueued in a savepoint', async () => {
    const { lockstep } = bench.open('pg')
    const before = dispatch(lockstep, takeAll, { shards: 1 })
    await enqueue('a')
    await expect.poll(() => before.names, SOON).toEqual(['a#1'])
    await before.stop()
    await comesFromABusierServer()
    const client = await session()
    await client.query(`BEGIN; SAVEPOINT s; SELECT lockstep.enqueue('t', 'a', '2'); RELEASE s; COMMIT`)
    await lockstep.outbox.rebase({ deliver: 'undelivered' })
    const after = dispatch(lockstep, takeAll)
    await expect.poll(() => after.names, SOON).toEqual(['a#2'])
  })

  /**
   * Only a dispatcher that is in the dump is refused. One with a new name, or the first one ever, begins: events of the other server
   * have ids that this one has not reached and are not visible, new ones are, and overtake them.
   */
  test('a new dispatcher on it is refused as well, or delivers in order', async () => {
    const { lockstep } = bench.open('pg')
    await enqueue('a')
    await comesFromABusierServer()
    await enqueue('a')
    const { names, ended } = dispatch(lockstep, takeAll, { shards: 1 })
    let refused = false
    void ended.then((error) => (refused = error instanceof OutboxRebaseNeededError))
    await expect.poll(() => names.length > 0 || refused, SOON).toBe(true)
    expect(names[0] ?? 'a#1').toBe('a#1')
  })

  /**
   * Rebase gives all old events the transaction id 1, which is visible in '3:3:' where a new dispatcher begins. Where there was no
   * dispatcher yet, nothing was put aside either: all that the outbox holds is lost. A dispatcher that is added later, which gets
   * "the oldest event that there is", gets none of them and sees streams begin in the middle.
   */
  test('a dispatcher that comes after a rebase gets the events from before', async () => {
    const { lockstep } = bench.open('pg')
    await enqueue('a')
    await comesFromABusierServer()
    await lockstep.outbox.rebase({ deliver: 'all' })
    await enqueue('a')
    const { names } = dispatch(lockstep, takeAll, { shards: 1 })
    await expect.poll(() => names.length, SOON).toBeGreaterThan(0)
    expect(names[0]).toBe('a#1')
  })
})
