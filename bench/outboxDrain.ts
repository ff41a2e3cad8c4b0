import { type Lockstep, type OutboxEvent } from 'pg-lockstep'

const SHARDS = 8
let names = 0

/** How long draining took, from the moment in which all shards were at work. */
export interface Drained {
  readonly events: number
  readonly ms: number
}

/**
 * Drains the first events of a backlog into a sink that does nothing, as a dispatcher of a new name: it begins with the oldest one.
 * The clock starts when every shard has delivered its first batch: taking shards costs the same for one event as for a million, and
 * would count for much where little is drained.
 */
export async function drain(lockstep: Lockstep, upTo: number): Promise<Drained> {
  const stop = new AbortController()
  const heard = new Set<number>()
  let [events, from, startedAt, endedAt] = [0, 0, 0, 0]
  const dispatcher = lockstep.dispatcher({
    name: `drain-${++names}`,
    shards: SHARDS,
    retainMs: false,
    sink(batch, { shard }) {
      if (endedAt > 0) return
      events += batch.length
      if (startedAt === 0 && heard.add(shard).size === SHARDS) [from, startedAt] = [events, performance.now()]
      if (events < upTo) return
      endedAt = performance.now()
      stop.abort()
    },
  })
  await dispatcher.run({ signal: stop.signal })
  return { events: events - from, ms: endedAt - startedAt }
}

/** Delivers for as long as it is let: while its gate is closed, it has a batch of each shard in hand and reads nothing. */
export class GatedDispatcher {
  readonly #stop = new AbortController()
  readonly #run: Promise<void>
  #delivered = 0
  #wanted = Infinity
  #reached: (() => void) | undefined
  #gate: Promise<void> = Promise.resolve()
  #open: () => void = () => undefined

  constructor(lockstep: Lockstep) {
    this.close()
    this.#run = lockstep
      .dispatcher({ name: 'gated', shards: SHARDS, retainMs: false, sink: (events) => this.#take(events) })
      .run({ signal: this.#stop.signal })
  }

  close(): void {
    this.#gate = new Promise((resolve) => (this.#open = resolve))
  }

  /** Opens the gate until that many were delivered in all, and closes it again. */
  async deliverUpTo(wanted: number): Promise<void> {
    if (this.#delivered < wanted) {
      const reached = new Promise<void>((resolve) => (this.#reached = resolve))
      this.#wanted = wanted
      this.#open()
      await reached
    }
    this.close()
  }

  async #take(events: readonly OutboxEvent[]): Promise<void> {
    await this.#gate
    this.#delivered += events.length
    if (this.#delivered >= this.#wanted) this.#reached?.()
  }

  get delivered(): number {
    return this.#delivered
  }

  async stop(): Promise<void> {
    this.#open()
    this.#stop.abort()
    await this.#run
  }
}
