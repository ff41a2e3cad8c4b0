import { checkFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import { HistoryDivergedError, InboxGapError, InvalidOptionError } from '../errors.ts'
import { checkContracts, type EventContracts, type EventMap, type ReadEvent } from '../events/index.ts'
import { type TextRow, withConnection } from '../postgres/index.ts'
import {
  checkTransaction,
  type LockstepContext,
  readText,
  refuseInside,
  type Transaction,
  TRANSACTION_OPTIONS,
  type TransactionOptions,
} from '../transactions/index.ts'
import { checkConsumer, checkEvent, checkSeq, checkStream, type InboxEvent, type InboxStream } from './event.ts'
import { batchRequestOf, type BatchVerdict, valuesOf, verdictsOn } from './acceptMany.ts'
import {
  accept,
  acceptRuns,
  acceptRunsDurably,
  type AcceptRow,
  consumerList,
  type ConsumerRow,
  type ListedPositionRow,
  position,
  positionList,
  type PositionRow,
  type RunRow,
  start,
} from './inbox.sql.ts'
import {
  MOST_COUNTED,
  type PositionedConsumer,
  type PositionPage,
  type PositionsOptions,
  positionsRequest,
  type InboxPosition,
} from './positions.ts'

/**
 * What an event is to a consumer.
 * - `first`: the next one, not seen before: its effect belongs into the same transaction.
 * - `duplicate`: accepted before. Nothing is to be done but to acknowledge it.
 * - `tombstone`: the next one, but its number was given up: the position has moved, and there is nothing to handle.
 */
export type InboxVerdict = 'first' | 'duplicate' | 'tombstone'

/** What `accept()` takes beside the event. */
export interface AcceptOptions {
  /**
   * Where a consumer begins that joins late: with this number exactly; smaller ones are duplicates. It counts for streams in which
   * the consumer has no position yet. Default 1.
   */
  readonly start?: number
}

const ACCEPT_OPTIONS: OptionNames<AcceptOptions> = { start: true }

/** What `acceptMany()` takes beside the events. */
export interface AcceptManyOptions {
  /** As of `accept()`; or a function that is given the first event of a stream. */
  readonly start?: number | ((event: InboxEvent) => number)
  /**
   * How long the transaction can be idle from here on. The server then ends its session, so that a stopped process does not block the
   * streams longer. Default 0: the server’s `idle_in_transaction_session_timeout`.
   */
  readonly idleMs?: number
  /**
   * Whether the transaction is on disk when COMMIT is answered, even if `synchronous_commit` is off. Needed before you acknowledge events
   * to a broker: otherwise a crash of the server can undo the transaction, and the broker does not send the events again. Default false.
   */
  readonly durable?: boolean
}

const ACCEPT_MANY_OPTIONS: OptionNames<AcceptManyOptions> = { start: true, idleMs: true, durable: true }

/** What `handle()` takes beside the event: also the options of its transaction. */
export interface HandleOptions extends AcceptOptions, TransactionOptions {}

/** The same, where the payload is checked. */
export interface ContractHandleOptions<Consumed extends object = EventMap> extends HandleOptions {
  /** What the payloads of the producer look like, from `defineEvents()`. The handler gets the event as `events.read()` gives it. */
  readonly events: EventContracts<object, Consumed>
}

/** What a caller inside a transaction has to use instead. */
const HANDLE = { call: 'consumer.handle()', instead: 'consumer.accept(tx, event)' }
const POSITION = { call: 'consumer.position()', instead: 'consumer.position(tx, stream)' }
const HANDLE_OPTIONS: OptionNames<HandleOptions> = { ...TRANSACTION_OPTIONS, ...ACCEPT_OPTIONS }
const CONTRACT_HANDLE_OPTIONS: OptionNames<ContractHandleOptions> = { ...HANDLE_OPTIONS, events: true }

/** What `startAt()` takes beside the number. */
export interface StartAtOptions {
  readonly force?: boolean
}

const START_AT_OPTIONS: OptionNames<StartAtOptions> = { force: true }

/** PostgreSQL's largest. */
const MAX_IDLE_MS = 2_147_483_647

/** An open transaction of a Lockstep: what `transaction()` and `join()` give. */
export type InboxTransaction = Pick<Transaction, 'isolation' | 'query' | 'queryAtCommit'>

type Transact<Client, Events extends object> = <T>(
  options: TransactionOptions,
  fn: (tx: Transaction<Client, Events>) => Promise<T>,
) => Promise<T>

/** The inbox of a database: each consumer has a position of its own in every stream. */
export class Inbox<Client = unknown, Events extends object = EventMap> {
  readonly #context: LockstepContext
  readonly #transact: Transact<Client, Events>

  /** @internal */
  constructor(context: LockstepContext, transact: Transact<Client, Events>) {
    this.#context = context
    this.#transact = transact
  }

  /**
   * Makes a consumer, which applies every event of a stream once, in order, and reports a gap. Its name has no default, unlike that of a
   * dispatcher: two consumers with one name would share a position, and each would miss what the other has handled.
   *
   * @example
   * const portfolios = lockstep.inbox.consumer('portfolios')
   * await portfolios.handle(event, {}, async (tx, { payload }) => apply(tx, payload))
   */
  consumer(name: string): InboxConsumer<Client, Events> {
    return new InboxConsumer(this.#context, this.#transact, name)
  }

  /** Every consumer that has a position in this database, by name. */
  async consumers(): Promise<PositionedConsumer[]> {
    const rows = await this.#look(consumerList(this.#context.quotedSchema, MOST_COUNTED))
    return (rows as unknown as ConsumerRow[]).map(({ consumer, streams }) => ({
      name: consumer,
      streams: Number(streams),
    }))
  }

  /**
   * How far a consumer is in each stream, by topic and key, page by page.
   *
   * @example
   * const { positions, next } = await lockstep.inbox.positions({ consumer: 'billing', topic: 'orders' })
   */
  async positions(options: PositionsOptions): Promise<PositionPage> {
    const request = positionsRequest(options)
    const rows = await this.#look(positionList(this.#context.quotedSchema, request))
    const positions = (rows as unknown as ListedPositionRow[])
      .slice(0, request.limit)
      .map(({ topic, key, seq, uuid }) => ({ topic, key, seq: Number(seq), id: uuid ?? undefined }))
    const last = rows.length > request.limit ? positions.at(-1) : undefined
    return { positions, next: last && { topic: last.topic, key: last.key } }
  }

  async #look(text: string): Promise<readonly TextRow[]> {
    await this.#context.ready()
    const { driver, silence } = this.#context
    const [result] = await withConnection(driver, (connection) => connection.script(text), silence)
    return result?.rows ?? []
  }
}

/** A consumer of events, as `lockstep.inbox.consumer(name)` makes it. */
export class InboxConsumer<Client = unknown, Events extends object = EventMap> {
  readonly name: string
  readonly #context: LockstepContext
  readonly #schema: string
  readonly #accept: string
  readonly #acceptRuns: string
  readonly #acceptRunsDurably: string
  readonly #transact: Transact<Client, Events>

  /** @internal */
  constructor(context: LockstepContext, transact: Transact<Client, Events>, name: string) {
    this.name = checkConsumer(name)
    this.#context = context
    this.#schema = context.quotedSchema
    this.#accept = accept(this.#schema)
    this.#acceptRuns = acceptRuns(this.#schema)
    this.#acceptRunsDurably = acceptRunsDurably(this.#schema)
    this.#transact = transact
  }

  /**
   * Handles an event exactly once: in one transaction it is accepted, and the handler is run for `first` alone. After a conflict both
   * are done again. To acknowledge an event, wait until this has returned; if it throws, nothing was written. Inside a transaction of
   * the same Lockstep it is refused: use `accept()` with its `tx`.
   *
   * @example
   * await consumer.handle(event, {}, async (tx, { payload }) => {
   *   await tx.query('UPDATE portfolios SET quantity = quantity + $1 WHERE id = $2', [payload.quantity, event.key])
   * })
   */
  handle<Event extends InboxEvent, Consumed extends object>(
    event: Event,
    options: ContractHandleOptions<Consumed>,
    handler: (tx: Transaction<Client, Events>, event: ReadEvent<Consumed, Event>) => Promise<unknown> | void,
  ): Promise<InboxVerdict>
  handle<Event extends InboxEvent>(
    event: Event,
    options: HandleOptions,
    handler: (tx: Transaction<Client, Events>, event: Event) => Promise<unknown> | void,
  ): Promise<InboxVerdict>
  async handle<Event extends InboxEvent>(
    event: Event,
    options: HandleOptions & { readonly events?: unknown },
    handler: (tx: Transaction<Client, Events>, event: never) => Promise<unknown> | void,
  ): Promise<InboxVerdict> {
    checkOptions('handle()', options, CONTRACT_HANDLE_OPTIONS)
    checkFunction('handle()', handler)
    const { start: _start, events, ...wanted } = options
    const contracts = checkContracts('handle()', events)
    const values = this.#valuesOf(event, { start: options.start ?? 1 })
    refuseInside(this.#context, [], HANDLE)
    return this.#transact(wanted, async (tx) => {
      const verdict = await this.#ask(tx, values)
      if (verdict === 'first') await handler(tx, (contracts?.read(event) ?? event) as never)
      return verdict
    })
  }

  /**
   * Accepts an event in a transaction of the caller's: its effect goes into the same one, and only if this says `first`. Throws
   * `InboxGapError` where an event before it has not come, and `HistoryDivergedError` where its number was accepted with another id, or its
   * generation shows another history.
   *
   * @example
   * await lockstep.transaction({ lock: key`Portfolio:${event.key}` }, async (tx) => {
   *   if ((await consumer.accept(tx, event)) === 'first') await apply(tx, event)
   * })
   */
  async accept(tx: InboxTransaction, event: InboxEvent, options: AcceptOptions = {}): Promise<InboxVerdict> {
    checkOptions('accept()', options, ACCEPT_OPTIONS)
    const values = this.#valuesOf(event, options)
    checkTransaction('accept()', tx)
    return this.#ask(tx, values)
  }

  /**
   * Accepts many events in a transaction of the caller's, in one question: those of a stream in the order of their numbers, streams
   * mixed. It throws nothing for single events: of a stream that cannot go on the others do not notice.
   *
   * @example
   * await lockstep.transaction({}, async (tx) => {
   *   const verdicts = await consumer.acceptMany(tx, events)
   *   await apply(tx, events.filter((_, place) => verdicts[place] === 'first'))
   * })
   */
  async acceptMany(
    tx: InboxTransaction,
    events: readonly InboxEvent[],
    options: AcceptManyOptions = {},
  ): Promise<BatchVerdict[]> {
    checkOptions('acceptMany()', options, ACCEPT_MANY_OPTIONS)
    const { start: first = 1, idleMs = 0, durable = false } = options
    if (!Array.isArray(events)) {
      throw new InvalidOptionError('acceptMany() was given no list.', { advice: 'Call acceptMany(tx, events).' })
    }
    const request = batchRequestOf(events)
    if (!Number.isInteger(idleMs) || idleMs < 0 || idleMs > MAX_IDLE_MS) {
      throw new InvalidOptionError(`idleMs is ${String(idleMs)}.`, { advice: `Use 0 to ${MAX_IDLE_MS} milliseconds.` })
    }
    checkTransaction('acceptMany()', tx)
    if (events.length === 0) return []
    const starts = request.runs.map(({ places: [place] }) => {
      const begins = typeof first === 'function' ? first(request.events[place as number] as InboxEvent) : first
      checkSeq('start', begins)
      return String(begins)
    })
    const values = [this.name, ...valuesOf(request), starts, String(idleMs)]
    const { rows } = await readText(tx, durable ? this.#acceptRunsDurably : this.#acceptRuns, values)
    const found = (rows as unknown as RunRow[]).filter(({ place }) => place !== null)
    return verdictsOn(request, found, {
      gap: (event, expected) => this.#gap(event, expected),
      diverged: (event, verdict) => this.#diverged(event, verdict),
    })
  }

  /** How far this consumer is in a stream; undefined where it has not begun. */
  async position(stream: InboxStream): Promise<InboxPosition | undefined>
  /** The same as the transaction sees it, with what was accepted in it. */
  async position(tx: InboxTransaction, stream: InboxStream): Promise<InboxPosition | undefined>
  async position(first: InboxStream | InboxTransaction, second?: InboxStream): Promise<InboxPosition | undefined> {
    const { topic, key } = checkStream((second ?? first) as InboxStream)
    const ask = (tx: InboxTransaction): ReturnType<typeof readText> =>
      readText(tx, position(this.#schema), [this.name, topic, key])
    if (second === undefined) refuseInside(this.#context, [], POSITION)
    else checkTransaction('position', first)
    const { rows } = await (second === undefined ? this.#transact({}, ask) : ask(first as InboxTransaction))
    const [row] = rows as unknown as PositionRow[]
    return row && { seq: Number(row.seq), id: row.uuid ?? undefined }
  }

  /**
   * Has the consumer begin a stream with this number, in the transaction in which its state as of the number before is written. False
   * where it has begun already: then nothing is changed, unless `force` is given, which moves it, also back.
   *
   * @example
   * await lockstep.transaction({}, async (tx) => {
   *   await copyPortfolio(tx, snapshot)
   *   await consumer.startAt(tx, { topic: 'trades', key: snapshot.id }, snapshot.lastSeq + 1)
   * })
   */
  async startAt(
    tx: InboxTransaction,
    stream: InboxStream,
    seq: number,
    options: StartAtOptions = {},
  ): Promise<boolean> {
    checkOptions('startAt()', options, START_AT_OPTIONS)
    const { topic, key } = checkStream(stream)
    checkSeq('seq', seq)
    checkTransaction('startAt()', tx)
    const values = [this.name, topic, key, String(seq), String(options.force === true)]
    const { rows } = await readText(tx, start(this.#schema), values)
    return rows[0]?.['started'] === 'true'
  }

  #valuesOf(event: InboxEvent, { start: first = 1 }: AcceptOptions): readonly string[] {
    const { topic, key, seq, id, tombstone, generation } = checkEvent(event)
    checkSeq('start', first)
    return [this.name, topic, key, String(seq), id, String(tombstone), String(first), String(generation ?? '')]
  }

  async #ask(tx: InboxTransaction, values: readonly string[]): Promise<InboxVerdict> {
    const { rows } = await readText(tx, this.#accept, values)
    const { verdict } = rows[0] as unknown as AcceptRow
    if (verdict === 'first' || verdict === 'duplicate' || verdict === 'tombstone') return verdict
    const [, topic, key, seq, id] = values as [string, string, string, string, string]
    const event = { topic, key, seq: Number(seq), id }
    if (verdict === 'diverged' || verdict === 'outdated') throw this.#diverged(event, verdict)
    throw this.#gap(event, Number(verdict.slice('gap:'.length)))
  }

  #diverged({ topic, key, seq, id }: InboxEvent, verdict: 'diverged' | 'outdated'): HistoryDivergedError {
    const stream = `${topic}/${key}`
    if (verdict === 'outdated') {
      return new HistoryDivergedError(
        `#${seq} of ${stream} is of an earlier generation than the last event that ${this.name} has accepted: its history has ended.`,
        {
          advice: 'A server that was replaced still delivers. Stop its dispatchers, and do not acknowledge the event.',
          keys: [stream],
        },
      )
    }
    return new HistoryDivergedError(
      `${this.name} has accepted #${seq} of ${stream} with another id than ${id}: the producer's history is another one.`,
      {
        advice:
          'Was the producer restored? Rebuild what was made of its later events, then startAt(…, { force: true }).',
        keys: [stream],
      },
    )
  }

  #gap({ topic, key, seq }: InboxEvent, expected: number): InboxGapError {
    const stream = `${topic}/${key}`
    return new InboxGapError(`${this.name} expects #${expected} of ${stream}, and #${seq} came.`, {
      advice: 'Do not acknowledge it: have the stream delivered again from the expected number on.',
      keys: [stream],
      expected,
      seq,
    })
  }
}
