import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { isAlive, signal as sendSignal } from '../../tools/server/processes.ts'
import { type Faults, NO_FAULTS } from '../exchange/index.ts'
import type { Client } from './client.ts'
import { setFaults } from './exchangeFaults.ts'
import { END_SESSIONS } from './load.sql.ts'
import { processIds, type Target } from './ownDesk.ts'
import type { Random } from './random.ts'

/** Faults that have struck something: one that hits nothing shows nothing. */
export interface Struck {
  kills: number
  /** Requests that were under way in a process that was killed, and so lost their answer. */
  cutRequests: number
  /** Sessions that were ended in the middle of something. */
  sessions: number
  /** Requests to the exchange that it answered late, with a failure, or not at all. */
  exchange: number
}

interface Grounds {
  readonly target: Target
  readonly processes: number
  readonly pool: pg.Pool
  readonly client: Client
  readonly random: Random
  readonly exchangeUrl: string
}

const BAD_DAY: Partial<Faults> = { lostRate: 0.25, failingRate: 0.2, slowRate: 0.2, slowMs: 1500 }
const PAUSE_MS = 1500
const BAD_DAY_MS = 4000
/** A process is killed when it has something to do, if that comes soon. */
const BUSY_REQUESTS = 3
const BUSY_MS = 2000
/** On a quick machine a session is seldom found at work. */
const SESSION_LOOK_MS = 3
/** One that had nothing to do shows nothing: then another. */
const KILL_TRIES = 3
/** What was cut off shows at once; a busy machine takes a moment. */
const NOTICED_MS = 500

/** Faults, one after the other, until the signal. */
export class FaultMaker {
  readonly struck: Struck = { kills: 0, cutRequests: 0, sessions: 0, exchange: 0 }
  /** When the exchange misbehaved: from and to, as of Date.now(). */
  readonly badDays: [from: number, to: number][] = []
  readonly #grounds: Grounds

  constructor(grounds: Grounds) {
    this.#grounds = grounds
  }

  async run(signal: AbortSignal): Promise<void> {
    const badDay = (): Promise<void> => this.#badDay(signal)
    const endSessions = (): Promise<void> => this.#endSessions()
    // What is not ours is not killed.
    const kinds = this.#grounds.target.ours ? [() => this.#kill(), endSessions, badDay, endSessions] : [badDay]
    for (let turn = 0; !signal.aborted; turn++) {
      await kinds[turn % kinds.length]?.()
      await pause(PAUSE_MS, signal)
    }
  }

  /** One process at a time: its requests lose their answers, its leases end by themselves, its transactions are rolled back. */
  async #kill(): Promise<void> {
    for (let tries = 0; tries < KILL_TRIES; tries++) if ((await this.#killOne()) > 0) return
  }

  async #killOne(): Promise<number> {
    const { target, processes, client, random } = this.#grounds
    const ids = (await processIds(target.origin, processes)).filter(isAlive)
    // The last one is left alive: what is killed while nobody else answers strikes nobody.
    if (ids.length < 2) return 0
    const deadline = performance.now() + BUSY_MS
    while (client.underWay.length < BUSY_REQUESTS * processes && performance.now() < deadline) await sleep(10)
    const underWay = client.underWay
    sendSignal(random.pick(ids), 'SIGKILL')
    await sleep(NOTICED_MS)
    const cut = underWay.filter(({ ended }) => ended === 'cut').length
    this.struck.kills++
    this.struck.cutRequests += cut
    return cut
  }

  async #endSessions(): Promise<void> {
    const deadline = performance.now() + BUSY_MS
    let ended = 0
    while (ended === 0 && performance.now() < deadline) {
      const { rows } = await this.#grounds.pool.query<{ ended: number }>(END_SESSIONS)
      ended = rows[0]?.ended ?? 0
      if (ended === 0) await sleep(SESSION_LOOK_MS)
    }
    this.struck.sessions += ended
  }

  async #badDay(signal: AbortSignal): Promise<void> {
    const { exchangeUrl } = this.#grounds
    const from = Date.now()
    const before = await setFaults(exchangeUrl, BAD_DAY)
    await pause(BAD_DAY_MS, signal)
    this.struck.exchange += (await setFaults(exchangeUrl, NO_FAULTS)) - before
    this.badDays.push([from, Date.now()])
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined)
}
