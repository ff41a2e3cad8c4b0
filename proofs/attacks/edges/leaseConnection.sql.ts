/** What a program without Lockstep makes of a lease: one row for each job. */
export const CREATE_JOBS = `
  DROP TABLE IF EXISTS naive_jobs;
  CREATE TABLE naive_jobs (name text PRIMARY KEY, until timestamptz NOT NULL)`

/** One row where it was free. The name is one of our own making. */
export function takeJob(name: string): string {
  return `
    INSERT INTO naive_jobs AS j (name, until) VALUES ('${name}', now() + interval '30 seconds')
        ON CONFLICT (name) DO UPDATE SET until = EXCLUDED.until WHERE j.until < now()
    RETURNING j.name`
}
