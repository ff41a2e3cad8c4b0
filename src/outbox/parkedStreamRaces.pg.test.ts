import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import { type Delivery, Lockstep } from '../index.ts'

/** Parked streams that meet operators, other owners, erasure, and sinks that answer in unexpected ways. */

const bench = await outboxBench()
const HISTORY = '(SELECT value::text FROM lockstep.incarnation)'
const SHARD = `'default', 0::smallint`

const call = async (text: string): Promise<void> => void (await bench.admin.query(`SELECT lockstep.${text}`))

/** The test itself plays the dispatcher `default`, which owns its only shard with fence 1. */
async function ownShard(): Promise<void> {
  await bench.admin.query(`INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 1, system::text, database::text, 1 FROM lockstep.ensure_incarnation()`)
  await call(`outbox_take(${SHARD}, 1, ${HISTORY}, 1)`)
}

/** Reads the next window as the owner with that fence; the second function puts its first event, a#1, aside. */
async function readWindow(owner: pg.Client, fence: number): Promise<{ flags: string; putAside(): Promise<unknown> }> {
  const { rows } = await owner.query<Record<string, string>>(
    `SELECT * FROM lockstep.outbox_read('default', ARRAY[0]::smallint[], ARRAY[${fence}]::bigint[], ARRAY[500], 1)`,
  )
  const { version, life, prev, next, ids = '', flags = '' } = rows[0] ?? {}
  const advance = `SELECT lockstep.outbox_advance(${SHARD}, ${fence}, $1, $2, $3::pg_snapshot, $4::pg_snapshot, $5, true, 0, $6)`
  const waiting = JSON.stringify([{ topic: 't', key: 'a', seqs: [1] }])
  return { flags, putAside: () => owner.query(advance, [version, life, prev, next, Number(`0x${ids}`), waiting]) }
}

