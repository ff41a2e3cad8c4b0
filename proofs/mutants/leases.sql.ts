import type { Mutant } from './mutant.ts'

/** Of the room leases. */
export const leases: readonly Mutant[] = [
  {
    name: 'taken-without-row-lock',
    why: 'Who finds a lease free takes it without locking its row: two that looked at the same time both have it.',
    file: 'sql/0004_leases.sql',
    find: `
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;`,
    replace: `
     ORDER BY l.slot LIMIT 1;`,
    caughtBy: { by: 'lab', scenario: 'instance', fault: 'none', invariant: 'mutual exclusion' },
  },
  {
    name: 'permits-without-lock',
    why: 'Permits are counted and taken without a lock: two that counted at the same time take the same one.',
    file: 'sql/0004_leases.sql',
    find: `
      IF several THEN
        PERFORM pg_advisory_xact_lock(:"schema".lock_id('lease', wanted));
        CONTINUE;
      END IF;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    -- Locked means held: by whoever takes it just now, or by an open transaction of the last holder.
    SELECT * INTO mine FROM :"schema".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;`,
    replace: `
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    SELECT * INTO mine FROM :"schema".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1;`,
    caughtBy: { by: 'lab', scenario: 'semaphore', fault: 'none', invariant: 'at most 3 holders' },
  },
  {
    name: 'release-without-token',
    why: 'Who gives a lease back does not show its token: a late one gives away what the next holder has.',
    file: 'sql/0004_leases.sql',
    find: `
  SELECT * INTO mine FROM :"schema".leases l WHERE l.name = held AND l.token = my_token FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;`,
    replace: `
  SELECT * INTO mine FROM :"schema".leases l WHERE l.name = held AND l.token IS NOT NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;`,
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'a lease that is not renewed expires, and is taken over with a higher fence',
    },
  },
  {
    name: 'fence-used-again',
    why: 'A lease that was given back is taken again with the same fence.',
    file: 'sql/0004_leases.sql',
    find: 'SET token = my_token, fence = :"schema".next_fence(), permits = wanted_permits',
    replace:
      'SET token = my_token, fence = CASE WHEN l.token IS NULL THEN l.fence ELSE :"schema".next_fence() END, permits = wanted_permits',
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'one holder; the other is told at once who has it',
    },
  },
  {
    name: 'renewed-by-upsert',
    why: 'A heartbeat writes the holder into the row, whoever has it by then: one that has lost its lease is told that it has it.',
    file: 'sql/0004_leases.sql',
    find: `
    SELECT l.name, l.slot, given.ttl_ms
      FROM given JOIN :"schema".leases l ON l.name = given.name AND l.token = given.token AND l.fence = given.fence
     WHERE l.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF l SKIP LOCKED
  ), renewed AS (
    UPDATE :"schema".leases l SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0)`,
    replace: `
    SELECT l.name, l.slot, given.ttl_ms, given.token
      FROM given JOIN :"schema".leases l ON l.name = given.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
  ), renewed AS (
    UPDATE :"schema".leases l
       SET token = mine.token, expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0)`,
    caughtBy: { by: 'test', file: 'src/leases/takenAway.pg.test.ts', test: 'a heartbeat takes nothing back' },
  },
  {
    name: 'no-for-key-share',
    why: 'A transaction under a lease does not lock the row of the lease: who takes it over does not wait for it.',
    file: 'src/leases/leases.sql.ts',
    find: `AND expires_at > clock_timestamp()
       FOR KEY SHARE\``,
    replace: 'AND expires_at > clock_timestamp()`',
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'while its transaction is open nobody else gets in, even past the end of its time',
    },
  },
  {
    name: 'trust-from-answer',
    why: 'The time for which a holder trusts its lease is counted from the answer, not from before the question.',
    file: 'src/leases/take.ts',
    find: `
    const askedAt = thisMoment()
    try {
      const row = await ask(grounds, text, withinMs)`,
    replace: `
    try {
      const row = await ask(grounds, text, withinMs)
      const askedAt = thisMoment()`,
    caughtBy: {
      by: 'test',
      file: 'src/leases/slowAnswers.pg.test.ts',
      test: 'a lease is trusted from before the question, not from its answer',
    },
  },
  {
    name: 'heartbeat-trusted-from-answer',
    why: 'So is the time after a heartbeat.',
    file: 'src/leases/keeper.ts',
    find: "if (outcome === 'renewed') lease.renewed(askedAt)",
    replace: "if (outcome === 'renewed') lease.renewed(thisMoment())",
    caughtBy: { by: 'test', file: 'src/leases/slowAnswers.pg.test.ts', test: 'nor is a heartbeat' },
  },
]
