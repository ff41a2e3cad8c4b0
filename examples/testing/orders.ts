/** The code that the examples of tests are about: an order is paid once, and an event announces it. */
import type pg from 'pg'
import { type EventMap, key, type Lockstep } from 'pg-lockstep'

type AnyLockstep = Pick<Lockstep<EventMap, pg.Pool>, 'transaction' | 'lease'>

export async function createTables(pool: pg.Pool): Promise<void> {
  await pool.query('CREATE TABLE orders (id text PRIMARY KEY, paid boolean NOT NULL DEFAULT false)')
  await pool.query('CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY, order_id text NOT NULL)')
}

/** Pays an order. Returns false if it was paid before. */
export function pay(lockstep: AnyLockstep, id: string): Promise<boolean> {
  return lockstep.transaction({ lock: key`Order:${id}` }, async (tx) => {
    const { rows } = await tx.query<{ paid: boolean }>('SELECT paid FROM orders WHERE id = $1', [id])
    if (rows[0]?.paid !== false) return false
    await tx.query('UPDATE orders SET paid = true WHERE id = $1', [id])
    await tx.query('INSERT INTO payments (order_id) VALUES ($1)', [id])
    await tx.enqueue({ topic: 'orders', key: id, payload: { paid: true } })
    return true
  })
}

/** Ships an order at the warehouse, which takes longer than a transaction should. */
export function ship(
  lockstep: AnyLockstep,
  id: string,
  warehouse: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  return lockstep.lease(key`Shipment:${id}`, { ttlMs: 30_000 }, (lease) => warehouse(lease.signal))
}
