import { setTimeout as sleep } from 'node:timers/promises'
import { key } from 'pg-lockstep'
import { startProxy } from 'pg-lockstep/testing'
import { goal } from '../../tools/judge/report.ts'
import type { Random } from '../seed.ts'
import { DRIVERS, type DriverName, type Lab } from './lab.ts'
import { attackInLab } from './attack.ts'

interface Size {
  readonly rounds: number
  readonly leasesEach: number
}

const TTL_MS = 1000

/**
 * Leases are held through a network that suddenly swallows everything: no answer, no error, no closed connection. For each of them
 * the holder's signal must be aborted before another caller, on a good connection, gets the lease. Both are seen by one clock.
 */
export const silence = attackInLab<Size>({
  name: 'silence',
  about: 'the connection of a holder goes silent: its signal is aborted before another caller has the lease',
  full: { rounds: 10, leasesEach: 10 },
  small: { rounds: 2, leasesEach: 5 },
  async run(lab, size, reportProgress, random) {
    const row = { leases: 0, 'signal first': 0, 'taken over': 0, 'least time between ms': Infinity }
    for (let round = 0; round < size.rounds; round++) {
      reportProgress(`silence: round ${round + 1} of ${size.rounds}`)
      const gaps = await play(lab, DRIVERS[round % DRIVERS.length] as DriverName, round, size.leasesEach, random)
      for (const gap of gaps) {
        row.leases++
        row['taken over']++
        if (gap > 0) row['signal first']++
        row['least time between ms'] = Math.min(row['least time between ms'], Math.round(Math.max(gap, -5000)))
      }
    }
    return {
      results: [row],
      goals: [
        goal(
          'leases whose holder learned of the loss before another had it',
          row['signal first'],
          '=',
          size.rounds * size.leasesEach,
        ),
        goal('leases that were taken over', row['taken over'], '=', size.rounds * size.leasesEach),
      ],
    }
  },
})

/** For each lease: how long after the holder's signal another caller had it. */
async function play(lab: Lab, driver: DriverName, round: number, leases: number, random: Random): Promise<number[]> {
  const url = lab.url('direct')
  const proxy = await startProxy({ targetPort: Number(new URL(url).port) })
  const holder = lab.client(driver, proxy.url(url), { poolSize: 4 })
  const other = lab.client('pg', url, { poolSize: 6 })
  try {
    const names = Array.from({ length: leases }, (_, number) => key`Silent:${round}:${number}`)
    const held = await Promise.all(names.map((name) => holder.lockstep.leases.acquire(name, { ttlMs: TTL_MS })))
    const told = held.map(
      (lease) =>
        new Promise<number>((resolve) =>
          lease.signal.addEventListener('abort', () => resolve(performance.now()), { once: true }),
        ),
    )
    // In the middle of a heartbeat as well as between two.
    await sleep(random.next() * TTL_MS)
    proxy.silence()
    return await Promise.all(
      names.map(async (name, index) => {
        const lease = await other.lockstep.leases.acquire(name, { ttlMs: TTL_MS, waitMs: 10 * TTL_MS })
        const hasIt = performance.now()
        await lease.release()
        const toldAt = await Promise.race([told[index], sleep(5000, Infinity)])
        return hasIt - (toldAt ?? Infinity)
      }),
    )
  } finally {
    proxy.cutAll()
    await proxy.close()
    await Promise.all([holder.close(), other.close()])
  }
}
