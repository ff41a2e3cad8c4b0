/**
 * A process of callers: for each key that it is sent, calls `once` many times at once and sends back what the calls got.
 * Arguments: driver, url, callers.
 */
import { key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { FIND, CREATE } from '../once.sql.ts'

/** What one call got. */
export interface OnceAnswer {
  readonly id: number
  readonly created: boolean
}

const [driver, url, callers] = process.argv.slice(2) as [string, string, string]
const lockstep = new Lockstep(
  driver === 'pg' ? new pg.Pool({ connectionString: url, max: 5 }) : postgres(url, { max: 5 }),
)

process.on('message', (symbol: string) => {
  const calls = Array.from({ length: Number(callers) }, async (): Promise<OnceAnswer> => {
    const { value, created } = await lockstep.once(key`Position:${symbol}`, {
      find: async (tx) => (await tx.query<{ id: number }>(FIND, [symbol])).rows[0]?.id,
      create: async (tx) => (await tx.query<{ id: number }>(CREATE, [symbol])).rows[0]?.id ?? -1,
    })
    return { id: value, created }
  })
  void Promise.all(calls).then((answers) => process.send?.(answers))
})
process.send?.('ready')
