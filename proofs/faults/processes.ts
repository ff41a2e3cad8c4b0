import { setTimeout as sleep } from 'node:timers/promises'
import { sessionsOf } from '../clients.ts'
import type { WorkerProcess } from '../workerProcess.ts'
import { anyWorker, type Fault, NOBODY, type Scene, type Struck } from './fault.ts'
import { stopInFlight } from './inFlight.ts'
import { countSessions } from './sessions.ts'

/** Longer than the ttl of a lease. */
const PAUSE_TTLS = 1.7
const AN_HOUR_MS = 3_600_000
/** For so long a kill waits for a moment in which something is written and not yet committed. */
const AIM_MS = 500

export const kill: Fault = {
  name: 'kill',
  about: 'kill -9 of a process, every other time in the middle of a transaction; another takes its place',
  async strike(scene) {
    const worker = anyWorker(scene)
    if (worker === undefined) return NOBODY
    // It only aims: another fault may have taken the database away. A statement that is wrong is our mistake.
    if (scene.random.chance(0.5)) {
      await stopWhileWriting(scene, worker).catch((error: Error & { code?: string }) => {
        if (error.code?.startsWith('42') === true) throw error
      })
    }
    const struck = { on: worker.by, operations: worker.inFlight }
    await worker.killAndReplace()
    return struck
  },
}

async function stopWhileWriting({ admin, random }: Scene, worker: WorkerProcess): Promise<void> {
  const until = performance.now() + AIM_MS
  const which = { application: sessionsOf(worker.by), middleOf: 'a transaction that has written' } as const
  await stopInFlight(worker, async () => ((await countSessions(admin, which)) > 0 ? true : undefined), {
    pauseMs: () => random.below(20),
    goesOn: () => worker.running && performance.now() < until,
  })
}

export const pause: Fault = {
  name: 'pause',
  about: 'SIGSTOP of a process for longer than its leases live, then SIGCONT',
  strike: (scene) => freeze(scene, scene.ttlMs * PAUSE_TTLS),
}

/** The process that holds most has most to lose. While none holds anything, it waits a moment. */
export async function freeze({ workers }: Pick<Scene, 'workers'>, forMs: number, aimMs = 0): Promise<Struck> {
  const until = performance.now() + aimMs
  const most = (): WorkerProcess | undefined =>
    workers.filter(({ running }) => running).toSorted((one, other) => other.holding - one.holding)[0]
  while ((most()?.holding ?? 0) === 0 && performance.now() < until) await sleep(1)
  const worker = most()
  if (worker === undefined) return NOBODY
  const struck = { on: worker.by, operations: worker.inFlight }
  worker.stop()
  await sleep(forMs)
  worker.continue()
  return struck
}

export const clock: Fault = {
  name: 'clock',
  about: "a process's clock is set by hours or days, forward or back",
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
