import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, PayloadInvalidError, type PayloadIssue, PayloadVersionError } from '../errors.ts'
import { type InputOf, isSchema, type OutputOf, type SchemaIssue, type StandardSchema } from './standardSchema.ts'

/** The header that says which version of its contract the payload of an event fits. It has no prefix of ours: every sink passes it on. */
export const VERSION_HEADER = 'payload-version'

/** Turns a payload of one version into one of the next. Its parameter can have the type of the old payload. */
export type Upcast = { upcast(payload: unknown): unknown }['upcast']

/** What the payloads of a topic look like: now, and before. */
export interface TopicContract<Schema extends StandardSchema = StandardSchema> {
  /** Of the newest version. */
  readonly schema: Schema
  /** The newest version. Default 1. */
  readonly version?: number
  /** By version: makes a payload of that version one of the next. A version that is missing here, and all before it, are refused. */
  readonly upcast?: Readonly<Record<number, Upcast>>
}

const TOPIC_CONTRACT: OptionNames<TopicContract> = { schema: true, version: true, upcast: true }

/** Topics, each with a schema, or with a schema and its versions. */
export type TopicContracts = Readonly<Record<string, StandardSchema | TopicContract>>

type SchemaOf<Contract> = Contract extends StandardSchema
  ? Contract
  : Contract extends TopicContract<infer Schema>
    ? Schema
    : never

/** What is enqueued to each topic. */
export type EnqueuedBy<Topics extends TopicContracts> = {
  -readonly [Topic in keyof Topics]: InputOf<SchemaOf<Topics[Topic]>>
}

/** What consumers get of each topic. */
export type ConsumedBy<Topics extends TopicContracts> = {
  -readonly [Topic in keyof Topics]: OutputOf<SchemaOf<Topics[Topic]>>
}

/** An event as the outbox or a broker delivers it. */
export interface ReadableEvent {
  readonly topic: string
  readonly key: string
  readonly payload?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly tombstone?: string | boolean | null | undefined
}

/** An event with a checked payload, as a union discriminated by `topic`. */
export type ReadEvent<Consumed extends object, Event> = {
  [Topic in keyof Consumed & string]: Omit<Event, 'topic' | 'payload'> & {
    readonly topic: Topic
    readonly payload: Consumed[Topic]
  }
}[keyof Consumed & string]

/** A method of events that cannot be copied: the same event with another payload. */
export const withPayload: unique symbol = Symbol('withPayload')

/** A contract, checked. */
interface Checked {
  readonly schema: StandardSchema
  readonly version: number
  /** The oldest version that can be read. */
  readonly oldest: number
  readonly upcast: Readonly<Record<number, Upcast>>
}

/** The contracts of topics, as `defineEvents()` makes them. */
export class EventContracts<
  Enqueued extends object = Record<string, unknown>,
  Consumed extends object = Record<string, unknown>,
> {
  /** Only for the compiler. */
  declare readonly '~types'?: { readonly enqueued: Enqueued; readonly consumed: Consumed }
  readonly #topics: ReadonlyMap<string, Checked>

  /** @internal */
  constructor(topics: TopicContracts) {
    this.#topics = new Map(Object.entries(topics).map(([topic, given]) => [topic, checkContract(topic, given)]))
  }

  /**
   * Reads an event: brings its payload to the newest version, checks it, and gives a copy of the event with what the schema gave. The
   * consumers of Lockstep do so by themselves, where they are given the contracts. Throws `PayloadInvalidError` or `PayloadVersionError`. A tombstone
   * has no payload, and comes back as it is.
   *
   * @example
   * const event = events.read(readMessage(message.headers, message.value))
   */
  read<Event extends ReadableEvent>(event: Event): ReadEvent<Consumed, Event> {
    const { topic, key, tombstone } = event
    if (tombstone !== undefined && tombstone !== null && tombstone !== false) {
      return event as unknown as ReadEvent<Consumed, Event>
    }
    const contract = this.#contractOf(topic, key)
    const payload = upcast(contract, event)
    return copyWith(event, validated(contract, topic, key, payload)) as ReadEvent<Consumed, Event>
  }

  /**
   * Checks what is about to be enqueued, as consumers will read it. Gives the version that it has.
   * @internal
   */
  check(topic: string, key: string, payload: unknown): number {
    const contract = this.#contractOf(topic, key)
    validated(contract, topic, key, payload)
    return contract.version
  }

  #contractOf(topic: string, key: string): Checked {
    const contract = this.#topics.get(topic)
    if (contract !== undefined) return contract
    throw new PayloadInvalidError(`The event of ${topic}/${key} cannot be checked: the topic has no contract.`, {
      advice: `Add ${JSON.stringify(topic)} to defineEvents(); unchecked() takes every payload.`,
      topic,
      key,
      issues: [],
    })
  }
}

