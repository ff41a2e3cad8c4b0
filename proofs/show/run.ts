import { setTimeout as sleep } from 'node:timers/promises'
import { type Scene } from '../faults/fault.ts'
import { cutOff } from '../faults/network.ts'
import { freeze, kill } from '../faults/processes.ts'
import { restart } from '../faults/server.ts'
import { type Entry, FORMS, type Form, type Violation } from '../history.ts'
import type { Laboratory } from '../laboratory.ts'
import { Round } from '../round.ts'
import { newSeed, random } from '../seed.ts'
import type { WorkerProcess } from '../workerProcess.ts'
import type { Card } from './cards.ts'
import type { PictureSource } from './pictures/picture.ts'
import { liveHistory } from './liveHistory.ts'
import { plainText } from './plainText.ts'
import type { CardState, FaultName, Phase, SideState, TimelineEvent } from './state.ts'
import { brokenBy, Tally } from './tally.ts'

/** As in `prove`: a stop outlasts it. */
const TTL_MS = 800
const FREEZE_MS = 5000
const CUT_MS = 2000
/** For so long a freeze waits for a worker that holds something. */
const AIM_MS = 500
/** A fault leaves the run this long to show what follows from it. */
const AFTER_FAULT_MS = 4000
const LONGEST_MS = 90_000
/** Of one side. */
const MOST_OPERATIONS = 40_000
const SAMPLE_EVERY_MS = 200
const CHECK_EVERY_MS = 400
/** The checkers read everything from the beginning each time: they get this part of the time at most. */
const CHECK_SHARE = 8
const MOST_EVENTS = 14
const STILL_MS = 2000
/** Two rounds of every run have numbers of their own, so that keys are new. */
let numbers = 0

/** All callers ask at the same moment, again and again: the more there are, the less often. */
function beatOf(callers: number): number {
  if (callers <= 10) return 125
  return callers <= 100 ? 250 : 1000
}

interface Side {
  readonly round: Round
  readonly tally: Tally
  readonly picture: PictureSource
  violations: readonly Violation[]
}

/** The same workload in both forms, at the same time, by the same workers on the same server. */
export class Run {
  readonly card: Card
  readonly callers: number
  readonly #laboratory: Laboratory
  readonly #workers: readonly WorkerProcess[]
  readonly #sides: Readonly<Record<Form, Side>>
  readonly #numbers: Readonly<Record<Form, number>>
  readonly #events: TimelineEvent[] = []
  readonly #striking = new Map<FaultName, Promise<void>>()
  readonly #random = random(newSeed(), 'show')
  readonly #stop = new AbortController()
  readonly #startedAt = performance.now()
  #endsAtMs: number
  #endedAtMs: number | undefined
  #phase: Phase = 'starting'
  #judged = false

