import { describe, expect, test } from 'vitest'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import { type Lockstep, OutboxRebaseNeededError, type SinkFunction } from '../index.ts'

/** An outbox that was restored from a dump of another server, whose transaction ids mean nothing here. */

const bench = await outboxBench()

describe('a restored dump', () => {
  /** What a dump brings from a server whose transaction ids are far ahead of this one's. */
  async function restoreFromBusierServer(): Promise<void> {
    const shifted = (column: string): string => `(${column}::text::bigint + 1000000000)::text::xid8`
    await bench.admin.query(`
      UPDATE lockstep.outbox_events SET xid = ${shifted('xid')};
      UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
      UPDATE lockstep.outbox_cursors SET done = true, prev = '2000000000:2000000000:', next = '2000000000:2000000000:'`)
  }

  /** a#1 is delivered, then the outbox comes from another server. */
  async function restoredAfterDelivery(): Promise<Lockstep> {
    const { lockstep } = bench.open('pg')
    const before = bench.dispatch(lockstep)
    await bench.enqueue('a')
    await before.until(1)
    await before.stop()
    await restoreFromBusierServer()
    return lockstep
  }

  /**
   * Between the restore and the rebase the application already enqueues. The restored cursors hold the larger ids of the other server, so
   * that the new events look delivered. In a savepoint, the row's xmin is the subtransaction's and does not show where it was written.
   */
  test.each([
    ['plainly', `SELECT lockstep.enqueue('t', 'a', '2')`],
    ['in a savepoint', `BEGIN; SAVEPOINT s; SELECT lockstep.enqueue('t', 'a', '2'); RELEASE s; COMMIT`],
  ])('delivers what was enqueued %s between the restore and the rebase', async (_, text) => {
    const lockstep = await restoredAfterDelivery()
    await (await bench.session()).query(text)
    expect(await bench.dispatch(lockstep).ended).toBeInstanceOf(OutboxRebaseNeededError)
    await lockstep.outbox.rebase({ deliver: 'undelivered' })
    const after = bench.dispatch(lockstep)
    await expect.poll(() => after.names).toEqual(['a#2'])
  })

  /** The other server's events have ids that this one has not reached: they are invisible, and new events would overtake them. */
  test('refuses a dispatcher with a new name', async () => {
    const { lockstep } = bench.open('pg')
    await bench.enqueue('a')
    await restoreFromBusierServer()
    await bench.enqueue('a')
    const { names, ended } = bench.dispatch(lockstep)
    expect(await ended).toBeInstanceOf(OutboxRebaseNeededError)
    expect(names).toEqual([])
  })

  /** Rebase gives old events the transaction id 1, which is visible where a new dispatcher begins. */
  test('delivers events from before the rebase to a dispatcher that comes after it', async () => {
    const { lockstep } = bench.open('pg')
    await bench.enqueue('a')
    await restoreFromBusierServer()
    await lockstep.outbox.rebase({ deliver: 'all' })
    await bench.enqueue('a')
    const { names } = bench.dispatch(lockstep)
    await expect.poll(() => names).toEqual(['a#1', 'a#2'])
  })
})

/** What a restore leaves behind, made from within: everything is as it was, and names another server. */
describe('a restore under a running dispatcher', () => {
  const RESTORED = `
    UPDATE lockstep.outbox_dispatchers SET system = '1'; UPDATE lockstep.outbox_home SET system = '1';
    UPDATE lockstep.incarnation SET system = 1`
  const cursor = async (): Promise<unknown> =>
    (await bench.admin.query('SELECT max(version) AS version FROM lockstep.outbox_cursors')).rows[0]

  test.each(['outbox_home', 'outbox_dispatchers'])(
    'ends run() with OutboxRebaseNeededError by %s alone',
    async (table) => {
      const { lockstep } = bench.open('pg')
      const { names, ended } = bench.dispatch(lockstep)
      await bench.enqueue('a')
      await expect.poll(() => names).toEqual(['a#1'])
      await bench.admin.query(`UPDATE lockstep.${table} SET system = '1'`)
      expect(await ended).toBeInstanceOf(OutboxRebaseNeededError)
    },
  )

  test('does not let a current batch move the cursor', async () => {
    const { lockstep } = bench.open('pg')
    const [sending, goOn] = [signal(), signal()]
    const { names, ended } = bench.dispatch(lockstep, {
      async sink() {
        sending.give()
        await goOn.given
      },
    })
    await bench.enqueue('a')
    await sending.given
    const before = await cursor()
    await bench.admin.query(RESTORED)
    await bench.enqueue('a')
    goOn.give()
    expect(await ended).toBeInstanceOf(OutboxRebaseNeededError)
    expect(names).toEqual(['a#1'])
    expect(await cursor()).toEqual(before)
  })

  test('does not retry parked streams or take shards', async () => {
    const { lockstep } = bench.open('pg')
    let refusing = true
    const sink: SinkFunction = (batch) => batch.map(() => (refusing ? { refused: 'not yet' } : 'sent'))
    const first = bench.dispatch(lockstep, { sink, backoffMs: { first: 60_000, longest: 60_000 } })
    await bench.enqueue('a')
    await expect.poll(async () => (await lockstep.outbox.parked()).length).toBe(1)
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