describe('parked streams', () => {
  /**
   * The owner's unpark finds no parked events in its snapshot, then waits for the row, which an operator has locked. Its lease expires, the
   * next owner puts a#1 aside, and the operator commits. An unpark that deletes the row by its old snapshot strands a#1.
   */
  test('keep the events that the next owner has parked, whatever a late unpark does', async () => {
    const { lockstep } = bench.open('pg')
    await ownShard()
    await call(`outbox_operate('pause', 'default', 't', 'a', NULL, NULL)`)
    await call(`outbox_operate('resume', 'default', 't', 'a', NULL, NULL)`)
    const [operator, next] = [await bench.session(), await bench.session()]
    await operator.query('BEGIN')
    // There is nothing to skip; the row is locked nevertheless, until the operator's transaction ends.
    await operator.query(`SELECT lockstep.outbox_operate('skip', 'default', 't', 'a', 1, 'x')`)
    const late = call(`outbox_unpark(${SHARD}, 1, ${HISTORY}, ARRAY['t'], ARRAY['a'])`)
    await bench.lockWaits(1, '%_unpark(%')
    // The next owner has to wait until what the last one had begun is over.
    const taking = next.query(`SELECT lockstep.outbox_take(${SHARD}, 2, ${HISTORY}, 1)`)
    await bench.lockWaits(1, '%outbox_take(%')
    await operator.query('COMMIT')
    await Promise.all([taking, late])
    await bench.enqueue('a', 1, next)
    const window = await readWindow(next, 2)
    // The unpark can have come in time; then the stream is like any other.
    if (window.flags !== ' ') await window.putAside()
    await bench.enqueue('a')
    const { names } = bench.dispatch(lockstep)
    await expect.poll(() => names).toEqual(['a#1', 'a#2'])
  })

  /** The operator sees a#1 at the head and skips it. By the time that arrives, a retry has delivered a#1: a#2 must not be given up instead. */
  test('skip only the event that the operator has seen at the head', async () => {
    const { lockstep } = bench.open('pg')
    const [second, goOn] = [signal(), signal()]
    let [refusing, trying] = [true, false]
    const { names, events } = bench.dispatch(lockstep, {
      attempts: 1_000_000,
      async sink(batch) {
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
    })
    await bench.enqueue('a', 'poison')
    await bench.enqueue('a', 'innocent')
    await expect.poll(async () => (await lockstep.outbox.parked())[0]?.events).toBe(2)
    const [seen] = await lockstep.outbox.parked()
    expect(seen?.head).toBe(1)
    refusing = false
    await second.given
    await lockstep.outbox
      .skip({ topic: 't', key: 'a', seq: seen?.head ?? 0 }, { reason: 'poison' })
      .catch(() => undefined)
    goOn.give()
    await expect.poll(() => names).toEqual(['a#1', 'a#2'])
    expect(events.map(({ tombstone }) => tombstone)).toEqual([undefined, undefined])
  })

  /**
   * outbox_parked_tried() deletes events and updates the row of their stream; outbox_operate() locks that row and updates the first event. Both
   * must lock the row first. Here both wait for it, the operator in front.
   */
  test('cause no deadlock between a skip and a retry that succeeds', async () => {
    const { lockstep } = bench.open('pg')
    const go = signal()
    let tries = 0
    const running = bench.dispatch(lockstep, {
      async sink(batch) {
        if (batch[0]?.tombstone !== undefined) return batch.map(() => 'sent' as const)
        if (tries++ === 0) return batch.map(() => ({ refused: 'not yet' }))
        if (tries === 2) await go.given
        return batch.map(() => 'sent' as const)
      },
    })
    await bench.enqueue('a')
    bench.cleanUp(() => go.give())
    await eventually(() => tries === 2)
    const other = await bench.session()
    await other.query('BEGIN; SELECT FROM lockstep.outbox_parked FOR UPDATE')
    const skipping = lockstep.outbox.skip({ topic: 't', key: 'a', seq: 1 }, { reason: 'it is bad' }).then(
      () => 'skipped',
      (error: unknown) => error,
    )
    await bench.lockWaits(1)
    go.give()
    await bench.lockWaits(2)
    await other.query('COMMIT')
    expect(await skipping).not.toMatchObject({ code: '40P01' })
    await expect.poll(async () => (await lockstep.outbox.parked()).length).toBe(0)
    expect(running.delivered).toEqual(['t/a#1'])
  })

  /** The copy was read before, and erase() cannot see it before the owner commits. */
  test('keep no payload that is erased while it is parked', async () => {
    const { lockstep } = bench.open('pg')
    const owner = await bench.session()
    await ownShard()
    await lockstep.outbox.pause({ topic: 't', key: 'a' })
    await bench.enqueue('a', 'secret')
    const window = await readWindow(owner, 1)
    expect(window.flags).toBe('w')
    await owner.query('BEGIN')
    await window.putAside()
    const erasing = lockstep.outbox.erase({ topic: 't', key: 'a' })
    await Promise.race([erasing, bench.lockWaits(1, '%outbox_erase%')])
    await owner.query('COMMIT')
    await erasing
    const kept = await bench.admin.query('SELECT FROM lockstep.outbox_parked_events WHERE payload IS NOT NULL')
    expect(kept.rowCount).toBe(0)
  })

  test('wait however the pool parses booleans', async () => {
    const types: pg.CustomTypesConfig = {
      getTypeParser: (oid: number) => (oid === 16 ? (value: string) => value : pg.types.getTypeParser(oid, 'text')),
    }
    const pool = new pg.Pool({ connectionString: bench.url, max: 4, types })
    bench.cleanUp(() => pool.end())
    const lockstep = new Lockstep(pool)
    bench.cleanUp(() => lockstep.close())
    let refusing = true
    const { names } = bench.dispatch(lockstep, {
      sink: (events) => events.map(({ key }): Delivery => (refusing && key === 'a' ? { refused: 'no' } : 'sent')),
    })
    await bench.enqueue('a')
    await expect.poll(async () => (await lockstep.outbox.parked()).length).toBe(1)
    await bench.enqueue('a')
    await bench.enqueue('b')
    await expect.poll(() => names).toContain('b#1')
    refusing = false
    await expect.poll(() => names.filter((name) => name.startsWith('a'))).toEqual(['a#1', 'a#2'])
  })

  /**
   * A sink that throws says nothing about single events. Retried alone, the poison event looks like a sink that is down: such an attempt must
   * count all the same, and must not open the breaker for the other streams.
   */
  test('give up a poison event of a sink that throws, without holding up other streams', async () => {
    const { lockstep } = bench.open('pg')
    const { names } = bench.dispatch(lockstep, {
      attempts: 2,
      giveUp: 'skip',
      sink(events) {
        if (events.some(({ payload }) => payload === 'poison')) throw new Error('cannot read that')
      },
    })
    await bench.enqueue('bad', 'poison')
    await bench.enqueue('good')
    await expect.poll(() => names).toContain('good#1')
    // Given up: a tombstone goes in its place.
    await expect.poll(() => names).toContain('bad#1')
    await bench.enqueue('good')
    await expect.poll(() => names).toContain('good#2')
  })

  /** The disk is full, the server is read-only, a privilege is missing: without a pause the sink gets the same event hundreds of times a second. */
  test('are retried with growing pauses while outcomes cannot be written', async () => {
    const { lockstep } = bench.open('pg')
    const triedAt: number[] = []
    bench.dispatch(lockstep, {
      sink(batch) {
        triedAt.push(performance.now())
        return batch.map(() => ({ refused: 'never' }))
      },
    })
    await bench.enqueue('a')
    await expect.poll(async () => (await lockstep.outbox.parked()).length).toBe(1)
    await bench.admin.query(`
      CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
      CREATE TRIGGER full_disk BEFORE UPDATE ON lockstep.outbox_parked FOR EACH ROW EXECUTE FUNCTION full_disk()`)
    bench.cleanUp(() => bench.admin.query('DROP FUNCTION full_disk CASCADE'))
    const tried = triedAt.length
    await eventually(() => triedAt.length === tried + 4)
    const [before = 0, last = 0] = triedAt.slice(-2)
    expect(last - before).toBeGreaterThan(300)
  })

  /** The reason goes into jsonb, which takes neither \u0000 nor half a surrogate pair. */
  test.each([
    ['half an emoji', 'not taken: \ud83d'],
    ['a zero byte', 'unexpected token \u0000'],
  ])('do not stop other streams with %s in the reason', async (_, reason) => {
    const { lockstep } = bench.open('pg')
    const { names } = bench.dispatch(lockstep, {
      sink: (events) => events.map(({ key }): Delivery => (key === 'bad' ? { refused: reason } : 'sent')),
    })
    await bench.enqueue('bad')
    await bench.enqueue('good')
    await expect.poll(() => names).toEqual(['good#1'])
    await bench.enqueue('good')
    await expect.poll(() => names).toEqual(['good#1', 'good#2'])
  })

  test('hold an event that the sink answers with null', async () => {
    const { lockstep } = bench.open('pg')
    // In one batch: what gets through shows that the sink is not down.
    await lockstep.transaction({}, (tx) =>
      tx.enqueueMany(['good', 'bad'].map((key) => ({ topic: 't', key, payload: {} }))),
    )
    bench.dispatch(lockstep, {
      shards: 1,
      sink: (events) => events.map(({ key }) => (key === 'bad' ? (null as never) : 'sent')),
    })
    await expect.poll(async () => (await lockstep.outbox.parked()).map(({ key }) => key)).toEqual(['bad'])
  })
})
