/**
 * A process for killing: takes the lock of the key given, or waits for it, and stays until it is killed.
 * Arguments: driver, url, key, isolation.
 */
import { type Isolation, type Key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'

const [driver, url, key, isolation] = process.argv.slice(2) as [string, string, Key, Isolation]
const lockstep = new Lockstep(
  driver === 'pg' ? new pg.Pool({ connectionString: url }) : postgres(url, { prepare: false }),
)
await lockstep.transaction(
  { lock: key, isolation, waitMs: false },
  () => new Promise(() => setInterval(() => undefined, 1000)),
)
