import { setTimeout as sleep } from 'node:timers/promises'
import { goal } from '../../tools/judge/report.ts'
import { Arrivals } from '../checkers/arrivals.ts'
import type { Random } from '../seed.ts'
import { DRIVERS, type DriverName, type Lab } from './lab.ts'
import { type DispatcherFaults, Dispatchers } from './outbox/dispatchers.ts'
import { writeOnce, writeSlowly, Writings } from './outbox/writers.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import { playScenario } from './scenarioAttack.ts'

interface Size {
  readonly durationMs: number
  readonly minEvents: number
  readonly faultEveryMs: number
  readonly slowMs: number
  /** The control, for so long at most; the tests of the lab have it, too. */
  readonly controlMinutes: number
  readonly minStruck: number
}

const WRITERS = 16
const DISPATCHERS = 4
const KEYS = 200
const TTL_MS = 1000
/** Until everything has arrived. */
const DRAIN_MS = 60_000

/**
 * Sixteen writers, some of them rolled back, with early transaction ids, several keys, savepoints, and one that stays open; four
 * processes that dispatch, killed, stopped and continued, and cut off from the server in the middle of a batch. At the sink, the first
 * deliveries of each stream must be 1, 2, 3, …: everything that was committed, nothing that was not. The naive form of the scenario
 * `outbox`, without any kill, must be found by the same checker.
 */
export const order = attackInLab<Size>({
  name: 'order',
  about: 'the outbox: trade #101 never overtakes #100, whatever happens to writers and dispatchers',
  full: { durationMs: 60_000, minEvents: 200_000, faultEveryMs: 700, slowMs: 5000, controlMinutes: 1, minStruck: 20 },
  small: { durationMs: 5000, minEvents: 1000, faultEveryMs: 400, slowMs: 1500, controlMinutes: 0, minStruck: 1 },
  settings: { synchronous_commit: 'off', deadlock_timeout: '50ms' },
  async run(lab, size, reportProgress, random) {
    const faults: DispatcherFaults = { strikes: 0, killed: 0, stopped: 0, 'cut off': 0 }
    const { arrivals, writings } = await besiege(lab, size, faults, random, reportProgress)
    const { events, deliveries, duplicates, outOfOrder, diverged, examples } = arrivals.report()
    for (const example of examples) reportProgress(`order: ${example}`)
    const wanted = { faults: [], forms: ['naive'], minutes: size.controlMinutes } as const
    const control = size.controlMinutes === 0 ? undefined : await playScenario('outbox', wanted, reportProgress, random)
    return {
      results: [{ events, deliveries, duplicates, 'out of order': outOfOrder, ...faults }],
      goals: [
        goal('events', events, '>=', size.minEvents),
        goal('first deliveries out of order, or with a gap', outOfOrder, '=', 0),
        goal('numbers that came with two ids', diverged, '=', 0),
        goal('committed events that did not arrive', arrivals.missing(writings.committed), '=', 0),
        goal('events that were rolled back and arrived', arrivals.arrived(writings.rolledBack), '=', 0),
        goal('writers whose COMMIT was not answered', writings.unknown.size, '=', 0),
        goal('dispatchers struck in the middle of a batch', faults.killed + faults.stopped, '>=', size.minStruck),
        goal('sessions of dispatchers ended', faults['cut off'], '>=', 1),
        ...(control?.goals ?? []),
      ],
    }
  },
})

async function besiege(
  lab: Lab,
  size: Size,
  faults: DispatcherFaults,
  random: Random,
  reportProgress: ReportProgress,
): Promise<{ arrivals: Arrivals; writings: Writings }> {
  const arrivals = new Arrivals()
  const writings = new Writings(random)
  const dispatchers = new Dispatchers(lab.url('direct'), arrivals, { ttlMs: TTL_MS, random })
  dispatchers.start(DISPATCHERS)
  try {
    const writing = write(lab, writings, size.slowMs)
    // A process that is not there yet cannot be struck.
    while (arrivals.count < 100) await sleep(20)
    const until = performance.now() + size.durationMs
    while (performance.now() < until) {
      await sleep(size.faultEveryMs * (0.5 + random.next()))
      reportProgress(`order: ${arrivals.count} deliveries, ${Math.round((until - performance.now()) / 1000)} s left`)
      await dispatchers.strike(lab, faults)
    }
    writings.over = true
    await writing
    reportProgress('order: waiting for the rest')
    const deadline = performance.now() + DRAIN_MS
    while (arrivals.missing(writings.committed) > 0 && performance.now() < deadline) await sleep(100)
    return { arrivals, writings }
  } finally {
    await dispatchers.killAll()
  }
}

async function write(lab: Lab, writings: Writings, slowMs: number): Promise<void> {
  const clients = DRIVERS.map((driver: DriverName) =>
    lab.client(driver, lab.url('direct'), { poolSize: WRITERS / 2 + 1 }),
  )
  const loops = Array.from({ length: WRITERS }, async (_, number) => {
    const { lockstep } = clients[number % clients.length] as (typeof clients)[number]
    while (!writings.over) await writeOnce(lockstep, writings, KEYS)
  })
  const slow = async (): Promise<void> => {
    const { lockstep } = clients[0] as (typeof clients)[number]
    while (!writings.over) await writeSlowly(lockstep, writings, 'slow', slowMs)
  }
  await Promise.all([...loops, slow()])
  await Promise.all(clients.map((client) => client.close()))
}
