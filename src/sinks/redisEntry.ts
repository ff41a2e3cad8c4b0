import type { EventStream } from '../consumers/index.ts'
import { readMessage, type ReceivedEvent } from './message.ts'
import { nameTemplate } from './nameTemplate.ts'
import { BODY } from './redisAppend.ts'

const DEFAULT_NAME = 'lockstep:{topic}:{key}'

/**
 * The name of the Redis stream of an event stream, as the sink makes it: for its readers.
 *
 * @example
 * const name = redisStreamName({ topic: 'trades', key: 'growth' }) // lockstep:trades:growth
 */
export function redisStreamName(stream: EventStream, template: string = DEFAULT_NAME): string {
  return redisStreamNames(template)(stream)
}

/**
 * Reads an entry's fields as a client gives them: an object, or names and values in turn.
 *
 * @example
 * for (const [, fields] of await client.xrangeBuffer(redisStreamName(stream), '-', '+')) {
 *   await consumer.handle(readRedisEntry<Trade>(fields), {}, apply)
 * }
 */
export function readRedisEntry<Payload = unknown>(
  fields: Readonly<Record<string, string | Uint8Array>> | readonly (string | Uint8Array)[],
): ReceivedEvent<Payload> {
  const headers: Record<string, string | Uint8Array> = Array.isArray(fields)
    ? Object.fromEntries(
        Array.from({ length: fields.length >> 1 }, (_, pair) => [textOf(fields[2 * pair]), fields[2 * pair + 1]]),
      )
    : { ...(fields as Record<string, string | Uint8Array>) }
  const body = headers[BODY] ?? null
  delete headers[BODY]
  return readMessage<Payload>(headers, body)
}

/** The names of Redis streams, by a template. */
export function redisStreamNames(template: string = DEFAULT_NAME): (stream: EventStream) => string {
  return nameTemplate('stream', template, encodeURIComponent, /[^\w.!~*'()%-]/)
}

function textOf(value: unknown): string {
  return value instanceof Uint8Array ? Buffer.from(value).toString() : String(value)
}
