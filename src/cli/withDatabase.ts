import { setTimeout as delay } from 'node:timers/promises'
import { Lockstep } from '../index.ts'
import type { Call } from './command.ts'
import { databaseUrl } from './databaseUrl.ts'
import { type DriverName, loadDriver } from './loadDriver.ts'

/** What is open while a command works. */
export interface Database {
  readonly lockstep: Lockstep
  readonly driver: DriverName
}

/** A server that does not answer the goodbye is left without one. */
const GOODBYE_MS = 2_000

/** Connects as the options say, lets the command work, and closes everything however that ended. */
export async function withDatabase<T>(values: Call['values'], work: (database: Database) => Promise<T>): Promise<T> {
  const url = databaseUrl(values.url)
  const { name, open } = loadDriver(values.driver)
  const { pool, close } = open(url)
  try {
    const lockstep = new Lockstep(pool, values.schema === undefined ? {} : { schema: values.schema })
    return await work({ lockstep, driver: name })
  } finally {
    await Promise.race([close(), delay(GOODBYE_MS, undefined, { ref: false })])
  }
}
