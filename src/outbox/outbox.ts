import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, StreamNotParkedError } from '../errors.ts'
import type { EventMap, EventOf, Stream } from '../events/index.ts'
import type { Leases } from '../leases/index.ts'
import { quoteLiteral, readServerEpoch, type TextRow } from '../postgres/index.ts'
import { type LockstepContext, wrapCallersClient, writeInCallersTransaction } from '../transactions/index.ts'
import { type Dispatcher, type DispatcherDependencies, RunningDispatcher } from './dispatcher.ts'
import { checkNumber } from './checkNumber.ts'
import { type DispatcherOptions, planDispatcher } from './dispatcherOptions.ts'
import { checkEventList, type OutboxEnqueuer } from './enqueuer.ts'
import { endImport, type FinishImportOptions, type Imported, type ImportOptions, importTable } from './importTable.ts'
import { onPrimary } from './onPrimary.ts'
import { audited, checkReason, OPERATOR_OPTIONS, type OperatorOptions } from './operatorOptions.ts'
import { eraseStream, operate, rebase, removeDispatcher } from './outbox.sql.ts'
import {
  type DeadLetter,
  type DeadLetterOptions,
  type DeadLetterPage,
  deadLetters,
  redrive,
  type RedriveOptions,
  type Redriven,
} from './redrive.ts'
import { replay, type ReplayOptions, type Replayed } from './replay.ts'
import { retain, type Retained } from './retain.ts'
import { resultRows } from './resultRows.ts'
import {
  type DispatcherLag,
  lagOf,
  type OutboxStatus,
  type ParkedOptions,
  parkedStreams,
  type ParkedStream,
  statusOf,
} from './status.ts'
import { split, type SplitOptions, type SplitShards } from './split.ts'
import { type EventPage, type EventsOptions, storedEvents } from './storedEvents.ts'

/** A stream as one dispatcher delivers it. What `parked()` gives can be passed as it is. */
export interface DispatchedStream extends Stream {
  /** Default `default`. */
  readonly dispatcher?: string
}

/** The event at the head of a stream. */
export interface StreamHead extends DispatchedStream {
  readonly seq: number
  /** Its id, as `parked()` gives it: after an asynchronous failover another event can have the number. */
  readonly headId?: string | undefined
}

