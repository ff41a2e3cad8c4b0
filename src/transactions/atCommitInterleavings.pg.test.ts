import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { key } from '../index.ts'

/** Interleavings of what is sent together with COMMIT: each breaks a promise until it is mended. */

const bench = await testBench()
const LOCK = { lock: key`Order:1` }
const INSERT = 'INSERT INTO notes VALUES ($1)'

describe.each(DRIVERS)('at COMMIT, %s', (driver) => {
  // The list of values is kept, not copied: a caller that fills the same list anew for each statement (tx.query() lets it) has the last
  // values written by all of them. Here: 'a' is lost without a word, and 'b' is written twice.
  test('a list of values that is used again after queryAtCommit()', async () => {
    const { lockstep } = bench.open(driver)
    const values: string[] = []
    await lockstep.transaction(LOCK, async (tx) => {
      for (const id of ['a', 'b']) {
        values[0] = id
        await tx.queryAtCommit(`${INSERT} ON CONFLICT DO NOTHING`, values)
      }
    })
    expect(await bench.notes()).toEqual(['a', 'b'])
  })

  // 1. A statement of the function meets a conflict (40001), and the function catches it. 2. Something waits for COMMIT. 3. Without
  // that, COMMIT would be answered with ROLLBACK, and the conflict be seen behind it and tried again (as "a conflict that is caught" of
  // retry.pg.test.ts). With it, the statement before COMMIT fails with 25P02, which is taken for the reason: no retry.
  test('a conflict that the function has caught, with a statement that waits for COMMIT', async () => {
    const { lockstep } = bench.open(driver)
    let attempts = 0
    await lockstep.transaction(LOCK, async (tx) => {
      attempts++
      await tx.queryAtCommit(INSERT, [`attempt ${attempts}`])
      if (attempts > 1) return
      await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`).catch(() => undefined)
    })
    expect(await bench.notes()).toEqual(['attempt 2'])
  })

  // The same without a conflict: the error is PostgreSQL's "current transaction is aborted", and not TransactionRolledBackError with the
  // failure that was caught as its cause.
  test('a failure that the function has caught, with an event', async () => {
    const { lockstep } = bench.open(driver)
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: 1 })
      await tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(failing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { code: '22012' },
    })
  })

  // A reference: the same two without anything that waits for COMMIT.
  test('a conflict that the function has caught, and nothing that waits', async () => {
    const { lockstep } = bench.open(driver)
    let attempts = 0
    await lockstep.transaction(LOCK, async (tx) => {
      attempts++
      if (attempts > 1) return note(tx, `attempt ${attempts}`)
      await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`).catch(() => undefined)
    })
    expect(await bench.notes()).toEqual(['attempt 2'])
  })

  // The whole message is watched as if it were COMMIT alone: 1. another session holds a row. 2. The statement that was to go with COMMIT
  // waits for it (so does an event whose stream is locked by a long transaction), longer than silenceMs. 3. The connection, which is as
  // well as ever, is destroyed; COMMIT counts as lost: CommitOutcomeUnknownError, at once with retry: false, else after 30 s of asking.
  // 4. The row is let go, and the server commits what was given up. tx.query() waits as long as it takes.
  test('a statement that waits at COMMIT for longer than silenceMs', async () => {
    const { lockstep } = bench.open(driver, { silenceMs: 400 })
    const other = await bench.session()
    await other.query(`BEGIN; INSERT INTO notes VALUES ('held')`)
    const settled: unknown[] = []
    const running = lockstep.transaction({ ...LOCK, retry: false }, async (tx) => {
      await note(tx, 'mine')
      await tx.queryAtCommit(`${INSERT} ON CONFLICT DO NOTHING`, ['held'])
    })
    const ended = running.then(
      () => settled.push('committed'),
      (error: unknown) => settled.push((error as Error).name),
    )
    const waits = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
    await expect.poll(async () => (await bench.admin.query(waits)).rowCount).toBe(1)
    await Promise.race([ended, sleep(1500)])
    await other.query('COMMIT')
    await ended
    await expect.poll(() => bench.notes()).toEqual(['held', 'mine'])
    expect(settled).toEqual(['committed'])
  })

  // READ UNCOMMITTED is READ COMMITTED in PostgreSQL: join() takes it, and so does outbox_append(). tx.enqueue() refuses it as a
  // snapshot that is too old, with the advice to declare streams, which join() cannot.
  test('an event in a joined transaction that is READ UNCOMMITTED', async () => {
    const { lockstep, begin } = bench.open(driver)
    await begin('ISOLATION LEVEL READ UNCOMMITTED', async (client) => {
      const tx = await lockstep.join(client)
      await tx.enqueue({ topic: 'trades', key: 'a', payload: 1 })
    })
  })
})

// pg hands CopyInResponse and CopyData to the query that is being answered, and ours has no method for them: the TypeError is thrown in
// the socket's own event and ends the process. tx.query() of the same gives an error that can be caught, or the tag.
describe.each(['COPY notes TO STDOUT', 'COPY notes FROM STDIN'])('at COMMIT, %s', (copy) => {
  test('ends the process', async () => {
    const { lockstep, query } = bench.open('pg', { silenceMs: 300 })
    await query(`INSERT INTO notes VALUES ('a')`)
    const uncaught: unknown[] = []
    const listeners = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => void uncaught.push(error))
    try {
      const running = lockstep.transaction(LOCK, (tx) => tx.queryAtCommit(copy))
      await running.catch(() => undefined)
    } finally {
      process.removeAllListeners('uncaughtException')
      for (const listener of listeners) process.on('uncaughtException', listener)
    }
    expect(uncaught).toEqual([])
  })
})