/**
 * Defines what the payloads of each topic look like, once, for producers and consumers: a schema of any library that follows Standard
 * Schema (zod, valibot, arktype), and how payloads of older versions become newer ones. Payloads are checked when they are enqueued and when they are
 * consumed, and typed on both sides. The schemas must be synchronous.
 *
 * @example
 * const events = defineEvents({
 *   trades: z.object({ id: z.number(), quantity: z.number() }),
 *   orders: {
 *     version: 2,
 *     schema: z.object({ id: z.string(), amount: z.number(), currency: z.string() }),
 *     upcast: { 1: (old: { id: string; amount: number }) => ({ ...old, currency: 'EUR' }) },
 *   },
 * })
 * const lockstep = new Lockstep(pool, { events })
 */
export function defineEvents<Topics extends TopicContracts>(
  topics: Topics,
): EventContracts<EnqueuedBy<Topics>, ConsumedBy<Topics>> {
  if (typeof topics !== 'object' || topics === null || Object.keys(topics).length === 0) {
    throw new InvalidOptionError('defineEvents() was given no topics.', {
      advice: 'Call defineEvents({ trades: schema }).',
    })
  }
  return new EventContracts(topics)
}

/**
 * A schema that takes everything, for a topic that has none yet: typed, and not checked.
 *
 * @example
 * const events = defineEvents({ trades: tradeSchema, legacy: unchecked<Legacy>() })
 */
export function unchecked<Payload>(): StandardSchema<Payload, Payload> {
  return {
    '~standard': { version: 1, vendor: 'pg-lockstep', validate: (value) => ({ value: value as Payload }) },
  }
}

/** What a Lockstep or a consumer was given as its contracts. */
export function checkContracts(where: string, given: unknown): EventContracts | undefined {
  if (given === undefined || given instanceof EventContracts) return given
  throw new InvalidOptionError(`\`events\` of ${where} is not what defineEvents() returns.`, {
    advice: 'Pass events: defineEvents({ trades: schema }).',
  })
}

/** The headers of an event, with the version of its payload. An event that was forwarded brings that of another one along. */
export function withVersion(
  headers: Readonly<Record<string, string>> | undefined,
  version: number,
): Readonly<Record<string, string>> {
  const all: Record<string, string> = { ...headers }
  for (const name of Object.keys(all)) if (name.toLowerCase() === VERSION_HEADER) delete all[name]
  all[VERSION_HEADER] = String(version)
  return all
}

function checkContract(topic: string, given: unknown): Checked {
  if (isSchema(given)) return { schema: given, version: 1, oldest: 1, upcast: {} }
  const where = `The contract of the topic ${topic}`
  if (typeof given !== 'object' || given === null || !isSchema((given as Partial<TopicContract>).schema)) {
    throw new InvalidOptionError(`${where} has no schema that follows Standard Schema 1.`, {
      advice: 'Pass a schema of zod, valibot or arktype, or { schema, version, upcast }.',
    })
  }
  checkOptions(`the contract of ${topic}`, given, TOPIC_CONTRACT)
  const { schema, version = 1, upcast: steps = {} } = given as TopicContract
  if (!Number.isSafeInteger(version) || version < 1) {
    throw new InvalidOptionError(`${where} has the version ${String(version)}.`, {
      advice: 'Versions are whole numbers, from 1 on.',
    })
  }
  for (const [from, step] of Object.entries(steps)) {
    if (typeof step !== 'function' || !/^[1-9]\d*$/.test(from) || Number(from) >= version) {
      throw new InvalidOptionError(`${where} has version ${version} and an upcast from ${from}.`, {
        advice: 'Pass functions, each under an older version: it makes a payload of that version one of the next.',
      })
    }
  }
  let oldest = version
  while (Object.hasOwn(steps, oldest - 1)) oldest--
  const unused = Object.keys(steps).find((from) => Number(from) < oldest)
  if (unused !== undefined) {
    throw new InvalidOptionError(`${where} has an upcast from ${unused}, but none from ${oldest - 1}.`, {
      advice: 'A payload goes through the upcast of each version in turn.',
    })
  }
  return { schema, version, oldest, upcast: { ...steps } }
}

