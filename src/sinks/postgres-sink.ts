import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { Applier } from '../consumers/index.ts'
import { InvalidOptionError } from '../errors.ts'
import type { EventMap } from '../events/index.ts'
import type { InboxConsumer } from '../inbox/index.ts'
import type { BatchContext, Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import type { Isolation, Transaction, TransactionOptions } from '../transactions/index.ts'
import { SinkUse } from './sinkUse.ts'
import { startOf, type StreamStartOption } from '../consumers/index.ts'

/** What the sink needs of a Lockstep: that of the database to which the events go. */
export interface TargetLockstep<Client = unknown, Events extends object = EventMap> {
  transaction<T>(options: TransactionOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
  readonly inbox: { consumer(name: string): InboxConsumer<Client, Events> }
}

/** What `postgresSink()` takes. Either `handle` or `handleMany`. */
export interface PostgresSinkOptions<Client = unknown, Events extends object = EventMap> {
  /** A Lockstep on the other database, migrated. You end its pool. */
  readonly lockstep: TargetLockstep<Client, Events>
  /** The name under which that database stores the position. Another name receives everything again. */
  readonly consumer: string
  /**
   * The effect of one event, in the transaction in which it is accepted. It can run again, so effects outside the database can happen
   * twice. Throw `new EventRefusedError(reason)` for an event that cannot be handled.
   */
  readonly handle?: (tx: Transaction<Client, Events>, event: OutboxEvent) => Promise<unknown> | void
  /** The same for many at once, of several streams, each in its order: an INSERT of many rows is much faster. */
  readonly handleMany?: (tx: Transaction<Client, Events>, events: readonly OutboxEvent[]) => Promise<unknown> | void
  /** The number with which a stream begins if the other database has no event of it. Default 1. */
  readonly start?: StreamStartOption
  /**
   * Whether the handler also gets tombstones, whose number was given up and which have no payload. Default false: the position moves
   * past them.
   */
  readonly handlesTombstones?: boolean
  /** The isolation level of the transactions. Default `'read committed'`. */
  readonly isolation?: Isolation
  /** How long a transaction can take. Then it is given up, and its outcome is unknown. Default 10,000. */
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
class PostgresSink implements Sink {
  readonly name: string
  readonly enforcesFences = true
  readonly #applier: Applier<OutboxEvent>
  readonly #use = new SinkUse()

  constructor(options: PostgresSinkOptions) {
    const { lockstep, consumer, handle, handleMany, handlesTombstones = false, isolation } = checkValues(options)
    const begins = startOf(options.start)
    this.#applier = new Applier({
      transaction: (wanted, fn) => lockstep.transaction(wanted, fn),
      inbox: lockstep.inbox.consumer(consumer),
      handle: handleMany ?? oneByOne(handle as NonNullable<PostgresSinkOptions['handle']>),
      handlesTombstones,
      start(event) {
        const start = begins(event)
        return start === 'anywhere' ? event.seq : start
      },
      isolation,
      timeoutMs: options.timeoutMs ?? 10_000,
      handlerFails: 'failed',
      durable: true,
    })
    this.name = options.name ?? 'postgres'
  }

  open(): Promise<void> {
    return this.#use.open()
  }

  send(events: readonly OutboxEvent[], { signal, owned }: BatchContext): Promise<Delivery[]> {
    const stopped = (): string | undefined => (this.#use.closed ? 'the sink was closed' : undefined)
    return this.#use.track(this.#applier.apply(events, { signal, owned, stopped }))
  }

  async healthy(): Promise<boolean> {
    return !this.#use.closed && (await this.#applier.healthy())
  }

  close(): Promise<void> {
    return this.#use.close()
  }
}

function oneByOne(handle: NonNullable<PostgresSinkOptions['handle']>): NonNullable<PostgresSinkOptions['handleMany']> {
  return async (tx, events) => {
    for (const event of events) await handle(tx, event)
  }
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
    throw new InvalidOptionError(`Unknown isolation level ${isolation}.`, {
      advice: `Use one of ${ISOLATIONS.join(', ')}.`,
    })
  }
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > MAX_MS) {
    throw new InvalidOptionError(`timeoutMs is ${String(timeoutMs)}.`, { advice: `Use 1 to ${MAX_MS} milliseconds.` })
  }
  return options
}
