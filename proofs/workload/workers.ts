/** Processes that do the work, each with a library of its version: started, asked, killed and replaced. At the end everything has to be right. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { DriverName } from '../attacks/client.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { Ask, ProcessSample, WorkloadPlan } from './workloadProcess.ts'
import { CONSUMER_EFFECT, type Leak, type Part, PARTS, ROWS, SINK_EFFECT } from './workload.ts'
import { ADD_COUNTERS, CREATE_WORKLOAD, LOST_WRITES, UNEQUAL_EFFECTS } from './workload.sql.ts'

export interface WorkersOptions {
  readonly url: string
  readonly seed: number
  readonly perSecond: number
  readonly ttlMs: number
  readonly retainMs: number
  readonly leak?: Leak
}

/** One of them. Without `library`: this one. */
export interface WorkerOptions {
  readonly name: string
  readonly driver: DriverName
  readonly library?: WorkloadPlan['library']
  /** Default true. */
  readonly consumes?: boolean
}

interface Worker {
  readonly options: WorkerOptions
  process: KillableProcess
}

export const THIS_LIBRARY = { main: 'pg-lockstep', http: 'pg-lockstep/http' }
const PROGRAM = new URL('workloadProcess.ts', import.meta.url)
/** Until the effects of all events are there, on a machine that is busy with other things. */
const SETTLE_MS = 120_000

export class Workers {
  readonly #admin: Pick<pg.Pool, 'query'>
  readonly #options: WorkersOptions
  readonly #workers = new Map<string, Worker>()
  readonly #violations: string[] = []
  readonly endedByPart = Object.fromEntries(PARTS.map((part) => [part, 0])) as Record<Part, number>
  /** By the code of the error. What faults strike fails. */
  readonly failed: Record<string, number> = {}
  skipped = 0
  #consumed = false

  constructor(admin: Pick<pg.Pool, 'query'>, options: WorkersOptions) {
    this.#admin = admin
    this.#options = options
  }

  get ended(): number {
    return Object.values(this.endedByPart).reduce((sum, count) => sum + count, 0)
  }

  get idleParts(): number {
    return Object.values(this.endedByPart).filter((count) => count === 0).length
  }

  /** The tables that they work on. */
  async prepare(): Promise<void> {
    await this.#admin.query(CREATE_WORKLOAD)
    await this.#admin.query(ADD_COUNTERS, [ROWS])
  }

  /** Comes back when it works. */
  async start(options: WorkerOptions): Promise<void> {
    const { name, driver, library = THIS_LIBRARY, consumes = true } = options
    const plan: WorkloadPlan = { ...this.#options, name, driver, library, consumes }
    const process = startProcess(PROGRAM, [JSON.stringify(plan)])
    this.#consumed ||= consumes
    const started = await Promise.race([
      once(process.child, 'message').then(() => true),
      once(process.child, 'exit').then(() => false),
    ])
    if (!started) throw new Error(`The process ${name} has ended while it started.`)
    this.#workers.set(name, { options, process })
  }

  async sample(name: string): Promise<ProcessSample> {
    return this.#ask(name, 'sample')
  }

  /** Undefined while it is replaced. */
  async sampleIfThere(name: string): Promise<ProcessSample | undefined> {
    return this.#workers.has(name) ? this.#ask(name, 'sample') : undefined
  }

  async #ask(name: string, ask: Ask): Promise<ProcessSample> {
    const worker = this.#workers.get(name)
    if (worker === undefined) throw new Error(`There is no process ${name}.`)
    const done = await worker.process.ask<ProcessSample>(ask)
    for (const part of PARTS) this.endedByPart[part] += done.ended[part]
    for (const [code, count] of Object.entries(done.failed)) this.failed[code] = (this.failed[code] ?? 0) + count
    this.skipped += done.skipped
    this.#violations.push(...done.violations)
    return done
  }

  /** kill -9, and another one in its place; `as` has what differs. */
  async replace(name: string, as: Partial<WorkerOptions> = {}): Promise<void> {
    const worker = this.#workers.get(name)
    if (worker === undefined) throw new Error(`There is no process ${name}.`)
    this.#workers.delete(name)
    await worker.process.kill()
    await this.start({ ...worker.options, ...as })
  }

  /** Has it end what it began, as a deployment does, and starts another one in its place. */
  async redeploy(name: string, as: Partial<WorkerOptions> = {}): Promise<void> {
    const options = this.#workers.get(name)?.options
    if (options === undefined) throw new Error(`There is no process ${name}.`)
    await this.#ask(name, 'stop')
    this.#workers.delete(name)
    await this.start({ ...options, ...as })
  }

  /** Ends the work, waits for the effects of all events, stops the processes, and gives what is wrong. */
  async finish(): Promise<readonly string[]> {
    const names = [...this.#workers.keys()]
    for (const name of names) await this.#ask(name, 'pause')
    const broken = await this.#settled()
    for (const name of names) await this.#ask(name, 'stop')
    this.#workers.clear()
    return [...this.#violations, ...broken]
  }

  async #settled(): Promise<string[]> {
    const effects = this.#consumed ? [SINK_EFFECT, CONSUMER_EFFECT] : [SINK_EFFECT]
    for (const deadline = performance.now() + SETTLE_MS; ; await sleep(50)) {
      const unequal = await this.#admin.query<Record<string, unknown>>(UNEQUAL_EFFECTS, [effects])
      if (unequal.rows.length > 0 && performance.now() < deadline) continue
      const lost = await this.#admin.query<Record<string, unknown>>(LOST_WRITES)
      return [
        ...lost.rows.map((row) => `a write was lost: ${JSON.stringify(row)}`),
        ...unequal.rows.map((row) => `effects are not as many as events: ${JSON.stringify(row)}`),
      ]
    }
  }

  async kill(): Promise<void> {
    await Promise.all([...this.#workers.values()].map(({ process }) => process.kill()))
    this.#workers.clear()
  }
}
