import type { LockstepContext } from '../transactions/index.ts'
import { onPrimary } from './onPrimary.ts'
import { type Age, keepNumbers, rotateSegments } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'

/** What a round of retention did. */
export interface Retained {
  /** Segments that were emptied. */
  readonly dropped: number
  /** Segments that were made ready: a round that comes a minute later, or as late as they are old where that is less, empties them. */
  readonly readied: number
  /** Whether a new segment was begun. */
  readonly rotated: boolean
}

/** A round, and whether there is more to be made ready than there was time for. */
export interface RetentionRound extends Retained {
  readonly more: boolean
}

/**
 * Empties segments that every dispatcher has passed and that are older than the given time, and begins a new one when it is due. Never
 * waits long for a lock: a segment in use is tried again in a later round. It takes two rounds to empty a segment: the first writes down the last
 * numbers of its streams, so that a dump which is being made has them, and the second empties it. Writing them down is done in short
 * steps, each a transaction, for `withinMs` at most: the next round continues.
 */
export async function retain(context: LockstepContext, age: Age, withinMs = Infinity): Promise<RetentionRound> {
  const until = performance.now() + withinMs
  const turning = rotateSegments(context.quotedSchema, age)
  const results = await onPrimary(context, (connection) => connection.script(turning))
  const told = (name: string): unknown =>
    results.find(({ rows }) => rows[0] !== undefined && name in rows[0])?.rows[0]?.[name]
  const keeping = keepNumbers(context.quotedSchema, age)
  let [readied, more] = [0, true]
  while (more && performance.now() < until) {
    const [kept] = resultRows(await onPrimary(context, (connection) => connection.script(keeping)))
    readied += Number(kept?.['readied'])
    more = kept?.['more'] === 'true'
  }
  return { dropped: Number(told('dropped')), readied, rotated: told('rotated') === 'true', more }
}
