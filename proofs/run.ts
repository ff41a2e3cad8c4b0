import { evidence, goal, type Goal, verdictOf } from '../tools/judge/report.ts'
import { postgresJsIsThere } from './clients.ts'
import type { Fault } from './faults/fault.ts'
import type { Form, Violation } from './history.ts'
import { type Laboratory, type LaboratoryOptions, openLaboratory } from './laboratory.ts'
import {
  addRound,
  type ClusterResult,
  emptyForms,
  type FaultResult,
  type RunResult,
  type ScenarioResult,
} from './report/result.ts'
import { LEFTOVERS, Round } from './round.ts'
import type { Scenario } from './scenarios/scenario.ts'
import { Recorder } from './trace/recorder.ts'
import { type Rejection, replay as replayTrace } from './trace/replay.ts'
import type { Trace } from './trace/trace.ts'
import { type Route, type WorkerListener, WorkerProcess } from './workerProcess.ts'

/** Long enough that a late timer does not cost it, short enough that a stop outlasts it. */
const TTL_MS = 800
const ROUND_MS = 8000
const POOL_SIZE = 12
/** Of the whole time, at most, for the naive forms. */
const NAIVE_SHARE = 0.45
const PROLONGED_TIMES = 3
const STRUCK_IN_THREE_MINUTES = 20
/** Where nothing gets done, nothing goes wrong. */
const DONE_IN_THREE_MINUTES = 20
const KINDS_OF_FAULTS = 12
const TOLD_OF_EACH = 10
/** What holds also where acknowledged commits are lost. Everything else follows from what is in the database. */
const HOLDS_ANYWAY: ReadonlySet<string> = new Set([
  'mutual exclusion',
  'no stale write',
  'conserved total',
  'no deadlock',
  'no serialization failure',
  'no connection leaked',
  'nothing left held',
])

/** Two drivers, three ways. A dead network is the proxy's: postgres.js cannot let go of a connection there. */
const PLACES: readonly { readonly way: Route; readonly driver: 'pg' | 'postgres' }[] = [
  { way: 'direct', driver: 'postgres' },
  { way: 'proxy', driver: 'pg' },
  { way: 'pooler', driver: 'pg' },
  { way: 'pooler', driver: 'postgres' },
]

export interface RunOptions extends LaboratoryOptions {
  readonly scenarios: readonly Scenario[]
  readonly faults: readonly Fault[]
  readonly forms: readonly Form[]
  readonly seed: number
  readonly minutes: number
  /**
   * A run that has not shown enough by then is prolonged up to this: a naive form was not caught, or faults struck too little. Default: three
   * times `minutes`.
   */
  readonly limitMinutes?: number
  /** Operations at a time of each scenario in each worker, in place of its own number. */
  readonly lanes?: number
  readonly machine: string
  /** What to type for the same again. */
  readonly replay: string
  /** Receives what the outbox did, and the model is asked whether it allows that. */
  readonly trace?: (trace: Trace) => Promise<void>
  /** Ends it before its time; what was seen is reported. */
  readonly signal?: AbortSignal
}

/** What is continuing, for those who watch. */
export interface Progress {
  readonly result: RunResult
  readonly form: Form
  readonly round: number
  readonly doing: string
  readonly elapsedMs: number
  readonly ofMs: number
}

/** A whole run: the naive forms until each was caught, then ours until the time is over, and both again where that has not shown enough. */
export async function prove(options: RunOptions, watch: (progress: Progress) => void): Promise<RunResult> {
  const laboratory = await openLaboratory(options.scenarios, options)
  const run = new Run(options, laboratory, watch)
  try {
    return await run.play()
  } finally {
    await run.close()
    await laboratory.close()
  }
}

class Run implements WorkerListener {
  readonly #options: RunOptions
  readonly #laboratory: Laboratory
  readonly #watch: (progress: Progress) => void
  readonly #workers: readonly WorkerProcess[]
  readonly #scenarios: Map<string, ScenarioResult>
  readonly #faults: Map<string, FaultResult>
  /** A list for each scenario and form: a flood of one must not hide the other. */
  readonly #violations = new Map<string, (Violation & { form: Form; round: number })[]>()
  /** Of the naive form of each scenario, the invariants that were broken. */
  readonly #broken = new Map<string, Set<string>>()
  readonly #startedAt = new Date()
  readonly #started = performance.now()
  #round: Round | undefined
  #rounds = 0
  #replaced = 0
  #timelines: { readonly first: number; readonly last: number; readonly noticed: number } | undefined
  readonly #divergence = { diverged: 0, reported: 0, silent: 0 }
  /** Violations that the loss of acknowledged commits explains. */
  #explained = 0
  #lost: Error | undefined
  #recorder: Recorder | undefined
  /** What the model does not allow, and how many cursors it has looked at. */
  #traced: { readonly rejections: readonly Rejection[]; readonly cursors: number } | undefined

