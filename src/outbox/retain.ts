import type { Grounds } from '../transactions/index.ts'
import { onPrimary } from './onPrimary.ts'
import { retainSegments } from './outbox.sql.ts'

/** What a round of retention did. */
export interface Retained {
  /** Segments that were emptied. */
  readonly dropped: number
  /** Segments that were made ready: a round that comes a minute later, or as late as they are old where that is less, empties them. */
  readonly readied: number
  /** Whether a new segment was begun. */
  readonly rotated: boolean
}

/**
 * Empties segments that every dispatcher has passed and that are older than the given time, and begins a new one when it is due. Never
 * waits long for anybody: what is in use is looked at another time. It takes two rounds to empty a segment: the first writes down the last
 * numbers of its streams, so that a dump which is being made has them, and the second empties it.
 */
export async function retain(grounds: Grounds, olderThanMs: number, rotateMs: number): Promise<Retained> {
  const text = retainSegments(grounds.quotedSchema, olderThanMs, rotateMs)
  const results = await onPrimary(grounds, (connection) => connection.script(text))
  const told = (name: string): unknown =>
    results.find(({ rows }) => rows[0] !== undefined && name in rows[0])?.rows[0]?.[name]
  return { dropped: Number(told('dropped')), readied: Number(told('readied')), rotated: told('rotated') === 'true' }
}
