import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'

/**
 * A transaction that has an id and stays open must not make reading more expensive: neither what was delivered since it began nor the
 * segments that were left since then are read again. Counted in pages, which do not depend on how busy the machine is.
 */

// A busy machine takes its time.
const bench = await testBench()
const ROUNDS = 12
const EVENTS = 1500
const FEW = 3

/** Reads as a dispatcher with one shard does, in one session, whose plans are made while the slot is empty. */
class ReadingSession {
  readonly #client = new pg.Client({ connectionString: bench.url })
  readonly #name: string
  delivered = 0

  constructor(name: string) {
    this.#name = name
  }

  async open(): Promise<void> {
    await this.#client.connect()
    await this.#client.query(
      `SELECT lockstep.ensure_incarnation();
       SELECT lockstep.outbox_register('${this.#name}', 1::smallint, i.system::text, i.database::text, ('x' || i.timeline)::bit(32)::bigint, false, NULL)
         FROM lockstep.incarnation i;
       SELECT lockstep.outbox_take('${this.#name}', 0::smallint, 1, (SELECT value::text FROM lockstep.incarnation), 1)`,
    )
  }

  /** Reads until there is nothing left, and moves the cursor. The answer is how many pages the most expensive read touched. */
  async drain(): Promise<number> {
    let pages = 0
    const read = `lockstep.outbox_read('${this.#name}', '{0}', '{1}', '{1000}', 1)`
    for (;;) {
      const { rows: plans } = await this.#client.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM ${read}`,
      )
      const plan = plans[0]?.['QUERY PLAN'][0].Plan ?? {}
      pages = Math.max(pages, (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0))
      const { rows } = await this.#client.query<Record<string, string | null>>(`SELECT * FROM ${read}`)
      const [row] = rows as [Record<string, string | null>]
      if (row['ids'] === null) return pages
      // Numbers of 8 bytes, in hex.
      const ids = Buffer.from(String(row['ids']), 'hex')
      this.delivered += ids.length / 8
      await this.#client.query(
        `SELECT lockstep.outbox_move($1, '{0}', '{1}', ARRAY[$2::bigint], ARRAY[$3], ARRAY[$4::pg_snapshot], ARRAY[$5::pg_snapshot],
                                     ARRAY[$6::bigint], ARRAY[$7::boolean], ARRAY[$8::bigint])`,
        [
          this.#name,
          row['version'],
          row['life'],
          row['prev'],
          row['next'],
          ids.readBigInt64BE(ids.length - 8),
          row['whole'] !== null,
          row['last_id'],
        ],
      )
    }
  }

  end(): Promise<void> {
    return this.#client.end()
  }
}

/** So many transactions of a few events each. */
async function write(events: number): Promise<void> {
  await bench.admin.query(`
    DO $$ BEGIN FOR n IN 1 .. ${events / 3} LOOP
      PERFORM lockstep.enqueue('held', 'k' || n * 3 + m, '{}') FROM generate_series(1, 3) AS m; COMMIT; END LOOP; END $$`)
}

async function nextSegment(): Promise<void> {
  await bench.admin.query(`SELECT lockstep.outbox_prepare_segment('0')`)
  await bench.admin.query('SELECT lockstep.outbox_rotate()')
  await bench.admin.query('SELECT lockstep.outbox_seal()')
}

/**
 * The first round also plans. Autovacuum and a new plan make a round more expensive, and do so more often on a busy machine: up to 1.4 times
 * was seen. Reading everything again, or every segment, costs several times as much.
 */
function expectSame(pages: readonly number[]): void {
  const [early, late] = [Math.max(...pages.slice(1, 4)), Math.min(...pages.slice(-3))]
  expect(late, pages.join()).toBeLessThanOrEqual(early * 2)
}

const holder = new pg.Client({ connectionString: bench.url })
beforeAll(() => holder.connect())
afterAll(() => holder.end())

describe('while a transaction with an id stays open', () => {
  test.each([
    ['in one segment', 'one', false],
    ['over several segments', 'several', true],
  ])('reads at the same cost, %s', async (_, name, segments) => {
    await bench.admin.query('TRUNCATE lockstep.outbox_events')
    const session = new ReadingSession(name)
    await session.open()
    try {
      await holder.query('BEGIN')
      await holder.query(`SELECT lockstep.enqueue('held', 'late', '1')`)
      await session.drain()
      const many: number[] = []
      const few: number[] = []
      for (let round = 0; round < ROUNDS; round++) {
        await write(EVENTS)
        many.push(await session.drain())
        await write(FEW)
        few.push(await session.drain())
        if (segments && round % 3 === 2) await nextSegment()
      }
      expectSame(many)
      // A read of a few events touches a page or two of each bucket, and an index that still grows has fewer pages than that. Segments
      // begin with an empty one.
      if (segments) expectSame(few)
      expect(session.delivered).toBe(ROUNDS * (EVENTS + FEW))
      await holder.query('COMMIT')
      await session.drain()
      expect(session.delivered).toBe(ROUNDS * (EVENTS + FEW) + 1)
    } finally {
      await holder.query('ROLLBACK')
      await session.end()
      await bench.admin.query(`SELECT lockstep.outbox_remove('${name}', 'the test is over')`)
    }
  })
})
