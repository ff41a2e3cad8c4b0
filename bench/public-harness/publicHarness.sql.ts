/** What the audit compares: a row for each batch that was enqueued, in its transaction, and one for each effect of a job. */
export const CREATE_LEDGER = `
  CREATE TABLE IF NOT EXISTS bench_batches (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, jobs integer NOT NULL);
  CREATE TABLE IF NOT EXISTS bench_effects (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, seq bigint NOT NULL)`

export const RECORD_BATCH = 'INSERT INTO bench_batches (jobs) VALUES ($1)'

export const RECORD_EFFECT = 'INSERT INTO bench_effects (key, seq) VALUES ($1, $2)'

/** A job that was enqueued and has no effect is lost. The places of a key's effects grow in the order of its transactions. */
export const AUDIT = `
  SELECT (SELECT COALESCE(sum(jobs), 0) FROM bench_batches)::int AS enqueued,
         count(*)::int AS effects,
         (count(*) - count(DISTINCT (key, seq)))::int AS twice,
         count(*) FILTER (WHERE seq < before)::int AS disordered
    FROM (SELECT key, seq, lag(seq) OVER (PARTITION BY key ORDER BY place) AS before FROM bench_effects) AS effects`
