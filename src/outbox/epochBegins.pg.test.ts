import { beforeEach, describe, expect, test } from 'vitest'
import { testBench } from '../../tools/server/testing/workbench.ts'

/** The first moments after a promotion: no call has begun the server epoch yet, and many calls arrive at once. */

const bench = await testBench()

/** As a promoted standby has it: rows and sequences of another timeline, and no server epoch. */
const PROMOTED = `
  UPDATE lockstep.epoch SET timeline = 32767, mark = 1, synchronous_failover = true;
  SELECT setval('lockstep.epoch_mark', 1);
  TRUNCATE lockstep.incarnation`

beforeEach(() =>
  bench.admin.query(`
    TRUNCATE lockstep.outbox_events, lockstep.leases, lockstep.epochs;
    SELECT lockstep.enqueue('t', 'old', '{}');
    SELECT FROM lockstep.ensure_incarnation();
    ${PROMOTED}`),
)

/** The keys of events, and whether each belongs to the last generation. */
async function generations(): Promise<Record<string, boolean>> {
  await bench.admin.query('SELECT FROM lockstep.ensure_incarnation()')
  const { rows } = await bench.admin.query<{ key: string; is_new: boolean }>(`
    SELECT e.key, e.id > (SELECT after_id FROM lockstep.epochs ORDER BY number DESC LIMIT 1) AS is_new
      FROM lockstep.outbox_events e`)
  return Object.fromEntries(rows.map(({ key, is_new }) => [key, is_new]))
}

describe('the first transaction that enqueues in a new server epoch', () => {
  test('does not keep other sessions from enqueuing, from taking a lease, or from their own locks', async () => {
    const first = await bench.session()
    const second = await bench.session()
    await second.query('BEGIN; SELECT pg_advisory_xact_lock(7)')
    await first.query(`BEGIN; SELECT lockstep.enqueue('t', 'first', '{}')`)
    const waiting = first.query('SELECT pg_advisory_xact_lock(7)')
    await bench.lockWaits(1)
    await second.query(`SELECT lockstep.enqueue('t', 'second', '{}')`)
    await second.query('COMMIT')
    await waiting
    const lease = await bench.open('pg').lockstep.leases.acquire('Job:a')
    await lease.release()
    await first.query('COMMIT')
    expect(await generations()).toEqual({ old: false, first: true, second: true })
  })

  test('can roll back: events that others enqueue meanwhile belong to the new generation', async () => {
    const first = await bench.session()
    await first.query(`BEGIN; SELECT lockstep.enqueue('t', 'first', '{}')`)
    await bench.admin.query(`SELECT lockstep.enqueue('t', 'second', '{}')`)
    await first.query('ROLLBACK')
    await bench.admin.query(`SELECT lockstep.outbox_append_many('{t}', '{third}', '{1}', '{NULL}', '{NULL}')`)
    expect(await generations()).toEqual({ old: false, second: true, third: true })
  })
})

/** By the clock of this server the lease has ended. This server cannot have granted it since. */
test('the transaction of a holder keeps no other session from beginning the server epoch', async () => {
  const { lockstep } = bench.open('pg')
  const held = await lockstep.leases.acquire('Job:held')
  await bench.admin.query(
    `UPDATE lockstep.leases SET expires_at = now() - interval '5 seconds' WHERE name = 'Job:held'`,
  )
  await bench.admin.query(PROMOTED)
  const holder = await bench.session()
  await holder.query('BEGIN')
  const { rows } = await holder.query<{ held: boolean }>(`
    SELECT lockstep.lease_guard(l.name, l.token, l.fence, 60000) AS held FROM lockstep.leases l WHERE l.name = 'Job:held'`)
  expect(rows).toEqual([{ held: true }])
  await (await lockstep.leases.acquire('Job:other')).release()
  expect(await lockstep.leases.tryAcquire('Job:held')).toBe(undefined)
  await holder.query('COMMIT')
  await held.release()
})

test.each(['1 hour', '-1 hour'])('holds a lease for its ttl where the old clock differed by %s', async (offset) => {
  const { lockstep } = bench.open('pg')
  const held = await lockstep.leases.acquire('Job:held', { ttlMs: 20_000 })
  await bench.admin.query(`UPDATE lockstep.leases SET expires_at = expires_at + $1::interval WHERE name = 'Job:held'`, [
    offset,
  ])
  await bench.admin.query(PROMOTED)
  expect(await lockstep.leases.tryAcquire('Job:held')).toBe(undefined)
  const { rows } = await bench.admin.query<{ left: number }>(
    `SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 AS left FROM lockstep.leases WHERE name = 'Job:held'`,
  )
  expect(rows[0]?.left).toBeLessThanOrEqual(20)
  expect(await held.transaction({}, async () => 'committed')).toBe('committed')
  await held.release()
})

test('promotions of the original do not reach the generation of a restored dump', async () => {
  // As it was dumped: of another server, on its third timeline.
  await bench.admin.query(`
    UPDATE lockstep.epoch SET system = 1, timeline = 3, timeline_offset = 0;
    TRUNCATE lockstep.incarnation`)
  const { rows } = await bench.admin.query<{ epoch: string }>('SELECT epoch FROM lockstep.ensure_incarnation()')
  expect(Number(rows[0]?.epoch)).toBeGreaterThan(1000)
})

test('a lease that an operator takes away while the server epoch begins causes no deadlock', async () => {
  await bench.admin.query(`
    INSERT INTO lockstep.leases (name, slot, permits, fence, token, holder, acquired_at, expires_at, remembered, ttl_ms)
    SELECT name, 0, 1, 1, gen_random_uuid(), 'h', now(), now() + interval '1 minute', false, 60000 FROM unnest('{Job:a,Job:b}'::text[]) AS name`)
  const holder = await bench.session()
  // The row that the epoch comes to last: it has Job:a by then.
  await holder.query(`BEGIN; SELECT FROM lockstep.leases WHERE name = 'Job:b' FOR UPDATE`)
  const forced = bench.admin.query(`SELECT lockstep.lease_force_release('Job:b', 'me', 'a test')`)
  await bench.lockWaits(1)
  const begun = bench.admin.query('SELECT FROM lockstep.ensure_incarnation()')
  await bench.lockWaits(2)
  await holder.query('COMMIT')
  const ends = await Promise.allSettled([forced, begun])
  expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled'])
})
