import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Pool } from '../index.ts'
import type { PgPool, PostgresJs } from '../postgres/index.ts'
import { DriverMissingError } from './driverMissingError.ts'

export type DriverName = 'pg' | 'postgres'

export interface OpenPool {
  readonly pool: Pool
  readonly close: () => Promise<void>
}

export interface LoadedDriver {
  readonly name: DriverName
  readonly open: (url: string) => OpenPool
}

const APPLICATION = 'lockstep-cli'
/** The doctor looks at several sessions at once: a balancer may treat each in its own way. */
const POOL_SIZE = 5
const CONNECT_TIMEOUT_S = 10

// Of both drivers only what is used here: their types are not ours to ask of a user.
interface Pg {
  readonly Pool: new (options: object) => PgPool & {
    on(event: 'error', listener: () => void): unknown
    end(): Promise<void>
  }
}
type Postgres = (url: string, options: object) => PostgresJs & { end(options: { timeout: number }): Promise<void> }

const openers: Readonly<Record<DriverName, (module: unknown, url: string) => OpenPool>> = {
  pg(module, connectionString) {
    const pool = new (module as Pg).Pool({
      connectionString,
      application_name: APPLICATION,
      max: POOL_SIZE,
      connectionTimeoutMillis: CONNECT_TIMEOUT_S * 1000,
    })
    // An idle connection that the server ends is the next query's business; without a listener it would end the program.
    pool.on('error', () => {})
    return { pool, close: () => pool.end() }
  },
  postgres(module, url) {
    const sql = (module as Postgres)(url, {
      connection: { application_name: APPLICATION },
      max: POOL_SIZE,
      connect_timeout: CONNECT_TIMEOUT_S,
      // It would print the server's notices on stdout.
      onnotice: () => {},
    })
    return { pool: sql, close: () => sql.end({ timeout: 1 }) }
  },
}

/** The driver that a program in this directory would get. */
export function loadDriver(wanted: string | undefined, directory: string = process.cwd()): LoadedDriver {
  const candidates: readonly DriverName[] = wanted === undefined ? ['pg', 'postgres'] : [wanted as DriverName]
  const require = createRequire(join(directory, 'package.json'))
  for (const name of candidates) {
    if (!isInstalled(require, name)) continue
    // Outside the test above: a driver that is there and broken is reported as such.
    const module: unknown = require(name)
    return { name, open: (url) => openers[name](module, url) }
  }
  throw new DriverMissingError(candidates, directory)
}

function isInstalled(require: NodeJS.Require, name: string): boolean {
  try {
    require.resolve(name)
    return true
  } catch {
    return false
  }
}
