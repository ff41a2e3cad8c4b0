import { setTimeout as sleep } from 'node:timers/promises'
import { nothingHeld } from './checkers/nothingHeld.ts'
import { noConnectionLeaked } from './checkers/noConnectionLeaked.ts'
import type { Fault, Scene } from './faults/fault.ts'
import type { Entry, FaultEntry, Form, History, Violation } from './history.ts'
import type { Laboratory } from './laboratory.ts'
import { machineMicros } from './machineClock.ts'
import type { RoundPlan } from './messages.ts'
import type { Broker, Divergence } from './scenarios/broker.ts'
import type { OutsideWorld, Scenario } from './scenarios/scenario.ts'
import { random } from './seed.ts'
import type { WorkerListener, WorkerProcess } from './workerProcess.ts'

/** How long an operation may take to end, once nothing goes wrong any more. */
const DRAIN_MS = 40_000
const CLOSE_MS = 40_000
const DELIVERED_WITHIN_MS = 30_000
const HELD_WITHIN_MS = 10_000
const FAULTS_AT_ONCE = 3

/** The pseudo-scenario of what belongs to no scenario: what the workers leave. */
export const LEFTOVERS = 'leftovers'

export interface RoundOutcome {
  readonly scenario: string
  readonly history: History
  readonly violations: readonly Violation[]
}

interface Found {
  readonly key: string
  readonly value: number | string | null
  readonly op: string
}

/** One round: everything at once, with faults; then quiet, and the checkers. */
export class Round implements Pick<WorkerListener, 'entry'> {
  readonly #laboratory: Laboratory
  readonly #workers: readonly WorkerProcess[]
  readonly #scenarios: readonly Scenario[]
  readonly #plan: RoundPlan
  readonly #services: Map<string, OutsideWorld>
  readonly #entries = new Map<string, Entry[]>()
  readonly #faults: FaultEntry[] = []
  readonly #onFault: (fault: string, struck: number) => void
  #operations = 0
  #mistake: Error | undefined
  /** Sees each entry of a worker and of the world outside when it comes. */
  watch: ((entry: Entry) => void) | undefined
  #doing = 'faults strike'
  /** When the newest entry came. */
  #lastAt = 0

  constructor(
    laboratory: Laboratory,
    workers: readonly WorkerProcess[],
    scenarios: readonly Scenario[],
    plan: Omit<RoundPlan, 'startedAt' | 'scenarios'>,
    onFault: (fault: string, struck: number) => void,
  ) {
    this.#laboratory = laboratory
    this.#workers = workers
    this.#scenarios = scenarios
    this.#plan = { ...plan, startedAt: machineMicros(), scenarios: scenarios.map(({ name }) => name) }
    this.#onFault = onFault
    this.#services = new Map(scenarios.flatMap((each) => (each.outside ? [[each.name, each.outside()] as const] : [])))
    for (const { name } of scenarios) this.#entries.set(name, [])
    this.#entries.set(LEFTOVERS, [])
  }

  get form(): Form {
    return this.#plan.form
  }

  /** What is continuing, for those who watch. */
  get doing(): string {
    return this.#doing
  }

  get operations(): number {
    return this.#operations
  }

  entry(entry: Entry): void {
    // A transaction that was retried has no operation, and only Lockstep retries.
    if (entry.op === '' && this.form === 'naive') return
    // Of a round that is over: a process that was stopped reports it late.
    if (entry.op !== '' && !entry.op.startsWith(`r${this.#plan.number}.`)) return
    if (entry.what === 'asked') this.#operations++
    this.#add({ ...entry, at: entry.at - this.#plan.startedAt })
  }

