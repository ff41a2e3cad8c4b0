/**
 * A process of callers for `onceExternal`: opens a position for each symbol that it is sent, at an exchange that takes half
 * a second, and sends back what it got. Arguments: driver, url, name of the process, `careless` or nothing.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { BEGIN_LONG, FIND_LONG, FINISH_LONG, ORDER, TAKE_OVER_LONG } from '../once.sql.ts'

export interface ExternalAnswer {
  readonly symbol: string
  readonly id: string
  readonly created: boolean
}

const ACT_MS = 500
const TTL_MS = 1500

const [driver, url, me, careless] = process.argv.slice(2) as [string, string, string, string?]
const pool = driver === 'pg' ? new pg.Pool({ connectionString: url }) : postgres(url, { onnotice: () => undefined })
const lockstep = new Lockstep(pool as pg.Pool)
/** The way to the exchange: not the application's database connections. */
const exchange = new pg.Pool({ connectionString: url, max: 2, application_name: 'exchange' })
exchange.on('error', () => undefined)

async function open(symbol: string): Promise<ExternalAnswer> {
  const { value, created } = await lockstep.onceExternal<string, string, void>(key`Position:${symbol}`, {
    ttlMs: TTL_MS,
    waitMs: 120_000,
    find: async (tx) => {
      const [row] = (await tx.query<{ id: string; state: string }>(FIND_LONG, [symbol])).rows
      if (row === undefined) return undefined
      if (row.state === 'open') return { done: row.id }
      await tx.query(TAKE_OVER_LONG, [symbol, me])
      // The planted bug: a new id for what somebody else has begun.
      return { pending: careless === undefined ? row.id : randomUUID() }
    },
    begin: async (tx) => {
      const id = randomUUID()
      await tx.query(BEGIN_LONG, [symbol, id, me])
      return id
    },
    act: async (id) => {
      await sleep(ACT_MS / 2)
      await exchange.query(ORDER, [symbol, id])
      await sleep(ACT_MS / 2)
    },
    finish: async (tx, id) => {
      await tx.query(FINISH_LONG, [symbol])
      return id
    },
  })
  return { symbol, id: value, created }
}

process.on('message', (symbol: string) => {
  void open(symbol).then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.({ symbol, error: String(error) }),
  )
})
process.send?.('ready')
