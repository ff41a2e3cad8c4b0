import { type Key, keyDigest, lockId, lockIdOf, type LockRequest, type LockSet } from '../locks/index.ts'
import type { Stream } from '../events/index.ts'

/** Streams are in 1,024 buckets, and these in 64 groups of 16. */
const BUCKETS = 1024
const BUCKETS_IN_A_GROUP = 16
/** Where in the hash of a stream its bucket stands: the last bits of the 16 bytes that are its name. */
const BUCKET_AT = 14

function groupIn(digest: Buffer): number {
  return Math.floor((digest.readUInt16BE(BUCKET_AT) % BUCKETS) / BUCKETS_IN_A_GROUP)
}

/** The group of a stream, 0 to 63. */
export function groupOf(schema: string, { topic, key }: Stream): number {
  return groupIn(keyDigest(schema, 'outbox', `${topic}\0${key}`))
}

/**
 * The locks that enqueuing takes, in the order that every session keeps to: the groups of the streams, shared, by their number; then
 * the streams by their lock. `outbox_lock()` in the schema does the same.
 */
export function locksOfStreams(schema: string, streams: readonly Stream[]): LockSet {
  const groups = new Map<number, LockRequest>()
  const firstGroup = lockId(schema, 'outbox-group', '')
  const locks = streams.map(({ topic, key }): LockRequest => {
    const digest = keyDigest(schema, 'outbox', `${topic}\0${key}`)
    const group = groupIn(digest)
    groups.set(group, { id: firstGroup ^ BigInt(group), key: `Outbox:group ${group}`, shared: true })
    return { id: lockIdOf(digest), key: `Outbox:${topic}:${key}` as Key, shared: false }
  })
  const byNumber = [...groups].toSorted(([a], [b]) => a - b).map(([, lock]) => lock)
  return [...byNumber, ...locks.toSorted((a, b) => (a.id < b.id ? -1 : 1))]
}
