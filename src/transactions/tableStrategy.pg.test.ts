import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { LockAbortedError, LockTimeoutError, StrategyUnsupportedError } from '../index.ts'
import { key } from '../locks/index.ts'
import { on } from '../observe/index.ts'

const bench = await testBench()

const nothing = (): Promise<void> => Promise.resolve()
let number = 0

describe.each(DRIVERS)("strategy 'table', %s", (driver) => {
  const open = (): ReturnType<typeof bench.open>['lockstep'] => bench.open(driver, { strategy: 'table' }).lockstep

  test('excludes without an advisory lock', async () => {
    const [one, other, lock] = [open(), open(), key`Row:${++number}`]
    const contended: unknown[] = []
    const stop = on('lock.contended', (event) => contended.push(event))
    const [held, letGo] = [signal(), signal()]
    const holding = one.transaction({ lock }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    expect(contended).toEqual([])
    expect(await bench.locksHeld()).toBe(0)
    expect(await failureOf(other.transaction({ lock, waitMs: 0 }, nothing))).toBeInstanceOf(LockTimeoutError)
    expect(await failureOf(other.transaction({ lock, waitMs: 50 }, nothing))).toBeInstanceOf(LockTimeoutError)
    await other.transaction({ lock: key`Row:${++number}`, waitMs: 0 }, nothing)
    letGo.give()
    await holding
    await other.transaction({ lock, waitMs: 0 }, nothing)
    stop()
  })

  test('loses no update of sixteen clients on a new key', async () => {
    const lock = key`Row:${++number}`
    await bench.admin.query(`CREATE TABLE IF NOT EXISTS counter (id text PRIMARY KEY, value int)`)
    await bench.admin.query('INSERT INTO counter VALUES ($1, 0)', [lock])
    const clients = Array.from({ length: 16 }, open)
    await Promise.all(
      clients.map(async (lockstep) => {
        for (let round = 0; round < 5; round++) {
          await lockstep.transaction({ lock, retry: false }, async (tx) => {
            const { rows } = await tx.query<{ value: number }>('SELECT value FROM counter WHERE id = $1', [lock])
            await tx.query('UPDATE counter SET value = $2 WHERE id = $1', [lock, (rows[0]?.value ?? 0) + 1])
          })
        }
      }),
    )
    const { rows } = await bench.admin.query('SELECT value FROM counter WHERE id = $1', [lock])
    expect(rows).toEqual([{ value: 80 }])
  })

  test('does not deadlock on several keys in opposite orders', async () => {
    const [a, b] = [key`Row:${++number}`, key`Row:${++number}`]
    const [one, other] = [open(), open()]
    const rounds = Array.from({ length: 20 }, (_, round) => [
      one.transaction({ lock: round % 2 === 0 ? [a, b] : [b, a], retry: false }, nothing),
      other.transaction({ lock: round % 2 === 0 ? [b, a] : [a, b], retry: false }, nothing),
    ])
    await Promise.all(rounds.flat())
  })

  test('supports shared and exclusive locks', async () => {
    const [one, other, lock] = [open(), open(), key`Row:${++number}`]
    // The first one makes the row, and has it to itself until it commits.
    await one.transaction({ lockShared: lock }, nothing)
    const [held, letGo] = [signal(), signal()]
    const holding = one.transaction({ lockShared: lock }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    await other.transaction({ lockShared: lock, waitMs: 0 }, nothing)
    expect(await failureOf(other.transaction({ lock, waitMs: 0 }, nothing))).toBeInstanceOf(LockTimeoutError)
    letGo.give()
    await holding
  })

  test('locks a key again after a rollback', async () => {
    const [one, other, lock] = [open(), open(), key`Row:${++number}`]
    await failureOf(one.transaction({ lock }, () => Promise.reject(new Error('no'))))
    await other.transaction({ lock, waitMs: 0 }, nothing)
  })

  test('leaves nothing after an aborted wait', async () => {
    const [one, other, lock] = [open(), open(), key`Row:${++number}`]
    const [held, letGo] = [signal(), signal()]
    const holding = one.transaction({ lock }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    const controller = new AbortController()
    const waiting = failureOf(other.transaction({ lock, signal: controller.signal }, nothing))
    await expect
      .poll(async () => {
        const { rows } = await bench.admin.query(
          `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = $1`,
          [bench.name],
        )
        return rows.length
      })
      .toBe(1)
    controller.abort()
    expect(await waiting).toBeInstanceOf(LockAbortedError)
    letGo.give()
    await holding
  })

  test.each(['repeatable read', 'serializable'] as const)('rejects a lock at %s', async (isolation) => {
    const lockstep = open()
    const refused = await failureOf(lockstep.transaction({ lock: key`Row:${1}`, isolation }, nothing))
    expect(refused).toBeInstanceOf(StrategyUnsupportedError)
    expect(refused).toMatchObject({ code: 'LOCKSTEP_STRATEGY_UNSUPPORTED', keys: ['Row:1'] })
    await lockstep.transaction({ isolation }, nothing)
  })
})