const DISPATCHED_STREAM: OptionNames<DispatchedStream & ParkedStream> = {
  topic: true,
  key: true,
  dispatcher: true,
  reason: true,
  state: true,
  attempts: true,
  since: true,
  nextAttemptAt: true,
  events: true,
  head: true,
  headId: true,
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

const STREAM_HEAD: OptionNames<StreamHead & ParkedStream> = { ...DISPATCHED_STREAM, seq: true }

const STREAM: OptionNames<Stream> = { topic: true, key: true }

/** What `outbox.retain()` takes. */
export interface RetainOptions {
  readonly olderThanMs: number
  readonly rotateMs?: number
}

const RETAIN_OPTIONS: OptionNames<RetainOptions> = { olderThanMs: true, rotateMs: true }

/** What `outbox.rebase()` takes. */
export interface RebaseOptions extends OperatorOptions {
  readonly deliver: 'undelivered' | 'all' | 'none'
  /** Reports what it would do, and changes nothing. Enqueuing is blocked while it runs. Default false. */
  readonly preview?: boolean
}

const REBASE_OPTIONS: OptionNames<RebaseOptions> = { deliver: true, preview: true, reason: true, by: true }

/** What a rebase has found. */
export interface Rebased {
  /** The number of events to deliver, stream by stream. */
  readonly putAside: number
  /**
   * Numbers of segments that were emptied while the dump was made: of streams that had nothing newer, the last numbers are not in it,
   * and are assigned again. Restore another dump where there is one.
   */
  readonly torn: readonly number[]
}

/** The outbox of a database: what is in it, and what operators do with it. */
export class Outbox<Events extends object = EventMap> {
  readonly #context: LockstepContext
  readonly #leases: Leases
  readonly #enqueuing: OutboxEnqueuer
  readonly #counted: DispatcherDependencies['counted']

  /**
   * `counted`: the end of the Lockstep waits for what runs in it.
   * @internal
   */
  constructor(
    context: LockstepContext,
    leases: Leases,
    enqueuing: OutboxEnqueuer,
    counted: DispatcherDependencies['counted'],
  ) {
    this.#context = context
    this.#leases = leases
    this.#enqueuing = enqueuing
    this.#counted = counted
  }

  /**
   * Makes a dispatcher, which delivers the outbox to a sink: any number of processes share the work, and every stream keeps its order.
   *
   * @example
   * await lockstep.outbox.dispatcher({ sink: async (events) => publish(events) }).run({ signal })
   */
  dispatcher(options: DispatcherOptions): Dispatcher {
    return new RunningDispatcher(
      {
        context: this.#context,
        leases: this.#leases,
        onCommitted: (listener) => this.#enqueuing.onCommitted(listener),
        ringsAs: this.#enqueuing.ringsAs,
        counted: this.#counted,
      },
      planDispatcher(options),
    )
  }

  /**
   * Puts an event into the outbox inside a transaction that the caller opened on a client of its own, READ COMMITTED. It gets its number
   * at once, and its stream is locked until the caller's COMMIT. A pool, or a client without BEGIN, is `JoinRefusedError`.
   *
   * @example
   * await client.query('BEGIN')
   * await lockstep.outbox.enqueue(client, { topic: 'trades', key: portfolioId, payload })
   * await client.query('COMMIT')
   */
  async enqueue(client: object, event: EventOf<Events>): Promise<{ readonly seq: number }> {
    const prepared = this.#enqueuing.prepare(event)
    const connection = wrapCallersClient(this.#context, client, 'outbox.enqueue()', 'tx.enqueue()')
    try {
      const statements = this.#enqueuing.append(prepared)
      const written = await writeInCallersTransaction(connection, statements, 'outbox.enqueue()')
      return { seq: Number(Object.values(written?.rows[0] ?? {})[0]) }
    } finally {
      connection.release()
    }
  }

  /**
   * The same for a list, in its order, with one message for up to 5,000 events. The streams are locked in one order, so two such calls never
   * deadlock; two calls in one transaction can.
   *
   * @example
   * await client.query('BEGIN')
   * await lockstep.outbox.enqueueMany(client, trades.map((trade) => ({ topic: 'trades', key: trade.portfolio, payload: trade })))
   * await client.query('COMMIT')
   */
  async enqueueMany(client: object, events: readonly EventOf<Events>[]): Promise<void> {
    checkEventList('outbox.enqueueMany()', events)
    const prepared = events.map((event) => this.#enqueuing.prepare(event))
    const connection = wrapCallersClient(this.#context, client, 'outbox.enqueueMany()', 'tx.enqueueMany()')
    try {
      // A list of one, called often, is as many calls of enqueue().
      const [only] = prepared
      const statements =
        only !== undefined && prepared.length === 1
          ? this.#enqueuing.append(only)
          : this.#enqueuing.flush(prepared, undefined)
      await writeInCallersTransaction(connection, statements, 'outbox.enqueueMany()')
    } finally {
      connection.release()
    }
  }

  /**
   * How many events wait for one dispatcher, and for how long. It is one message, and its cost has an upper limit: few are counted, many
   * are estimated.
   *
   * @example
   * const { events, lagMs } = await lockstep.outbox.lag('billing')
   */
  lag(dispatcher = 'default'): Promise<DispatcherLag> {
    return lagOf(this.#context, dispatcher)
  }

  /** How far each dispatcher is, who owns its shards, and what waits. */
  status(): Promise<OutboxStatus> {
    return statusOf(this.#context, this.#leases)
  }

  /** The streams that wait: for another try, or for an operator. */
  parked(options: ParkedOptions = {}): Promise<ParkedStream[]> {
    return parkedStreams(this.#context, options)
  }

  /** Has a stream that waits tried again now. */
  retry(stream: DispatchedStream, options: OperatorOptions = {}): Promise<void> {
    return this.#operate('retry', stream, options)
  }

  /**
   * Gives up the first event of a stream that waits: a tombstone replaces it, and the stream continues. `seq` is its number,
   * as `parked()` returned it, and `headId` its id: another one is not given up in its place.
   *
   * @example
   * await lockstep.outbox.skip({ topic: 'trades', key: id, seq: 102 }, { reason: 'wrong currency, corrected by #108' })
   */
  skip(head: StreamHead, options: OperatorOptions & { readonly reason: string }): Promise<void> {
    return this.#operate('skip', head, options)
  }

  /** Holds a stream back, from the next batch on. Its events are kept in order. */
  pause(stream: DispatchedStream, options: OperatorOptions = {}): Promise<void> {
    return this.#operate('pause', stream, options)
  }

  /** Lets a paused stream continue. */
  resume(stream: DispatchedStream, options: OperatorOptions = {}): Promise<void> {
    return this.#operate('resume', stream, options)
  }

  /** Events that were given up (`giveUp: 'deadLetter'`), without payloads. It reads the table of dead letters until a page is full. */
  deadLetters(options: DeadLetterOptions = {}): Promise<DeadLetterPage> {
    return deadLetters(this.#context, options)
  }

  /**
   * Many at once: has streams that wait tried again now (`'parked'`), or enqueues dead letters again (`'dead'`), each at the end of its
   * stream and with a new number, because the old one went out as a tombstone. Select by `ids`, `topic`, `key` or `error`.
   *
   * @example
   * const { found } = await lockstep.outbox.redrive('dead', { topic: 'mails', error: 'timeout', preview: true })
   * await lockstep.outbox.redrive('dead', { topic: 'mails', error: 'timeout', reason: 'the mail server is back' })
   */
  redrive(what: 'parked', options: RedriveOptions): Promise<Redriven<ParkedStream>>
  redrive(what: 'dead', options: RedriveOptions): Promise<Redriven<DeadLetter>>
  redrive(what: 'parked' | 'dead', options: RedriveOptions): Promise<Redriven<ParkedStream | DeadLetter>> {
    return redrive(this.#context, what, options)
  }

  /**
   * Retained events for people who look: by topic, key, number and time, page by page. Not for delivery: a transaction that is still open can
   * add events to what was read.
   *
   * @example
   * const { events, next } = await lockstep.outbox.events({ topic: 'trades', key: portfolioId, newestFirst: true })
   */
  events(options: EventsOptions = {}): Promise<EventPage> {
    return storedEvents(this.#context, options)
  }

  /** Sends retained events again, to a sink of the caller's choice, in order. Live dispatch does not notice. */
  replay(options: ReplayOptions): Promise<Replayed> {
    return replay(this.#context, options)
  }

  /** Takes the payloads of a stream away, delivered or not. Numbers and order stay. */
  async erase(stream: Stream, options: OperatorOptions = {}): Promise<{ readonly erased: number }> {
    checkOptions('outbox.erase()', stream, STREAM)
    checkOptions('outbox.erase()', options, OPERATOR_OPTIONS)
    const [row] = await this.#rows(eraseStream(this.#context.quotedSchema, stream, audited(options)))
    return { erased: Number(row?.['erased']) }
  }

  /**
   * Empties segments older than that which every dispatcher has passed, in two calls: the first makes them ready, another a minute later
   * empties them. Dispatchers do so by themselves, see `retainMs`; what they want kept for longer goes as well.
   */
  async retain(options: RetainOptions): Promise<Retained> {
    checkOptions('outbox.retain()', options, RETAIN_OPTIONS)
    const { olderThanMs, rotateMs = olderThanMs / 6 } = options
    for (const [name, value] of Object.entries({ olderThanMs, rotateMs })) {
      if (Number.isFinite(value) && value >= 0) continue
      throw new InvalidOptionError(`${name} is ${String(value)}.`, { advice: 'Use a number of milliseconds.' })
    }
    await this.#context.ready()
    const { dropped, readied, rotated } = await retain(this.#context, { olderThanMs, rotateMs })
    return { dropped, readied, rotated }
  }

  /**
   * Removes a dispatcher that no process runs any more: its cursors, and its parked events. Until then every segment waits
   * for it. Under the same name a dispatcher would begin with the oldest event that there is.
   *
   * @example
   * await lockstep.outbox.removeDispatcher('reports', { reason: 'replaced by reports-2' })
   */
  async removeDispatcher(dispatcher: string, options: OperatorOptions & { readonly reason: string }): Promise<void> {
    checkOptions('outbox.removeDispatcher()', options, OPERATOR_OPTIONS)
    checkReason('removeDispatcher', options.reason)
    const [row] = await this.#rows(removeDispatcher(this.#context.quotedSchema, dispatcher, audited(options)))
    const answer = row?.['answer']
    if (answer === 'done') return
    throw new InvalidOptionError(
      answer === 'running' ? `The dispatcher ${dispatcher} is running.` : `There is no dispatcher ${dispatcher}.`,
      { advice: answer === 'running' ? 'Stop its processes first.' : 'Look at `npx pg-lockstep outbox status`.' },
    )
  }

  /**
   * Splits the shards of a dispatcher into more, while it runs: each new shard continues where the one was that it is a part of, so every stream keeps
   * its order and nothing is lost. Its processes continue with the new number by themselves. There is no way back to fewer.
   *
   * @example
   * const { owned, parkedStreams } = await lockstep.outbox.split('default', { shards: 64, preview: true })
   * await lockstep.outbox.split('default', { shards: 64, reason: 'twelve processes' })
   */
  split(dispatcher: string, options: SplitOptions): Promise<SplitShards> {
    return split(this.#context, dispatcher, options)
  }

  /**
   * After a restore: decides what of the restored outbox is delivered, and makes the cursors good for this server.
   *
   * @example
   * const { putAside } = await lockstep.outbox.rebase({ deliver: 'undelivered', preview: true })
   */
  async rebase(options: RebaseOptions): Promise<Rebased> {
    checkOptions('outbox.rebase()', options, REBASE_OPTIONS)
    const { quotedSchema } = this.#context
    const who = audited(options)
    await this.#context.ready()
    return onPrimary(this.#context, async (connection) => {
      const here = await readServerEpoch(connection, quotedSchema)
      const results = await connection.script(
        rebase(quotedSchema, options.deliver, here, who, options.preview === true),
      )
      const told = (name: string): string | undefined =>
        results.find(({ rows }) => rows[0] !== undefined && name in rows[0])?.rows[0]?.[name] ?? undefined
      return { putAside: Number(told('put_aside') ?? 0), torn: JSON.parse(told('torn') ?? '[]') as number[] }
    })
  }

  /**
   * Imports an outbox table of your own: copies the rows that are pending, in order, then makes a trigger by which each new row becomes an event
   * in its own transaction. Stop the old relay first; writers continue. It can be killed and called again. The connection's role must
   * own Lockstep's schema, and have SELECT and TRIGGER on the table.
   *
   * @example
   * const rows = { topic: '{aggregatetype}', key: '{aggregateid}', order: 'id', sent: 'sent_at' }
   * const { pending, refused } = await lockstep.outbox.import('outbox_event', { ...rows, preview: true })
   * await lockstep.outbox.import('outbox_event', { ...rows, reason: 'moving to Lockstep' })
   */
  import(table: string, options: ImportOptions): Promise<Imported> {
    return importTable(this.#context, table, options)
  }

  /** Removes the trigger of an import, when no old code writes to the table any more. What was imported stays. */
  finishImport(table: string, options: FinishImportOptions): Promise<void> {
    return endImport(this.#context, table, options)
  }

  async #operate(
    verb: 'retry' | 'skip' | 'pause' | 'resume',
    stream: DispatchedStream & Partial<StreamHead>,
    options: OperatorOptions,
  ): Promise<void> {
    checkOptions(`outbox.${verb}()`, stream, verb === 'skip' ? STREAM_HEAD : DISPATCHED_STREAM)
    refuseReasonOf(verb, stream)
    checkOptions(`outbox.${verb}()`, options, OPERATOR_OPTIONS)
    const { topic, key, seq, headId, dispatcher = 'default' } = stream
    if (verb === 'skip') {
      checkReason(verb, options.reason)
      checkNumber('seq', seq, 1)
      if (headId !== undefined && !UUID.test(headId)) {
        throw new InvalidOptionError(`headId is ${JSON.stringify(headId)}.`, {
          advice: 'Pass the `headId` of parked().',
        })
      }
    }
    const seen = { topic, key, seq, headId }
    const [row] = await this.#rows(operate(this.#context.quotedSchema, verb, dispatcher, seen, audited(options)))
    const answer = String(row?.['answer'])
    if (answer === 'done') return
    const advice: Readonly<Record<string, string>> = {
      'no dispatcher': `There is no dispatcher ${quoteLiteral(dispatcher)}: look at \`npx pg-lockstep outbox status\`.`,
      'not at the head':
        'It may have got through meanwhile, or a failover has put another one in its place: look at `npx pg-lockstep outbox parked`.',
      'not parked': 'Look at `npx pg-lockstep outbox parked` for the streams that wait.',
      paused: 'It was paused by an operator: resume it.',
      'not paused': 'Use retry for a stream that was not paused.',
    }
    throw new StreamNotParkedError(`${verb} ${topic}/${key}: ${answer}.`, { advice: advice[answer] ?? '' })
  }

  async #rows(text: string): Promise<TextRow[]> {
    await this.#context.ready()
    return resultRows(await onPrimary(this.#context, (connection) => connection.script(text)))
  }
}

/** A parked stream has a reason of its own, why it is parked. Any other `reason` here was meant for the audit. */
function refuseReasonOf(verb: string, stream: object): void {
  if (!('reason' in stream) || 'state' in stream) return
  throw new InvalidOptionError(`outbox.${verb}() was given a reason as a part of the stream.`, {
    advice: `Call outbox.${verb}(stream, { reason, by }).`,
  })
}
