import type { Arrivals } from '../../checkers/arrivals.ts'
import { once } from 'node:events'
import type { EndedDrain, SentBatch } from '../processes/dispatcherProcess.ts'
import { type KillableProcess, startProcess } from '../../faults/killableProcess.ts'
import { strikeSessions } from '../../faults/sessions.ts'
import { newSeedFrom, type Random } from '../../seed.ts'
import { DRIVERS, type Lab } from '../lab.ts'

interface DispatchersOptions {
  readonly ttlMs: number
  readonly shards?: number
  readonly random: Random
  /** So many dispatchers run in each process. Default 1. */
  readonly runs?: number
  /** So many drains at once in each process, again and again. Left out: it runs. */
  readonly drains?: number
}

/** The outcome of calls of drain(). */
export interface DrainCalls {
  calls: number
  /** Those that delivered something. */
  fruitful: number
  /** Those that delivered more than their limit. */
  overdrawn: number
  /** Those that failed with an error that a lost connection does not explain. */
  wrong: number
}

/** How often `strike()` did what. */
export interface DispatcherFaults {
  strikes: number
  killed: number
  stopped: number
  'cut off': number
}

/** Of about twenty. */
const SESSIONS_AT_ONCE = 6

/** What a call may fail with whose sessions are ended. */
const EXPLAINED: ReadonlySet<string> = new Set(['LOCKSTEP_CONNECTION_LOST', '57P01', 'CONNECTION_CLOSED', 'ECONNRESET'])

/** Processes that dispatch, and what is done to them. */
export class Dispatchers {
  readonly #url: string
  readonly #arrivals: Arrivals
  readonly #random: Random
  readonly #ttlMs: number
  readonly #shards: number
  readonly #runs: number
  readonly #drains: number | undefined
  readonly #processes: Dispatching[] = []
  readonly drained: DrainCalls = { calls: 0, fruitful: 0, overdrawn: 0, wrong: 0 }
  /** What calls of drain() failed with. */
  readonly failures = new Map<string, number>()
  /** Of what the processes draw: each continues with its own number. */
  readonly #seed: number
  #started = 0

  constructor(url: string, arrivals: Arrivals, { ttlMs, shards = 8, random, runs = 1, drains }: DispatchersOptions) {
    this.#url = url
    this.#arrivals = arrivals
    this.#random = random
    this.#seed = newSeedFrom(random)
    this.#ttlMs = ttlMs
    this.#shards = shards
    this.#runs = runs
    this.#drains = drains
  }

  start(count = 1): void {
    for (let n = 0; n < count; n++) {
      const number = this.#started++
      const driver = DRIVERS[number % DRIVERS.length] as string
      const drains = this.#drains === undefined ? [] : [this.#drains]
      const numbers = [this.#ttlMs, this.#shards, this.#runs, this.#seed + number, ...drains]
      const args = [driver, this.#url, ...numbers.map(String)]
      const each: Dispatching = {
        process: startProcess(new URL('../processes/dispatcherProcess.ts', import.meta.url), args),
        unanswered: 0,
        stopped: false,
        sending: undefined,
      }
      each.process.child.on('message', (message: SentBatch | EndedDrain) => {
        if ('batch' in message) this.#take(each, message)
        else this.#count(message)
      })
      this.#processes.push(each)
    }
  }

  #count({ maxEvents, drained, failed }: EndedDrain): void {
    const calls = this.drained
    calls.calls++
    if (drained !== undefined && drained.delivered > 0) calls.fruitful++
    if (drained !== undefined && drained.delivered > maxEvents) calls.overdrawn++
    if (failed === undefined) return
    this.failures.set(failed, (this.failures.get(failed) ?? 0) + 1)
    if (!EXPLAINED.has(failed)) calls.wrong++
  }

  /** Notes what arrived, and answers a moment later: so that there is something in flight to be struck. */
  #take(from: Dispatching, { batch, events }: SentBatch): void {
    for (const [key, seq, id, mark] of events) this.#arrivals.see({ key, seq, id, mark })
    from.unanswered++
    from.sending?.()
    setTimeout(() => {
      from.unanswered--
      if (from.process.child.connected) from.process.child.send(batch, () => undefined)
    }, this.#random.next() * 4)
  }

  /** So many processes run now. */
  get count(): number {
    return this.#processes.length
  }

  /** kill -9 of so many, and none in their place. */
  async remove(count: number): Promise<void> {
    await Promise.all(this.#processes.splice(0, count).map(({ process }) => process.kill()))
  }

  /** One of them, at a moment when it has a batch in flight; undefined where none has one soon. */
  async inFlight(withinMs: number): Promise<Dispatching | undefined> {
    const running = this.#processes.filter(({ stopped }) => !stopped)
    const sending = running.filter(({ unanswered }) => unanswered > 0)
    const among = sending.length > 0 ? sending : running
    const victim = among[this.#random.below(among.length)]
    if (victim === undefined || victim.unanswered > 0) return victim
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        victim.sending = undefined
        resolve(undefined)
      }, withinMs)
      victim.sending = () => {
        clearTimeout(timer)
        victim.sending = undefined
        resolve(victim)
      }
    })
  }

  /** kill -9, and another one in its place. */
  async kill(victim: Dispatching): Promise<void> {
    this.#processes.splice(this.#processes.indexOf(victim), 1)
    await victim.process.kill()
    this.start()
  }

  /** SIGSTOP for so long, then SIGCONT: it does not know that it was away. */
  freeze(victim: Dispatching, ms: number): void {
    victim.stopped = true
    victim.process.stop()
    setTimeout(() => {
      victim.stopped = false
      victim.process.continue()
    }, ms)
  }

  /** Ends sessions of theirs, kills one in the middle of a batch, or freezes one: in turn, so that a short run has each of them. */
  async strike(lab: Lab, faults: DispatcherFaults): Promise<void> {
    const kind = faults.strikes++ % 3
    if (kind === 0) {
      const which = { application: 'dispatcher', most: SESSIONS_AT_ONCE }
      faults['cut off'] += await strikeSessions(lab.admin, 'terminate', which)
      return
    }
    const victim = await this.inFlight(1000)
    if (victim === undefined) return
    if (kind === 1) {
      await this.kill(victim)
      faults.killed++
    } else {
      this.freeze(victim, this.#ttlMs * (0.3 + this.#random.next() * 2))
      faults.stopped++
    }
  }

  /** Has all of them deliver their current batches, and waits until they have ended. */
  async stopAll(): Promise<void> {
    await Promise.all(
      this.#processes.splice(0).map(async ({ process }) => {
        process.continue()
        const ended = once(process.child, 'exit')
        process.child.send('stop')
        await ended
      }),
    )
  }

  async killAll(): Promise<void> {
    await Promise.all(this.#processes.splice(0).map(({ process }) => process.kill()))
  }
}

export interface Dispatching {
  readonly process: KillableProcess
  unanswered: number
  stopped: boolean
  /** Called when it sends a batch. */
  sending: (() => void) | undefined
}
