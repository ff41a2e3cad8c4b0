import { beforeEach, describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { moveAndFetch } from './outbox.sql.ts'

/**
 * A rebase holds everything still, table after table. A session that takes some of its locks in another order gets into a deadlock with it: the
 * operator has 40P01 instead of an answer.
 */

const bench = await testBench()

beforeEach(() =>
  bench.admin.query(`
    TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors, lockstep.outbox_parked,
             lockstep.outbox_parked_events;
    INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 2, system::text, database::text, 1 FROM lockstep.ensure_incarnation();
    SELECT lockstep.outbox_take('default', shard::smallint, 1, i.value::text, 2)
      FROM lockstep.incarnation i CROSS JOIN generate_series(0, 1) AS shard;
    SELECT lockstep.enqueue('t', 'a', '{}')`),
)

const WAITS_FOR = 'SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted'

/** The first one begins and waits for that lock, then the second one starts, and both continue. Returns how they ended. */
async function together(
  held: string,
  first: () => Promise<unknown>,
  second: () => Promise<unknown>,
): Promise<unknown[]> {
  const holder = await bench.session()
  await holder.query(`BEGIN; LOCK TABLE lockstep.${held}`)
  const one = first()
  // For this lock: before it comes here, the first one can wait for others.
  await expect
    .poll(async () => (await bench.admin.query(WAITS_FOR, [`lockstep.${held.split(' ', 1)[0]}`])).rowCount)
    .toBe(1)
  const other = second()
  await bench.lockWaits(2)
  await holder.query('COMMIT')
  return (await Promise.allSettled([one, other])).map((end) => (end.status === 'fulfilled' ? 'done' : end.reason))
}

describe('a rebase causes no deadlock', () => {
  test('with an erase', async () => {
    const { outbox } = bench.open('pg').lockstep
    const rebase = (): Promise<unknown> => outbox.rebase({ deliver: 'undelivered' })
    const erase = (): Promise<unknown> => outbox.erase({ topic: 't', key: 'a' })
    // The rebase has the events, and comes to the copies last.
    expect(await together('outbox_cursors IN ROW SHARE MODE', rebase, erase)).toEqual(['done', 'done'])
  })

  test('with the removal of a dispatcher', async () => {
    const { outbox } = bench.open('pg').lockstep
    const rebase = (): Promise<unknown> => outbox.rebase({ deliver: 'undelivered' })
    const remove = (): Promise<unknown> => outbox.removeDispatcher('default', { reason: 'a test' })
    // The rebase has the cursors; the removal has the dispatcher.
    expect(await together('outbox_parked IN ROW SHARE MODE', rebase, remove)).toEqual(['done', 'done'])
  })

  test('with a message that moves one shard’s cursor and unparks streams of another', async () => {
    const { outbox } = bench.open('pg').lockstep
    const dispatcher = await bench.session()
    const { rows } = await bench.admin.query<{ life: string }>('SELECT value::text AS life FROM lockstep.incarnation')
    const history = rows[0]?.life ?? ''
    const advance = {
      version: '1',
      life: history,
      prev: '1:1:',
      next: '1:1:',
      afterId: 0,
      done: true,
      seenId: '0',
      waiting: undefined,
    }
    const text = moveAndFetch(
      'lockstep',
      'default',
      [
        { shard: 0, fence: 1n, history, advance: undefined, unpark: [{ topic: 't', key: 'a' }], most: 10 },
        { shard: 1, fence: 1n, history, advance, unpark: [], most: 10 },
      ],
      2,
    )
    const rebase = (): Promise<unknown> => outbox.rebase({ deliver: 'undelivered' })
    // The message waits where it looks what is parked of the stream.
    expect(
      await together('outbox_parked_events IN ACCESS EXCLUSIVE MODE', () => dispatcher.query(text), rebase),
    ).toEqual(['done', 'done'])
  })
})
