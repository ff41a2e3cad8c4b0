import type { Arrival } from '../../checkers/arrivals.ts'
import { type KillableProcess, startProcess } from '../../faults/killableProcess.ts'
import type { DrainedBatch } from './drainProcess.ts'

/** A dispatcher in a process of its own, and what can be seen of it. */
export class Drain {
  readonly #process: KillableProcess
  #events = 0
  #largestBatch = 0
  #grownMb = 0

  constructor(url: string, batch: number, take: (arrival: Arrival, at: number) => void) {
    this.#process = startProcess(new URL('drainProcess.ts', import.meta.url), [url, String(batch)])
    this.#process.child.on('message', ({ at, events, grownMb }: DrainedBatch) => {
      this.#events += events.length
      this.#largestBatch = Math.max(this.#largestBatch, events.length)
      this.#grownMb = Math.max(this.#grownMb, grownMb)
      for (const [key, seq, id, mark] of events) take({ key, seq, id, mark }, at)
    })
  }

  get events(): number {
    return this.#events
  }

  get largestBatch(): number {
    return this.#largestBatch
  }

  get grownMb(): number {
    return this.#grownMb
  }

  kill(): Promise<void> {
    return this.#process.kill()
  }
}
