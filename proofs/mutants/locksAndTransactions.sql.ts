import type { Mutant } from './mutant.ts'

/** Of the rooms locks, transactions, rows, once and combine. */
export const locksAndTransactions: readonly Mutant[] = [
  {
    name: 'lock-after-snapshot',
    why: 'At SERIALIZABLE the lock is taken inside the transaction, after its snapshot: what is read under it is old.',
    file: 'src/transactions/open.ts',
    find: "this.#byHandOver = plan.isolation !== 'read committed' && plan.locks.length > 0",
    replace: 'this.#byHandOver = false',
    caughtBy: { by: 'attack', attack: 'wallet', goal: 'serialization failures' },
  },
  {
    name: 'hand-over-lets-go',
    why: 'Between the two transactions of a hand-over the session does not keep the lock: somebody else gets in between.',
    file: 'src/transactions/transactions.sql.ts',
    find: "SELECT ${locks.map((lock) => sessionLock(lock)).join(', ')}; ${opening.numbers ?? ''} COMMIT AND CHAIN;",
    replace: "${opening.numbers ?? ''} COMMIT AND CHAIN;",
    caughtBy: { by: 'attack', attack: 'wallet', goal: 'serialization failures' },
  },
  {
    name: 'keys-as-named',
    why: 'Several keys are locked in the order in which the caller names them, not in that of their ids.',
    file: 'src/locks/lockSet.ts',
    find: 'return [...requests.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1))',
    replace: 'return [...requests.values()]',
    caughtBy: { by: 'attack', attack: 'keys', goal: 'declared locks: deadlocks' },
  },
  {
    name: 'key-of-32-bits',
    why: 'A key is hashed to 32 bits: of some hundred thousand keys, a few block each other by accident.',
    file: 'src/locks/lockId.ts',
    find: "return createHash('sha256').update(`${schema}\\0${domain}\\0${key}`).digest().readBigInt64BE(0)",
    replace: "return BigInt(createHash('sha256').update(`${schema}\\0${domain}\\0${key}`).digest().readInt32BE(0))",
    caughtBy: {
      by: 'test',
      file: 'src/locks/locks.pg.test.ts',
      test: 'for any text of Unicode that PostgreSQL can store',
    },
  },
  {
    name: 'blind-retry-of-commit',
    why: 'A COMMIT whose answer was lost is run again without asking the server what became of it.',
    file: 'src/transactions/run.ts',
    find: "const outcome = result.trace === undefined ? 'unknown' : await resolveCommit(grounds, plan, result.trace)",
    replace: "const outcome = 'rolledBack' as Outcome",
    caughtBy: { by: 'lab', scenario: 'wallet', fault: 'cut-in-commit', invariant: 'linearizable register' },
  },
  {
    name: 'fate-asked-in-another-life',
    why: 'After a crash the server is asked for the fate of an id that it has given out again since.',
    file: 'src/transactions/transactions.sql.ts',
    find: "CASE WHEN ${incarnation} = '${life}' THEN pg_xact_status('${xid}'::xid8) ELSE 'another life' END AS status",
    replace: "pg_xact_status('${xid}'::xid8) AS status",
    caughtBy: { by: 'attack', attack: 'commit', goal: 'crashes: told that nobody knows' },
  },
  {
    name: 'strangers-join',
    why: 'A transaction joins the one that is open in its async context: a job of a shared queue joins that of another request.',
    file: 'src/transactions/run.ts',
    find: '  refuseInside(grounds, declared.allKeys)\n',
    replace:
      '  const outer = openFrames().find((frame) => frame.grounds === grounds)\n  if (outer !== undefined) return outer.tx.nest((tx) => fn(tx))\n',
    and: [
      {
        file: 'src/transactions/run.ts',
        find: "import { isInsideTransaction } from './frames.ts'",
        replace: "import { isInsideTransaction, openFrames } from './frames.ts'",
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/transactions/jobQueue.pg.test.ts',
      test: 'refuses a job in another request’s transaction',
    },
  },
  {
    name: 'part-without-its-lock',
    why: 'A part of a transaction asks for a lock that the transaction does not hold, and runs without it.',
    file: 'src/transactions/nested.ts',
    find: '  const [first] = missing\n',
    replace: '  const [first] = missing.slice(missing.length)\n',
    caughtBy: {
      by: 'test',
      file: 'src/transactions/nesting.pg.test.ts',
      test: 'without the lock it is refused, naming the keys, and the outer goes on',
    },
  },
  {
    name: 'rows-as-named',
    why: 'lockRows() locks rows in the order in which the caller names them.',
    file: 'src/rows/rows.sql.ts',
    find: ' WHERE ${column} = ANY($1)\n ORDER BY ${column}\n',
    replace: ' WHERE ${column} = ANY($1)\n ORDER BY array_position($1, ${column})\n',
    caughtBy: { by: 'lab', scenario: 'transfers', fault: 'none', invariant: 'no deadlock' },
  },
  {
    name: 'once-without-lock',
    why: 'once() looks and creates without the lock of its key.',
    file: 'src/once/once.ts',
    find: 'transact({ ...rest, lock: key }, async (tx) => {',
    replace: 'transact(rest, async (tx) => {',
    caughtBy: { by: 'attack', attack: 'once', goal: 'keys with two rows' },
  },
  {
    name: 'take-over-begins-anew',
    why: 'Who takes over what somebody had begun does not go on with it, but begins a second one with another id.',
    file: 'src/once/long.ts',
    find: 'if (found !== undefined && found !== null) return { found, takenOver: true }',
    replace: 'if (isDone(found)) return { found, takenOver: true }',
    caughtBy: { by: 'lab', scenario: 'position', fault: 'kill', invariant: 'one per key' },
  },
  {
    name: 'combined-told-too-early',
    why: 'Callers of a combined function are told their result before COMMIT.',
    file: 'src/combine/batcher.ts',
    find: 'throw mismatch(line.key, batch.length, results)\n',
    replace:
      'throw mismatch(line.key, batch.length, results)\n        batch.forEach((call, index) => call.resolve(results[index] as Result))\n',
    caughtBy: { by: 'lab', scenario: 'combine', fault: 'terminate', invariant: 'linearizable register' },
  },
  {
    name: 'failed-item-committed',
    why: 'A batch that fails because of an item is told so to its callers, and what it has written is committed all the same.',
    file: 'src/combine/batcher.ts',
    find: '          batch.map((call) => call.item),\n        )\n',
    replace:
      '          batch.map((call) => call.item),\n        ).catch((error: unknown) => batch.map(() => error as Error))\n',
    caughtBy: { by: 'test', file: 'src/combine/combine.pg.test.ts', test: 'what run throws is halved too' },
  },
]
