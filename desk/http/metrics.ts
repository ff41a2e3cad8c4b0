import type { MiddlewareHandler } from 'hono'
import { routePath } from 'hono/route'
import { lockstepMetrics } from 'pg-lockstep/prometheus'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Desk } from '../desk.ts'
import { mergeMetrics, type Snapshot } from './mergeMetrics.ts'

export interface MetricsOptions {
  /** Whether the database is asked for its gauges as well. One process of a desk does, or they would be there several times. */
  readonly database: boolean
}

/** What this process counts. */
export class Metrics {
  readonly #register = new Registry()
  readonly #requests: Histogram
  readonly #stop: () => void
  readonly #process: string

  constructor(
    { pool, processName, lockstep }: Pick<Desk, 'pool' | 'processName' | 'lockstep'>,
    options: MetricsOptions,
  ) {
    // Without the process id: a process that is started again goes on with the series of the one before.
    this.#process = processName.split(':')[0] as string
    const registers = [this.#register]
    collectDefaultMetrics({ register: this.#register })
    this.#stop = lockstepMetrics(
      { Counter, Gauge, Histogram },
      { register: this.#register, ...(options.database && { outbox: lockstep.outbox }) },
    )
    this.#requests = new Histogram({
      name: 'desk_request_seconds',
      help: 'From the request to its answer.',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    })
    const connections = new Gauge({
      name: 'desk_pool_connections',
      help: 'Connections of the pool, and callers that wait for one.',
      labelNames: ['state'],
      registers,
      collect() {
        connections.set({ state: 'total' }, pool.totalCount)
        connections.set({ state: 'idle' }, pool.idleCount)
        connections.set({ state: 'waiting' }, pool.waitingCount)
      },
    })
  }

  /** Times every request by its route, not by its path: ids are many. */
  readonly measure: MiddlewareHandler = async (c, next) => {
    const done = this.#requests.startTimer()
    await next()
    done({ method: c.req.method, route: routePath(c), status: c.res.status })
  }

  /** All series, as they can be sent to another process. */
  snapshot(): Promise<Snapshot> {
    return this.#register.getMetricsAsJSON()
  }

  async text(): Promise<string> {
    return mergeMetrics([{ process: this.#process, snapshot: await this.snapshot() }]).metrics()
  }

  close(): void {
    this.#stop()
    this.#register.clear()
  }
}
