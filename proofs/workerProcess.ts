import type { ChildProcess } from 'node:child_process'
import { type KillableProcess, startProcess } from './faults/killableProcess.ts'
import { ENDS, type Entry } from './history.ts'
import type { FromWorker, RoundPlan, ToWorker, WorkerPlan } from './messages.ts'

/** How a worker reaches the database. */
export type Route = 'direct' | 'proxy' | 'pooler'

/** What the coordinator hears from workers. */
export interface WorkerListener {
  entry(entry: Entry): void
  answer(round: number, service: string, question: unknown): unknown
  /** A process ended that no fault killed: its results then prove nothing. */
  lost(reason: Error): void
}

const PROGRAM = new URL('worker.ts', import.meta.url)

/** A worker as the coordinator has it: a place that is always filled, by one process after the other. */
export class WorkerProcess {
  readonly way: Route
  readonly #plan: Omit<WorkerPlan, 'by'>
  readonly #name: string
  readonly #ear: WorkerListener
  readonly #open = new Set<string>()
  readonly #holding = new Set<string>()
  #lives = 0
  #process: KillableProcess | undefined
  #ready: Promise<void> = Promise.resolve()
  #replacing: Promise<void> | undefined
  readonly #rounds = new Map<number, RoundPlan>()
  #stopped = false
  #over = false
  #timedOut = 0
  readonly #waiting = new Map<string, (message: FromWorker) => void>()

  constructor(name: string, way: Route, plan: Omit<WorkerPlan, 'by'>, ear: WorkerListener) {
    this.#name = name
    this.way = way
    this.#plan = plan
    this.#ear = ear
    this.#begin()
  }

  /** How the history calls the process that is there now. */
  get by(): string {
    return this.#name + "'".repeat(this.#lives - 1)
  }

  /** Operations that were asked and have no end. */
  get inFlight(): number {
    return this.#open.size
  }

  /** Their names. */
  get open(): readonly string[] {
    return [...this.#open]
  }

  /** Operations that hold something just now. */
  get holding(): number {
    return this.#holding.size
  }

  /** Operations that ended because a statement had no more time. */
  get timedOut(): number {
    return this.#timedOut
  }

  /** Whether it is there and not stopped. */
  get running(): boolean {
    return this.#process !== undefined && !this.#stopped && !this.#over
  }

  get ready(): Promise<void> {
    return this.#ready
  }

  send(message: ToWorker): void {
    // The parent can be gone by now: then nothing receives it.
    const child = this.#process?.child
    if (child?.connected === true) child.send(message, () => undefined)
  }

  stop(): void {
    this.#stopped = true
    this.#process?.stop()
  }

  continue(): void {
    this.#stopped = false
    this.#process?.continue()
  }

  /** kill -9; the next process of this place continues with the rounds. Two kills at once are one: otherwise each would start a process. */
  killAndReplace(): Promise<void> {
    this.#replacing ??= this.#replace().finally(() => (this.#replacing = undefined))
    return this.#replacing
  }

  async #replace(): Promise<void> {
    await this.#kill()
    if (this.#over) return
    this.#begin()
    const next = this.#process
    await this.#ready
    if (this.#process === next) for (const round of this.#rounds.values()) this.send({ round })
  }

  begin(round: RoundPlan): void {
    this.#rounds.set(round.number, round)
    this.send({ round })
  }

  /** Whether it came to its end within the time. */
  async drain(round: number, withinMs: number): Promise<boolean> {
    return (await this.#told({ drain: round }, `drained ${round}`, withinMs)) !== undefined
  }

  /** How many connections are out; undefined if it did not come to its end. */
  async close(round: number, withinMs: number): Promise<number | undefined> {
    const closed = await this.#told({ close: round }, `closed ${round}`, withinMs)
    this.#rounds.delete(round)
    return closed !== undefined && 'closed' in closed ? closed.connectionsOut : undefined
  }

  async end(): Promise<void> {
    this.#over = true
    await this.#kill()
  }

  #begin(): void {
    this.#lives++
    const plan: WorkerPlan = { ...this.#plan, by: this.by }
    this.#process = startProcess(PROGRAM, [JSON.stringify(plan)])
    const { child } = this.#process
    this.#stopped = false
    this.#ready = new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code, signal) => {
        // Killed before it was there: the fault that did so starts another one.
        if (signal === 'SIGKILL') return resolve()
        const reason = new Error(`${this.by} has ended by itself, with ${code ?? signal}.`)
        reject(reason)
        this.#ear.lost(reason)
      })
      this.#waiting.set('ready true', () => resolve())
    })
    this.#ready.catch(() => undefined)
    child.on('message', (message: FromWorker) => this.#hear(child, message))
  }

  #hear(child: ChildProcess, message: FromWorker): void {
    if ('entry' in message) {
      const { what, op, note = '' } = message.entry
      if (what === 'asked') this.#open.add(op)
      else if (what === 'granted') this.#holding.add(op)
      else if (what === 'released') this.#holding.delete(op)
      else if (ENDS.has(what)) {
        this.#open.delete(op)
        this.#holding.delete(op)
        if (note.includes('57014')) this.#timedOut++
      }
      this.#ear.entry(message.entry)
    } else if ('ask' in message) {
      const value = this.#ear.answer(message.round, message.service, message.question)
      if (child.connected) child.send({ answer: message.ask, value } satisfies ToWorker, () => undefined)
    } else this.#waiting.get(Object.entries(message)[0]?.join(' ') ?? '')?.(message)
  }

  async #told(message: ToWorker, answer: string, withinMs: number): Promise<FromWorker | undefined> {
    const told = new Promise<FromWorker>((resolve) => this.#waiting.set(answer, resolve))
    this.send(message)
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), withinMs)))
    const first = await Promise.race([told, late])
    clearTimeout(timer)
    return first
  }

  async #kill(): Promise<void> {
    const killed = this.#process
    this.#process = undefined
    this.#open.clear()
    this.#holding.clear()
    await killed?.kill()
  }
}
