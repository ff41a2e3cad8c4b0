import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery, DispatcherOptions, Lockstep, OutboxEvent, Sink } from 'pg-lockstep'
import { Arrivals } from '../../checkers/arrivals.ts'
import type { Random } from '../../seed.ts'

/** A sink that keeps everything it took, in its order. */
export class RecordingSink implements Sink {
  readonly name = 'recording'
  readonly arrivals = new Arrivals()
  /** Whether a dispatcher has come to it at all. */
  opened = false
  readonly #random: Random
  readonly #answer: (key: string) => Delivery

  /** `answer`: what it says to the events of a key. */
  constructor(random: Random, answer: (key: string) => Delivery = () => 'sent') {
    this.#random = random
    this.#answer = answer
  }

  async open(): Promise<void> {
    this.opened = true
  }

  async send(events: readonly OutboxEvent[]): Promise<Delivery[]> {
    const answers = events.map(({ key }) => this.#answer(key))
    events.forEach(({ topic, key, seq, id, payload }, place) => {
      if (answers[place] !== 'sent') return
      this.arrivals.see({ key: `${topic}/${key}`, seq, id, mark: (payload as { mark: string }).mark })
    })
    // Answered a moment later: so that something has arrived of which no cursor knows.
    await sleep(this.#random.next() * 4)
    return answers
  }
}

/** A dispatcher in this process, and how it ended. */
export interface Run {
  /** The code of the error with which it ended; undefined where it was stopped. */
  readonly ended: Promise<string | undefined>
  /** Has it deliver its current batch and move its cursors. */
  stop(): Promise<void>
}

export function startRun(lockstep: Lockstep, options: DispatcherOptions & { readonly sink: RecordingSink }): Run {
  const stopping = new AbortController()
  const ended = lockstep.outbox
    .dispatcher(options)
    .run({ signal: stopping.signal })
    .then(
      () => undefined,
      (error: unknown) => (error as { code?: string }).code ?? String(error),
    )
  return {
    ended,
    async stop() {
      stopping.abort()
      const code = await ended
      if (code !== undefined) throw new Error(`the dispatcher had ended with ${code}`)
    },
  }
}
