import { InvalidOptionError } from '../errors.ts'
import type { Delivery } from '../outbox/index.ts'
import { type Stored, storedOf, type WireHeaders } from './natsMessage.ts'

/** A connection of `@nats-io/transport-node`, as far as the sink needs it. The caller's own: the sink never closes it. */
export interface NatsClient {
  request(
    subject: string,
    payload: Uint8Array | string,
    options?: { timeout: number; headers?: object },
  ): Promise<{ readonly data: Uint8Array }>
  flush(): Promise<void>
  /** What the server said when the connection was made. */
  readonly info?: { readonly client_id: number; readonly server_id: string; readonly max_payload: number } | undefined
}

/** The server's own numbers for what went wrong. */
const CODES = {
  tooLarge: 10054,
  noStream: 10059,
  otherStream: 10060,
  noMessage: 10037,
  wrongLast: new Set([10071, 10164]),
}

interface Answer {
  readonly error?: { readonly err_code?: number; readonly description?: string }
  readonly seq?: number
  readonly duplicate?: boolean
  readonly message?: { readonly seq: number; readonly hdrs?: string }
}

/** The outcome of one publish. `elsewhere`: the subject does not end where it was thought to. `known`: its id came before. */
export type Published =
  | { readonly kind: 'stored'; readonly at: number }
  | { readonly kind: 'elsewhere' | 'known' | 'too large' }
  | { readonly kind: 'failed'; readonly answer: Delivery }

/** The questions that the sink asks of JetStream. None throws. */
export class JetStream {
  readonly #client: NatsClient
  readonly #api: string
  readonly #timeoutMs: number

  constructor(client: NatsClient, apiPrefix: string, timeoutMs: number) {
    if (typeof client?.request !== 'function' || typeof client.flush !== 'function') {
      throw new InvalidOptionError('client is no connection of NATS.', {
        advice: 'Pass what connect() of @nats-io/transport-node gives.',
      })
    }
    this.#client = client
    this.#api = apiPrefix
    this.#timeoutMs = timeoutMs
  }

  async publish(stream: string, subject: string, body: Uint8Array, headers: WireHeaders): Promise<Published> {
    const answer = await this.#ask(subject, body, headers)
    if ('unknown' in answer) return { kind: 'failed', answer: explained(answer, subject, stream) }
    const { error, seq = 0, duplicate } = answer
    const code = error?.err_code ?? 0
    if (CODES.wrongLast.has(code)) return { kind: 'elsewhere' }
    if (code === CODES.tooLarge) return { kind: 'too large' }
    if (error !== undefined) return { kind: 'failed', answer: errorOf(error, stream, subject) }
    if (duplicate === true) return { kind: 'known' }
    if (seq > 0) return { kind: 'stored', at: seq }
    // The answer is not from JetStream: a subscriber of the subject answered.
    return { kind: 'failed', answer: { unknown: `what answered on ${subject} is not JetStream` } }
  }

  /** The last message of a subject. Undefined where it has none. */
  last(stream: string, subject: string): Promise<Stored | Delivery | undefined> {
    return this.#get(stream, subject, { last_by_subj: subject })
  }

  /** The first message of a subject at this place of the stream, or behind it. */
  next(stream: string, subject: string, from: number): Promise<Stored | Delivery | undefined> {
    return this.#get(stream, subject, { seq: from, next_by_subj: subject })
  }

  /** From the stream's leader: a direct read might be answered by a replica that is behind. */
  async #get(stream: string, subject: string, query: object): Promise<Stored | Delivery | undefined> {
    const answer = await this.#ask(`${this.#api}.STREAM.MSG.GET.${stream}`, JSON.stringify(query))
    if ('unknown' in answer) return explained(answer, subject, stream)
    const { error, message } = answer
    if (error?.err_code === CODES.noMessage) return undefined
    if (error !== undefined) return errorOf(error, stream, subject)
    return message === undefined ? { unknown: `JetStream says nothing about ${subject}` } : storedOf(message)
  }

  async #ask(subject: string, payload: Uint8Array | string, headers?: WireHeaders): Promise<Answer | Unknown> {
    const options = { timeout: this.#timeoutMs, ...(headers === undefined ? {} : { headers }) }
    try {
      const { data } = await this.#client.request(subject, payload, options)
      return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString()) as Answer
    } catch (cause) {
      if (cause instanceof Error && cause.name === 'TimeoutError') {
        return { unknown: `NATS did not answer within ${this.#timeoutMs} ms`, cause }
      }
      return { unknown: `NATS: ${cause instanceof Error ? cause.message : String(cause)}`, cause }
    }
  }
}

interface Unknown {
  readonly unknown: string
  readonly cause?: unknown
}

/** No responders: a matter of configuration, and it hits every event. */
function explained(answer: Unknown, subject: string, stream: string): Delivery {
  const { isNoResponders } = (answer.cause ?? {}) as { isNoResponders?: () => boolean }
  const nobody = typeof isNoResponders === 'function' && isNoResponders.call(answer.cause)
  if (!nobody) return answer
  return {
    ...answer,
    unknown: `No stream takes ${subject}: JetStream is not ready, or has no stream for it. Create the stream ${stream} with this subject among its subjects.`,
  }
}

function errorOf(error: NonNullable<Answer['error']>, stream: string, subject: string): Delivery {
  const told = `JetStream: ${error.description ?? 'an error'} (${error.err_code ?? 0})`
  if (error.err_code === CODES.noStream) return { unknown: `${told}. Create the stream ${stream}.` }
  if (error.err_code === CODES.otherStream) {
    return { unknown: `${told}. ${subject} belongs to another stream than ${stream}: see the sink's option stream.` }
  }
  return { unknown: told }
}
