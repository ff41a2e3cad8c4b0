import type { MiddlewareHandler } from 'hono'
import { routePath } from 'hono/route'
import { lockstepMetrics } from 'pg-lockstep/prometheus'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Desk } from '../desk.ts'

/** What this process counts. */
export class Metrics {
  readonly #register = new Registry()
  readonly #requests: Histogram
  readonly #stop: () => void
  readonly #head: string

  constructor({ pool, processName, lockstep }: Desk) {
    const registers = [this.#register]
    collectDefaultMetrics({ register: this.#register })
    this.#stop = lockstepMetrics({ Counter, Gauge, Histogram }, { register: this.#register, outbox: lockstep.outbox })
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
    this.#head = `# Of the process ${processName} (${process.pid}) alone: ask each process, and add them up.\n`
  }

  /** Times every request by its route, not by its path: ids are many. */
  readonly measure: MiddlewareHandler = async (c, next) => {
    const done = this.#requests.startTimer()
    await next()
    done({ method: c.req.method, route: routePath(c), status: c.res.status })
  }

  get contentType(): string {
    return this.#register.contentType
  }

  async text(): Promise<string> {
    return this.#head + (await this.#register.metrics())
  }

  close(): void {
    this.#stop()
    this.#register.clear()
  }
}
