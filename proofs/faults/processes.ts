import { setTimeout as sleep } from 'node:timers/promises'
import { anyWorker, type Fault, NOBODY } from './fault.ts'

/** Longer than a lease lives. */
const PAUSE_TTLS = 1.7
const AN_HOUR_MS = 3_600_000

export const kill: Fault = {
  name: 'kill',
  about: 'kill -9 of a process; another takes its place',
  impossible: () => undefined,
  async strike(scene) {
    const worker = anyWorker(scene)
    if (worker === undefined) return NOBODY
    const struck = { on: worker.by, operations: worker.inFlight }
    await worker.killAndReplace()
    return struck
  },
}

export const pause: Fault = {
  name: 'pause',
  about: 'SIGSTOP of a process for longer than its leases live, then SIGCONT',
  impossible: () => undefined,
  async strike(scene) {
    // Whoever holds most has most to lose.
    const there = scene.workers.filter(({ running }) => running)
    const [worker] = there.toSorted((one, other) => other.holding - one.holding)
    if (worker === undefined) return NOBODY
    const struck = { on: worker.by, operations: worker.inFlight }
    worker.stop()
    await sleep(scene.ttlMs * PAUSE_TTLS)
    worker.continue()
    return struck
  },
}

export const clock: Fault = {
  name: 'clock',
  about: "a process's clock is set by hours or days, forward or back",
  impossible: () => undefined,
  async strike(scene) {
    const worker = anyWorker(scene)
    if (worker === undefined) return NOBODY
    const struck = { on: worker.by, operations: worker.inFlight }
    worker.send({ clockMs: scene.random.pick([-24, -1, 1, 24]) * AN_HOUR_MS })
    await sleep(1000)
    worker.send({ clockMs: 0 })
    return struck
  },
}

export const statementTimeout: Fault = {
  name: 'statement-timeout',
  about: 'statements of a process have 10 ms',
  impossible: () => undefined,
  async strike(scene) {
    const worker = anyWorker(scene)
    if (worker === undefined) return NOBODY
    const before = worker.timedOut
    worker.send({ timid: true })
    await sleep(1200)
    worker.send({ timid: false })
    await sleep(200)
    return { on: worker.by, operations: worker.timedOut - before }
  },
}
