import { type Key, lockId, type LockRequest } from '../locks/index.ts'

/**
 * The stand-in for a key that is only observed. A caller that would hold the key exclusively marks the one id, a caller that would share it
 * the other, always in shared mode: so no caller ever blocks another, and every caller can see who else is there.
 */
export interface Shadow {
  readonly key: Key
  readonly shared: boolean
  /** Marked by those who would hold the key exclusively. */
  readonly exclusiveId: bigint
  /** Marked by those who would share it. */
  readonly sharedId: bigint
}

export function shadowOf(schema: string, { key, shared }: LockRequest): Shadow {
  return {
    key,
    shared,
    exclusiveId: lockId(schema, 'shadow', key),
    sharedId: lockId(schema, 'shadow-shared', key),
  }
}

/** Whose presence would make this one wait. */
export function blockingIds(shadow: Shadow): readonly bigint[] {
  return shadow.shared ? [shadow.exclusiveId] : [shadow.exclusiveId, shadow.sharedId]
}

/** What this one marks. */
export function markOf(shadow: Shadow): bigint {
  return shadow.shared ? shadow.sharedId : shadow.exclusiveId
}
