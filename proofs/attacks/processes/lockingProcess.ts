/**
 * A process for killing: takes the lock of the key given, or waits for it, and stays until it is killed.
 * Arguments: driver, url, key, isolation.
 */
import type { Isolation, Key } from 'pg-lockstep'
import { type DriverName, openClient } from '../client.ts'

const [driver, url, key, isolation] = process.argv.slice(2) as [DriverName, string, Key, Isolation]
const { lockstep } = openClient(driver, url)
await lockstep.transaction(
  { lock: key, isolation, waitMs: false },
  () => new Promise(() => setInterval(() => undefined, 1000)),
)
