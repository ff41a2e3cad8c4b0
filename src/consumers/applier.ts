import {
  InboxGapError,
  InvalidOptionError,
  LockstepError,
  PayloadInvalidError,
  PayloadVersionError,
} from '../errors.ts'
import type { BatchVerdict, InboxConsumer, InboxEvent } from '../inbox/index.ts'
import { type Delivery, EventRefusedError } from '../outbox/index.ts'
import { nameOf } from '../events/index.ts'
import { onAbort } from '../postgres/index.ts'
import { abandon, type Isolation, type Transaction, type TransactionOptions } from '../transactions/index.ts'
import { ApplyTimeoutError, isUnrelatedToEvents, type Stage } from './applyErrors.ts'

/** What `new Applier()` takes. */
export interface ApplierPlan<Event extends InboxEvent> {
  readonly transaction: <T>(options: TransactionOptions, fn: (tx: Transaction) => Promise<T>) => Promise<T>
  readonly inbox: InboxConsumer
  /** The effect of events that were accepted: of several streams, each in its order. */
  readonly handle: (tx: Transaction, events: readonly Event[]) => Promise<unknown> | void
  readonly handlesTombstones: boolean
  /** With which number a stream begins in which the consumer has no position. It is given the first event that came. */
  readonly start: (event: InboxEvent) => number
  readonly isolation: Isolation | undefined
  /** Of one transaction. */
  readonly timeoutMs: number
  /**
   * What it means that a handler fails with one event alone. `refused`: the event is to blame. `failed`: it is, where others get through.
   */
  readonly handlerFails: 'refused' | 'failed'
  /**
   * Whether what is answered as sent has to be on disk, also where `synchronous_commit` is off. Not where the answer goes into the same
   * database: a crash that takes the effect back takes the answer, which is later in the log, as well.
   */
  readonly durable: boolean
}

/** About the events of one call. */
export interface ApplyContext {
  /** Aborted when the events are another process's. */
  readonly signal: AbortSignal
  readonly owned?: (() => boolean) | undefined
  /** Why nothing more is begun. */
  readonly stopped?: (() => string | undefined) | undefined
  /** A transaction was committed: how many events it handled, how long that took, and how long the rest of it. */
  readonly committed?: ((events: number, handlingMs: number, restMs: number) => void) | undefined
}

/** A conflict is over after a few; a server that is down is asked again later. */
const ATTEMPTS = 5
/** After this number of streams that fail alone while nothing succeeds, the rest is tried later. */
const ENOUGH_ALONE = 3

export const HELD: Delivery = { unknown: 'an earlier event of its stream was not sent' }

/** One call: its answers, and what it has shown so far. */
interface Batch<Event> {
  readonly events: readonly Event[]
  readonly context: ApplyContext
  readonly answers: Delivery[]
  /** Streams that have failed by themselves, and were not refused. */
  failed: number
  sent: boolean
  /** Why nothing more is tried. */
  over: Delivery | undefined
}

/**
 * Applies events: the position of the consumer and the effect of the handler in one transaction. One that fails because of an event is
 * rolled back and done again in halves, down to the event that is to blame. The events of the other streams do not notice.
 */
export class Applier<Event extends InboxEvent> {
  readonly #options: ApplierPlan<Event>
  /** How many events go into one transaction: less after one that took too long. */
  #most = Infinity

  constructor(options: ApplierPlan<Event>) {
    this.#options = options
  }

