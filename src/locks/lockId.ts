import { createHash } from 'node:crypto'
import { checkKey, type Key } from './key.ts'

/** Modules that take locks for different ends never share an id, even for the same key. */
export type LockDomain =
  | 'lock'
  | 'migrate'
  | 'incarnation'
  | 'listen'
  | 'shadow'
  | 'shadow-shared'
  | 'outbox'
  | 'outbox-group'

/**
 * SHA-256 over schema, domain and key, with a zero byte between them. The one place in the library where it is computed;
 * tools/schema/hashes.sql.ts is the one for the schema.
 */
export function keyDigest(schema: string, domain: LockDomain, key: string): Buffer {
  return createHash('sha256').update(`${schema}\0${domain}\0${key}`).digest()
}

/** The number that PostgreSQL locks for a hash: its first 8 bytes. */
export function lockIdOf(digest: Buffer): bigint {
  return digest.readBigInt64BE(0)
}

/**
 * The number that PostgreSQL locks for a key. `lock_id(domain, key)` in the schema gives the same. Not `hashtext` (32 bits: 10 collisions in 300,000 labels), not
 * `hashtextextended` (depends on the database's encoding, and the client cannot compute it).
 */
export function lockId(schema: string, domain: LockDomain, key: string): bigint {
  return lockIdOf(keyDigest(schema, domain, key))
}

/** Enough for the keys that are in use at a time. */
const MAX_REMEMBERED = 1000

/** After this time all are forgotten, so that a key in constant use is noted again and its name stays in the list. */
const REMEMBERED_FOR_MS = 5 * 60_000

/** Called with a key that was not among the recent ones. */
export type OnNewKey = (id: bigint, key: Key) => void

/** The ids of recent keys of one schema: hashing a key and checking it cost as much as the rest of a call before it is sent. */
export class RecentLockIds {
  readonly schema: string
  readonly #note: OnNewKey | undefined
  readonly #ids = new Map<string, bigint>()
  #forgetAt = 0

  constructor(schema: string, note?: OnNewKey) {
    this.schema = schema
    this.#note = note
  }

  /** The id of a key; checks it first, if it is not known. */
  idOf(key: Key): bigint {
    const now = performance.now()
    if (now >= this.#forgetAt) {
      this.#forgetAt = now + REMEMBERED_FOR_MS
      this.#ids.clear()
    }
    let id = this.#ids.get(key)
    if (id === undefined) {
      id = lockId(this.schema, 'lock', checkKey(key))
      if (this.#ids.size >= MAX_REMEMBERED) this.#ids.clear()
      this.#ids.set(key, id)
      this.#note?.(id, key)
    }
    return id
  }
}
