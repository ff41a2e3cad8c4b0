import { InvalidOptionError } from '../errors.ts'
import type { Key } from './key.ts'
import type { RecentLockIds } from './lockId.ts'

/** One lock of a set. */
export interface LockRequest {
  readonly id: bigint
  readonly key: Key
  readonly shared: boolean
}

/** All locks of one call: hashed, without duplicates, ascending by id. */
export type LockSet = readonly LockRequest[]

/** One or several keys. */
export type Keys = Key | readonly Key[]

/**
 * Each lock takes a place in the server's shared lock table, which has about 64 for each connection: 14,000 locks in one
 * transaction already made other sessions fail.
 */
export const MAX_KEYS = 256

/**
 * Makes the set that one call asks for. Sorted by the **hashed id**: two keys that share an id would be taken in opposite orders
 * if they were sorted by name.
 */
export function lockSet(ids: RecentLockIds, exclusive: Keys | undefined, shared: Keys | undefined): LockSet {
  // Most calls have one key.
  if (typeof exclusive === 'string' && shared === undefined) {
    return [{ id: ids.idOf(exclusive), key: exclusive, shared: false }]
  }
  const requests = new Map<bigint, LockRequest>()
  for (const key of listOf('lock', exclusive)) {
    const id = ids.idOf(key)
    requests.set(id, { id, key, shared: false })
  }
  for (const key of listOf('lockShared', shared)) {
    const id = ids.idOf(key)
    const other = requests.get(id)
    if (other !== undefined && !other.shared) {
      throw new InvalidOptionError(`The key ${JSON.stringify(key)} is asked for both shared and exclusive.`, {
        advice: 'Name it once: `lock` for exclusive, `lockShared` for shared. An exclusive lock covers reading.',
        keys: [key],
      })
    }
    requests.set(id, { id, key, shared: true })
  }
  if (requests.size > MAX_KEYS) {
    throw new InvalidOptionError(`${requests.size} keys in one transaction are more than ${MAX_KEYS}.`, {
      advice: 'Lock the concept that they have in common, for example `Ledger:2026-11`.',
    })
  }
  return [...requests.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1))
}

function listOf(option: string, keys: Keys | undefined): readonly Key[] {
  if (keys === undefined) return []
  if (typeof keys === 'string') return [keys]
  if (Array.isArray(keys)) return keys as readonly Key[]
  throw new InvalidOptionError(`\`${option}\` is neither a key nor a list of keys.`, {
    advice: 'Pass a key, or an array of keys.',
  })
}
