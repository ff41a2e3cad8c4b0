/** A control without Lockstep: the locks in the order in which they were named. */
export function lockAsNamed(ids: readonly bigint[]): string {
  return `BEGIN; ${ids.map((id) => `SELECT pg_advisory_xact_lock(${id});`).join(' ')} COMMIT`
}

export const ROLLBACK = 'ROLLBACK'

/** Two labels of the same 32-bit hash. */
export const COLLISION = `
  SELECT min(label) AS one, max(label) AS other
    FROM (SELECT 'Transfer:' || n AS label FROM generate_series(1, 300000) n) labels
   GROUP BY hashtext(label) HAVING count(*) > 1 ORDER BY 1 LIMIT 1`
