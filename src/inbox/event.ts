import { InvalidOptionError } from '../errors.ts'

/** Topic, key and consumer stand in one index together, whose entries have at most 2,704 bytes. */
const MAX_NAME_BYTES = 1000
const MAX_CONSUMER_BYTES = 255

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Topic and key: within a stream, events are numbered without gaps. */
export interface InboxStream {
  readonly topic: string
  readonly key: string
}

/** What the inbox has to know of an event: any broker's message can be mapped to it. */
export interface InboxEvent extends InboxStream {
  /** From 1, without a gap, within topic and key. */
  readonly seq: number
  /** A uuid: a number that comes again with another one is another event. */
  readonly id: string
  /** Whether its number was given up: the position moves, and there is nothing to handle. Text says why, and counts as true. */
  readonly tombstone?: string | boolean | null | undefined
  /**
   * The generation in which it was enqueued, as every message of Lockstep's says it. With it, an event that has got the number of another
   * one after a failover or a restore is noticed at once; without it, only at the last number that was accepted.
   */
  readonly generation?: number | undefined
}

/** What has been checked of an event. */
export type CheckedEvent = Required<Omit<InboxEvent, 'tombstone' | 'generation'>> & {
  readonly tombstone: boolean
  readonly generation: number | undefined
}

/** Refuses a stream that cannot be one. Nothing has been sent when it throws. */
export function checkStream(given: InboxStream): InboxStream {
  const { topic, key } = given ?? ({} as InboxStream)
  checkName('topic', topic, MAX_NAME_BYTES)
  checkName('key', key, MAX_NAME_BYTES)
  return { topic, key }
}

/** Checks an event and fixes what will be sent: the caller may change its objects afterwards. */
export function checkEvent(given: InboxEvent): CheckedEvent {
  return checkRest(checkStream(given), given)
}

/** The same for an event whose stream was checked. */
export function checkRest(
  { topic, key }: InboxStream,
  { seq, id, tombstone = false, generation }: InboxEvent,
): CheckedEvent {
  checkSeq('seq', seq)
  if (typeof id !== 'string' || !UUID.test(id)) {
    throw new InvalidOptionError(`The id of event ${topic}/${key} #${seq} is ${shown(id)}.`, {
      advice: 'Pass the uuid that the producer gave the event.',
      keys: [`${topic}/${key}`],
    })
  }
  if (tombstone !== null && typeof tombstone !== 'boolean' && (typeof tombstone !== 'string' || tombstone === '')) {
    throw new InvalidOptionError(`The tombstone of event ${topic}/${key} #${seq} is ${shown(tombstone)}.`, {
      advice: 'Pass true or why its number was given up, or leave it out.',
      keys: [`${topic}/${key}`],
    })
  }
  if (generation !== undefined && !(Number.isSafeInteger(generation) && generation >= 0)) {
    throw new InvalidOptionError(`The generation of event ${topic}/${key} #${seq} is ${shown(generation)}.`, {
      advice: 'Pass the number that the message has, or leave it out.',
      keys: [`${topic}/${key}`],
    })
  }
  return { topic, key, seq, id, tombstone: tombstone !== null && tombstone !== false, generation }
}

/** A number of a stream. */
export function checkSeq(name: string, seq: unknown): asserts seq is number {
  if (Number.isSafeInteger(seq) && (seq as number) >= 1) return
  throw new InvalidOptionError(`${name} is ${shown(seq)}.`, {
    advice: 'Numbers of a stream are whole and begin with 1; turn text into a number first.',
  })
}

export function checkConsumer(consumer: unknown): string {
  checkName('consumer', consumer, MAX_CONSUMER_BYTES)
  return consumer
}

function checkName(name: string, value: unknown, maxBytes: number): asserts value is string {
  if (typeof value !== 'string' || value === '' || value.includes('\0') || !value.isWellFormed()) {
    throw new InvalidOptionError(`The ${name} is ${shown(value)}.`, { advice: 'Pass text that is not empty.' })
  }
  if (Buffer.byteLength(value) > maxBytes) {
    throw new InvalidOptionError(`The ${name} has more than ${maxBytes} bytes.`, { advice: 'Use a shorter name.' })
  }
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value)
  if (typeof value === 'object' && value !== null) return 'an object'
  return String(value)
}