  constructor(options: RunOptions, laboratory: Laboratory, watch: (progress: Progress) => void) {
    this.#options = options
    this.#laboratory = laboratory
    this.#watch = watch
    const { url, proxiedUrl, pooledUrl } = laboratory
    const urls = { direct: url, proxy: proxiedUrl, pooler: pooledUrl ?? url }
    this.#workers = PLACES.map(({ way, driver }, index) => {
      const real = way === 'pooler' && pooledUrl === undefined ? 'direct' : way
      const plan = {
        driver: postgresJsIsThere ? driver : 'pg',
        url: urls[real],
        directUrl: real === 'proxy' ? proxiedUrl : url,
        poolSize: POOL_SIZE,
      }
      return new WorkerProcess(`w${index + 1}`, real, plan, this)
    })
    const all = [
      ...options.scenarios.map(({ name, title, forms }) => ({ name, title, does: forms })),
      {
        name: LEFTOVERS,
        title: 'What is left when all is quiet',
        does: {
          naive: 'not looked at',
          lockstep: 'no lock, no lease, no transaction, no connection, nothing that hangs',
        },
      },
    ]
    this.#scenarios = new Map(all.map((each) => [each.name, { ...each, forms: emptyForms() }]))
    this.#faults = new Map(
      options.faults.map((fault) => {
        const skipped = fault.impossible?.(laboratory)
        const result = { fault: fault.name, does: fault.about, injected: 0, struck: 0 }
        return [fault.name, skipped === undefined ? result : { ...result, skipped }]
      }),
    )
  }

  entry: WorkerListener['entry'] = (entry) => {
    this.#recorder?.entry(entry)
    this.#round?.entry(entry)
  }
  answer: WorkerListener['answer'] = (_, service, question) => {
    const answer = this.#round?.answer(service, question)
    if (service === 'outbox' && answer !== undefined) this.#recorder?.sent(question, answer)
    return answer
  }
  lost: WorkerListener['lost'] = (reason) => (this.#lost = reason)

  async play(): Promise<RunResult> {
    const { forms, minutes, scenarios } = this.#options
    await Promise.all(this.#workers.map(({ ready }) => ready))
    if (this.#options.trace !== undefined) this.#recorder = await Recorder.begin(this.#laboratory.admin)
    if (this.#laboratory.cluster !== undefined) {
      const { timeline, noticed } = await this.#laboratory.timelines()
      this.#timelines = { first: timeline, last: timeline, noticed }
    }
    const allMs = minutes * 60_000
    if (forms.includes('naive')) {
      const naiveMs = forms.length === 1 ? allMs : allMs * NAIVE_SHARE
      for (;;) {
        const free = scenarios.filter((scenario) => this.#toBreak(scenario).length > 0)
        if (free.length === 0 || !(await this.#playRound('naive', free, naiveMs))) break
      }
    }
    if (forms.includes('lockstep')) while (await this.#playRound('lockstep', scenarios, allMs));
    await this.#prolong()
    await this.#replay()
    return this.#result()
  }

  /** Asks the model whether it allows what the outbox has done. */
  async #replay(): Promise<void> {
    if (this.#recorder === undefined) return
    // What a process still writes would be half in the trace.
    await Promise.all(this.#workers.map((worker) => worker.end()))
    const trace = await this.#recorder.end()
    const rejections = replayTrace(trace)
    this.#traced = { rejections, cursors: trace.cursors.length }
    const told = rejections.map(({ invariant, text }): Violation & { form: Form; round: number } => ({
      invariant: `model, ${invariant}`,
      scenario: 'outbox',
      key: '',
      text,
      ops: [],
      at: 0,
      form: 'lockstep',
      round: this.#rounds,
    }))
    this.#violations.set('trace', told)
    await this.#options.trace?.(trace)
  }

  /** A machine that is busy with something else needs longer to show the same. What is broken already does not become more broken. */
  async #prolong(): Promise<void> {
    const { forms, minutes, limitMinutes = PROLONGED_TIMES * minutes, scenarios } = this.#options
    const limitMs = limitMinutes * 60_000
    let isTime = true
    while (isTime && verdictOf(this.#goals()) === 'inconclusive') {
      const free = forms.includes('naive') ? scenarios.filter((scenario) => this.#toBreak(scenario).length > 0) : []
      if (free.length > 0) isTime = await this.#playRound('naive', free, limitMs)
      const missed = this.#goals().filter(({ holds, name }) => !holds && !name.includes(': naive form'))
      if (missed.length > 0) isTime = await this.#playRound('lockstep', scenarios, limitMs)
    }
  }

  /** What the naive form has to break and has not broken yet. */
  #toBreak({ name, naiveBreaks = [] }: Scenario): readonly string[] {
    const broken = this.#broken.get(name)
    if (naiveBreaks.length === 0) return broken === undefined ? ['something'] : []
    return naiveBreaks.filter((invariant) => broken?.has(invariant) !== true)
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.end()))
  }

  get #elapsedMs(): number {
    return performance.now() - this.#started
  }

  /** False when there is no time for it. */
  async #playRound(form: Form, scenarios: readonly Scenario[], untilMs: number): Promise<boolean> {
    const leftMs = untilMs - this.#elapsedMs
    const first = this.#scenarios.get(scenarios[0]?.name ?? '')?.forms[form].rounds === 0
    if (this.#options.signal?.aborted === true || (leftMs < ROUND_MS / 2 && !first)) return false
    const number = ++this.#rounds
    const { seed, lanes } = this.#options
    const round = new Round(
      this.#laboratory,
      this.#workers,
      scenarios,
      { number, form, seed, ttlMs: TTL_MS, ...(lanes === undefined ? {} : { lanes }) },
      (fault, struck) => {
        const result = this.#faults.get(fault)
        if (result === undefined) return
        result.injected++
        result.struck += struck
      },
    )
    this.#round = round
    const ticking = setInterval(() => this.#tell(form, number), 250)
    try {
      const faults = this.#faultsOf(form)
      const outcomes = await round.play(Math.min(ROUND_MS, Math.max(leftMs, 1000)), faults, this.#options.signal)
      await this.#lookAtCluster(round)
      for (const { scenario, history, violations: all } of outcomes) {
        const violations = this.#unexplained(round, form, all)
        const result = this.#scenarios.get(scenario)
        if (result === undefined) continue
        const of = `${form} ${scenario}`
        const told = this.#violations.get(of) ?? []
        this.#violations.set(of, told)
        addRound(result.forms[form], number, history, violations, told)
        if (form === 'naive' && violations.length > 0) {
          const broken = this.#broken.get(scenario) ?? new Set()
          this.#broken.set(scenario, broken)
          for (const { invariant } of violations) broken.add(invariant)
        }
      }
      if (this.#lost !== undefined) throw this.#lost
    } finally {
      clearInterval(ticking)
      this.#round = undefined
      this.#tell(form, number)
    }
    return true
  }

  /** The recipes break without another primary. Of the others, one at a time replaces it: the next one finds the cluster whole. */
  #faultsOf(form: Form): Fault[] {
    const possible = this.#options.faults.filter(({ name }) => this.#faults.get(name)?.skipped === undefined)
    const replacing = possible.filter(({ replacesPrimary }) => replacesPrimary === true)
    const next = form === 'lockstep' ? replacing[this.#replaced++ % replacing.length] : undefined
    return possible.filter((fault) => fault.replacesPrimary !== true || fault === next)
  }

  async #lookAtCluster(round: Round): Promise<void> {
    if (this.#timelines === undefined) return
    const { timeline, noticed } = await this.#laboratory.timelines()
    this.#timelines = { ...this.#timelines, last: timeline, noticed }
    const { diverged, reported, silent } = round.divergence
    this.#divergence.diverged += diverged
    this.#divergence.reported += reported
    this.#divergence.silent += silent
  }

  /** Without what the loss of acknowledged commits explains: that is counted, and no violation of a promise. */
  #unexplained(round: Round, form: Form, violations: readonly Violation[]): readonly Violation[] {
    if (this.#options.cluster !== 'asynchronous' || form === 'naive' || !round.replacedPrimary) return violations
    const left = violations.filter(({ invariant }) => HOLDS_ANYWAY.has(invariant) || invariant.startsWith('at most '))
    this.#explained += violations.length - left.length
    return left
  }

  #tell(form: Form, round: number): void {
    const ofMs = this.#options.minutes * 60_000
    const doing =
      this.#round === undefined ? 'over' : `${this.#round.doing}, ${this.#round.operations} operations so far`
    this.#watch({ result: this.#result(), form, round, doing, elapsedMs: this.#elapsedMs, ofMs })
  }

  #result(): RunResult {
    const { seed, minutes, machine, replay } = this.#options
    return {
      seed,
      startedAt: this.#startedAt.toISOString(),
      minutes,
      server: this.#laboratory.description,
      machine,
      replay,
      scenarios: [...this.#scenarios.values()],
      faults: [...this.#faults.values()],
      goals: this.#goals(),
      ...(this.#clusterResult === undefined ? {} : { cluster: this.#clusterResult }),
      violations: [...this.#violations.values()].flatMap((told) => told.slice(0, TOLD_OF_EACH)),
    }
  }

  get #clusterResult(): ClusterResult | undefined {
    const { cluster: replication } = this.#options
    if (replication === undefined || this.#timelines === undefined) return undefined
    const { first, last, noticed } = this.#timelines
    return { replication, promotions: last - first, noticed, lost: this.#explained, ...this.#divergence }
  }

  #clusterGoals(): Goal[] {
    const found = this.#clusterResult
    if (found === undefined || !this.#options.forms.includes('lockstep')) return []
    const { replication, promotions, noticed, lost, silent } = found
    return [
      evidence('cluster: primaries that were replaced', promotions, '>=', 1),
      goal('cluster: promotions that Lockstep did not notice', promotions - noticed, '=', 0),
      goal('cluster: streams in which one number is two events, without a report', silent, '=', 0),
      ...(replication === 'asynchronous' ? [evidence('cluster: losses that the checkers found', lost, '>=', 1)] : []),
    ]
  }

  #goals(): Goal[] {
    const { forms, minutes, scenarios } = this.#options
    const goals: Goal[] = []
    const share = Math.min(1, minutes / 3)
    const leastDone = Math.max(1, Math.floor(DONE_IN_THREE_MINUTES * share))
    for (const { name, forms: results } of this.#scenarios.values()) {
      if (forms.includes('naive') && name !== LEFTOVERS) {
        goals.push(evidence(`${name}: naive form caught, violations`, results.naive.violations, '>=', 1))
        const scenario = scenarios.find((each) => each.name === name)
        if (scenario?.naiveBreaks !== undefined)
          goals.push(evidence(`${name}: naive form keeps what it should break`, this.#toBreak(scenario).length, '=', 0))
      }
      if (!forms.includes('lockstep')) continue
      goals.push(goal(`${name}: lockstep violations`, results.lockstep.violations, '=', 0))
      if (name !== LEFTOVERS)
        goals.push(evidence(`${name}: lockstep operations done`, results.lockstep.done, '>=', leastDone))
    }
    goals.push(...this.#clusterGoals())
    if (this.#traced !== undefined) {
      goals.push(goal('trace: steps that the model does not allow', this.#traced.rejections.length, '=', 0))
      goals.push(evidence('trace: cursors that were replayed', this.#traced.cursors, '>=', leastDone))
    }
    // A recipe that was caught needs no faults to have struck.
    if (!forms.includes('lockstep')) return goals
    const least = Math.max(1, Math.floor(STRUCK_IN_THREE_MINUTES * share))
    const possible = [...this.#faults.values()].filter(({ skipped }) => skipped === undefined)
    for (const { fault, struck } of possible) {
      goals.push(evidence(`fault ${fault}: operations struck in flight`, struck, '>=', least))
    }
    // Fewer were asked for, or can be had here: then the table says so.
    if (possible.length >= KINDS_OF_FAULTS) {
      const kinds = possible.filter(({ struck }) => struck >= least).length
      goals.push(evidence('kinds of faults that struck', kinds, '>=', KINDS_OF_FAULTS))
    }
    return goals
  }
}
