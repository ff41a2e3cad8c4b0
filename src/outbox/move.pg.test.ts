import { beforeEach, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { moveAndFetch } from './outbox.sql.ts'

/** Cursors are moved all in one message: each of them by its own right. */

const bench = await testBench()
let life = ''

interface Cursor {
  readonly shard: number
  readonly fence: number
  readonly version: number
}

/** Cursors as they are in the table, of a dispatcher of three shards. */
async function there(...cursors: Cursor[]): Promise<void> {
  for (const { shard, fence, version } of cursors) {
    await bench.admin.query(
      `INSERT INTO lockstep.outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
       VALUES ('default', $1, $2, $3, '1:1:', '1:1:', 0, true, 0)`,
      [shard, version, fence],
    )
  }
}

beforeEach(async () => {
  await bench.admin.query('TRUNCATE lockstep.outbox_cursors, lockstep.outbox_dispatchers')
  const { rows } = await bench.admin.query<{ life: string }>(`
    WITH here AS (SELECT * FROM lockstep.ensure_incarnation()),
         made AS (INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
                  SELECT 'default', 4, system::text, database::text, 1 FROM here)
    SELECT value::text AS life FROM here`)
  life = rows[0]?.life ?? ''
})

/** Moves cursors as given, and returns the cursors that exist afterwards, as `shard:version`. */
async function move(given: readonly (Cursor & { readonly life?: string })[]): Promise<string[]> {
  const questions = given.map(({ shard, fence, version, life: read = life }) => ({
    shard,
    fence: BigInt(fence),
    history: life,
    unpark: [],
    most: 10,
    advance: {
      version: String(version),
      life: read,
      prev: '1:1:',
      next: '5:5:',
      afterId: 0,
      done: true,
      seenId: '0',
      waiting: undefined,
    },
  }))
  await bench.admin.query(moveAndFetch('lockstep', 'default', questions, 4))
  const { rows } = await bench.admin.query<{ at: string }>(
    `SELECT shard || ':' || version AS at FROM lockstep.outbox_cursors ORDER BY shard, version`,
  )
  return rows.map(({ at }) => at)
}

test('moves only cursors with the right fence, version and server epoch', async () => {
  await there(
    { shard: 0, fence: 7, version: 3 },
    { shard: 1, fence: 8, version: 3 },
    { shard: 2, fence: 7, version: 4 },
    { shard: 3, fence: 7, version: 3 },
  )
  const given = [0, 1, 2].map((shard) => ({ shard, fence: 7, version: 3 }))
  const elsewhen = { shard: 3, fence: 7, version: 3, life: 'another' }
  expect(await move([...given, elsewhen])).toEqual(['0:3', '0:4', '1:3', '2:4', '3:3'])
})

test('removes old versions at every hundredth move', async () => {
  await there({ shard: 0, fence: 1, version: 98 }, { shard: 0, fence: 1, version: 100 })
  expect(await move([{ shard: 0, fence: 1, version: 100 }])).toEqual(['0:100', '0:101'])
})

/**
 * A cursor is not flushed before the events behind it are sent. After a crash the last one may be missing, and its owner comes with a
 * number that the table never had: were older ones taken away nevertheless, none would be left, and everything would go out again.
 */
test('removes no version that a crashed cursor still needs', async () => {
  await there({ shard: 0, fence: 1, version: 198 }, { shard: 0, fence: 1, version: 199 })
  expect(await move([{ shard: 0, fence: 1, version: 200, life: 'before the crash' }])).toEqual(['0:198', '0:199'])
  expect(await move([{ shard: 0, fence: 1, version: 300 }])).toEqual(['0:198', '0:199'])
})
