import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery, DispatcherOptions, Lockstep, OutboxEvent, Sink } from 'pg-lockstep'
import { type Arrival, StreamOrderChecker } from '../../checkers/streamOrder.ts'

/** A sink that keeps everything it took, in its order. */
export class RecordingSink implements Sink {
  readonly name = 'recording'
  readonly arrivals: Arrival[] = []
  readonly marks = new Set<string>()
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
      const { mark } = payload as { mark: string }
      this.arrivals.push({ key: `${topic}/${key}`, seq, uuid: id, mark })
      this.marks.add(mark)
    })
    // Answered a moment later: so that something has arrived of which no cursor knows.
    await sleep(Math.random() * 4)
    return answers
  }
}

/** A dispatcher in this process, and how it ended. */
export interface Run {
  /** The code of the error with which it ended; undefined where it was stopped. */
  readonly ended: Promise<string | undefined>
  /** Has it deliver what it has in hand and move its cursors. */
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

/** A checker that keeps everything that arrived. */
export class Recorder extends StreamOrderChecker {
  readonly arrivals: Arrival[] = []

  override see(arrival: Arrival): void {
    this.arrivals.push(arrival)
    super.see(arrival)
  }
}
