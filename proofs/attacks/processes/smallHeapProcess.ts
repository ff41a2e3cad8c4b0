/**
 * A process with little memory that delivers, or reads as a naive dispatcher would. It reports how many events it got, and ends.
 * Arguments: what it does, driver, url, name, how many events are wanted.
 */
import pg from 'pg'
import { type DriverName, openClient } from '../client.ts'
import { READ_NEXT, READ_PARKED } from '../intruder/largeEvents.sql.ts'

const [what, driver, url, name, wanted] = process.argv.slice(2) as [string, DriverName, string, string, string]

async function deliver(): Promise<number> {
  const { lockstep } = openClient(driver, url, { poolSize: 4 })
  const stop = new AbortController()
  let delivered = 0
  await lockstep.outbox
    .dispatcher({
      name,
      shards: 1,
      attempts: 1,
      sink(events) {
        delivered += events.length
        if (delivered >= Number(wanted)) stop.abort()
      },
    })
    .run({ signal: stop.signal })
  return delivered
}

async function readNaively(): Promise<number> {
  const client = new pg.Client(url)
  await client.connect()
  const { rows } = what === 'read all' ? await client.query(READ_PARKED, [name]) : await client.query(READ_NEXT)
  return rows.length
}

const count = what === 'deliver' ? await deliver() : await readNaively()
process.send?.(count, () => process.exit(0))
