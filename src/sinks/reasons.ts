import type { Delivery, OutboxEvent } from '../outbox/index.ts'

/** Of an event that was left alone. */
export const NOT_BEGUN: Delivery = { unknown: 'it was not begun: the sink is closed, or the shard was lost' }

/** An event, as reasons call it. */
export const nameOf = ({ topic, key, seq }: OutboxEvent): string => `#${seq} of ${topic}/${key}`

/** What was thrown, as text. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
