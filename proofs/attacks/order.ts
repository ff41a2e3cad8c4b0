import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { StreamOrderChecker } from '../checkers/streamOrder.ts'
import { DRIVERS, type DriverName, type Lab, openLab } from './lab.ts'
import { Dispatchers } from './outbox/dispatchers.ts'
import {
  BEGIN,
  COMMIT,
  CREATE_DOCUMENT_000,
  FIND_PENDING,
  INSERT_DOCUMENT_000,
  LOCK_PORTFOLIO,
  MARK_SENT,
  PENDING,
  TERMINATE_DISPATCHERS,
} from './outbox/outbox.sql.ts'
import { writeOnce, writeSlowly, Writings } from './outbox/writers.ts'
import { attack, type ReportProgress } from './attack.ts'

interface Size {
  readonly durationMs: number
  readonly minEvents: number
  readonly faultEveryMs: number
  readonly slowMs: number
  readonly controlEvents: number
  readonly minStruck: number
}

interface Faults {
  strikes: number
  killed: number
  stopped: number
  'cut off': number
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
 * deliveries of each stream must be 1, 2, 3, …: everything that was committed, nothing that was not. The outbox of document 000,
 * with nobody killed, must be found out by the same checker.
 */
export const order = attack<Size>({
  name: 'order',
  about: 'the outbox: trade #101 never overtakes #100, whatever happens to writers and dispatchers',
  full: { durationMs: 60_000, minEvents: 200_000, faultEveryMs: 700, slowMs: 5000, controlEvents: 4000, minStruck: 20 },
  small: { durationMs: 5000, minEvents: 1000, faultEveryMs: 400, slowMs: 1500, controlEvents: 2000, minStruck: 1 },
  async run(size, reportProgress) {
    const lab = await openLab({ synchronous_commit: 'off', deadlock_timeout: '50ms' })
    try {
      const faults: Faults = { strikes: 0, killed: 0, stopped: 0, 'cut off': 0 }
      const { checker, writings } = await besiege(lab, size, faults, reportProgress)
      const report = checker.report()
      reportProgress('order: the control, document 000')
      const control = (await document000(lab, size.controlEvents)).report()
      const row = (name: string, { deliveries, events, duplicates, violations }: typeof report): ResultRow => {
        return { outbox: name, events, deliveries, duplicates, 'out of order': violations }
      }
      for (const example of report.examples) reportProgress(`order: ${example}`)
      return {
        results: [{ ...row('lockstep', report), ...faults }, row('document 000', control)],
        goals: [
          goal('events', report.events, '>=', size.minEvents),
          goal('first deliveries out of order, or with a gap', report.violations, '=', 0),
          goal('numbers that came with two ids', report.diverged, '=', 0),
          goal('committed events that did not arrive', checker.missing(writings.committed), '=', 0),
          goal('events that were rolled back and arrived', checker.arrived(writings.rolledBack), '=', 0),
          goal('writers whose COMMIT was not answered', writings.unknown.size, '=', 0),
          goal('dispatchers struck in the middle of a batch', faults.killed + faults.stopped, '>=', size.minStruck),
          goal('sessions of dispatchers ended', faults['cut off'], '>=', 1),
          goal('control, document 000: out of order, or sent twice', control.violations + control.duplicates, '>=', 1),
        ],
      }
    } finally {
      await lab.close()
    }
  },
})

async function besiege(
  lab: Lab,
  size: Size,
  faults: Faults,
  reportProgress: ReportProgress,
): Promise<{ checker: StreamOrderChecker; writings: Writings }> {
  const checker = new StreamOrderChecker()
  const writings = new Writings()
  const dispatchers = new Dispatchers(lab.url('direct'), checker, { ttlMs: TTL_MS })
  dispatchers.start(DISPATCHERS)
  try {
    const writing = write(lab, writings, size.slowMs)
    // Whoever is not there yet cannot be struck.
    while (checker.report().events < 100) await sleep(20)
    const until = performance.now() + size.durationMs
    while (performance.now() < until) {
      await sleep(size.faultEveryMs * (0.5 + Math.random()))
      reportProgress(
        `order: ${checker.report().events} events, ${Math.round((until - performance.now()) / 1000)} s left`,
      )
      await strike(lab, dispatchers, faults)
    }
    writings.over = true
    await writing
    reportProgress('order: waiting for the rest')
    const deadline = performance.now() + DRAIN_MS
    while (checker.missing(writings.committed) > 0 && performance.now() < deadline) await sleep(100)
    return { checker, writings }
  } finally {
    await dispatchers.killAll()
  }
}

async function strike(lab: Lab, dispatchers: Dispatchers, faults: Faults): Promise<void> {
  // In turn, so that a short run has each of them.
  const kind = faults.strikes++ % 3
  if (kind === 0) {
    const { rows } = await lab.admin.query<{ ended: number }>(TERMINATE_DISPATCHERS)
    faults['cut off'] += rows[0]?.ended ?? 0
    return
  }
  const victim = await dispatchers.inFlight(1000)
  if (victim === undefined) return
  if (kind === 1) {
    await dispatchers.kill(victim)
    faults.killed++
  } else {
    dispatchers.freeze(victim, TTL_MS * (0.3 + Math.random() * 2))
    faults.stopped++
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

/** Document 000 as it stands, its lock held to the end: eight dispatchers, eight writers, nobody is killed. */
async function document000(lab: Lab, events: number): Promise<StreamOrderChecker> {
  const checker = new StreamOrderChecker()
  await lab.admin.query(CREATE_DOCUMENT_000)
  const pool = lab.pool(16)
  const inTransaction = async <T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> => {
    const client = await pool.connect()
    try {
      await client.query(BEGIN)
      return await work(client)
    } finally {
      await client.query(COMMIT)
      client.release()
    }
  }
  let written = 0
  const writer = async (): Promise<void> => {
    while (written++ < events) {
      const portfolio = `portfolio ${Math.floor(Math.random() * 20)}`
      await inTransaction(async (client) => {
        await client.query(LOCK_PORTFOLIO, [portfolio])
        await client.query(INSERT_DOCUMENT_000, [portfolio])
      })
    }
  }
  const dispatcher = async (): Promise<void> => {
    for (;;) {
      await inTransaction(async (client) => {
        const { rows } = await client.query<{ id: string; portfolio_id: string; seq: number }>(FIND_PENDING, [20])
        for (const { id, portfolio_id: key, seq } of rows) {
          checker.see({ key, seq, uuid: id, mark: id })
          await turn()
        }
        await client.query(MARK_SENT, [rows.map(({ id }) => id)])
      })
      const { rows } = await pool.query<{ pending: number }>(PENDING)
      if (written >= events && rows[0]?.pending === 0) return
    }
  }
  await Promise.all([...Array.from({ length: 8 }, writer), ...Array.from({ length: 8 }, dispatcher)])
  return checker
}

/** Sending takes a moment. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
