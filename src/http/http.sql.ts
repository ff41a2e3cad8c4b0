/** The SQL of the stored answers. Every value goes in and comes out as text. */

export interface LookRow {
  /** Null, as all that follows, where nothing is stored. */
  readonly fingerprint: string | null
  readonly status: string | null
  readonly headers: string | null
  readonly body: string | null
  /** Until the end of the lease that reserves the key; null where nobody has it. */
  readonly left: string | null
}

/** What is known of a key: scope, key, the name of its lease. One row. */
export function look(schema: string): string {
  return `
    SELECT encode(stored.fingerprint, 'hex') AS fingerprint, stored.status::text AS status, stored.headers::text AS headers,
           encode(stored.body, 'base64') AS body, reserved.left_ms AS left
      FROM (VALUES (true)) AS one
      LEFT JOIN ${schema}.idempotency stored
             ON stored.scope = $1::text AND stored.key = $2::text AND stored.expires_at > clock_timestamp()
      LEFT JOIN LATERAL (
             SELECT ceil(extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint::text AS left_ms
               FROM ${schema}.leases l
              WHERE l.name = $3::text AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()
              ORDER BY l.slot LIMIT 1
           ) AS reserved ON true`
}

/**
 * Stores an answer. No row where there is one already that has not expired: the unique key is the last word, also where the lock was
 * left out by a rollout.
 */
export function keep(schema: string): string {
  return `
    INSERT INTO ${schema}.idempotency AS stored (scope, key, fingerprint, status, headers, body, created_at, expires_at)
    VALUES ($1::text, $2::text, decode($3::text, 'hex'), ($4::text)::integer, ($5::text)::json, decode($6::text, 'base64'),
            clock_timestamp(), clock_timestamp() + make_interval(secs => ($7::text)::double precision / 1000))
        ON CONFLICT (scope, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, status = excluded.status, headers = excluded.headers, body = excluded.body,
           created_at = excluded.created_at, expires_at = excluded.expires_at
     WHERE stored.expires_at <= clock_timestamp()
    RETURNING 'true' AS kept`
}

/** Takes away what has expired, a bounded number at a time. What somebody else is at is left to them. */
export function cleanUp(schema: string, limit: number): string {
  return `
    DELETE FROM ${schema}.idempotency
     WHERE (scope, key) IN (SELECT scope, key FROM ${schema}.idempotency WHERE expires_at <= clock_timestamp()
                             ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`
}
