/**
 * A holder for stopping: takes the lease that it is sent, says so, and on the message to continue writes as if nothing had happened.
 * Arguments: driver, url, ttl in milliseconds.
 */
import { type Key, type Lease, LockstepError } from 'pg-lockstep'
import { type DriverName, openClient } from '../client.ts'
import { WRITE_STATE } from '../zombie.sql.ts'

/** What it is to do. `inside`: it is stopped with its transaction open. `unguarded`: the planted bug. */
export interface ZombieOrder {
  readonly name: Key
  readonly mode: 'outside' | 'inside' | 'unguarded'
}

export interface ZombieReport {
  /** `committed`, or the code of the error. */
  readonly outcome: string
  readonly aborted: boolean
}

const [driver, url, ttl] = process.argv.slice(2) as [DriverName, string, string]
const { lockstep } = openClient(driver, url)

let goOn: () => void = () => undefined

async function serve({ name, mode }: ZombieOrder): Promise<ZombieReport> {
  const told = new Promise<void>((resolve) => (goOn = resolve))
  const lease = await lockstep.leases.acquire(name, { ttlMs: Number(ttl), holder: 'zombie' })
  const outcome = await work(lease, name, mode, told).then(
    () => 'committed',
    (error: unknown) => (error instanceof LockstepError ? error.code : String(error)),
  )
  const report = { outcome, aborted: lease.signal.aborted }
  await lease.release()
  return report
}

async function work(lease: Lease, name: Key, mode: ZombieOrder['mode'], told: Promise<void>): Promise<void> {
  if (mode === 'inside') {
    await lease.transaction({}, async (tx) => {
      await tx.query(WRITE_STATE, [name, 'zombie'])
      process.send?.('holding')
      await told
    })
    return
  }
  process.send?.('holding')
  await told
  const write = async (tx: { query(text: string, values: unknown[]): Promise<unknown> }): Promise<void> => {
    await tx.query(WRITE_STATE, [name, 'zombie'])
  }
  await (mode === 'unguarded' ? lockstep.transaction({}, write) : lease.transaction({}, write))
}

process.on('message', (order: ZombieOrder | 'go on') => {
  if (order === 'go on') goOn()
  else void serve(order).then((report) => process.send?.(report))
})
process.send?.('ready')