  /** One answer for each event, in their order. It never throws. */
  async apply(events: readonly Event[], context: ApplyContext): Promise<Delivery[]> {
    const answers = events.map(() => HELD)
    const batch: Batch<Event> = { events, context, answers, failed: 0, sent: false, over: undefined }
    let left = [...events.keys()]
    while (left.length > 0) {
      const now = left.slice(0, this.#most)
      await this.#applySome(batch, now)
      const stopped = new Set(now.filter((place) => answers[place] !== 'sent').map((place) => nameAt(batch, place)))
      left = left.slice(now.length).filter((place) => !stopped.has(nameAt(batch, place)))
      const { over } = batch
      if (over === undefined) continue
      for (const place of left) answers[place] = over
      break
    }
    return answers
  }

  /** Whether the database answers. */
  async healthy(): Promise<boolean> {
    return this.#withTimeout(undefined, { retry: false }, async () => true).catch(() => false)
  }

  /** All of these in one transaction; if it fails because of an event, in halves, down to the event that is to blame. */
  async #applySome(batch: Batch<Event>, places: readonly number[]): Promise<void> {
    const { answers, context } = batch
    const stopped = context.stopped?.()
    if (stopped !== undefined) batch.over ??= { unknown: stopped }
    if (context.signal.aborted || context.owned?.() === false)
      batch.over ??= { unknown: 'the shard was lost', cause: context.signal.reason }
    if (batch.failed >= ENOUGH_ALONE && !batch.sent) batch.over ??= { unknown: 'not tried: those before it had failed' }
    const { over } = batch
    if (over !== undefined) {
      for (const place of places) answers[place] = over
      return
    }
    const failure = await this.#applyTogether(batch, places)
    if (failure === undefined) return
    const streams = [...placesByStream(batch, places).values()]
    // Streams that share a transaction can be in each other's way: by themselves they get through.
    const conflict = streams.length > 1 && isConflict(failure.error)
    if (context.signal.aborted || (isUnrelatedToEvents(failure.error, failure.stage) && !conflict)) {
      batch.over = { unknown: reasonOf(failure.error), cause: failure.error }
      for (const place of places) answers[place] = batch.over
      return
    }
    if (streams.length > 1) {
      const middle = Math.ceil(streams.length / 2)
      for (const half of [streams.slice(0, middle), streams.slice(middle)]) {
        await this.#applySome(
          batch,
          half.flat().toSorted((one, other) => one - other),
        )
      }
    } else if (places.length > 1) {
      const middle = Math.ceil(places.length / 2)
      const [before, after] = [places.slice(0, middle), places.slice(middle)]
      await this.#applySome(batch, before)
      if (before.every((place) => answers[place] === 'sent')) await this.#applySome(batch, after)
    } else {
      const [place] = places as [number]
      const answer = this.#blame(failure, batch.events[place] as Event)
      answers[place] = answer
      if ('failed' in answer) batch.failed++
    }
  }

  /** One transaction. Undefined where it was committed: then the answers are written. */
  async #applyTogether(batch: Batch<Event>, places: readonly number[]): Promise<Failure | undefined> {
    const events = places.map((place) => batch.events[place] as Event)
    const { isolation, handlesTombstones, inbox, handle, start, timeoutMs, durable } = this.#options
    const alsoHandled: BatchVerdict = handlesTombstones ? 'tombstone' : 'first'
    let stage = 'before' as Stage
    let [handled, handlingMs] = [0, 0]
    const startedAt = performance.now()
    try {
      const verdicts = await this.#withTimeout(
        batch.context.signal,
        isolation === undefined ? {} : { isolation },
        async (tx) => {
          stage = 'accepting'
          const found = await inbox.acceptMany(tx, events, { start, idleMs: timeoutMs, durable })
          stage = 'handling'
          const first = events.filter((_, place) => found[place] === 'first' || found[place] === alsoHandled)
          if (first.length > 0) {
            const handlingAt = performance.now()
            await handle(tx, first)
            // A transaction that is retried counts with its last try.
            ;[handled, handlingMs] = [first.length, performance.now() - handlingAt]
          }
          stage = 'committing'
          return found
        },
      )
      if (events.length >= this.#most) this.#most = Math.ceil(this.#most * 1.1)
      if (handled > 0) batch.context.committed?.(handled, handlingMs, performance.now() - startedAt - handlingMs)
      verdicts.forEach((verdict, index) => {
        const answer = answerTo(verdict)
        batch.answers[places[index] as number] = answer
        if (answer === 'sent') batch.sent = true
      })
      return undefined
    } catch (error) {
      if (error instanceof ApplyTimeoutError && stage === 'handling')
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
    const { transaction, timeoutMs } = this.#options
    const giveUp = new AbortController()
    let open: Transaction | undefined
    const forget = lost && onAbort(lost, () => giveUp.abort(lost.reason))
    const running = transaction(
      { retry: { attempts: ATTEMPTS }, waitMs: timeoutMs, ...options, signal: giveUp.signal },
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
        const error = new ApplyTimeoutError(`no answer from PostgreSQL after ${timeoutMs} ms (timeoutMs)`)
        giveUp.abort(error)
        if (open !== undefined) abandon(open)
        reject(error)
      }, timeoutMs)
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

  /** What is said of an event that failed by itself. */
  #blame({ error, stage }: Failure, { topic, key, seq }: Event): Exclude<Delivery, 'sent'> {
    const reason = `${topic}/${key} #${seq}: ${reasonOf(error)}`
    const refuses =
      error instanceof EventRefusedError ||
      error instanceof PayloadInvalidError ||
      error instanceof PayloadVersionError ||
      (stage === 'accepting' && error instanceof InvalidOptionError) ||
      this.#options.handlerFails === 'refused'
    return refuses ? { refused: reason, cause: error } : { failed: reason, cause: error }
  }
}

/** Why a transaction failed, and where it was. */
interface Failure {
  readonly error: unknown
  readonly stage: Stage
}

function answerTo(verdict: BatchVerdict): Delivery {
  if (verdict === 'held') return HELD
  if (typeof verdict === 'string') return 'sent'
  if (verdict instanceof InboxGapError) {
    const { expected, seq, keys } = verdict
    return {
      refused:
        `the consumer expects #${expected} of ${keys.join()}, and #${seq} came. ` +
        (expected === 1
          ? `If it is to begin there, say so: start: ${seq}, or consumer.startAt().`
          : `Replay the stream from #${expected} on, or move the consumer with consumer.startAt(…, { force: true }).`),
      cause: verdict,
    }
  }
  return { refused: verdict.message, cause: verdict }
}

function isConflict(error: unknown): boolean {
  return error instanceof LockstepError && error.code === 'LOCKSTEP_RETRIES_EXHAUSTED'
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function nameAt<Event extends InboxEvent>({ events }: Batch<Event>, place: number): string {
  return nameOf(events[place] as Event)
}

function placesByStream<Event extends InboxEvent>(
  batch: Batch<Event>,
  places: readonly number[],
): Map<string, number[]> {
  const streams = new Map<string, number[]>()
  for (const place of places) {
    const name = nameAt(batch, place)
    const list = streams.get(name)
    if (list === undefined) streams.set(name, [place])
    else list.push(place)
  }
  return streams
}
