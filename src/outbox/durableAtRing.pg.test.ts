import { once } from 'node:events'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { Lockstep } from '../index.ts'

/**
 * A read that a ring has woken need not flush the commit of the ring itself, and needs to flush every other one. The WAL writer is stopped: what
 * is committed without waiting for the disk stays in memory until another session flushes.
 */

let server: PostgresServer
let client: pg.Client
let listener: pg.Client
let walWriter = 0

beforeAll(async () => {
  // Otherwise the server writes its list of running transactions now and then, which no ring names.
  server = await startPostgres({ settings: { wal_level: 'minimal', max_wal_senders: '0' } })
  client = new pg.Client({ connectionString: server.url() })
  listener = new pg.Client({ connectionString: server.url() })
  await Promise.all([client.connect(), listener.connect()])
  const pool = new pg.Pool({ connectionString: server.url(), max: 1 })
  await new Lockstep(pool).migrate()
  await pool.end()
  await client.query(
    `SELECT lockstep.ensure_incarnation();
     SELECT lockstep.outbox_register('ring', 1::smallint, i.system::text, i.database::text, ('x' || i.timeline)::bit(32)::bigint, false, NULL)
       FROM lockstep.incarnation i;
     SELECT lockstep.outbox_take('ring', 0::smallint, 1, (SELECT value::text FROM lockstep.incarnation), 1);
     SELECT lockstep.outbox_listen(gen_random_uuid(), 600000);
     -- The first ones write more than a commit: pages and settings that are touched for the first time.
     SELECT lockstep.enqueue('t', 'k', '{}')`,
  )
  const { rows } = await client.query<{ channel: string }>(
    `SELECT 'lockstep_' || lockstep.lock_id('listen', 'Leases:all') AS channel`,
  )
  await listener.query(`LISTEN ${rows[0]?.channel}`)
  await ring()
  await verdict('')
  const { rows: writers } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`,
  )
  walWriter = writers[0]?.pid ?? 0
  process.kill(walWriter, 'SIGSTOP')
})
afterAll(async () => {
  process.kill(walWriter, 'SIGCONT')
  await Promise.all([client.end(), listener.end()])
  await server.stop('immediate')
})

const HINT = '0000000000020000 39dfe942-5db7-44cf-9bfd-78e215905a88'
const RING = `SELECT lockstep.outbox_ring('${HINT}')`
const ENQUEUE = `SELECT lockstep.enqueue('t', 'k', '{}')`
const ASYNC = 'SET LOCAL synchronous_commit = off'

/** Runs it, and gives the place in the log that the ring names. */
async function ring(text = RING): Promise<string | undefined> {
  const heard = once(listener, 'notification')
  await client.query(text)
  const [{ payload = '' }] = (await heard) as [{ payload?: string }]
  return payload.split(' ')[3]
}

/** What a read says that was woken there. */
async function verdict(rungAt = ''): Promise<string | undefined> {
  await client.query('BEGIN READ ONLY')
  await client.query(`SET LOCAL lockstep.outbox_rung_at = '${rungAt}'`)
  const { rows } = await client.query<{ verdict: string; ids: string | null }>(
    `SELECT * FROM lockstep.outbox_read('ring', '{0}', '{1}', '{1000}', 1)`,
  )
  await client.query('COMMIT')
  expect(rows[0]?.ids).not.toBeNull()
  return rows[0]?.verdict
}

/** Whether what was flushed last ends with a page of the log. The next place is then behind the header of the next page, which is not on disk yet. */
async function endsWithPage(): Promise<boolean> {
  const { rows } = await client.query<{ ends: boolean }>(
    'SELECT pg_current_wal_insert_lsn() <> pg_current_wal_flush_lsn() AS ends',
  )
  return rows[0]?.ends === true
}

const durable = `BEGIN; SET LOCAL synchronous_commit = on; ${ENQUEUE}; COMMIT`

test('finds an event durable whose commit was flushed before the ring', async () => {
  do await client.query(durable)
  while (await endsWithPage())
  const rungAt = await ring()
  expect(rungAt).toMatch(/^[0-9A-F]+\/[0-9A-F]+$/)
  // The commit of the ring is not on disk.
  expect(await verdict()).toBe('visible')
  expect(await verdict(rungAt)).toBe('durable')
})

test('finds an event not durable whose commit was not flushed before the ring', async () => {
  await client.query(durable)
  await client.query(`BEGIN; ${ASYNC}; ${ENQUEUE}; COMMIT`)
  expect(await verdict(await ring())).toBe('visible')
})

test('finds an event not durable that was committed after the ring', async () => {
  await client.query(durable)
  const rungAt = await ring()
  await client.query(`BEGIN; ${ASYNC}; ${ENQUEUE}; COMMIT`)
  expect(await verdict(rungAt)).toBe('visible')
})

test('finds an event not durable that was written before the ring and committed after it', async () => {
  const writer = new pg.Client({ connectionString: server.url() })
  await writer.connect()
  try {
    await writer.query(`BEGIN; ${ASYNC}; ${ENQUEUE}`)
    await client.query(`BEGIN; SET LOCAL synchronous_commit = on; SELECT lockstep.enqueue('t', 'other', '{}'); COMMIT`)
    const rungAt = await ring()
    await writer.query('COMMIT')
    expect(await verdict(rungAt)).toBe('visible')
  } finally {
    await writer.end()
  }
})

test('names no place if the ring is in the transaction of the event', async () => {
  expect(await ring(`BEGIN; ${ASYNC}; ${ENQUEUE}; ${RING}; COMMIT`)).toBeUndefined()
})

test('finds an event not durable that follows the ring in its transaction', async () => {
  await client.query(durable)
  const rungAt = await ring(`BEGIN; ${ASYNC}; ${RING}; ${ENQUEUE}; COMMIT`)
  expect(rungAt).toBeDefined()
  expect(await verdict(rungAt)).toBe('visible')
})

test('flushes in the same message what a read found not durable, and nothing otherwise', async () => {
  const flushed = async (): Promise<unknown> =>
    (await client.query<{ flushed: string | null }>('SELECT flushed FROM lockstep.outbox_flush_read()')).rows[0]
      ?.flushed
  const { rows } = await client.query<{ value: string }>('SELECT value::text FROM lockstep.incarnation')
  do {
    await client.query(`BEGIN; ${ASYNC}; ${ENQUEUE}; COMMIT`)
    expect(await verdict()).toBe('visible')
    expect(await flushed()).toBe(rows[0]?.value)
  } while (await endsWithPage())
  expect(await verdict()).toBe('durable')
  expect(await flushed()).toBeNull()
})
