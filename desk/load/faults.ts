import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { stopInFlight } from '../../proofs/faults/inFlight.ts'
import { strikeSessions } from '../../proofs/faults/sessions.ts'
import type { Random } from '../../proofs/seed.ts'
import { isAlive, signal as sendSignal } from '../../tools/server/processes.ts'
import { type Faults, NO_FAULTS } from '../exchange/index.ts'
import type { Client, Try } from './client.ts'
import { setFaults } from './exchangeFaults.ts'
import { processIds, type Target } from './ownDesk.ts'

/** Faults that have struck something: one that hits nothing shows nothing. */
export interface Struck {
  kills: number
  /** Requests that were in progress in a process that was killed, and so lost their answer. */
  cutRequests: number
  /** Sessions that were ended in the middle of something. */
  sessions: number
  /** Requests to the exchange that it answered late, with a failure, or not at all. */
  exchange: number
}

interface FaultContext {
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
/** A process is killed when it has so much to do, if that comes soon; otherwise when it has anything to do. */
const BUSY_REQUESTS = 3
const BUSY_MS = 2000
/** A fault waits so long for something that it can strike. */
const CHANCE_MS = 20_000
/** On a quick machine a session is seldom found at work. */
const SESSION_LOOK_MS = 3
/** A request that is still without an answer so long after the end of its process was neither answered nor reset. */
const RESET_MS = 30_000
/** Answers that a process has sent before it was stopped arrive within this time. */
const ARRIVAL_MS = 20
const LOOK_MS = 5

/** Faults, one after the other, until the signal. */
export class FaultMaker {
  readonly struck: Struck = { kills: 0, cutRequests: 0, sessions: 0, exchange: 0 }
  /** When the exchange misbehaved: from and to, as of Date.now(). */
  readonly badDays: [from: number, to: number][] = []
  readonly #context: FaultContext

  constructor(context: FaultContext) {
    this.#context = context
  }

  /** Until `over`, every kind in turn. Where one has struck nothing by then, it continues, up to the limit. */
  async run(over: AbortSignal, limit: AbortSignal, stop: AbortSignal): Promise<void> {
    const kill = (): Promise<void> => this.#kill(stop)
    const endSessions = (): Promise<void> => this.#endSessions(stop)
    const badDay = (until: AbortSignal): Promise<void> => this.#badDay(until)
    // What is not ours is not killed.
    const kinds = this.#context.target.ours ? [kill, endSessions, badDay, endSessions] : [badDay]
    for (let turn = 0; !over.aborted || (!this.hasStruck && !limit.aborted); turn++) {
      if (stop.aborted) return
      const until = this.hasStruck ? over : stop
      await kinds[turn % kinds.length]?.(until)
      await pause(PAUSE_MS, over)
    }
  }

  /** Whether every kind of fault that is possible here has struck something. */
  get hasStruck(): boolean {
    const { kills, cutRequests, sessions, exchange } = this.struck
    const { target, processes } = this.#context
    const possible = target.ours ? [sessions, exchange, ...(processes > 1 ? [kills, cutRequests] : [])] : [exchange]
    return possible.every((count) => count > 0)
  }

  /**
   * One process at a time: its requests lose their answers, its leases end by themselves, its transactions are rolled back. It is stopped
   * first: requests that have no answer then will get none.
   */
  async #kill(stop: AbortSignal): Promise<void> {
    const deadline = performance.now() + CHANCE_MS
    const pid = await this.#busyProcess(deadline)
    if (pid === undefined) return
    const victim = { stop: () => sendSignal(pid, 'SIGSTOP'), continue: () => sendSignal(pid, 'SIGCONT') }
    const unanswered = await stopInFlight(victim, () => this.#unansweredAt(pid), {
      pauseMs: () => LOOK_MS,
      goesOn: () => performance.now() < deadline && !stop.aborted,
    })
    if (unanswered === undefined) return
    sendSignal(pid, 'SIGKILL')
    const until = performance.now() + RESET_MS
    while (unanswered.some(({ ended }) => ended === undefined) && performance.now() < until) await sleep(LOOK_MS)
    this.struck.kills++
    this.struck.cutRequests += unanswered.filter(({ ended }) => ended === 'cut').length
  }

  async #unansweredAt(pid: number): Promise<readonly Try[] | undefined> {
    await sleep(ARRIVAL_MS)
    const unanswered = this.#triesAt(pid)
    return unanswered.length === 0 ? undefined : unanswered
  }

  /** A process with requests in progress, while another one is there to answer. */
  async #busyProcess(deadline: number): Promise<number | undefined> {
    const { target, processes, random } = this.#context
    let ids: readonly number[] = []
    // The last one is left alive: without another process that answers, a kill strikes no request.
    while (ids.length < 2) {
      if (performance.now() > deadline) return undefined
      ids = (await processIds(target.origin, processes)).filter(isAlive)
    }
    const begun = performance.now()
    while (performance.now() < deadline) {
      const enough = performance.now() - begun < BUSY_MS ? BUSY_REQUESTS : 1
      const busy = ids.filter((pid) => this.#triesAt(pid).length >= enough)
      if (busy.length > 0) return random.pick(busy)
      await sleep(LOOK_MS)
    }
    return undefined
  }

  #triesAt(pid: number): readonly Try[] {
    return this.#context.client.underWay.filter((each) => each.pid === pid)
  }

  async #endSessions(stop: AbortSignal): Promise<void> {
    const deadline = performance.now() + CHANCE_MS
    let ended = 0
    while (ended === 0 && performance.now() < deadline && !stop.aborted) {
      ended = await strikeSessions(this.#context.pool, 'terminate', { application: 'desk%', middleOf: 'a transaction' })
      if (ended === 0) await sleep(SESSION_LOOK_MS)
    }
    this.struck.sessions += ended
  }

  async #badDay(until: AbortSignal): Promise<void> {
    const { exchangeUrl } = this.#context
    const from = Date.now()
    const before = await setFaults(exchangeUrl, BAD_DAY)
    await pause(BAD_DAY_MS, until)
    this.struck.exchange += (await setFaults(exchangeUrl, NO_FAULTS)) - before
    this.badDays.push([from, Date.now()])
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined)
}
