import { createHash } from 'node:crypto'
import { type Key, lockId, type LockRequest, type LockSet } from '../locks/index.ts'
import type { Stream } from './enqueuing.ts'

const BUCKETS = 64
/** Where in the hash of a stream its bucket stands. */
const BUCKET_BYTE = 15

/**
 * The locks that enqueuing takes, in the order that everybody keeps to: the buckets of the streams, shared, by their number; then
 * the streams by their lock. `outbox_lock()` in the schema does the same.
 */
export function locksOfStreams(schema: string, streams: readonly Stream[]): LockSet {
  const buckets = new Map<number, LockRequest>()
  const locks = streams.map(({ topic, key }): LockRequest => {
    const digest = createHash('sha256').update(`${schema}\0outbox\0${topic}\0${key}`).digest()
    const bucket = digest.readUInt8(BUCKET_BYTE) % BUCKETS
    const id = lockId(schema, 'outbox-bucket', '') ^ BigInt(bucket)
    buckets.set(bucket, { id, key: `Outbox:bucket ${bucket}`, shared: true })
    return { id: digest.readBigInt64BE(0), key: `Outbox:${topic}:${key}` as Key, shared: false }
  })
  const byNumber = [...buckets].toSorted(([a], [b]) => a - b).map(([, lock]) => lock)
  return [...byNumber, ...locks.toSorted((a, b) => (a.id < b.id ? -1 : 1))]
}
