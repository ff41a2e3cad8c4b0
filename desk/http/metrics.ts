import type { MiddlewareHandler } from 'hono'
import { routePath } from 'hono/route'
import { lockstepMetrics } from 'pg-lockstep/prometheus'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Desk } from '../desk.ts'
import { onPosition } from '../positions/positionEvents.ts'
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
    // Without the process id: a process that is started again continues with the series of the one before.
    this.#process = processName.split(':')[0] as string
    const registers = [this.#register]
    collectDefaultMetrics({ register: this.#register })
    const stopPositions = countPositions(this.#register)
    const stopLockstep = lockstepMetrics(
      { Counter, Gauge, Histogram },
      { register: this.#register, ...(options.database && { outbox: lockstep.outbox }) },
    )
    this.#stop = () => {
      stopPositions()
      stopLockstep()
    }
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

/** What the reconciler does, and how often a signal wanted to open what was open. The function that it returns stops it. */
function countPositions(register: Registry): () => void {
  const registers = [register]
  const rounds = new Histogram({
    name: 'desk_reconciler_round_seconds',
    help: 'How long a round of the reconciler took.',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  })
  const differences = new Counter({
    name: 'desk_reconciler_differences_total',
    help: 'Differences between exchange and desk that rounds have seen.',
    registers,
  })
  const repairs = new Counter({
    name: 'desk_reconciler_repairs_total',
    help: 'Repairs of the reconciler, by how they ended.',
    labelNames: ['outcome'],
    registers,
  })
  const adoptions = new Counter({
    name: 'desk_position_adoptions_total',
    help: 'Positions that were opened at the exchange and are those of the desk now.',
    registers,
  })
  const duplicates = new Counter({
    name: 'desk_position_duplicates_avoided_total',
    help: 'Attempts to open what is open already, which got the position that is there.',
    labelNames: ['path'],
    registers,
  })
  // A series that begins at 1 has not risen, to Prometheus.
  for (const outcome of ['repaired', 'failed']) repairs.inc({ outcome }, 0)
  for (const path of ['signal', 'reconciler']) duplicates.inc({ path }, 0)
  return onPosition((event) => {
    if (event.kind === 'round') {
      rounds.observe(event.tookMs / 1000)
      differences.inc(event.differences)
    } else if (event.kind === 'adopted') adoptions.inc()
    else if (event.kind === 'duplicate avoided') duplicates.inc({ path: event.path })
    else repairs.inc({ outcome: event.kind === 'repaired' ? 'repaired' : 'failed' })
  })
}
