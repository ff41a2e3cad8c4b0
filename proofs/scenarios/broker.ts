import type { Entry } from '../history.ts'

export interface BrokerEvent {
  readonly key: string
  readonly seq: number
  readonly id: string
  readonly op: string
  /** Of the server on which it was enqueued; a recipe has none. */
  readonly generation?: number
  readonly position?: number
}

/** The owner of a shard that sends, for traces. */
export interface Sender {
  readonly shard: number
  readonly fence: string
  /** Whether these events were parked before. */
  readonly beside: boolean
}

/** Streams in which one number is two different events, and those that a consumer has reported. */
export interface Divergence {
  readonly diverged: number
  readonly reported: number
  /** Of those that diverged: consumed to the end without a report. */
  readonly silent: number
}

/** What producers and consumers ask of the broker. */
export type Question =
  | { readonly send: readonly BrokerEvent[]; readonly from?: Sender }
  | { readonly poll: true }
  | { readonly ack: { readonly stream: string; readonly upTo: number } }
  | { readonly left: true }
  | { readonly diverged: string }
  | { readonly divergence: true }

export interface Polled {
  readonly stream: string
  readonly events: readonly BrokerEvent[]
  /** To acknowledge. */
  readonly upTo: number
}

const BATCH = 20
/** One of so many is not taken at first: its stream has to wait for it. */
const REFUSED_OF = 50
const REFUSALS = 2

/**
 * A log for each stream, as brokers have it: what is sent is appended, also when it comes twice; consumers get what is not yet
 * acknowledged, two of them at the same time the same.
 */
export class Broker {
  readonly #streams = new Map<string, { readonly log: BrokerEvent[]; acknowledged: number; reported?: true }>()
  readonly #refusals = new Map<string, number>()
  #turn = 0

  answer(question: Question, take: (entry: Pick<Entry, 'op' | 'key' | 'value'>) => void): unknown {
    if ('send' in question) return this.#send(question.send, take)
    if ('poll' in question) return this.#poll()
    if ('left' in question) return this.left
    if ('divergence' in question) return this.divergence
    if ('diverged' in question) {
      const reported = this.#streams.get(question.diverged)
      if (reported !== undefined) reported.reported = true
      return undefined
    }
    const stream = this.#streams.get(question.ack.stream)
    if (stream !== undefined) stream.acknowledged = Math.max(stream.acknowledged, question.ack.upTo)
    return undefined
  }

  /** How much is not acknowledged, of streams that do not wait for an operator. */
  get left(): number {
    return [...this.#streams.values()].reduce(
      (sum, { log, acknowledged, reported }) => sum + (reported === true ? 0 : log.length - acknowledged),
      0,
    )
  }

  get divergence(): Divergence {
    const diverged = [...this.#streams.values()].filter(({ log }) => {
      const ids = new Map<number, string>()
      return log.some(({ seq, id }) => {
        const known = ids.get(seq) ?? id
        ids.set(seq, known)
        return known !== id
      })
    })
    const reported = [...this.#streams.values()].filter((stream) => stream.reported === true).length
    return { diverged: diverged.length, reported, silent: diverged.filter((stream) => stream.reported !== true).length }
  }

  /** For each event whether it was taken. Behind one that was not, none of its stream is looked at by those who keep the order. */
  #send(events: readonly BrokerEvent[], take: (entry: Pick<Entry, 'op' | 'key' | 'value'>) => void): boolean[] {
    const waiting = new Set<string>()
    return events.map((event) => {
      if (waiting.has(event.key) || this.#refuses(event)) {
        waiting.add(event.key)
        return false
      }
      let stream = this.#streams.get(event.key)
      if (stream === undefined) this.#streams.set(event.key, (stream = { log: [], acknowledged: 0 }))
      stream.log.push(event)
      take({ op: event.op, key: event.key, value: event.seq })
      return true
    })
  }

  #refuses({ id, seq }: BrokerEvent): boolean {
    const times = this.#refusals.get(id) ?? 0
    if (seq % REFUSED_OF !== 0 || times >= REFUSALS) return false
    this.#refusals.set(id, times + 1)
    return true
  }

  #poll(): Polled | undefined {
    const waiting = [...this.#streams].filter(
      ([, { log, acknowledged, reported }]) => reported !== true && log.length > acknowledged,
    )
    const next = waiting[this.#turn++ % Math.max(1, waiting.length)]
    if (next === undefined) return undefined
    const [stream, { log, acknowledged }] = next
    const events = log.slice(acknowledged, acknowledged + BATCH)
    return { stream, events, upTo: acknowledged + events.length }
  }
}
