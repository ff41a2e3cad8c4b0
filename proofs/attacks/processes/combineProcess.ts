/**
 * A process of callers that transfer money through combine until it is killed, and tell of each success; with `early`, a planted
 * bug, before there is one. Arguments: driver, url, callers, name of the run, `early` or nothing.
 */
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { combined } from '../ledger/transfers.ts'

const [driver, url, callers, run, early] = process.argv.slice(2) as [string, string, string, string, string?]
const lockstep = new Lockstep(driver === 'pg' ? new pg.Pool({ connectionString: url }) : postgres(url))
const transfer = combined(lockstep)

await Promise.all(
  Array.from({ length: Number(callers) }, async (_, caller) => {
    for (let number = 0; ; number++) {
      const id = `${run}-${caller}-${number}`
      if (early !== undefined) process.send?.(id)
      // From the rich to the hot one: nobody is ever refused.
      await transfer({ id, source: 1 + ((caller + number) % 9), target: 0, amount: 1 })
      if (early === undefined) process.send?.(id)
    }
  }),
)
