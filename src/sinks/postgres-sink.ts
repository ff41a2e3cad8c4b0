import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InboxGapError, InvalidOptionError } from '../errors.ts'
import type { BatchVerdict, InboxConsumer } from '../inbox/index.ts'
import {
  type BatchContext,
  byStream,
  type Delivery,
  EventRefusedError,
  type OutboxEvent,
  type Sink,
} from '../outbox/index.ts'
import { onAbort } from '../postgres/index.ts'
import { abandon, type Isolation, type Transaction, type TransactionOptions } from '../transactions/index.ts'
import type { EventMap } from '../events/index.ts'
import { isUnrelatedToEvents, SinkTimeoutError, type Stage } from './postgresErrors.ts'
import { SinkUse } from './sinkUse.ts'
import { type EventStream, type StreamStart, startOf, type StreamStartOption } from './streamStart.ts'

/** What the sink needs of a Lockstep: that of the database to which the events go. */
export interface TargetLockstep<Client = unknown, Events extends object = EventMap> {
  transaction<T>(options: TransactionOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
  readonly inbox: { consumer(name: string): InboxConsumer<Client, Events> }
}

/** What `postgresSink()` takes. Either `handle` or `handleMany`. */
export interface PostgresSinkOptions<Client = unknown, Events extends object = EventMap> {
  /** A Lockstep on the other database, migrated. Its pool is the caller's to end. */
  readonly lockstep: TargetLockstep<Client, Events>
  /** The name under which that database remembers how far it is. Another name receives everything again. */
  readonly consumer: string
  /**
   * The effect of one event, in the transaction in which it is accepted. It may be run again: what it does outside the database is its
   * own affair. Throw `new EventRefusedError(reason)` for an event that cannot be taken.
   */
  readonly handle?: (tx: Transaction<Client, Events>, event: OutboxEvent) => Promise<unknown> | void
  /** The same for many at once, of several streams, each in its order: an INSERT of many rows is much faster. */
  readonly handleMany?: (tx: Transaction<Client, Events>, events: readonly OutboxEvent[]) => Promise<unknown> | void
  /** With which number a stream begins of which the other database has nothing yet. Default 1. */
  readonly start?: StreamStartOption
  /**
   * Whether the handler also gets tombstones, whose number was given up and which have no payload. Default false: the position moves
   * past them.
   */
  readonly handlesTombstones?: boolean
  /** Of the transactions. Default `'read committed'`. */
  readonly isolation?: Isolation
  /** How long a transaction may take before its outcome is unknown and it is given up. Default 10,000. */
  readonly timeoutMs?: number
  /** Default `postgres`. */
  readonly name?: string
}

const POSTGRES_SINK_OPTIONS: OptionNames<PostgresSinkOptions> = {
  lockstep: true,
  consumer: true,
  handle: true,
  handleMany: true,
  start: true,
  handlesTombstones: true,
  isolation: true,
  timeoutMs: true,
  name: true,
}

/**
 * Delivers into another PostgreSQL database, exactly once: position and effect are committed together there. What comes again is known
 * by its number and id, what comes from a dispatcher that lost its shard is a duplicate, and what would leave a gap is refused.
 *
 * @example
 * const sink = postgresSink({
 *   lockstep: new Lockstep(reportingPool),
 *   consumer: 'reporting',
 *   async handle(tx, { key, payload }) {
 *     await tx.query('UPDATE totals SET amount = amount + $1 WHERE portfolio = $2', [payload.quantity, key])
 *   },
 * })
 * await lockstep.outbox.dispatcher({ sink }).run({ signal })
 */
export function postgresSink<Client = unknown, Events extends object = EventMap>(
  options: PostgresSinkOptions<Client, Events>,
): Sink {
  return new PostgresSink(options as unknown as PostgresSinkOptions)
}

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']
const MAX_MS = 2_147_483_647
/** A conflict is over after a few; a server that is down is asked again later by the dispatcher. */
const ATTEMPTS = 5
/** So many streams fail alone, and nothing gets through, before the rest is left for later. */
const ENOUGH_ALONE = 3

const HELD: Delivery = { unknown: 'an earlier event of its stream was not sent' }

/** One batch on its way: its answers, and what it has shown so far. */
interface Batch {
  readonly events: readonly OutboxEvent[]
  readonly context: BatchContext
  readonly answers: Delivery[]
  /** Streams that have failed by themselves, and were not refused. */
  failed: number
  sent: boolean
  /** Why nothing more is tried. */
  over: Delivery | undefined
}

class PostgresSink implements Sink {
  readonly name: string
  readonly enforcesFences = true
  readonly #options: PostgresSinkOptions
  readonly #consumer: InboxConsumer
  readonly #handleMany: NonNullable<PostgresSinkOptions['handleMany']>
  readonly #start: (stream: EventStream) => StreamStart
  readonly #timeoutMs: number
  readonly #use = new SinkUse()
  /** How many events go into one transaction: less after one that took too long. */
  #most = Infinity

