/** A session without a right on the schema that takes Lockstep's numbers. */

export const BLOCKER = 'intruder_blocker'

export const CREATE_BLOCKER = `DROP ROLE IF EXISTS ${BLOCKER}; CREATE ROLE ${BLOCKER} LOGIN NOSUPERUSER`
export const DROP_BLOCKER = `DROP ROLE ${BLOCKER}`

export const REVOKE_CONNECT = 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC'
export const GRANT_CONNECT = 'GRANT CONNECT ON DATABASE postgres TO PUBLIC'

export function takeLock(id: bigint): string {
  return `SELECT pg_advisory_lock(${id})`
}

/** The number of the group in which a stream is. */
export const GROUP_OF = `SELECT lockstep.outbox_group_lock(lockstep.outbox_group(lockstep.outbox_bucket(lockstep.outbox_stream($1, $2))))::text AS id`

/** One message is one transaction: the bound ends with it. */
export const ENQUEUE_SOON = `SET LOCAL lock_timeout = '300ms'; SELECT lockstep.enqueue('intruder', 'blocked', '1')`
