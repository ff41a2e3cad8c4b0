/** The SQL of the stored answers. Every value goes in and comes out as text. */

export interface LookRow {
  /** Null, as all that follows, where nothing is stored. */
  readonly fingerprint: string | null
  readonly status: string | null
  readonly headers: string | null
  readonly body: string | null
  /** Until the end of the lease that reserves the key; null if it is not reserved. */
  readonly left: string | null
}

/** What is known of a key: scope, key, the name of its lease. One row. */
export function look(schema: string): string {
  return `
    SELECT encode(fingerprint, 'hex') AS fingerprint, status::text AS status, headers::text AS headers,
           encode(body, 'base64') AS body, left_ms::text AS left
      FROM ${schema}.idempotency_look($1::text, $2::text, $3::text)`
}

/** Stores an answer. No row where there is one already that has not expired. */
export function keep(schema: string): string {
  return `
    SELECT 'true' AS kept
     WHERE ${schema}.idempotency_keep($1::text, $2::text, decode($3::text, 'hex'), ($4::text)::integer, ($5::text)::json,
                                      decode($6::text, 'base64'), ($7::text)::double precision)`
}

/** Takes away what has expired, a bounded number at a time. */
export function cleanUp(schema: string, limit: number): string {
  return `SELECT ${schema}.idempotency_clean_up(${limit})`
}
