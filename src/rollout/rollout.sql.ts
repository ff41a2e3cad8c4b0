import type { StatementResult } from '../postgres/index.ts'
import { blockingIds, markOf, type Shadow } from './shadow.ts'

/** The rules of the rollout in the database, and the shadows of keys that are only observed. */

export function rolloutRules(schema: string): string {
  return `
    SELECT prefix, mode, percent::text AS percent, reason,
           to_char(changed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS changed,
           extract(epoch FROM changed_at)::text AS version
      FROM ${schema}.rollout_rules()`
}

export function setRolloutRule(schema: string): string {
  return `SELECT ${schema}.rollout_set($1::text, $2::text, $3::text::int, $4::text)`
}

/** Says whether this call did it. */
export function switchRolloutRuleBack(schema: string): string {
  return `SELECT ${schema}.rollout_switch_back($1::text, $2::text, $3::text)::text AS switched`
}

/** One row where there was a rule. */
export function unsetRolloutRule(schema: string): string {
  return `SELECT 1 FROM ${schema}.rollout_unset($1::text)`
}

/**
 * Looks who is there for each observed key, and says which are observed by others: by its place in the list. The look is an exclusive
 * try in a savepoint that is rolled back at once, so that it leaves nothing.
 */
export function findOtherHolders(shadows: readonly Shadow[]): string {
  const taken = shadows.map((shadow, place) => {
    const free = blockingIds(shadow).map((id) => `pg_try_advisory_xact_lock(${id})`)
    return `CASE WHEN NOT (${free.join(' AND ')}) THEN ${place} END`
  })
  return `SAVEPOINT lockstep_shadow; SELECT concat_ws(',', ${taken.join(', ')}) AS shadows,
      extract(epoch FROM statement_timestamp())::text AS began;
    ROLLBACK TO SAVEPOINT lockstep_shadow; RELEASE SAVEPOINT lockstep_shadow;`
}

/** Which observed keys were not free, by their place; and when the transaction began, by the server's clock. */
export function otherHoldersIn(results: readonly StatementResult[]): { places: number[]; began: number } {
  const found = results.find((result) => result.rows[0] !== undefined && 'shadows' in result.rows[0])
  const row = found?.rows[0] as { shadows: string; began: string } | undefined
  if (row === undefined || row.shadows === '') return { places: [], began: 0 }
  return { places: row.shadows.split(',').map(Number), began: Number(row.began) }
}

/** An expression that marks the observed keys until the transaction ends. */
export function markShadows(shadows: readonly Shadow[]): string {
  return `concat(${shadows.map((shadow) => `pg_try_advisory_xact_lock_shared(${markOf(shadow)})`).join(', ')})`
}

/** Who is there now for these shadows, and since when their transactions run. */
export function shadowHolders(ids: readonly bigint[]): string {
  const id = '((l.classid::bigint << 32) | l.objid::bigint)'
  return `
    SELECT ${id}::text AS id, l.pid::text AS pid, extract(epoch FROM a.xact_start)::text AS began
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND ${id} IN (${ids.join(', ')})`
}
