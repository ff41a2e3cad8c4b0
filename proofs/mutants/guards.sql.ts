import type { Mutant } from './mutant.ts'

/** Of the guards of tables, and of what a transaction states for them. */
export const guards: readonly Mutant[] = [
  {
    name: 'guard-ignores-old-key',
    why: 'A guard looks at the new key of a row alone: a row can be taken away from a key that is not locked.',
    file: 'sql/functions/guard_add.sql',
    find: '    old_key := %3$s;\n    IF strpos(held, encode(int8send(:"schema".lock_id(%1$L, old_key)), \'hex\')) = 0 THEN',
    replace: '    old_key := %3$s;\n    IF false THEN',
    caughtBy: { by: 'attack', attack: 'guard', goal: 'enforce: rows that were moved away from their key' },
  },
  {
    name: 'held-survives-the-transaction',
    why: 'What a transaction states outlives it: the next one on the connection writes without the lock.',
    file: 'src/locks/locks.sql.ts',
    find: "return `CASE WHEN set_config('${HELD}', ${held}, true) IS NOT NULL THEN ${granted} END`",
    replace: "return `CASE WHEN set_config('${HELD}', ${held}, false) IS NOT NULL THEN ${granted} END`",
    caughtBy: {
      by: 'test',
      file: 'src/guards/guards.pg.test.ts',
      test: 'and refuses the next one without it',
    },
  },
  {
    name: 'shared-lock-permits-to-write',
    why: 'A transaction also states the locks that it shares: two that share a key both write.',
    file: 'src/locks/locks.sql.ts',
    find: "const ids = locks.flatMap((lock, place) => (lock.shared ? [] : `encode(int8send(${parameter(lock, place)}), 'hex')`))",
    replace: "const ids = locks.map((lock, place) => `encode(int8send(${parameter(lock, place)}), 'hex')`)",
    caughtBy: {
      by: 'test',
      file: 'src/guards/guards.pg.test.ts',
      test: 'refuses another key, and a shared lock',
    },
  },
  {
    name: 'shared-lock-in-the-list-counts',
    why: 'A guard takes a shared lock in the list of locks for an exclusive one.',
    file: 'sql/functions/guard_listed.sql',
    find: " AND l.mode = 'ExclusiveLock'",
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/guards/guards.pg.test.ts',
      test: 'finds the lock that plain SQL took by its id, exclusively, and counts it apart',
    },
  },
  {
    name: 'several-permits-permit-to-write',
    why: 'One of several permits of a lease is stated as if it were the only one.',
    file: 'sql/functions/lease_guard.sql',
    find: 'IF my_permits = 1 THEN',
    replace: 'IF my_permits > 0 THEN',
    caughtBy: {
      by: 'test',
      file: 'src/guards/guards.pg.test.ts',
      test: 'a guard of a lease passes lease.transaction() and lease.guard()',
    },
  },
]
