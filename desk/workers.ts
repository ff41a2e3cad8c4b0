import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { nodeArguments } from '../tools/server/nodeArguments.ts'
import type { AllMetrics } from './allMetrics.ts'
import type { ServicePlan } from './service.ts'

/** What a worker receives about itself. */
export const PLAN_VARIABLE = 'LOCKSTEP_DESK_PLAN'
export const READY = 'ready'
export const STOP = 'stop'

/** A worker that keeps dying is started again more and more rarely. */
const FIRST_PAUSE_MS = 200
const LONGEST_PAUSE_MS = 10_000
/** One that has lived so long is well again. */
const WELL_MS = 10_000
/** Longer than a worker's own deadline for its requests. */
const STOP_DEADLINE_MS = 15_000

/** Processes that share one port. One that dies is started again. */
export class Workers {
  readonly #plan: ServicePlan
  readonly #metrics: AllMetrics
  readonly #say: (line: string) => void
  readonly #stopping = new AbortController()
  readonly #slots: Promise<void>[]
  readonly #alive = new Set<Worker>()
  readonly #firstReady: Promise<void>[] = []

  private constructor(plan: ServicePlan, count: number, metrics: AllMetrics, say: (line: string) => void) {
    this.#plan = plan
    this.#metrics = metrics
    this.#say = say
    // Workers accept connections themselves. With the default policy the supervisor accepts them, passes each one on, and keeps its own handle
    // until the worker confirms. A worker that dies first never does: the connection stays open, and is neither answered nor reset.
    cluster.schedulingPolicy = cluster.SCHED_NONE
    const program = nodeArguments(new URL('worker.ts', import.meta.url))
    cluster.setupPrimary({ exec: program.at(-1)!, execArgv: program.slice(0, -1), args: [] })
    this.#slots = Array.from({ length: count }, (_, index) => {
      let ready = (): void => {}
      this.#firstReady.push(new Promise((resolve) => (ready = resolve)))
      return this.#keep(`${plan.processName}-${index + 1}`, ready)
    })
  }

  /** Resolves when all of them answer, or when the signal is aborted. */
  static async start(
    plan: ServicePlan,
    count: number,
    metrics: AllMetrics,
    say: (line: string) => void,
    signal: AbortSignal,
  ): Promise<Workers> {
    const workers = new Workers(plan, count, metrics, say)
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    await Promise.race([Promise.all(workers.#firstReady), aborted])
    return workers
  }

  async close(): Promise<void> {
    this.#stopping.abort()
    for (const worker of this.#alive) if (worker.isConnected()) worker.send(STOP)
    const deadline = setTimeout(() => {
      for (const worker of this.#alive) worker.process.kill('SIGKILL')
    }, STOP_DEADLINE_MS)
    await Promise.all(this.#slots)
    clearTimeout(deadline)
  }

  /** One slot, for as long as the desk runs: a worker, and another when that one is gone. */
  async #keep(processName: string, ready: () => void): Promise<void> {
    const { signal } = this.#stopping
    let pauseMs = FIRST_PAUSE_MS
    while (!signal.aborted) {
      const begun = performance.now()
      const worker = cluster.fork({ [PLAN_VARIABLE]: JSON.stringify({ ...this.#plan, processName }) })
      this.#alive.add(worker)
      this.#metrics.follow(processName, worker)
      worker.on('message', (message) => {
        if (message === READY) ready()
      })
      // A message to a worker that has just died is no error.
      worker.on('error', () => {})
      const [code, name] = (await once(worker, 'exit')) as [number | null, string | null]
      this.#alive.delete(worker)
      if (signal.aborted) return
      if (performance.now() - begun > WELL_MS) pauseMs = FIRST_PAUSE_MS
      this.#say(
        `${processName} (${worker.process.pid}) ended with ${name ?? code}. It is started again in ${pauseMs} ms.`,
      )
      await delay(pauseMs, undefined, { signal }).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
    }
  }
}
