import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery, DispatcherOptions, Lockstep, OutboxEvent, Sink } from 'pg-lockstep'
import type { Arrival } from '../checkers/streamOrder.ts'

/** A sink that keeps everything it took, in its order. */
export class RecordingSink implements Sink {
  readonly name = 'recording'
  readonly arrivals: Arrival[] = []
  /** Whether a dispatcher has come to it at all. */
  opened = false
  readonly #answer: (key: string) => Delivery

  /** `answer`: what it says to the events of a key. */
  constructor(answer: (key: string) => Delivery = () => 'sent') {
    this.#answer = answer
  }

  async open(): Promise<void> {
    this.opened = true
  }

  async send(events: readonly OutboxEvent[]): Promise<Delivery[]> {
    const answers = events.map(({ key }) => this.#answer(key))
    events.forEach(({ topic, key, seq, id, payload }, place) => {
      if (answers[place] !== 'sent') return
      this.arrivals.push({ key: `${topic}/${key}`, seq, uuid: id, mark: (payload as { mark: string }).mark })
    })
    // Answered a moment later: so that something has arrived of which no cursor knows.
    await sleep(Math.random() * 4)
    return answers
  }
}

/** A dispatcher in this process, and how it ended. */
export interface Run {
  readonly sink: RecordingSink
  /** The code of the error with which it ended; undefined where it was stopped. */
  readonly ended: Promise<string | undefined>
  /** Has it deliver what it has in hand and move its cursors. */
  stop(): Promise<void>
}

export function startRun(lockstep: Lockstep, options: DispatcherOptions & { readonly sink: RecordingSink }): Run {
  const stopping = new AbortController()
  const ended = lockstep
    .dispatcher(options)
    .run({ signal: stopping.signal })
    .then(
      () => undefined,
      (error: unknown) => (error as { code?: string }).code ?? String(error),
    )
  return {
    sink: options.sink,
    ended,
    async stop() {
      stopping.abort()
      const code = await ended
      if (code !== undefined) throw new Error(`the dispatcher had ended with ${code}`)
    },
  }
}