  constructor(laboratory: Laboratory, workers: readonly WorkerProcess[], card: Card, callers: number, forMs: number) {
    this.card = card
    this.callers = callers
    this.#laboratory = laboratory
    this.#workers = workers
    this.#endsAtMs = Math.min(forMs, LONGEST_MS)
    this.#numbers = { naive: ++numbers, lockstep: ++numbers }
    const side = (form: Form): Side => {
      const round = new Round(
        laboratory,
        workers,
        [card.scenario],
        { number: this.#numbers[form], form, seed: newSeed(), ttlMs: TTL_MS, beatMs: beatOf(callers) },
        () => undefined,
      )
      const made: Side = { round, tally: new Tally(), picture: card.picture(), violations: [] }
      round.watch = (entry) => {
        made.tally.see(entry)
        made.picture.see(entry)
      }
      return made
    }
    this.#sides = { naive: side('naive'), lockstep: side('lockstep') }
  }

  get phase(): Phase {
    return this.#phase
  }

  entry(entry: Entry): void {
    for (const form of FORMS) this.#sides[form].round.entry(entry)
  }

  answer(round: number, service: string, question: unknown): unknown {
    const form = FORMS.find((each) => this.#numbers[each] === round)
    return form === undefined ? undefined : this.#sides[form].round.answer(service, question)
  }

  /** Ends it before its time. */
  end(): void {
    this.#stop.abort()
  }

  /** From the first operation to the last look of the checkers. */
  async play(): Promise<void> {
    const { naive, lockstep } = this.#sides
    this.#tell('hammer', `${this.callers.toLocaleString('en')} callers at once, on both sides`)
    await Promise.all(FORMS.map((form) => this.#sides[form].round.begin(this.callers)))
    this.#phase = 'running'
    await Promise.all([this.#untilEnd(), this.#sampling(), this.#checking()])
    this.#phase = 'settling'
    this.#endedAtMs = this.elapsedMs
    // A fault that strikes while workers close would be reported as what they left behind.
    await Promise.all(this.#striking.values())
    // A recipe that loses events would be waited for in vain.
    await Promise.all([naive.round.quiet(STILL_MS), lockstep.round.quiet()])
    for (const form of FORMS) {
      const side = this.#sides[form]
      const outcomes = await side.round.judge()
      const found = await side.round.found(this.card.scenario)
      side.picture.sample?.(found)
      this.#found(
        form,
        outcomes.flatMap(({ violations }) => violations),
      )
    }
    this.#judged = true
    this.#phase = 'idle'
    const [left, right] = FORMS.map((form) => this.#spoken(form))
    this.#tell('end', `All checkers have finished. Naive: ${left}. Lockstep: ${right}.`)
  }

  /** Strikes as soon as operations are in flight, and gives the run time to show what follows. */
  async strike(fault: FaultName, freezeMs = FREEZE_MS): Promise<void> {
    if (this.#striking.has(fault)) return
    const striking = this.#strikeOnce(fault, freezeMs).finally(() => this.#striking.delete(fault))
    this.#striking.set(fault, striking)
    await striking
  }

  async #strikeOnce(fault: FaultName, freezeMs: number): Promise<void> {
    const { naive, lockstep } = this.#sides
    while (this.#phase === 'starting' || Math.min(naive.tally.done, lockstep.tally.done) < 10) {
      if (this.#phase !== 'starting' && this.#phase !== 'running') return
      await sleep(20)
    }
    const { admin, proxy } = this.#laboratory
    const { ownServer } = this.#laboratory
    const scene: Scene = {
      workers: this.#workers,
      random: this.#random,
      ttlMs: TTL_MS,
      admin,
      proxy,
      pooler: undefined,
      ownServer,
      cluster: undefined,
    }
    const begun = performance.now()
    const event = this.#tell(fault, BEGINS[fault](freezeMs))
    this.#prolong(freezeMs)
    try {
      const { on, operations } = await STRIKES[fault](scene, freezeMs)
      const seconds = ((performance.now() - begun) / 1000).toFixed(1)
      this.#retell(event, SPOKEN[fault](on, operations, seconds))
    } catch (error) {
      this.#retell(
        event,
        `${BEGINS[fault](freezeMs)} It failed: ${error instanceof Error ? error.message : String(error)}`,
      )
    }
    this.#prolong(AFTER_FAULT_MS)
  }

  #prolong(byMs: number): void {
    this.#endsAtMs = Math.min(LONGEST_MS, Math.max(this.#endsAtMs, this.elapsedMs + byMs))
  }

  get elapsedMs(): number {
    return Math.round(this.#endedAtMs ?? performance.now() - this.#startedAt)
  }

  async #untilEnd(): Promise<void> {
    while (!this.#isOver()) await sleep(50)
  }

  #isOver(): boolean {
    return (
      this.#stop.signal.aborted ||
      this.elapsedMs >= this.#endsAtMs ||
      FORMS.some((form) => this.#sides[form].tally.asked >= MOST_OPERATIONS)
    )
  }

  /** What is in the database, for the picture. While the server is away there is nothing to read. */
  async #sampling(): Promise<void> {
    const drawn = FORMS.map((form) => this.#sides[form]).filter(({ picture }) => picture.sample !== undefined)
    while (drawn.length > 0 && !this.#isOver()) {
      const begun = performance.now()
      for (const { round, picture } of drawn) {
        const found = await round.found(this.card.scenario).catch(() => undefined)
        if (found !== undefined) picture.sample?.(found)
      }
      await sleep(Math.max(SAMPLE_EVERY_MS, 4 * (performance.now() - begun)))
    }
  }

  /** The checkers, on what happened until now. */
  async #checking(): Promise<void> {
    while (!this.#isOver()) {
      const begun = performance.now()
      for (const form of FORMS) await this.#check(form).catch(() => undefined)
      await sleep(Math.max(CHECK_EVERY_MS, CHECK_SHARE * (performance.now() - begun)))
    }
  }

  async #check(form: Form): Promise<void> {
    const { scenario, live } = this.card
    const { round, violations } = this.#sides[form]
    const history = round.historyOf(scenario.name)
    const seenThen = liveHistory(history, await round.found(scenario))
    const seen = live.flatMap((checker) => checker.check(seenThen))
    if (this.#phase === 'running' && seen.length >= violations.length) this.#found(form, seen)
  }

  #found(form: Form, violations: readonly Violation[]): void {
    const side = this.#sides[form]
    const [first] = violations
    if (side.violations.length === 0 && first !== undefined) {
      const whose = form === 'naive' ? 'the naive side' : 'the side of Lockstep'
      this.#tell('violation', `First violation on ${whose}: ${plainText(first.text)}`)
    }
    side.violations = violations
  }

  #spoken(form: Form): string {
    const { tally, violations } = this.#sides[form]
    const count = violations.length.toLocaleString('en')
    return `${count} ${violations.length === 1 ? 'violation' : 'violations'} in ${tally.done.toLocaleString('en')} operations`
  }

  #tell(kind: TimelineEvent['kind'], text: string): number {
    const id = (this.#events.at(-1)?.id ?? 0) + 1
    this.#events.push({ id, atMs: this.elapsedMs, kind, text })
    // The first one says what was begun.
    if (this.#events.length > MOST_EVENTS) this.#events.splice(1, 1)
    return id
  }

  #retell(id: number, text: string): void {
    const index = this.#events.findIndex((event) => event.id === id)
    const event = this.#events[index]
    if (event !== undefined) this.#events[index] = { ...event, text }
  }

  /** A failure that is not one of the planned faults. */
  trouble(text: string): void {
    this.#tell('trouble', text)
  }

  state(): CardState {
    return {
      card: this.card.card,
      phase: this.#phase,
      callers: this.callers,
      elapsedMs: this.elapsedMs,
      ofMs: this.#endsAtMs,
      judged: this.#judged,
      striking: [...this.#striking.keys()],
      naive: this.#side('naive'),
      lockstep: this.#side('lockstep'),
      timeline: [...this.#events],
    }
  }

  #side(form: Form): SideState {
    const { tally, picture, violations } = this.#sides[form]
    const { done, notDone, p99Ms } = tally
    const nowMs = this.elapsedMs
    const perSecond =
      this.#endedAtMs === undefined ? tally.perSecond(nowMs) : Math.round((1000 * done) / this.#endedAtMs)
    return {
      done,
      notDone,
      violations: violations.length,
      perSecond,
      p99Ms,
      broken: brokenBy(violations),
      picture: picture.picture(nowMs),
    }
  }
}

const STRIKES = {
  kill: (scene: Scene) => kill.strike(scene),
  freeze: (scene: Scene, freezeMs: number) => freeze(scene, freezeMs, AIM_MS),
  cut: (scene: Scene) => cutOff(scene, CUT_MS),
  crash: (scene: Scene) => restart.strike(scene),
}

const BEGINS: Readonly<Record<FaultName, (freezeMs: number) => string>> = {
  kill: () => 'Killing a worker (kill -9) …',
  freeze: (freezeMs) => `Freezing a worker (SIGSTOP) for ${freezeMs / 1000} s …`,
  cut: () => 'Cutting the network of a worker …',
  crash: () => 'Crashing PostgreSQL (immediate shutdown) …',
}

type Speak = (on: string, operations: number, seconds: string) => string
const SPOKEN: Readonly<Record<FaultName, Speak>> = {
  kill: (on, operations, seconds) =>
    `Worker ${on} was killed with ${operations} operations in flight. Another took its place after ${seconds} s.`,
  freeze: (on, operations, seconds) =>
    `Worker ${on} was frozen for ${seconds} s with ${operations} operations in flight.`,
  cut: (on, operations, seconds) =>
    `The network of worker ${on} was cut for ${seconds} s with ${operations} operations in flight.`,
  crash: (_, operations, seconds) =>
    `PostgreSQL crashed with ${operations} operations in flight, and was back after ${seconds} s.`,
}
