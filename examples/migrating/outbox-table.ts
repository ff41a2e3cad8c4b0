/**
 * From an outbox table of your own: old code continues inserting rows while new code enqueues, and one dispatcher delivers both in order.
 */
import type pg from 'pg'
import { Lockstep } from 'pg-lockstep'

const ROWS = { topic: '{aggregatetype}', key: '{aggregateid}', order: 'id', sent: 'sent_at' }

/** The numbers of the orders, in the order in which they were delivered. */
export async function run(pool: pg.Pool): Promise<number[]> {
  const lockstep = new Lockstep<{ orders: { number: number } }>(pool)
  await pool.query(`
    CREATE TABLE outbox_event (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      aggregatetype text NOT NULL, aggregateid text NOT NULL, payload jsonb NOT NULL, sent_at timestamptz)`)

  async function before(number: number): Promise<void> {
    await pool.query(
      `INSERT INTO outbox_event (aggregatetype, aggregateid, payload) VALUES ('orders', 'ann', jsonb_build_object('number', $1::integer))`,
      [number],
    )
  }

  async function after(number: number): Promise<void> {
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'orders', key: 'ann', payload: { number } }))
  }

  await before(1) // still pending when the old relay is stopped
  await lockstep.outbox.import('outbox_event', { ...ROWS, reason: 'moving' })
  await after(2) // a service that is deployed already
  await before(3) // one that is not
  await lockstep.outbox.finishImport('outbox_event', { reason: 'all services enqueue' })
  await after(4)

  const delivered: number[] = []
  const stop = new AbortController()
  await lockstep.outbox
    .dispatcher({
      async sink(events) {
        for (const { payload } of events) delivered.push((payload as { number: number }).number)
        if (delivered.length === 4) stop.abort()
      },
    })
    .run({ signal: stop.signal })
  await lockstep.close()
  return delivered
}
