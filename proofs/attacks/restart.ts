import { setTimeout as sleep } from 'node:timers/promises'
import { key, type Key, type Lease } from 'pg-lockstep'
import { startProxy } from 'pg-lockstep/testing'
import { goal } from '../../tools/judge/report.ts'
import { type Client, type DriverName, DRIVERS, type Lab } from './lab.ts'
import { attackInLab } from './attack.ts'

interface Size {
  readonly leases: number
  readonly restarts: number
}

/** One that a restart fits into many times, and one that no restart fits into. */
const LONG_TTL_MS = 20_000
const SHORT_TTL_MS = 300
const SETTLE_MS = 2000
/** For so long the holder cannot reach the server that has come back. */
const AWAY_MS = 700

interface Held {
  readonly name: Key
  readonly lease: Lease
  /** When its signal was aborted, if it was. */
  lostAt: number
}

/**
 * The server goes down with `pg_ctl -m immediate` while leases are held and renewed, and comes back; a contender asks for all of
 * them all the time. Those whose trust outlasts the restart must still be held by their holder, with their fence; the others' holders
 * must have learned of it before the contender had the lease.
 */
export const restart = attackInLab<Size>({
  name: 'restart',
  about:
    'the server is restarted with -m immediate while leases are held: no double holder, and every holder learns of a loss',
  full: { leases: 50, restarts: 6 },
  small: { leases: 50, restarts: 1 },
  async run(lab, size, reportProgress) {
    const row = {
      restarts: 0,
      'kept by their holder': 0,
      'lost and reported': 0,
      'double holders': 0,
      'not reported': 0,
    }
    for (let number = 0; number < size.restarts; number++) {
      reportProgress(`restart: ${number + 1} of ${size.restarts}`)
      await play(lab, DRIVERS[number % DRIVERS.length] as DriverName, number, size.leases, row)
      row.restarts++
    }
    return {
      results: [row],
      goals: [
        goal('long leases that their holder kept', row['kept by their holder'], '=', (size.leases / 2) * size.restarts),
        goal(
          'short leases whose holder learned of the loss',
          row['lost and reported'],
          '=',
          (size.leases / 2) * size.restarts,
        ),
        goal('leases that another caller had while their holder trusted them', row['double holders'], '=', 0),
        goal('leases that another has and whose holder does not know', row['not reported'], '=', 0),
      ],
    }
  },
})

async function play(
  lab: Lab,
  driver: DriverName,
  round: number,
  leases: number,
  row: {
    'kept by their holder': number
    'lost and reported': number
    'double holders': number
    'not reported': number
  },
): Promise<void> {
  const url = lab.url('direct')
  const proxy = await startProxy({ targetPort: Number(new URL(url).port) })
  const holder = lab.client(driver, proxy.url(url), { poolSize: 6 })
  const contender = lab.client('pg', lab.url('direct'), { poolSize: 6 })
  const held = await Promise.all(
    Array.from({ length: leases }, async (_, number): Promise<Held> => {
      const name = key`Restart:${round}:${number}`
      const lease = await holder.lockstep.leases.acquire(name, { ttlMs: number % 2 === 0 ? LONG_TTL_MS : SHORT_TTL_MS })
      const each: Held = { name, lease, lostAt: Infinity }
      lease.signal.addEventListener('abort', () => (each.lostAt = performance.now()), { once: true })
      return each
    }),
  )
  const taken = new Map<Key, number>()
  let over = false
  const contending = contend(contender, held, taken, () => over)
  proxy.refuse(true)
  await lab.server.restart('immediate')
  await sleep(AWAY_MS)
  proxy.refuse(false)
  await sleep(SETTLE_MS)
  over = true
  await contending
  for (const [index, { name, lease, lostAt }] of held.entries()) {
    const takenAt = taken.get(name)
    if (takenAt !== undefined && takenAt < lostAt) row[lostAt === Infinity ? 'not reported' : 'double holders']++
    if (index % 2 !== 0 && lostAt < Infinity) row['lost and reported']++
    if (index % 2 === 0 && (await isKept(contender, name, lease))) row['kept by their holder']++
  }
  await Promise.all([holder.close(), contender.close()])
  await proxy.close()
}

/** Asks for every lease again and again, and keeps what it gets. */
async function contend(
  client: Client,
  held: readonly Held[],
  taken: Map<Key, number>,
  over: () => boolean,
): Promise<void> {
  while (!over()) {
    for (const { name } of held) {
      if (taken.has(name) || over()) continue
      const lease = await client.lockstep.leases.tryAcquire(name).catch(() => undefined)
      if (lease !== undefined) taken.set(name, performance.now())
    }
    await sleep(5)
  }
}

/** Whether the holder trusts it, the server knows it by the same fence, and it has been renewed since the restart. */
async function isKept(client: Client, name: Key, lease: Lease): Promise<boolean> {
  const { holders } = await client.lockstep.leases.inspect(name)
  return !lease.signal.aborted && lease.trustedMs > 0 && holders.length === 1 && holders[0]?.fence === lease.fence
}
