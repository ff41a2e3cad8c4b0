/** What an ORM's user writes by hand in the ORM's own transaction, to have a lock. */
export function lockByHand(lockId: bigint): string {
  return `SELECT 1 FROM (SELECT pg_advisory_xact_lock(${lockId})) AS locked`
}