/** The payload as one of the newest version. */
function upcast({ version, oldest, upcast: steps }: Checked, event: ReadableEvent): unknown {
  const { topic, key, headers } = event
  const said = headers?.[VERSION_HEADER] ?? '1'
  const from = /^[1-9]\d{0,14}$/.test(said) ? Number(said) : undefined
  if (from === undefined || from > version || from < oldest) {
    throw new PayloadVersionError(
      from === undefined
        ? `The payload of ${topic}/${key} says that its version is ${JSON.stringify(said.slice(0, 100))}.`
        : `The payload of ${topic}/${key} has version ${from}. This process reads ${oldest === version ? `version ${version}` : `versions ${oldest} to ${version}`}.`,
      {
        advice:
          from === undefined
            ? `The header ${VERSION_HEADER} is a whole number from 1 on.`
            : from > version
              ? 'Deploy the newer contract to the consumers, then retry the stream.'
              : `Add the upcast from ${from} to the contract, then retry the stream.`,
        topic,
        key,
        version: from,
      },
    )
  }
  let { payload } = event
  for (let at = from; at < version; at++) {
    try {
      payload = (steps[at] as Upcast)(payload)
    } catch (cause) {
      throw new PayloadInvalidError(
        `The upcast of ${topic}/${key} from version ${at} failed: ${cause instanceof Error ? cause.message : String(cause)}.`,
        { advice: 'Fix the upcast, or the event.', topic, key, issues: [], cause },
      )
    }
    if (isPromise(payload)) throw promised(payload, `The upcast of the topic ${topic} from version ${at}`)
  }
  return payload
}

/** What the schema makes of a payload. */
function validated({ schema, version }: Checked, topic: string, key: string, payload: unknown): unknown {
  const result = schema['~standard'].validate(payload)
  if (isPromise(result)) throw promised(result, `The schema of the topic ${topic}`)
  if (result.issues === undefined) return result.value
  const issues = Array.from(result.issues, issueOf)
  const which = version === 1 ? '' : ` version ${version} of`
  throw new PayloadInvalidError(
    `The payload of ${topic}/${key} does not fit${which} the contract of its topic: ${textOf(issues)}.`,
    { advice: 'Fix the payload, or change the contract.', topic, key, issues },
  )
}

/** It may still reject, and no one else listens. */
function promised(promise: Promise<unknown>, what: string): InvalidOptionError {
  promise.then(undefined, () => undefined)
  return new InvalidOptionError(`${what} answered with a promise.`, {
    advice: 'Use a synchronous one. Move work that needs other data into the code that enqueues, or into the handler.',
  })
}

function isPromise(value: unknown): value is Promise<unknown> {
  return typeof (value as Partial<Promise<unknown>> | null | undefined)?.then === 'function'
}

function issueOf({ message, path = [] }: SchemaIssue): PayloadIssue {
  // Not map(): a library can have lists of a class of its own.
  return { message, path: Array.from(path, (part) => String(typeof part === 'object' ? part.key : part)) }
}

const MOST_ISSUES = 5

function textOf(issues: readonly PayloadIssue[]): string {
  const told = issues
    .slice(0, MOST_ISSUES)
    .map(({ path, message }) => (path.length === 0 ? message : `${path.join('.')}: ${message}`))
  const more = issues.length - told.length
  return more > 0 ? `${told.join('; ')}; and ${more} more` : told.join('; ')
}

function copyWith(event: ReadableEvent, payload: unknown): object {
  const copies = event as { readonly [withPayload]?: (payload: unknown) => object }
  if (typeof copies[withPayload] === 'function') return copies[withPayload](payload)
  // Not spread: that would ask every getter, also for the old payload.
  return Object.create(Object.getPrototypeOf(event) as object | null, {
    ...Object.getOwnPropertyDescriptors(event),
    payload: { value: payload, enumerable: true, configurable: true, writable: true },
  }) as object
}
