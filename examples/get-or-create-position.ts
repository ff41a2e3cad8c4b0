/**
 * Two paths that open the same position.
 *
 * The idea: a signal opens a position, and a reconciler opens what it finds at the exchange and not in the table. Both look
 * first, and both find nothing. `once` lets one of them look and create while the other waits, and then shows the other what was
 * made. The unique constraint is for a path that does not take the lock: have both.
 */
import type pg from 'pg'
import { key, Lockstep, type Transaction } from 'pg-lockstep'

export interface PositionResult {
  readonly symbols: number
  /** How many positions two paths make that look and create without a lock, and without a constraint. */
  readonly withoutOnce: number
  readonly positions: number
  /** How often something was created by `once`, and by whom: `create` was run for no other. */
  readonly createdBy: readonly string[]
  /** How many callers of `once` received `created: true`. */
  readonly toldCreated: number
  /** Whether both paths got the same position, for every symbol. */
  readonly samePosition: boolean
}

interface Position {
  readonly id: number
  readonly origin: string
}

const SYMBOLS = ['ADA', 'BTC', 'DOT', 'ETH', 'SOL', 'XRP']
const PATHS = ['signal', 'reconciler']

export async function run(pool: pg.Pool): Promise<PositionResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query(`
    CREATE TABLE open_positions (
      id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL UNIQUE, origin text NOT NULL);
    CREATE TABLE careless_positions (
      id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL, origin text NOT NULL)`)

  async function find(tx: Transaction, table: string, symbol: string): Promise<Position | undefined> {
    const { rows } = await tx.query<Position>(`SELECT id, origin FROM ${table} WHERE symbol = $1`, [symbol])
    return rows[0]
  }

  async function create(tx: Transaction, table: string, symbol: string, origin: string): Promise<Position> {
    // What a real program does here: ask the exchange, compute the size.
    await tx.query('SELECT pg_sleep(0.02)')
    const { rows } = await tx.query<Position>(
      `INSERT INTO ${table} (symbol, origin) VALUES ($1, $2) RETURNING id, origin`,
      [symbol, origin],
    )
    return rows[0] as Position
  }

  // One transaction each, and still two positions: between looking and creating there is room for the other path.
  const careless = (symbol: string, origin: string): Promise<Position> =>
    lockstep.transaction({}, async (tx) => {
      const found = await find(tx, 'careless_positions', symbol)
      return found ?? create(tx, 'careless_positions', symbol, origin)
    })
  await Promise.all(SYMBOLS.flatMap((symbol) => PATHS.map((origin) => careless(symbol, origin))))

  const createdBy: string[] = []
  const results = await Promise.all(
    SYMBOLS.map((symbol) =>
      Promise.all(
        PATHS.map((origin) =>
          lockstep.once(key`Position:${symbol}`, {
            find: (tx) => find(tx, 'open_positions', symbol),
            create: (tx) => {
              createdBy.push(origin)
              return create(tx, 'open_positions', symbol, origin)
            },
          }),
        ),
      ),
    ),
  )

  const count = async (table: string): Promise<number> => {
    const { rows } = await pool.query<{ count: number }>(`SELECT count(*)::integer AS count FROM ${table}`)
    return rows[0]?.count ?? 0
  }
  const [withoutOnce, positions] = [await count('careless_positions'), await count('open_positions')]
  await lockstep.close()
  return {
    symbols: SYMBOLS.length,
    withoutOnce,
    positions,
    createdBy,
    toldCreated: results.flat().filter(({ created }) => created).length,
    samePosition: results.every((both) => new Set(both.map(({ value }) => value.id)).size === 1),
  }
}
