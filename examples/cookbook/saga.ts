/**
 * Saga through outbox and inbox: an order is paid, or cancelled with its stock released.
 *
 * Each step is one transaction that writes its data and the event for the next step. The sink delivers every event twice, as a broker does
 * after a crash. The inbox recognizes the second delivery. The control handles each delivery in a plain transaction.
 */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { key, Lockstep, type OutboxEvent, perEvent, type Transaction } from 'pg-lockstep'

interface Events {
  readonly orders: { readonly price: number }
  readonly payments: { readonly outcome: 'paid' | 'refused' }
}

type Tx = Transaction<pg.PoolClient, Events>

export interface SagaResult {
  readonly orders: Readonly<Record<string, string>>
  readonly stock: number
  readonly charges: number
}

export async function run(pool: pg.Pool, locked: boolean): Promise<SagaResult> {
  const topics = { orders: 'orders', payments: 'payments' } as const
  const lockstep = new Lockstep<Events, pg.Pool>(pool)
  await pool.query(`
    DROP TABLE IF EXISTS saga_orders, saga_stock, saga_charges;
    CREATE TABLE saga_orders (id text PRIMARY KEY, state text NOT NULL);
    CREATE TABLE saga_stock (change integer NOT NULL);
    CREATE TABLE saga_charges (order_id text NOT NULL, amount integer NOT NULL);
    INSERT INTO saga_stock VALUES (10)`)

  /** Step 1: reserve stock, and ask for the payment. */
  async function placeOrder(id: string, price: number): Promise<void> {
    await lockstep.transaction({ lock: key`Order:${id}` }, async (tx) => {
      await tx.query(`INSERT INTO saga_orders VALUES ($1, 'placed')`, [id])
      await tx.query('INSERT INTO saga_stock VALUES (-1)')
      await tx.enqueue({ topic: topics.orders, key: id, payload: { price } })
    })
  }

  /** Step 2, in the payment service: charge, and report the outcome. */
  async function charge(tx: Tx, id: string, price: number): Promise<void> {
    const outcome = price <= 100 ? 'paid' : 'refused'
    if (outcome === 'paid') await tx.query('INSERT INTO saga_charges VALUES ($1, $2)', [id, price])
    await tx.enqueue({ topic: topics.payments, key: id, payload: { outcome } })
  }

  /** Step 3: complete the order, or compensate. */
  async function settle(tx: Tx, id: string, outcome: 'paid' | 'refused'): Promise<void> {
    await tx.query('UPDATE saga_orders SET state = $2 WHERE id = $1', [id, outcome === 'paid' ? 'paid' : 'cancelled'])
    if (outcome === 'refused') await tx.query('INSERT INTO saga_stock VALUES (1)')
  }

  const consumer = lockstep.inbox.consumer('saga')
  async function handle(event: OutboxEvent): Promise<void> {
    const step = (tx: Tx): Promise<void> =>
      event.topic === topics.orders
        ? charge(tx, event.key, (event.payload as Events['orders']).price)
        : settle(tx, event.key, (event.payload as Events['payments']).outcome)
    if (locked) await consumer.handle(event, {}, step)
    else await lockstep.transaction({}, step)
  }

  const ids: readonly [string, string] = [`small-${randomUUID()}`, `large-${randomUUID()}`]
  // Two orders and two payments. The control charges twice, and so reports each payment twice.
  const expected = locked ? 4 : 6
  const seen = new Set<string>()
  const stop = new AbortController()
  const dispatching = lockstep.outbox
    .dispatcher({
      name: 'saga',
      sink: perEvent({}, async (event) => {
        if (!ids.includes(event.key)) return // of another run
        await handle(event)
        await handle(event)
        if (seen.add(event.id).size === expected) stop.abort()
      }),
    })
    .run({ signal: stop.signal })
  await placeOrder(ids[0], 30)
  await placeOrder(ids[1], 500)
  await dispatching

  const orders = await pool.query<{ id: string; state: string }>('SELECT id, state FROM saga_orders')
  const sums = await pool.query<{ stock: number; charges: number }>(
    `SELECT (SELECT sum(change) FROM saga_stock)::integer AS stock, (SELECT count(*) FROM saga_charges)::integer AS charges`,
  )
  await lockstep.close()
  return {
    orders: Object.fromEntries(orders.rows.map(({ id, state }) => [id.slice(0, 5), state])),
    stock: sums.rows[0]?.stock ?? Number.NaN,
    charges: sums.rows[0]?.charges ?? Number.NaN,
  }
}