  #add(entry: Entry): void {
    this.#lastAt = performance.now()
    this.#entries.get(entry.scenario)?.push(entry)
    this.watch?.(entry)
  }

  answer(service: string, question: unknown): unknown {
    return this.#services.get(service)?.(question, (taken) => {
      const at = machineMicros() - this.#plan.startedAt
      this.#add({ ...taken, at, by: 'outside', scenario: service, what: 'took' })
    })
  }

  /** What the broker of the outbox and its consumers saw of numbers that were given out twice. */
  get divergence(): Divergence {
    const found = this.#services.get('outbox')?.({ divergence: true }, () => undefined) as Divergence | undefined
    return found ?? { diverged: 0, reported: 0, silent: 0 }
  }

  /** Whether the primary of the cluster was replaced. */
  get replacedPrimary(): boolean {
    return this.#faults.some(({ fault }) => fault.startsWith('cluster-'))
  }

  /** Everything continues for so long; then it is quiet. */
  async play(forMs: number, faults: readonly Fault[], stop?: AbortSignal): Promise<RoundOutcome[]> {
    await this.begin()
    await this.#strike(forMs, faults, stop)
    await this.quiet()
    return this.judge()
  }

  /** The workers begin, each with its share of the callers if their number is given. */
  async begin(callers?: number): Promise<void> {
    const { admin } = this.#laboratory
    const { number } = this.#plan
    for (const scenario of this.#scenarios) {
      const prepared = scenario.prepare(number)
      if (prepared !== undefined) await admin.query(prepared.text, prepared.values)
    }
    const among = this.#workers.length
    for (const [index, worker] of this.#workers.entries()) {
      const lanes = callers === undefined ? {} : { lanes: Math.floor((callers + index) / among) }
      worker.begin({ ...this.#plan, ...lanes })
    }
  }

  /** Reads what is in the database, and lets the checkers look. Only after `quiet()`. */
  async judge(): Promise<RoundOutcome[]> {
    this.#doing = 'the checkers look'
    await this.#look()
    return [...this.#scenarios.map((scenario) => this.#judge(scenario)), this.#judgeLeftovers()]
  }

  async #strike(forMs: number, faults: readonly Fault[], stop: AbortSignal | undefined): Promise<void> {
    const { seed, number, startedAt, ttlMs } = this.#plan
    const chance = random(seed, number, 'faults')
    const { admin, proxy, pooler, ownServer, cluster } = this.#laboratory
    const scene: Scene = { workers: this.#workers, random: chance, ttlMs, admin, proxy, pooler, ownServer, cluster }
    const under = new Set<Promise<void>>()
    const until = machineMicros() + forMs * 1000
    let bag: Fault[] = []
    let rare = true
    // A process that is not there yet cannot be struck.
    await this.#until(() => this.#operations >= 20, 5000)
    const isOver = (): boolean => machineMicros() >= until || stop?.aborted === true
    while (!isOver()) {
      if (bag.length === 0) {
        bag = chance.shuffled(faults.filter((fault) => rare || fault.rare !== true))
        rare = false
      }
      const fault = bag.pop()
      if (fault === undefined) {
        await sleep(100)
        continue
      }
      const at = machineMicros() - startedAt
      const striking = fault
        .strike(scene)
        .then(({ on, operations }) => {
          this.#faults.push({ at, until: machineMicros() - startedAt, fault: fault.name, on, struck: operations })
          if (operations > 0) this.#onFault(fault.name, operations)
        })
        // The database may be away, by another fault, when this one wants to begin; a statement that is wrong is our mistake.
        .catch((error: Error & { code?: string }) => {
          if (error.code?.startsWith('42') === true) this.#mistake = error
        })
      under.add(striking)
      void striking.finally(() => under.delete(striking))
      await sleep(100 + chance.below(300))
      while (under.size >= FAULTS_AT_ONCE) await Promise.race(under)
    }
    this.#doing = 'faults heal'
    await Promise.all(under)
    if (this.#mistake !== undefined) throw this.#mistake
  }

  /**
   * Operations end, events are delivered, and the workers close what they have opened for the round. No fault can strike meanwhile. Events of which
   * none has arrived for `stillMs` do not arrive any more.
   */
  async quiet(stillMs = Infinity): Promise<void> {
    const { number } = this.#plan
    this.#doing = 'operations come to their end'
    const drained = await Promise.all(this.#workers.map((worker) => worker.drain(number, DRAIN_MS)))
    const blockers = drained.includes(false) ? await this.#laboratory.blockers() : []
    for (const blocker of blockers) this.#left('database', `held:what others wait for, by ${blocker}`)
    for (const [index, inTime] of drained.entries()) {
      const { by, open } = this.#workers[index] as WorkerProcess
      if (!inTime) for (const op of open) this.#left(by, `held:operation ${op}, which does not end`)
    }
    this.#doing = 'the last events are delivered'
    let left = -1
    const isStill = (): boolean => {
      // Consumers that still take events in are not still.
      if (this.#brokerLeft !== left) this.#lastAt = performance.now()
      left = this.#brokerLeft
      return performance.now() - this.#lastAt > stillMs
    }
    await this.#until(() => this.#allDelivered() || isStill(), DELIVERED_WITHIN_MS)
    this.#doing = 'everything is closed'
    const closed = await Promise.all(this.#workers.map((worker) => worker.close(number, CLOSE_MS)))
    for (const [index, out] of closed.entries()) {
      const { by } = this.#workers[index] as WorkerProcess
      if (out === undefined) this.#left(by, `held:${by}, which does not close`)
      else if (this.form === 'lockstep') this.#left(by, `connections:${by}`, out)
    }
    await Promise.all(
      this.#workers.filter((_, index) => closed[index] === undefined).map((worker) => worker.killAndReplace()),
    )
  }

  #left(by: string, key: string, value?: number): void {
    const at = machineMicros() - this.#plan.startedAt
    const entry: Entry = { at, by, scenario: LEFTOVERS, op: '', what: 'found', key }
    this.#entries.get(LEFTOVERS)?.push(value === undefined ? entry : { ...entry, value })
  }

  /** Whether every event of an acknowledged write has gone out, and was taken in. */
  #allDelivered(): boolean {
    const entries = this.#entries.get('outbox')
    if (entries === undefined) return true
    const taken = new Set(entries.filter(({ what }) => what === 'took').map(({ op }) => op))
    if (entries.some(({ what, op }) => what === 'done' && !taken.has(op))) return false
    return this.#brokerLeft === 0
  }

  /** What the broker has of which no consumer has said that it was taken in. */
  get #brokerLeft(): number {
    return (this.#services.get('outbox')?.({ left: true }, () => undefined) ?? 0) as Broker['left']
  }

  async #until(is: () => boolean, withinMs: number): Promise<void> {
    const until = performance.now() + withinMs
    while (!is() && performance.now() < until) await sleep(50)
  }

  /** What is in the database now, as entries of a history. */
  async found(scenario: Scenario): Promise<Entry[]> {
    const question = scenario.found(this.#plan.number, this.form)
    if (question === undefined) return []
    const at = machineMicros() - this.#plan.startedAt
    const { rows } = await this.#laboratory.admin.query<Found>(question.text, question.values)
    return rows.map(({ key, value, op }) => {
      const entry: Entry = { at, by: 'database', scenario: scenario.name, op, what: 'found', key }
      return value === null ? entry : { ...entry, value }
    })
  }

  /** What stands in the database now goes into the history. */
  async #look(): Promise<void> {
    for (const scenario of this.#scenarios) {
      const entries = this.#entries.get(scenario.name) as Entry[]
      for (const entry of await this.found(scenario)) entries.push(entry)
    }
    if (this.form === 'naive') return
    // What a killed process held is free when its ttl is over.
    let held = await this.#laboratory.held()
    const until = performance.now() + HELD_WITHIN_MS
    while (held.length > 0 && performance.now() < until) {
      await sleep(100)
      held = await this.#laboratory.held()
    }
    for (const each of held) this.#left('database', `held:${each}`)
  }

  /** What happened until now. */
  historyOf(scenario: string): History {
    const entries = (this.#entries.get(scenario) as Entry[]).toSorted((one, other) => one.at - other.at)
    const faults = this.#faults.toSorted((one, other) => one.at - other.at)
    return { scenario, form: this.form, entries, faults }
  }

  #judge({ name, checkers }: Scenario): RoundOutcome {
    const history = this.historyOf(name)
    return { scenario: name, history, violations: checkers.flatMap((checker) => checker.check(history)) }
  }

  #judgeLeftovers(): RoundOutcome {
    const history = this.historyOf(LEFTOVERS)
    const violations = [nothingHeld, noConnectionLeaked].flatMap((checker) => checker.check(history))
    return { scenario: LEFTOVERS, history, violations }
  }
}
