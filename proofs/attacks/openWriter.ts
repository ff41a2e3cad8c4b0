import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { Arrivals } from '../checkers/arrivals.ts'
import type { Random } from '../seed.ts'
import { type Lab } from './lab.ts'
import { Drain } from './outbox/drain.ts'
import { Latencies } from './outbox/latencies.ts'
import { machineMs } from '../machineClock.ts'
import { readNaively } from './outbox/naiveReader.ts'
import { BEGIN, COMMIT, ENQUEUE_BY_SQL, TAKE_XID } from './outbox/outbox.sql.ts'
import { SteadyLoad } from './outbox/steadyLoad.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import { BEGIN_SNAPSHOT, CREATE_ELSEWHERE, READ_ALL } from './openWriter.sql.ts'

interface Size {
  /** How often each disturbance comes, with a baseline before it. */
  readonly rounds: number
  readonly openMs: number
  readonly baselineMs: number
  readonly controlMs: number
  /** How many times the baseline's p99 the disturbed one may be. */
  readonly ratio: number
  /** Shorter times count as this: such times cannot be distinguished here. */
  readonly floorMs: number
}

const PER_SECOND = 200
const KEYS = 100
const TOPIC = 'trades'
const HELD_KEY = 'A'
const BASELINE = 'baseline'
/** Between two periods: what is being opened or closed then is neither here nor there. */
const BETWEEN = 'between'
/** What a reader that stops at xmin waits for. */
const CONTROLS = ['a writer is open', 'a writer is open elsewhere']
const WARM_UP_MS = 500
const DRAIN_MS = 30_000

/**
 * A session leaves a transaction open: a writer that has its number, a reader with an old snapshot, a writer in another database of the
 * server. Who has nothing to do with it must not notice: the time from COMMIT to the sink is compared with that of undisturbed periods
 * in between. The events of the open writer arrive after its COMMIT, and before those of the writer that waited for it. A reader that
 * stops at the oldest running transaction, as others do, must be found out.
 */
export const openWriter = attackInLab<Size>({
  name: 'open-writer',
  about: 'the outbox while a transaction is left open: only its own stream waits for it',
  full: { rounds: 2, openMs: 60_000, baselineMs: 20_000, controlMs: 20_000, ratio: 1.5, floorMs: 10 },
  // Among all the other tests a machine stands still for longer than a batch takes: but never for as long as it is open.
  small: { rounds: 1, openMs: 3000, baselineMs: 500, controlMs: 1000, ratio: 3, floorMs: 200 },
  async run(lab, size, reportProgress, random) {
    await lab.admin.query(CREATE_ELSEWHERE)
    return new Run(lab, size, reportProgress).play(random)
  },
})

/** Opens a disturbance; the answer ends it. */
type Disturbance = () => Promise<() => Promise<void>>

class Run {
  readonly #lab: Lab
  readonly #size: Size
  readonly #reportProgress: ReportProgress
  readonly #arrivals = new Arrivals()
  readonly #lockstep = new Latencies()
  readonly #naive = new Latencies()
  readonly #committed = new Set<string>()
  /** When COMMIT was sent, of what was held open. */
  readonly #held = new Map<string, number>()
  #period = BETWEEN
  #triesBehind = 0

  constructor(lab: Lab, size: Size, reportProgress: ReportProgress) {
    this.#lab = lab
    this.#size = size
    this.#reportProgress = reportProgress
  }

