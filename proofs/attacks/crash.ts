import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { type Arrival, Arrivals } from '../checkers/arrivals.ts'
import { killBackend } from '../faults/sessions.ts'
import type { Random } from '../seed.ts'
import { type Lab, openLab } from './lab.ts'
import { Dispatchers } from './outbox/dispatchers.ts'
import { ALL_EVENTS, READY, WITHOUT_FLUSH } from './outbox/outbox.sql.ts'
import { writeOnce, Writings } from './outbox/writers.ts'
import { attack, type ReportProgress } from './attack.ts'

interface Size {
  readonly crashes: number
  readonly loadMs: number
  /** Without the flush, at most so many until one has struck between the sending and the disk. */
  readonly controlCrashes: number
}

const WRITERS = 8
const KEYS = 50
const TTL_MS = 1500
const DRAIN_MS = 60_000
/** So many deliveries show that events arrive. */
const FLOWING = 300
const CONTROL_DRAIN_MS = 3000

/**
 * With `synchronous_commit = off` a commit is seen before it is on disk. The server is crashed again and again under load: whatever
 * reached the sink must be in the database afterwards, under the same number and the same id, and whatever is in the database must
 * reach the sink, in order.
 */
export const crash = attack<Size>({
  name: 'crash',
  about: 'the outbox with synchronous_commit = off, the server crashed under load: nothing that was sent is missing',
  full: { crashes: 20, loadMs: 1500, controlCrashes: 20 },
  small: { crashes: 2, loadMs: 800, controlCrashes: 12 },
  async run(size, reportProgress, random) {
    const held = await besiege(size, random, reportProgress, undefined)
    reportProgress('crash: the control, without the flush')
    const planted = await besiege({ ...size, crashes: size.controlCrashes }, random, reportProgress, WITHOUT_FLUSH)
    return {
      results: [
        { flush: 'before it is sent', ...held },
        { flush: 'none', ...planted },
      ],
      goals: [
        goal('crashes', held['-m immediate'] + held['a backend killed'], '=', size.crashes),
        goal('deliveries whose event is not in the database', held['sent and not there'], '=', 0),
        goal('numbers that came with two ids', held['with two ids'], '=', 0),
        goal('first deliveries out of order, or with a gap', held['out of order'], '=', 0),
        goal('events in the database that did not arrive', held['there and not sent'], '=', 0),
        goal('control, without the flush: deliveries whose event is not there', planted['sent and not there'], '>=', 1),
      ],
    }
  },
})

interface Found {
  events: number
  deliveries: number
  '-m immediate': number
  'a backend killed': number
  /** Commits that were answered and are not there any more: what synchronous_commit = off allows. */
  'commits lost': number
  'sent and not there': number
  'there and not sent': number
  'with two ids': number
  'out of order': number
}

async function besiege(
  size: Size,
  random: Random,
  reportProgress: ReportProgress,
  planted: string | undefined,
): Promise<Found & ResultRow> {
  const lab = await openLab({ synchronous_commit: 'off', wal_writer_delay: '10s', wal_writer_flush_after: '1GB' })
  const arrivals = new Arrivals()
  const dispatchers = new Dispatchers(lab.url('direct'), arrivals, { ttlMs: TTL_MS, shards: 4, random })
  try {
    if (planted !== undefined) await lab.admin.query(planted)
    dispatchers.start(2)
    const crashes = { '-m immediate': 0, 'a backend killed': 0 }
    const caught = async (): Promise<boolean> => {
      if (planted === undefined) return false
      // What arrives while the question is in progress may be newer than its answer.
      const seen = arrivals.count
      // A server that has just crashed might not answer: the next question is after the next crash.
      const stored = await lab.admin.query<Arrival>(ALL_EVENTS).catch(() => undefined)
      return stored !== undefined && arrivals.notIn(stored.rows, seen) > 0
    }
    const writings = await load(lab, size, arrivals, crashes, caught, random, reportProgress)
    reportProgress('crash: waiting for the rest')
    const stored = await settle(lab, arrivals, planted === undefined ? DRAIN_MS : CONTROL_DRAIN_MS)
    const marks = new Set(stored.map(({ mark }) => mark))
    const { events, deliveries, diverged, outOfOrder, examples } = arrivals.report()
    if (planted === undefined) for (const example of examples) reportProgress(`crash: ${example}`)
    return {
      events,
      deliveries,
      ...crashes,
      'commits lost': [...writings.committed].filter((mark) => !marks.has(mark)).length,
      'sent and not there': arrivals.notIn(stored),
      'there and not sent': arrivals.missing(marks),
      'with two ids': diverged,
      'out of order': outOfOrder,
    }
  } finally {
    await dispatchers.killAll()
    await lab.close()
  }
}

async function load(
  lab: Lab,
  size: Size,
  arrivals: Arrivals,
  crashes: Pick<Found, '-m immediate' | 'a backend killed'>,
  caught: () => Promise<boolean>,
  random: Random,
  reportProgress: ReportProgress,
): Promise<Writings> {
  const writings = new Writings(random)
  const client = lab.client('pg', lab.url('direct'), { poolSize: WRITERS, retry: { attempts: 1 } })
  const loops = Array.from({ length: WRITERS }, async () => {
    while (!writings.over) {
      await writeOnce(client.lockstep, writings, KEYS)
      // A server that is down is not asked all the time.
      if (writings.unknown.size > 0) await sleep(5)
    }
  })
  for (let number = 0; number < size.crashes && !(await caught()); number++) {
    reportProgress(`crash: ${number + 1} of ${size.crashes}`)
    await flowing(arrivals)
    await sleep(size.loadMs * random.next())
    if (number % 2 === 0) {
      await lab.server.restart('immediate')
      crashes['-m immediate']++
    } else {
      await killBackend(lab.admin)
      await comesBack(lab)
      crashes['a backend killed']++
    }
  }
  await flowing(arrivals)
  writings.over = true
  await Promise.all(loops)
  await client.close()
  return writings
}

/** Comes back when events arrive: a crash must strike something in flight. */
async function flowing(arrivals: Arrivals): Promise<void> {
  const before = arrivals.count
  while (arrivals.count < before + FLOWING) await sleep(5)
}

async function comesBack(lab: Lab): Promise<void> {
  for (;;) {
    const client = new pg.Client({ connectionString: lab.url('direct') })
    client.on('error', () => undefined)
    const up = await client
      .connect()
      .then(() => client.query(READY))
      .then(
        () => true,
        () => false,
      )
    await client.end().catch(() => undefined)
    if (up) return
    await sleep(20)
  }
}

/** What is in the database, once all of it has arrived or the time is over. */
async function settle(lab: Lab, arrivals: Arrivals, drainMs: number): Promise<Arrival[]> {
  const deadline = performance.now() + drainMs
  for (;;) {
    const { rows } = await lab.admin.query<Arrival>(ALL_EVENTS)
    const missing = arrivals.missing(rows.map(({ mark }) => mark))
    if (missing === 0 || performance.now() > deadline) return rows
    await sleep(200)
  }
}
