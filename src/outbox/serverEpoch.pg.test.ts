import { readFileSync } from 'node:fs'
import { beforeEach, describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'

/**
 * What a dispatcher has read is valid only in the server epoch in which it read it. After a crash transaction ids are assigned again; after
 * an asynchronous failover the same fence, version and number can name another cursor and another event. So every function that changes
 * delivery state on behalf of a caller compares the history in which the caller read.
 */

const bench = await testBench()

const OWNER = `'default', 0::smallint, 1`
/** What is sent by its own id: see the events below. */
const SENT = `[{ "topic": "t", "key": "a", "sent_up_to": 1, "sent": ["00000000-0000-4000-8000-000000000001"] }]`
const REFUSED = `[{ "topic": "t", "key": "a", "sent_up_to": 0, "sent": [], "id": "00000000-0000-4000-8000-000000000001", "seq": 1,
  "reason": "no", "attempts": 0, "delay_ms": 0, "state": "parked", "give_up": "dead", "was_tombstone": false }]`

interface Call {
  readonly does: string
  readonly name: string
  readonly text: (history: string) => string
  /** The answer for a caller that read in another epoch. */
  readonly refusal: unknown
}

const CALLS: readonly Call[] = [
  {
    does: 'takes a shard',
    name: 'outbox_take',
    text: (history) => `SELECT lockstep.outbox_take('default', 0::smallint, 2, ${history}, 1) AS answer`,
    refusal: [{ answer: 'lost' }],
  },
  {
    does: 'takes a shard as a process with a list of topics',
    name: 'outbox_take_shard',
    text: (history) => `SELECT lockstep.outbox_take_shard('default', 0::smallint, 2, ${history}, 1, NULL) AS answer`,
    refusal: [{ answer: 'lost' }],
  },
  {
    does: 'moves cursors',
    name: 'outbox_move',
    text: (history) => `SELECT lockstep.outbox_move('default', '{0}', '{1}', '{1}', ARRAY[${history}]::text[],
      ARRAY['5:5:']::pg_snapshot[], ARRAY['5:5:']::pg_snapshot[], '{0}', '{true}', '{0}') AS answer`,
    refusal: [{ answer: 0 }],
  },
  {
    does: 'moves a cursor and puts events aside',
    name: 'outbox_advance',
    text: (history) => `SELECT lockstep.outbox_advance(${OWNER}, 1, ${history}, '5:5:', '5:5:', 0, true, 0,
      '[{ "topic": "t", "key": "c", "seqs": [1] }]') AS answer`,
    refusal: [{ answer: false }],
  },
  {
    does: 'reads what is due for another try',
    name: 'outbox_parked_due',
    text: (history) => `SELECT seq::int AS answer FROM lockstep.outbox_parked_due(${OWNER}, ${history}, 10, 10)`,
    refusal: [],
  },
  {
    does: 'deletes parked events that were sent',
    name: 'outbox_parked_tried',
    text: (history) => `SELECT lockstep.outbox_parked_tried(${OWNER}, ${history}, '${SENT}') AS answer`,
    refusal: [{ answer: false }],
  },
  {
    does: 'gives a parked event up',
    name: 'outbox_parked_tried',
    text: (history) => `SELECT lockstep.outbox_parked_tried(${OWNER}, ${history}, '${REFUSED}') AS answer`,
    refusal: [{ answer: false }],
  },
  {
    does: 'takes streams out of those that wait',
    name: 'outbox_unpark',
    text: (history) => `SELECT lockstep.outbox_unpark(${OWNER}, ${history}, '{t}', '{empty}') AS answer`,
    refusal: [{ answer: 0 }],
  },
]

/** These only read. A caller that acts on what they say calls one of the others. */
const READERS = ['outbox_owns', 'outbox_read']

/** The table of the decision: what is compared, and the functions that compare it. */
const DECISION = readFileSync(new URL('../../docs/decisions/0036-history-and-fences.md', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('|'))
const functionsIn = (lines: readonly string[]): string[] =>
  [
    ...new Set(lines.flatMap((line) => [...line.matchAll(/`(outbox_\w+)`/g)].map(([, name]) => name as string))),
  ].toSorted()

/** As after a crash or a promotion, which empty this table. */
const NEW_EPOCH = 'TRUNCATE lockstep.incarnation; SELECT FROM lockstep.ensure_incarnation()'
const STATE = ['cursors', 'dispatchers', 'parked', 'parked_events', 'dead', 'audit']
  .map((name) => `'${name}', (SELECT json_agg(t ORDER BY t::text) FROM lockstep.outbox_${name} t)`)
  .join()

async function state(): Promise<unknown> {
  return (await bench.admin.query(`SELECT json_build_object(${STATE}) AS state`)).rows[0]
}

async function historyNow(): Promise<string> {
  const { rows } = await bench.admin.query<{ value: string }>('SELECT value::text FROM lockstep.ensure_incarnation()')
  return `'${rows[0]?.value}'`
}

async function answer(text: string): Promise<unknown[]> {
  return (await bench.admin.query(text)).rows
}

beforeEach(async () => {
  await bench.admin.query(`
    TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors, lockstep.outbox_parked,
             lockstep.outbox_parked_events, lockstep.outbox_dead, lockstep.outbox_audit;
    SELECT lockstep.enqueue('t', 'c', '{}');
    INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 1, system::text, database::text, 1 FROM lockstep.ensure_incarnation();
    INSERT INTO lockstep.outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    VALUES ('default', 0, 1, 1, '1:1:', '1:1:', 0, true, 0);
    INSERT INTO lockstep.outbox_parked (dispatcher, stream, shard, topic, key, state)
    SELECT 'default', lockstep.outbox_stream('t', key), 0, 't', key, 'parked' FROM unnest('{a,empty}'::text[]) AS key;
    INSERT INTO lockstep.outbox_parked_events (dispatcher, stream, seq, id, uuid, enqueued_at, topic, key, payload)
    SELECT 'default', lockstep.outbox_stream('t', 'a'), n, n, ('00000000-0000-4000-8000-00000000000' || n)::uuid,
           clock_timestamp(), 't', 'a', '{}'
      FROM generate_series(1, 3) AS n`)
})

describe('a caller that read in another server epoch', () => {
  test.each(CALLS)('is refused by $name, which changes nothing: $does', async ({ text, refusal }) => {
    const read = await historyNow()
    await bench.admin.query(NEW_EPOCH)
    const before = await state()
    expect(await answer(text(read))).toEqual(refusal)
    expect(await state()).toEqual(before)
  })

  test.each(CALLS)('in this epoch is accepted by $name: $does', async ({ name, text, refusal }) => {
    await bench.admin.query(NEW_EPOCH)
    const before = await state()
    expect(await answer(text(await historyNow()))).not.toEqual(refusal)
    if (name !== 'outbox_parked_due') expect(await state()).not.toEqual(before)
  })

  const functionsThat = async (condition: string): Promise<string[]> =>
    (
      await answer(`
      SELECT DISTINCT proname::text COLLATE "C" AS name FROM pg_proc
       WHERE pronamespace = 'lockstep'::regnamespace AND proname LIKE 'outbox%' AND ${condition} ORDER BY 1`)
    ).map((row) => (row as { name: string }).name)
  const takesFence = `proargnames && '{my_fence,my_fences}'`

  test('covers every function that takes a fence', async () => {
    expect(await functionsThat(takesFence)).toEqual(
      [...new Set([...CALLS.map(({ name }) => name), ...READERS])].toSorted(),
    )
  })

  describe('in the decision record', () => {
    test('has every function that takes a fence in a row that compares the history', async () => {
      const compared = DECISION.filter((line) => line.startsWith('| history'))
      const withoutFence = ['outbox_flush']
      expect(functionsIn(compared).filter((name) => !withoutFence.includes(name))).toEqual(
        await functionsThat(takesFence),
      )
    })

    test('has every function that changes delivery state, and no function that does not exist', async () => {
      const table = `outbox_(cursors|dispatchers|parked|parked_events|dead)`
      const changes = `prosrc ~ '(INSERT INTO|UPDATE|DELETE FROM) "?lockstep"?\\.${table}\\M'`
      const listed = functionsIn(DECISION)
      const changing = await functionsThat(changes)
      expect(changing).toContain('outbox_move')
      expect(changing.filter((name) => !listed.includes(name))).toEqual([])
      const all = await functionsThat('true')
      expect(listed.filter((name) => !all.includes(name))).toEqual([])
    })
  })
})

test('skips only the event with the id that the operator has seen', async () => {
  const skip = (id: number): Promise<unknown[]> =>
    answer(`SELECT lockstep.outbox_operate('skip', 'default', 't', 'a', 1, 'poison',
      '00000000-0000-4000-8000-00000000000${id}') AS answer`)
  const before = await state()
  expect(await skip(9)).toEqual([{ answer: 'not at the head' }])
  expect(await state()).toEqual(before)
  expect(await skip(1)).toEqual([{ answer: 'done' }])
})

test('keeps a parked event with the number of a sent one and another id', async () => {
  const other = SENT.replace('000000000001', '000000000009')
  expect(
    await answer(`SELECT lockstep.outbox_parked_tried(${OWNER}, ${await historyNow()}, '${other}') AS answer`),
  ).toEqual([{ answer: true }])
  expect(await answer('SELECT seq::int FROM lockstep.outbox_parked_events ORDER BY seq')).toEqual(
    [1, 2, 3].map((seq) => ({ seq })),
  )
})

/** As a dump has it that was made without event data, on a server that had given out many more transaction ids. */
test('forgets the transactions of another server in an outbox without events', async () => {
  await bench.admin.query(`
    TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers;
    UPDATE lockstep.outbox_home SET system = '1';
    INSERT INTO lockstep.outbox_ticks (newest, running, id, snapshot) VALUES ('900000000', 0, 1, '900000000:900000000:');
    INSERT INTO lockstep.outbox_segments (slot, number, opened_at, left_at, sealed_xid)
    VALUES (7, 0, clock_timestamp(), clock_timestamp(), '900000000')`)
  const { rows } = await bench.admin.query(
    `SELECT r.shards, r.system = i.system::text AS here
       FROM lockstep.ensure_incarnation() i,
            lockstep.outbox_register('default', 1::smallint, i.system::text, i.database::text, 1, false, NULL) r`,
  )
  expect(rows).toEqual([{ shards: 1, here: true }])
  const foreign = `
    SELECT 'tick' FROM lockstep.outbox_ticks WHERE newest >= '900000000'
    UNION ALL SELECT 'seal' FROM lockstep.outbox_segments WHERE sealed_xid >= '900000000'
    UNION ALL SELECT 'cursor' FROM lockstep.outbox_cursors`
  expect(await answer(foreign)).toEqual([])
  await bench.admin.query('DELETE FROM lockstep.outbox_segments WHERE slot = 7')
})
