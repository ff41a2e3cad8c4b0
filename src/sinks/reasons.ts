import { InvalidOptionError } from '../errors.ts'
import { type Delivery, EventRefusedError, type OutboxEvent } from '../outbox/index.ts'

/** Of an event that was left alone. */
export const NOT_BEGUN: Delivery = { unknown: 'it was not begun: the sink is closed, or the shard was lost' }

/** An event, as reasons call it. */
export const nameOf = ({ topic, key, seq }: OutboxEvent): string => `#${seq} of ${topic}/${key}`

/** What was thrown, as text. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/**
 * What is said of an event for which the caller's function gives no place. That it gives nothing, or what is no name, is a matter of this event's
 * stream; that it fails may be the fault of what it asks.
 */
export function notPlaced(event: OutboxEvent, cause: unknown): Exclude<Delivery, 'sent'> {
  if (cause instanceof URIError)
    return { refused: `${nameOf(event)}: its topic or key is not well-formed text.`, cause }
  if (cause instanceof InvalidOptionError) return { refused: `${nameOf(event)} has no place: ${cause.message}`, cause }
  return { failed: `${nameOf(event)} has no place: ${textOf(cause)}`, cause }
}

/** What is said of an event of which no message could be made. It is the event's own fault: the others of its batch continue. */
export function refusalOf(cause: unknown): Exclude<Delivery, 'sent'> {
  return cause instanceof EventRefusedError ? { refused: cause.message, cause } : { failed: textOf(cause), cause }
}
