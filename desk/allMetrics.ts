import type { Worker } from 'node:cluster'
import type { Metrics } from './http/metrics.ts'
import { addUp, lasting, mergeMetrics, type ProcessSnapshot, type Snapshot } from './http/mergeMetrics.ts'

/** Between the supervisor and its workers. A worker that is asked for `/metrics` asks the supervisor, which asks all of them. */
export type MetricsMessage =
  | { readonly metrics: 'text wanted'; readonly id: number }
  | { readonly metrics: 'text'; readonly id: number; readonly text: string }
  | { readonly metrics: 'text failed'; readonly id: number; readonly reason: string }
  | { readonly metrics: 'snapshot wanted' }
  | { readonly metrics: 'snapshot'; readonly snapshot: Snapshot }

/** Snapshots of workers that are gone, before they become one. */
const MOST_GONE = 10
/** A worker that does not answer by then is shown as it was. */
const ANSWER_MS = 2_000

interface Slot {
  /** What the workers that are gone have counted. */
  gone: Snapshot[]
  worker: Worker | undefined
  last: Snapshot | undefined
  answered: (() => void) | undefined
}

/**
 * The metrics of all processes, in the supervisor. A counter never falls: when a worker dies, what it was last shown with is added to what its
 * successor counts. What it had counted since then is lost.
 */
export class AllMetrics {
  readonly #own: Metrics
  readonly #slots = new Map<string, Slot>()
  #reading: Promise<string> | undefined

  constructor(own: Metrics) {
    this.#own = own
  }

  /** The worker that has this slot from now on. */
  follow(name: string, worker: Worker): void {
    const slot = this.#slots.get(name) ?? { gone: [], worker, last: undefined, answered: undefined }
    slot.worker = worker
    this.#slots.set(name, slot)
    worker.on('message', (message: unknown) => {
      const { metrics } = message as Partial<MetricsMessage>
      if (metrics === 'text wanted') void this.#answer(worker, (message as { readonly id: number }).id)
      if (metrics === 'snapshot' && slot.worker === worker) {
        slot.last = (message as { readonly snapshot: Snapshot }).snapshot
        slot.answered?.()
      }
    })
    worker.on('exit', () => {
      slot.worker = undefined
      if (slot.last !== undefined) slot.gone.push(lasting(slot.last))
      slot.last = undefined
      slot.answered?.()
    })
  }

  /** One reading at a time, for all who ask meanwhile. */
  text(): Promise<string> {
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  async #answer(worker: Worker, id: number): Promise<void> {
    const answer = await this.text().then(
      (text): MetricsMessage => ({ metrics: 'text', id, text }),
      (error: unknown): MetricsMessage => ({ metrics: 'text failed', id, reason: String(error) }),
    )
    if (worker.isConnected()) worker.send(answer)
  }

  async #read(): Promise<string> {
    const own = { process: 'supervisor', snapshot: await this.#own.snapshot() }
    await Promise.all([...this.#slots.values()].map(ask))
    const all: ProcessSnapshot[] = [own]
    for (const [process, slot] of this.#slots) {
      const snapshots = [...slot.gone, ...(slot.last === undefined ? [] : [slot.last])]
      all.push(...snapshots.map((snapshot) => ({ process, snapshot })))
      // So that a worker that keeps dying does not fill the memory.
      if (slot.gone.length > MOST_GONE) slot.gone = [await addUp(slot.gone.splice(0)), ...slot.gone]
    }
    return mergeMetrics(all).metrics()
  }
}

async function ask(slot: Slot): Promise<void> {
  const { worker } = slot
  if (worker?.isConnected() !== true) return
  await new Promise<void>((resolve) => {
    const late = setTimeout(resolve, ANSWER_MS)
    slot.answered = () => {
      clearTimeout(late)
      resolve()
    }
    worker.send({ metrics: 'snapshot wanted' } satisfies MetricsMessage)
  })
  slot.answered = undefined
}