  constructor(options: PostgresSinkOptions) {
    this.#options = checkValues(options)
    this.#consumer = options.lockstep.inbox.consumer(options.consumer)
    this.#handleMany = options.handleMany ?? oneByOne(options.handle as NonNullable<PostgresSinkOptions['handle']>)
    this.#start = startOf(options.start)
    this.#timeoutMs = options.timeoutMs ?? 10_000
    this.name = options.name ?? 'postgres'
  }

  open(): Promise<void> {
    return this.#use.open()
  }

  async send(events: readonly OutboxEvent[], context: BatchContext): Promise<Delivery[]> {
    const answers = events.map(() => HELD)
    const batch: Batch = { events, context, answers, failed: 0, sent: false, over: undefined }
    await this.#use.track(this.#sendAll(batch))
    return answers
  }

  async healthy(): Promise<boolean> {
    if (this.#use.closed) return false
    const asked = this.#withTimeout(undefined, { retry: false }, async () => true)
    return asked.catch(() => false)
  }

  close(): Promise<void> {
    return this.#use.close()
  }

  async #sendAll(batch: Batch): Promise<void> {
    let left = [...batch.events.keys()]
    while (left.length > 0) {
      const now = left.slice(0, this.#most)
      await this.#sendSome(batch, now)
      const stopped = new Set(
        now.filter((place) => batch.answers[place] !== 'sent').map((place) => streamAt(batch, place)),
      )
      left = left.slice(now.length).filter((place) => !stopped.has(streamAt(batch, place)))
      const { over } = batch
      if (over === undefined) continue
      for (const place of left) batch.answers[place] = over
      return
    }
  }

  /** All of these in one transaction; if it fails because of an event, in halves, down to the event that is to blame. */
  async #sendSome(batch: Batch, places: readonly number[]): Promise<void> {
    const { answers, context } = batch
    if (this.#use.closed) batch.over ??= { unknown: 'the sink was closed' }
    if (context.signal.aborted || context.owned?.() === false)
      batch.over ??= { unknown: 'the shard was lost', cause: context.signal.reason }
    if (batch.failed >= ENOUGH_ALONE && !batch.sent) batch.over ??= { unknown: 'not tried: those before it had failed' }
    const { over } = batch
    if (over !== undefined) {
      for (const place of places) answers[place] = over
      return
    }
    const failure = await this.#sendTogether(batch, places)
    if (failure === undefined) return
    if (context.signal.aborted || isUnrelatedToEvents(failure.error, failure.stage)) {
      batch.over = { unknown: reasonOf(failure.error), cause: failure.error }
      for (const place of places) answers[place] = batch.over
      return
    }
    const streams = [...byStream(places.map((place) => batch.events[place] as OutboxEvent)).values()]
    if (streams.length > 1) {
      const middle = Math.ceil(streams.length / 2)
      for (const half of [streams.slice(0, middle), streams.slice(middle)]) {
        await this.#sendSome(
          batch,
          half
            .flat()
            .toSorted((one, other) => one - other)
            .map((index) => places[index] as number),
        )
      }
    } else if (places.length > 1) {
      const middle = Math.ceil(places.length / 2)
      const [before, after] = [places.slice(0, middle), places.slice(middle)]
      await this.#sendSome(batch, before)
      if (before.every((place) => answers[place] === 'sent')) await this.#sendSome(batch, after)
    } else {
      const [place] = places as [number]
      const answer = blame(failure, batch.events[place] as OutboxEvent)
      answers[place] = answer
      if ('failed' in answer) batch.failed++
    }
  }

  /** One transaction. Undefined where it was committed: then the answers are written. */
  async #sendTogether(batch: Batch, places: readonly number[]): Promise<Failure | undefined> {
    const events = places.map((place) => batch.events[place] as OutboxEvent)
    const { isolation, handlesTombstones = false } = this.#options
    const alsoHandled: BatchVerdict = handlesTombstones ? 'tombstone' : 'first'
    let stage = 'before' as Stage
    const start = (event: EventStream & { readonly seq: number }): number => {
      const begins = this.#start(event)
      return begins === 'anywhere' ? event.seq : begins
    }
    try {
      const verdicts = await this.#withTimeout(
        batch.context.signal,
        isolation === undefined ? {} : { isolation },
        async (tx) => {
          stage = 'accepting'
          const found = await this.#consumer.acceptMany(tx, events, { start, idleMs: this.#timeoutMs })
          stage = 'handling'
          const first = events.filter((_, place) => found[place] === 'first' || found[place] === alsoHandled)
          if (first.length > 0) await this.#handleMany(tx, first)
          return found
        },
      )
      if (events.length >= this.#most) this.#most = Math.ceil(this.#most * 1.1)
      verdicts.forEach((verdict, index) => {
        const answer = answerTo(verdict)
        batch.answers[places[index] as number] = answer
        if (answer === 'sent') batch.sent = true
      })
      return undefined
    } catch (error) {
      if (error instanceof SinkTimeoutError && stage === 'handling')
        this.#most = Math.max(1, Math.floor(events.length / 2))
      return { error, stage }
    }
  }