  readonly #disturbances: Readonly<Record<string, Disturbance>> = {
    'a writer is open': () => this.#holdKey(),
    'an old snapshot is read': async () => {
      const session = await this.#begin(this.#lab.url('direct'), BEGIN_SNAPSHOT)
      await session.query(READ_ALL)
      return () => end(session)
    },
    'a writer is open elsewhere': async () => {
      const session = await this.#begin(this.#lab.server.url('elsewhere'), BEGIN)
      await session.query(TAKE_XID)
      return () => end(session)
    },
  }

  async play(random: Random): Promise<{ results: ResultRow[]; goals: Goal[] }> {
    const drain = new Drain(this.#lab.url('direct'), 500, (arrival, at) => {
      this.#arrivals.see(arrival)
      this.#lockstep.arrived(arrival.mark, at)
    })
    const { lockstep } = this.#lab.client('pg', this.#lab.url('direct'), { poolSize: 10 })
    const load = new SteadyLoad(lockstep, { perSecond: PER_SECOND, keys: KEYS, topic: TOPIC, random }, (mark) => {
      const at = machineMs()
      this.#committed.add(mark)
      this.#lockstep.committed(mark, at, this.#period)
      this.#naive.committed(mark, at, this.#period)
    })
    try {
      while (drain.events === 0) await sleep(10)
      await sleep(WARM_UP_MS)
      await this.#measure()
      await this.#control()
      await load.stop()
      const deadline = performance.now() + DRAIN_MS
      while (this.#arrivals.missing(this.#committed) > 0 && performance.now() < deadline) await sleep(50)
      return { results: this.#results(), goals: this.#goals(load.failures) }
    } finally {
      await load.stop()
      await drain.kill()
    }
  }

  async #measure(): Promise<void> {
    const { rounds, openMs, baselineMs } = this.#size
    for (let round = 1; round <= rounds; round++) {
      for (const [name, open] of Object.entries(this.#disturbances)) {
        this.#reportProgress(`open-writer: ${round} of ${rounds}, the baseline`)
        await this.#during(BASELINE, baselineMs)
        this.#reportProgress(`open-writer: ${round} of ${rounds}, ${name}`)
        const close = await open()
        await this.#during(name, openMs)
        await close()
      }
    }
  }

  /** Beside the dispatcher, on the same events. */
  async #control(): Promise<void> {
    const stop = await readNaively(this.#lab.url('direct'), (mark) => this.#naive.arrived(mark, machineMs()))
    for (const name of CONTROLS) {
      this.#reportProgress(`open-writer: the control, ${name}`)
      const close = await this.#disturbances[name]?.()
      await this.#during(controlOf(name), this.#size.controlMs)
      await close?.()
    }
    // It has much to catch up with, and what it has not read does not count.
    const count = (of: Latencies): number => CONTROLS.reduce((sum, name) => sum + of.of(controlOf(name)).events, 0)
    const rest = (): number => count(this.#lockstep) - count(this.#naive)
    const deadline = performance.now() + DRAIN_MS
    while (rest() > 0 && performance.now() < deadline) await sleep(50)
    await stop()
  }

  async #during(period: string, ms: number): Promise<void> {
    this.#period = period
    await sleep(ms)
    this.#period = BETWEEN
  }

  async #begin(url: string, text: string): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await client.query(text)
    return client
  }

  /** A writer that has the next numbers of a stream, and another one that waits for it. */
  async #holdKey(): Promise<() => Promise<void>> {
    const session = await this.#begin(this.#lab.url('direct'), BEGIN)
    const marks = [1, 2].map((n) => `held ${this.#held.size + n}`)
    for (const mark of marks) await session.query(ENQUEUE_BY_SQL, [TOPIC, HELD_KEY, JSON.stringify({ mark })])
    const behind = `${marks[0]}, behind it`
    // It waits within its COMMIT, longer than that may be silent by default.
    const client = this.#lab.client('pg', this.#lab.url('direct'), { silenceMs: 2 * DRAIN_MS + this.#size.openMs })
    const waiting = client.lockstep.transaction({}, async (tx) => {
      this.#triesBehind++
      await tx.enqueue({ topic: TOPIC, key: HELD_KEY, payload: { mark: behind } })
    })
    return async () => {
      for (const mark of [...marks, behind]) {
        this.#held.set(mark, machineMs())
        this.#committed.add(mark)
      }
      await end(session)
      await waiting
      await client.close()
    }
  }

  #results(): ResultRow[] {
    const row = (reader: string, latencies: Latencies, period: string, name: string): ResultRow => {
      const { events, p50, p99, longest } = latencies.of(period)
      return { reader, while: name, events, 'p50 ms': p50, 'p99 ms': p99, 'longest ms': longest }
    }
    return [
      ...[BASELINE, ...Object.keys(this.#disturbances)].map((name) => row('lockstep', this.#lockstep, name, name)),
      ...CONTROLS.flatMap((name) => [
        row('lockstep, beside it', this.#lockstep, controlOf(name), name),
        row('below xmin', this.#naive, controlOf(name), name),
      ]),
    ]
  }

  #goals(failures: number): Goal[] {
    const { ratio, floorMs, openMs, controlMs, rounds } = this.#size
    const { outOfOrder, diverged, examples } = this.#arrivals.report()
    for (const example of examples) this.#reportProgress(`open-writer: ${example}`)
    const p99 = (period: string): number => Math.max(floorMs, this.#lockstep.of(period).p99)
    const names = Object.keys(this.#disturbances)
    const early = [...this.#held].filter(([mark, at]) => (this.#lockstep.arrivalOf(mark) ?? Infinity) < at).length
    const measured = Math.min(...names.map((name) => this.#lockstep.of(name).events))
    const waited = (name: string): number => this.#naive.of(controlOf(name)).p99 / controlMs
    return [
      ...names.map((name) => goal(`p99 while ${name}, of the baseline's`, p99(name) / p99(BASELINE), '<=', ratio)),
      goal('events measured in each, at least', measured, '>=', (rounds * openMs * PER_SECOND) / 1000 / 2),
      goal('transactions of the load that failed', failures, '=', 0),
      goal('first deliveries out of order, or with a gap', outOfOrder, '=', 0),
      goal('numbers that came with two ids', diverged, '=', 0),
      goal('committed events that did not arrive', this.#arrivals.missing(this.#committed), '=', 0),
      goal('events of the open writer, and of the one behind it', this.#held.size, '=', 3 * (rounds + 1)),
      goal('of these, arrived before its COMMIT', early, '=', 0),
      goal('attempts of those behind it', this.#triesBehind, '=', rounds + 1),
      goal('control, below xmin: p99 of the time for which a writer is open', waited('a writer is open'), '>=', 0.8),
      goal('control, the same, open elsewhere', waited('a writer is open elsewhere'), '>=', 0.8),
    ]
  }
}

function controlOf(name: string): string {
  return `control: ${name}`
}

async function end(session: pg.Client): Promise<void> {
  await session.query(COMMIT)
  await session.end()
}
