/**
 * Inventory: two orders want the last pieces of the same two products.
 *
 * An order takes one piece of each of its products, or nothing. The stock is a sum over movements, so there is no row to lock. The order
 * locks all its products at once; Lockstep sorts the keys, so orders that name them in opposite order do not deadlock.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly lowestStock: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS movements;
    CREATE TABLE movements (product text NOT NULL, quantity integer NOT NULL);
    INSERT INTO movements VALUES ('chair', 1), ('table', 1)`)
  const meet = meeting(2, locked)

  async function order(products: readonly string[]): Promise<boolean> {
    const lock = products.map((product) => key`Stock:${product}`)
    return lockstep.transaction(locked ? { lock } : {}, async (tx) => {
      const { rows } = await tx.query<{ product: string }>(
        'SELECT product FROM movements WHERE product = ANY($1) GROUP BY product HAVING sum(quantity) >= 1',
        [products],
      )
      await meet()
      if (rows.length < products.length) return false
      await tx.query('INSERT INTO movements SELECT product, -1 FROM unnest($1::text[]) AS product', [products])
      return true
    })
  }

  await Promise.all([order(['chair', 'table']), order(['table', 'chair'])])
  const { rows } = await pool.query<{ stock: number }>(
    'SELECT min(stock)::integer AS stock FROM (SELECT sum(quantity) AS stock FROM movements GROUP BY product) AS stocks',
  )
  await lockstep.close()
  return { lowestStock: rows[0]?.stock ?? Number.NaN }
}
