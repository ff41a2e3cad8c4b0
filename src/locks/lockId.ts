import { createHash } from 'node:crypto'

/** Rooms that take locks for different ends never share an id, even for the same key. */
export type LockDomain = 'lock' | 'migrate' | 'incarnation'

/**
 * The number that PostgreSQL locks for a key: the first 8 bytes of SHA-256 over schema, domain and key, with a zero byte between
 * them. `lock_id(domain, key)` in the schema gives the same. Not `hashtext` (32 bits: 10 collisions in 300,000 labels), not
 * `hashtextextended` (depends on the database's encoding, and the client cannot compute it).
 */
export function lockId(schema: string, domain: LockDomain, key: string): bigint {
  return createHash('sha256').update(`${schema}\0${domain}\0${key}`).digest().readBigInt64BE(0)
}