  /** A transaction that is given up when its time is over. */
  async #withTimeout<T>(
    lost: AbortSignal | undefined,
    options: TransactionOptions,
    work: (tx: Transaction) => Promise<T>,
  ): Promise<T> {
    const giveUp = new AbortController()
    let open: Transaction | undefined
    const forget = lost && onAbort(lost, () => giveUp.abort(lost.reason))
    const running = this.#options.lockstep.transaction(
      { retry: { attempts: ATTEMPTS }, waitMs: this.#timeoutMs, ...options, signal: giveUp.signal },
      async (tx) => {
        open = tx
        giveUp.signal.throwIfAborted()
        const value = await work(tx)
        giveUp.signal.throwIfAborted()
        open = undefined
        return value
      },
    )
    let timer: NodeJS.Timeout | undefined
    const tooLong = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const error = new SinkTimeoutError(`no answer from PostgreSQL after ${this.#timeoutMs} ms (timeoutMs)`)
        giveUp.abort(error)
        if (open !== undefined) abandon(open)
        reject(error)
      }, this.#timeoutMs)
    })
    try {
      return await Promise.race([running, tooLong])
    } finally {
      clearTimeout(timer)
      forget?.()
      // What comes after its time is ignored.
      running.catch(() => undefined)
    }
  }
}

/** Why a transaction failed, and where it was. */
interface Failure {
  readonly error: unknown
  readonly stage: Stage
}

function oneByOne(handle: NonNullable<PostgresSinkOptions['handle']>): NonNullable<PostgresSinkOptions['handleMany']> {
  return async (tx, events) => {
    for (const event of events) await handle(tx, event)
  }
}

function answerTo(verdict: BatchVerdict): Delivery {
  if (verdict === 'held') return HELD
  if (typeof verdict === 'string') return 'sent'
  if (verdict instanceof InboxGapError) {
    const { expected, seq, keys } = verdict
    return {
      refused:
        `the other database expects #${expected} of ${keys.join()}, and #${seq} came. ` +
        (expected === 1
          ? `If it is to begin there, say so: start: ${seq}, or consumer.startAt().`
          : `Replay the stream from #${expected} on, or move the consumer with consumer.startAt(…, { force: true }).`),
      cause: verdict,
    }
  }
  return { refused: verdict.message, cause: verdict }
}

/** What is said of an event that failed by itself. */
function blame({ error, stage }: Failure, { topic, key, seq }: OutboxEvent): Exclude<Delivery, 'sent'> {
  const reason = `${topic}/${key} #${seq}: ${reasonOf(error)}`
  const refuses = error instanceof EventRefusedError || (stage === 'accepting' && error instanceof InvalidOptionError)
  return refuses ? { refused: reason, cause: error } : { failed: reason, cause: error }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function streamAt({ events }: Batch, place: number): string {
  const { topic, key } = events[place] as OutboxEvent
  return `${topic}\0${key}`
}

function checkValues(options: PostgresSinkOptions): PostgresSinkOptions {
  checkOptions('postgresSink()', options, POSTGRES_SINK_OPTIONS)
  const { lockstep, handle, handleMany, isolation, timeoutMs = 10_000 } = options
  if (typeof lockstep?.transaction !== 'function' || typeof lockstep.inbox?.consumer !== 'function') {
    throw new InvalidOptionError('postgresSink() was given no `lockstep`.', {
      advice: 'Pass a Lockstep on the database to which the events are to go.',
    })
  }
  const given = [handle, handleMany].filter((each) => each !== undefined)
  if (given.length !== 1 || typeof given[0] !== 'function') {
    throw new InvalidOptionError('postgresSink() needs either `handle` or `handleMany`.', {
      advice: 'Pass handle: async (tx, event) => …, or handleMany: async (tx, events) => …',
    })
  }
  if (isolation !== undefined && !ISOLATIONS.includes(isolation)) {
    throw new InvalidOptionError(`There is no isolation ${isolation}.`, {
      advice: `Use one of ${ISOLATIONS.join(', ')}.`,
    })
  }
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > MAX_MS) {
    throw new InvalidOptionError(`timeoutMs is ${String(timeoutMs)}.`, { advice: `Use 1 to ${MAX_MS} milliseconds.` })
  }
  return options
}
