import type { Mutant } from './mutant.ts'

/** Of the module leases. */
export const leases: readonly Mutant[] = [
  {
    name: 'fence-without-offset',
    why: 'The generation of fences is the timeline alone: an older copy of the database goes on with smaller ones.',
    file: 'sql/functions/ensure_incarnation.sql',
    find: 'ELSE (((e.timeline_offset + e.timeline) >> 10) + 2) << 10 END;',
    replace: 'ELSE e.timeline_offset END;',
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'never reuses a fence when the database is replaced by an older copy',
    },
  },
  {
    name: 'granted-at-once-after-failover',
    why: 'A promoted standby grants leases at once: one whose row was lost has two holders.',
    file: 'sql/functions/lease_grants_from.sql',
    find: 'ELSE e.grants_from',
    replace: "ELSE '-infinity'",
    caughtBy: {
      by: 'test',
      file: 'src/leases/failover.pg.test.ts',
      test: 'grants a lease whose row was lost only when its holder cannot trust it any more',
    },
  },
  {
    name: 'earlier-try-counts-after-failover',
    why: 'A promoted standby grants a lease to a caller that had it before, although it cannot know who has had it since.',
    file: 'sql/functions/lease_take.sql',
    find: 'IF clock_timestamp() >= grants_from AND EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.token = my_token) THEN',
    replace: 'IF EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.token = my_token) THEN',
    caughtBy: {
      by: 'test',
      file: 'src/leases/failover.pg.test.ts',
      test: 'does not grant a lease to an earlier try while a later holder can trust it',
    },
  },
  {
    name: 'judged-by-another-clock',
    why: 'A promoted standby compares the ends of leases, which the old primary wrote, with its own clock.',
    file: 'sql/functions/ensure_incarnation.sql',
    find: 'PERFORM :"schema".lease_carry_over();',
    replace: 'PERFORM 1;',
    caughtBy: {
      by: 'test',
      file: 'src/leases/failover.pg.test.ts',
      test: 'keeps the holder of a lease on a server whose clock is off by',
    },
  },
  {
    name: 'judged-by-a-third-clock',
    why: 'After two promotions with one server epoch, the ends of leases are compared with the clock of the server in between.',
    file: 'sql/functions/lease_carry_over.sql',
    find: 'CASE WHEN (SELECT p.timeline',
    replace: 'CASE WHEN true OR (SELECT p.timeline',
    caughtBy: {
      by: 'test',
      file: 'src/leases/failover.pg.test.ts',
      test: 'keeps the holder of a lease through two promotions with one epoch',
    },
  },
  {
    name: 'taken-without-row-lock',
    why: 'Who finds a lease free takes it without locking its row: two that looked at the same time both have it.',
    file: 'sql/functions/lease_take.sql',
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
    file: 'sql/functions/lease_take.sql',
    find: `
    IF several AND NOT alone THEN
      PERFORM pg_advisory_xact_lock(:"schema".lock_id('lease', wanted));
      alone := true;
      CONTINUE;
    END IF;`,
    replace: '',
    and: [
      {
        file: 'sql/functions/lease_take.sql',
        find: `
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;`,
        replace: `
     ORDER BY l.slot LIMIT 1;`,
      },
    ],
    caughtBy: { by: 'lab', scenario: 'semaphore', fault: 'none', invariant: 'at most 3 holders' },
  },
  {
    name: 'locked-row-of-other-permits-is-free',
    why: 'Who asks with another number of permits does not look for rows that are over and locked: their holder can still commit.',
    file: 'sql/functions/lease_take.sql',
    find: 'IF lockable < others THEN',
    replace: 'IF false THEN',
    and: [
      {
        file: 'sql/functions/lease_take.sql',
        find: 'DELETE FROM :"schema".leases l WHERE l.name = wanted AND l.slot >= wanted_permits;',
        replace: '',
      },
      {
        file: 'sql/functions/lease_take.sql',
        find: `
      UPDATE :"schema".leases l SET permits = wanted_permits WHERE l.name = wanted AND l.permits <> wanted_permits;`,
        replace: '',
      },
      {
        file: 'sql/functions/lease_take.sql',
        find: 'CONTINUE WHEN mine.permits <> wanted_permits;',
        replace: '',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/leases/permitsChange.pg.test.ts',
      test: 'permits while the last one’s transaction is open',
    },
  },
  {
    name: 'unanswered-is-held',
    why: 'A request for a lease that the database did not answer is reported as held: every process skips the job, and none does it.',
    file: 'src/leases/acquireProgress.ts',
    find: 'if (this.#isHeld) return leaseHeld(',
    replace: 'if (performance.now() > 0) return leaseHeld(',
    caughtBy: {
      by: 'test',
      file: 'src/leases/unreachable.pg.test.ts',
      test: 'never reports "held" over a silent network, to the first caller or to those behind it',
    },
  },
  {
    name: 'old-answer-is-held',
    why: 'A wait that began with "held" ends with it, though the database could not be asked since.',
    file: 'src/leases/acquireProgress.ts',
    find: `
    if (this.#heard === undefined || this.#failure !== undefined) return false
    return performance.now() - this.#heard.at <= FRESH_MS`,
    replace: `
    return this.#heard !== undefined`,
    caughtBy: {
      by: 'test',
      file: 'src/leases/unreachable.pg.test.ts',
      test: 'names the last known holder when a wait loses its connection',
    },
  },
  {
    name: 'release-without-token',
    why: 'Who gives a lease back does not show its token: a late one gives away what the next holder has.',
    file: 'sql/functions/lease_release.sql',
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
      test: 'hands an expired lease over with a higher fence',
    },
  },
  {
    name: 'fence-used-again',
    why: 'A lease that was released is taken again with the same fence.',
    file: 'sql/functions/lease_take.sql',
    find: 'SET token = my_token, fence = :"schema".next_fence(), permits = wanted_permits',
    replace:
      'SET token = my_token, fence = CASE WHEN l.token IS NULL THEN l.fence ELSE :"schema".next_fence() END, permits = wanted_permits',
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'rejects a second holder, and names the first',
    },
  },
  {
    name: 'renewed-by-upsert',
    why: 'A heartbeat writes the holder into the row, also if another one has it by then: a holder that has lost its lease is renewed.',
    file: 'sql/functions/lease_renew.sql',
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
    caughtBy: {
      by: 'test',
      file: 'src/leases/forceRelease.pg.test.ts',
      test: 'aborts the signal of the holder at its next heartbeat, and the next holder keeps the lease',
    },
  },
  {
    name: 'no-for-key-share',
    why: 'A transaction under a lease does not lock the row of the lease: who takes it over does not wait for it.',
    file: 'sql/functions/lease_guard.sql',
    find: `
      FOR KEY SHARE OF l;`,
    replace: ';',
    caughtBy: {
      by: 'test',
      file: 'src/leases/leases.pg.test.ts',
      test: 'refuses other holders while a transaction of the holder is open, even past the ttl',
    },
  },
  {
    name: 'trust-from-answer',
    why: 'The time for which a holder trusts its lease is counted from the answer, not from before the question.',
    file: 'src/leases/take.ts',
    find: `
        const row = await ask(context, text, { connectMs, answerMs }, () => {
          progress.asking()
          askedAt = readClocks()
        })`,
    replace: `
        const row = await ask(context, text, { connectMs, answerMs }, () => progress.asking())
        askedAt = readClocks()`,
    caughtBy: {
      by: 'test',
      file: 'src/leases/slowAnswers.pg.test.ts',
      test: 'trusts a lease from the time of the question, not of the answer',
    },
  },
  {
    name: 'heartbeat-trusted-from-answer',
    why: 'So is the time after a heartbeat.',
    file: 'src/leases/leaseRenewer.ts',
    find: "if (outcome === 'renewed') lease.renewed(askedAt)",
    replace: "if (outcome === 'renewed') lease.renewed(thisMoment())",
    caughtBy: {
      by: 'test',
      file: 'src/leases/slowAnswers.pg.test.ts',
      test: 'trusts a heartbeat from the time of the question, not of the answer',
    },
  },
]
