import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { beforeEach, describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { lockId, type LockDomain } from '../locks/index.ts'
import type { Stream } from '../events/index.ts'
import { wantsAny } from './ringTopics.ts'
import { locksOfStreams } from './streamLocks.ts'

/**
 * What is decided both in the library and in the schema, or by several functions of the schema: each rule stands in one place in
 * TypeScript and in one place in SQL, and both give the same for many inputs.
 */

const bench = await testBench()

const NASTY = [
  'a',
  'é',
  'e\u0301',
  '𝒳',
  '\ufeff',
  "'",
  '"',
  '\\',
  '\\x00',
  '{a,b}',
  'NULL',
  ' ',
  '\r\n',
  ':',
  'x'.repeat(1000),
]
const randomText = (): string => randomBytes(1 + Math.floor(Math.random() * 20)).toString('base64url')

function manyTexts(count: number): string[] {
  return Array.from({ length: count }, (_, n) => NASTY[n] ?? randomText())
}

function manyStreams(count: number): Stream[] {
  const keys = manyTexts(count)
  return manyTexts(count).map((topic, n) => ({ topic, key: keys[(n * 7 + 3) % count] as string }))
}

test('a ring and the reads know the same topics as wanted', async () => {
  const lists = [['a'], ['a*'], ['orders.*', 'trades'], ['%'], ['_b'], ['*'], ['\\'], ['é*'], ['a.b*', "'"]]
  const topics = [
    ...manyTexts(40),
    'ab',
    'a.b',
    'a.bc',
    'orders',
    'orders.',
    'orders.eu',
    'trades',
    'tradesX',
    '%',
    'xb',
    '_b',
    '*',
  ]
  for (const list of lists) {
    const { rows } = await bench.admin.query<{ wanted: boolean[] }>(
      `SELECT array_agg(t LIKE ANY(lockstep.outbox_topic_patterns($1)) ORDER BY n) AS wanted FROM unnest($2::text[]) WITH ORDINALITY AS u(t, n)`,
      [list, topics],
    )
    expect([list, rows[0]?.wanted]).toEqual([list, topics.map((topic) => wantsAny(list, new Set([topic])))])
  }
})

describe('lock ids', () => {
  const domains: readonly LockDomain[] = ['lock', 'migrate', 'incarnation', 'listen', 'shadow', 'outbox-group']

  test.each(['lockstep', 'we"ird %s', 'größer'])(
    'gives the same lock id for a key in the library and in the schema %j',
    async (schema) => {
      if (schema !== 'lockstep') await bench.open('pg', { schema }).lockstep.migrate()
      const quoted = `"${schema.replaceAll('"', '""')}"`
      const keys = ['', ...manyTexts(300)]
      for (const domain of domains) {
        const { rows } = await bench.admin.query<{ ids: string[] }>(
          `SELECT array_agg(${quoted}.lock_id($1, k)::text ORDER BY n) AS ids FROM unnest($2::text[]) WITH ORDINALITY AS u(k, n)`,
          [domain, keys],
        )
        expect(rows[0]?.ids).toEqual(keys.map((each) => String(lockId(schema, domain, each))))
      }
    },
  )

  test('gives the lock of a shard the id of its key', async () => {
    const { rows } = await bench.admin.query(
      `SELECT count(*)::int AS same FROM unnest($1::text[]) AS d, generate_series(0, 63) AS s
        WHERE lockstep.outbox_shard_lock(d, s::smallint) = lockstep.lock_id('outbox-shard', d || ':' || s)`,
      [manyTexts(50)],
    )
    expect(rows).toEqual([{ same: 50 * 64 }])
  })
})

describe('streams', () => {
  const LOCKS = `SELECT ((classid::bigint << 32) | objid::bigint)::text AS id, mode FROM pg_locks
                  WHERE locktype = 'advisory' AND objsubid = 1 AND pid = pg_backend_pid() ORDER BY 1`

  /** The locks that statements take, in a transaction that is rolled back. */
  async function locksTaken(client: pg.PoolClient, text: string, values: readonly unknown[]): Promise<unknown[]> {
    await client.query('BEGIN')
    try {
      await client.query(text, [...values])
      return (await client.query(LOCKS)).rows
    } finally {
      await client.query('ROLLBACK')
    }
  }

  test('takes the same locks for a stream in the library and in every function of the schema', async () => {
    const streams = manyStreams(200)
    const client = await bench.admin.connect()
    try {
      for (const [from, count] of Array.from({ length: 100 }, (_, n) => [n, 1 + (n % 5)] as const)) {
        const some = streams.slice(from, from + count)
        const lists = [some.map(({ topic }) => topic), some.map(({ key }) => key)]
        const expected = locksOfStreams('lockstep', some)
          .map(({ id, shared }) => ({ id: String(id), mode: shared ? 'ShareLock' : 'ExclusiveLock' }))
          .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        const inOrder = async (text: string): Promise<unknown[]> =>
          ((await locksTaken(client, text, lists)) as typeof expected).toSorted((a, b) => (a.id < b.id ? -1 : 1))
        const given = 'unnest($1::text[], $2::text[]) AS g(topic, key)'
        expect(await inOrder(`SELECT lockstep.enqueue(topic, key, '1') FROM ${given}`)).toEqual(expected)
        expect(await inOrder('SELECT lockstep.outbox_lock($1, $2)')).toEqual(expected)
        expect(
          await inOrder(
            `SELECT lockstep.outbox_append_many($1::text[], $2::text[], array_agg('1'::text), array_agg(NULL::bytea), array_agg(NULL::text)) FROM ${given}`,
          ),
        ).toEqual(expected)
      }
    } finally {
      client.release()
    }
  })

  test('numbers a stream without a gap, whichever function appends', async () => {
    const append = `SELECT lockstep.enqueue('mixed', 'a', '1')`
    const many = `SELECT lockstep.outbox_append_many('{mixed,mixed}', '{a,a}', '{1,2}', '{NULL,NULL}', '{NULL,NULL}')`
    for (let n = 0; n < 10; n++) {
      await bench.admin.query(append)
      await bench.admin.query(many)
      if (n % 3 === 2) {
        for (const step of [`outbox_prepare_segment('0')`, 'outbox_rotate()', 'outbox_seal()'])
          await bench.admin.query(`SELECT lockstep.${step}`)
      }
    }
    const { rows } = await bench.admin.query<{ seqs: number[] }>(
      `SELECT array_agg(seq::int ORDER BY id) AS seqs FROM lockstep.outbox_events WHERE topic = 'mixed'`,
    )
    expect(rows[0]?.seqs).toEqual(Array.from({ length: 30 }, (_, n) => n + 1))
  })

  test('stores the same bucket and group with one event and with many', async () => {
    const streams = manyStreams(2000)
    const lists = [streams.map(({ topic }) => topic), streams.map(({ key }) => key)]
    await bench.admin.query(
      `SELECT lockstep.enqueue(topic, key, '"one"') FROM unnest($1::text[], $2::text[]) AS g(topic, key)`,
      lists,
    )
    await bench.admin.query(
      `SELECT lockstep.outbox_append_many($1::text[], $2::text[], array_agg('"many"'::text), array_agg(NULL::bytea), array_agg(NULL::text))
         FROM unnest($1::text[])`,
      lists,
    )
    const { rows } = await bench.admin.query<{ differ: number; buckets: number; groups: number }>(
      `SELECT count(*) FILTER (WHERE (bucket, bucket_group) IS DISTINCT FROM (lockstep.outbox_bucket(stream), lockstep.outbox_group(bucket)))::int AS differ,
              count(DISTINCT bucket)::int AS buckets, count(DISTINCT bucket_group)::int AS groups
         FROM lockstep.outbox_events`,
    )
    expect(rows[0]).toMatchObject({ differ: 0, groups: 64 })
    // Of 1,024 buckets, 2,000 streams use 879 on average.
    expect(rows[0]?.buckets).toBeGreaterThan(700)
  })

  test.each([1, 2, 8, 64])('divides the buckets evenly among %i shards, each of whole groups', async (shards) => {
    const { rows } = await bench.admin.query(
      `SELECT count(DISTINCT shard)::int AS shards, min(buckets)::int AS fewest, max(buckets)::int AS most, max(groups)::int AS groups
         FROM (SELECT lockstep.outbox_shard(b::smallint, $1) AS shard, count(*) AS buckets,
                      count(DISTINCT lockstep.outbox_group(b::smallint)) AS groups FROM generate_series(0, 1023) AS b GROUP BY 1) AS s`,
      [shards],
    )
    expect(rows).toEqual([{ shards, fewest: 1024 / shards, most: 1024 / shards, groups: 64 / shards }])
  })

  test.each([1, 8, 64])('reads each event in the shard that its bucket belongs to, of %i', async (shards) => {
    await bench.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors')
    await bench.admin.query(`SELECT lockstep.enqueue('t', n::text, '1') FROM generate_series(1, 500) AS n`)
    await bench.admin.query(
      `INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
       SELECT 'default', ${shards}, system::text, database::text, 1 FROM lockstep.ensure_incarnation()`,
    )
    await bench.admin.query(
      `INSERT INTO lockstep.outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
       SELECT 'default', s, 1, 1, '1:1:', '1:1:', 0, true, 0 FROM generate_series(0, ${shards - 1}) AS s`,
    )
    const { rows } = await bench.admin.query<{ shard: string; key: string }>(
      `SELECT r.shard, k.key FROM lockstep.outbox_read('default', ARRAY(SELECT s::smallint FROM generate_series(0, ${shards - 1}) AS s),
                array_fill(1::bigint, ARRAY[${shards}]), array_fill(1000, ARRAY[${shards}]), ${shards}) AS r
        CROSS JOIN LATERAL json_array_elements_text(r.keys::json) AS k(key)`,
    )
    expect(rows).toHaveLength(500)
    const { rows: placed } = await bench.admin.query<{ shard: string; key: string }>(
      `SELECT lockstep.outbox_shard(bucket, ${shards}::smallint)::text AS shard, key FROM lockstep.outbox_events`,
    )
    const sorted = (given: typeof rows): string[] => given.map(({ shard, key }) => `${shard} ${key}`).toSorted()
    expect(sorted(rows)).toEqual(sorted(placed))
  })
})

describe('cursors', () => {
  interface Right {
    readonly fence: number
    readonly version: number
    readonly life: string
  }

  /** When a cursor moves: the rule that `outbox_move()` has in SQL. */
  function moves(
    cursor: Omit<Right, 'life'> | undefined,
    given: Right,
    here: { life: string; elsewhere: boolean },
  ): boolean {
    return (
      !here.elsewhere && given.life === here.life && given.version === cursor?.version && given.fence === cursor.fence
    )
  }

  let life = ''
  beforeEach(async () => {
    await bench.admin.query('TRUNCATE lockstep.outbox_dispatchers, lockstep.outbox_cursors')
    const { rows } = await bench.admin.query<{ life: string }>(
      `WITH made AS (INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
                     SELECT name, 1, system::text, CASE name WHEN 'here' THEN database::text ELSE 'another' END, 1
                       FROM lockstep.ensure_incarnation(), unnest('{here,elsewhere}'::text[]) AS name)
       SELECT value::text AS life FROM lockstep.ensure_incarnation()`,
    )
    life = rows[0]?.life ?? ''
  })

  /** What the function answers in a transaction that is rolled back, and how many new versions of the cursor there are then. */
  async function answer(
    client: pg.PoolClient,
    name: string,
    cursor: Omit<Right, 'life'> | undefined,
    call: string,
  ): Promise<{ readonly yes: boolean; readonly versions: number }> {
    await client.query('BEGIN')
    try {
      if (cursor !== undefined)
        await client.query(
          `INSERT INTO lockstep.outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
           VALUES ($1, 0, $2, 9, '1:1:', '1:1:', 0, true, 0), ($1, 0, $3, $4, '1:1:', '1:1:', 0, true, 0)`,
          [name, cursor.version - 1, cursor.version, cursor.fence],
        )
      const { rows } = await client.query<{ answer: number }>(`SELECT ${call}::int AS answer`)
      const { rows: found } = await client.query<{ count: number }>('SELECT count(*)::int FROM lockstep.outbox_cursors')
      return { yes: rows[0]?.answer === 1, versions: (found[0]?.count ?? 0) - (cursor === undefined ? 0 : 2) }
    } finally {
      await client.query('ROLLBACK')
    }
  }

  /** Whether the function moved it, and whether there is a new version. */
  async function moved(
    client: pg.PoolClient,
    name: string,
    cursor: Omit<Right, 'life'> | undefined,
    call: string,
  ): Promise<boolean> {
    const { yes, versions } = await answer(client, name, cursor, call)
    expect(versions).toBe(yes ? 1 : 0)
    return yes
  }

  test('moves a cursor exactly when fence, version and server epoch are those of the caller', async () => {
    const client = await bench.admin.connect()
    const seen = { true: 0, false: 0 }
    try {
      for (const name of ['here', 'elsewhere'])
        for (const cursor of [undefined, { fence: 7, version: 3 }])
          for (const fence of [6, 7, 8])
            for (const version of [2, 3, 4])
              for (const given of [life, 'another epoch']) {
                const expected = moves(
                  cursor,
                  { fence, version, life: given },
                  { life, elsewhere: name === 'elsewhere' },
                )
                seen[`${expected}`]++
                const right = { fence, version, given, name, cursor }
                const one = `lockstep.outbox_advance('${name}', 0::smallint, ${fence}, ${version}, '${given}', '2:2:', '5:5:', 0, true, 0, '[]')`
                const several = `lockstep.outbox_move('${name}', '{0}', '{${fence}}', '{${version}}', ARRAY['${given}'], '{2:2:}', '{5:5:}', '{0}', '{true}', '{0}')`
                expect([right, await moved(client, name, cursor, one)]).toEqual([right, expected])
                expect([right, await moved(client, name, cursor, several)]).toEqual([right, expected])
              }
    } finally {
      client.release()
    }
    expect(seen).toEqual({ true: 1, false: 71 })
  })

  test('owns a shard exactly when fence and server epoch are those of its newest cursor', async () => {
    const client = await bench.admin.connect()
    const seen = { true: 0, false: 0 }
    try {
      for (const name of ['here', 'elsewhere'])
        for (const cursor of [undefined, { fence: 7, version: 3 }])
          // 9 is the fence of the version before.
          for (const fence of [6, 7, 8, 9])
            for (const given of [life, 'another epoch']) {
              const expected = name === 'here' && cursor?.fence === fence && given === life
              seen[`${expected}`]++
              const owns = `lockstep.outbox_owns('${name}', 0::smallint, ${fence}, '${given}')`
              const right = { fence, given, name, cursor }
              expect([right, (await answer(client, name, cursor, owns)).yes]).toEqual([right, expected])
            }
    } finally {
      client.release()
    }
    expect(seen).toEqual({ true: 1, false: 31 })
  })
})
