import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { checkConsumer, checkStream, type InboxStream } from './event.ts'
import type { PositionsRequest } from './inbox.sql.ts'

/** What `inbox.positions()` takes. */
export interface PositionsOptions {
  readonly consumer: string
  /** Default: all topics. */
  readonly topic?: string
  /** The maximum number on a page. Default 100. */
  readonly limit?: number
  /** `next` of the previous page. */
  readonly after?: InboxStream
}

const POSITIONS_OPTIONS: OptionNames<PositionsOptions> = {
  consumer: 'never undefined',
  topic: 'never undefined',
  limit: true,
  after: true,
}

/** How far a consumer is in a stream. */
export interface InboxPosition {
  /** The last number that was accepted. */
  readonly seq: number
  /** Its event's. Undefined where none was accepted yet: the consumer begins with the next number. */
  readonly id: string | undefined
}

/** How far a consumer is in one stream. */
export interface StreamPosition extends InboxStream, InboxPosition {}

/** Positions of a consumer, by topic and key. */
export interface PositionPage {
  readonly positions: readonly StreamPosition[]
  /** The stream after which the next page begins; undefined: there is none. */
  readonly next: InboxStream | undefined
}

/** A consumer that has positions. */
export interface PositionedConsumer {
  readonly name: string
  /** In how many streams: counted up to 10,000. */
  readonly streams: number
}

export const MOST_COUNTED = 10_000
const MOST_POSITIONS = 10_000

export function positionsRequest(options: PositionsOptions): PositionsRequest {
  checkOptions('inbox.positions()', options, POSITIONS_OPTIONS)
  const { consumer, topic, limit = 100, after } = options
  checkConsumer(consumer)
  if (topic !== undefined) checkStream({ topic, key: 'any' })
  if (after !== undefined) checkStream(after)
  if (!Number.isInteger(limit) || limit < 1 || limit > MOST_POSITIONS) {
    throw new InvalidOptionError(`limit is ${String(limit)}.`, {
      advice: `Use a whole number from 1 to ${MOST_POSITIONS}.`,
    })
  }
  return { consumer, topic, after: after ?? { topic: '', key: '' }, limit }
}
