import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  DriverUnsupportedError,
  JoinRefusedError,
  LockTimeoutError,
  type Transaction,
  TransactionControlError,
} from '../index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()

async function settingOf(tx: Transaction, name: string): Promise<unknown> {
  return (await tx.query<{ value: string }>('SELECT current_setting($1) AS value', [name])).rows[0]?.value
}

describe.each(DRIVERS)('join(), %s', (driver) => {
  test("works in the caller's transaction, and its lock lasts until the caller's COMMIT", async () => {
    const caller = bench.open(driver)
    const other = bench.open(driver)
    const busy = (): Promise<unknown> =>
      failureOf(other.lockstep.transaction({ lock: 'Transfer:1', waitMs: 0 }, async () => 1))
    await caller
      .begin('', async (client) => {
        const tx = await caller.lockstep.join(client, { lock: 'Transfer:1', lockShared: 'Ledger:open' })
        expect(tx.isolation).toBe('read committed')
        await note(tx, 'joined')
        expect(await bench.locksHeld()).toBe(2)
        expect(await busy()).toBeInstanceOf(LockTimeoutError)
        expect(await other.lockstep.transaction({ lockShared: 'Ledger:open', waitMs: 0 }, async () => 'both')).toBe(
          'both',
        )
        await tx.savepoint((inner) => note(inner, 'in a savepoint'))
        await tx.savepoint((inner) => note(inner, 'in a savepoint')).catch(() => undefined)
        await expect(tx.query('COMMIT')).rejects.toBeInstanceOf(TransactionControlError)
        expect(await bench.notes()).toEqual([])
      })
      .catch((error: { code?: string }) => {
        // postgres.js rolls back whatever has had an error, caught or not.
        expect([driver, error.code]).toEqual(['postgres.js', '23505'])
      })
    expect(await bench.notes()).toEqual(driver === 'pg' ? ['in a savepoint', 'joined'] : [])
    expect(await bench.locksHeld()).toBe(0)
    expect(await other.lockstep.transaction({ lock: 'Transfer:1', waitMs: 0 }, async () => 'free')).toBe('free')
  })

  test('grants a joined lock to a waiter with the COMMIT', async () => {
    const caller = bench.open(driver)
    const other = bench.open(driver)
    let seen: Promise<number> | undefined
    await caller.begin('', async (client) => {
      const tx = await caller.lockstep.join(client, { lock: 'Transfer:1' })
      seen = other.lockstep.transaction({ lock: 'Transfer:1' }, async (next) => {
        return (await next.query('SELECT 1 FROM notes')).rowCount
      })
      await bench.waiters(1)
      await note(tx, 'joined')
    })
    expect(await seen).toBe(1)
  })

  test('waits for a lock of a transaction(), and reads what that committed', async () => {
    const caller = bench.open(driver)
    const holder = bench.open(driver)
    const [held, leave] = [signal(), signal()]
    const holding = holder.lockstep.transaction({ lock: 'Transfer:1' }, async (tx) => {
      held.give()
      await leave.given
      await note(tx, 'by the holder')
    })
    await held.given
    const seen = caller.begin('', async (client) => {
      const tx = await caller.lockstep.join(client, { lock: 'Transfer:1' })
      return (await tx.query('SELECT 1 FROM notes')).rowCount
    })
    await bench.waiters(1)
    leave.give()
    await holding
    expect(await seen).toBe(1)
  })

  test('rejects a client without a transaction', async () => {
    const { lockstep, pool } = bench.open(driver)
    expect(await failureOf(lockstep.join(pool, { lock: 'Transfer:1' }))).toBeInstanceOf(JoinRefusedError)
    expect(await failureOf(lockstep.join(pool))).toBeInstanceOf(JoinRefusedError)
    const client = pool instanceof pg.Pool ? await pool.connect() : await pool.reserve()
    try {
      const error = await failureOf(lockstep.join(client, { lock: 'Transfer:1' }))
      expect(error).toBeInstanceOf(JoinRefusedError)
      expect(error).toMatchObject({ code: 'LOCKSTEP_JOIN_REFUSED', cause: { code: '25P01' } })
    } finally {
      client.release()
    }
    expect(await bench.locksHeld()).toBe(0)
  })

  test.each([[undefined], [null], [1], ['client'], [{}], [() => undefined]])(
    'rejects %o as a client',
    async (client) => {
      const { lockstep } = bench.open(driver)
      const error = await failureOf(lockstep.join(client as unknown as object, { lock: 'Transfer:1' }))
      expect(error).toBeInstanceOf(DriverUnsupportedError)
    },
  )

  test.each(['repeatable read', 'serializable'])(
    'rejects a lock at %s, and the transaction stays usable',
    async (level) => {
      const caller = bench.open(driver)
      await caller.begin(`isolation level ${level}`, async (client) => {
        const before = await caller.lockstep.join(client)
        expect(before.isolation).toBe(level)
        await note(before, 'before')
        const error = await failureOf(caller.lockstep.join(client, { lock: 'Transfer:1' }))
        expect(error).toBeInstanceOf(JoinRefusedError)
        expect(error).toMatchObject({ keys: ['Transfer:1'] })
        expect(await bench.locksHeld()).toBe(0)
        await note(before, 'after')
      })
      expect(await bench.notes()).toEqual(['after', 'before'])
    },
  )

  test.each([0, 100])('holds nothing after a timeout (waitMs %i), and the transaction stays usable', async (waitMs) => {
    const caller = bench.open(driver)
    const holder = bench.open(driver)
    const taken = ['Transfer:1', 'Transfer:2'] as const
    // The lock that is taken last is the one that is not free: what comes before it must be released.
    const [free, busy] = taken.toSorted((a, b) => (caller.lockstep.lockId(a) < caller.lockstep.lockId(b) ? -1 : 1))
    const { release } = await hold(holder.lockstep, busy ?? taken[0])
    await caller.begin('', async (client) => {
      const before = await caller.lockstep.join(client, { lock: 'Ledger:open' })
      await before.query(`SET LOCAL lock_timeout = '7s'`)
      await note(before, 'before')
      const error = await failureOf(caller.lockstep.join(client, { lock: [...taken], waitMs }))
      expect(error).toBeInstanceOf(LockTimeoutError)
      expect(error).toMatchObject({ waitedFor: 'server' })
      expect((error as LockTimeoutError).keys.toSorted()).toEqual(['Transfer:1', 'Transfer:2'])
      expect(await settingOf(before, 'lock_timeout')).toBe('7s')
      expect(await holder.lockstep.transaction({ lock: free ?? taken[0], waitMs: 0 }, async () => 'free')).toBe('free')
      expect(await bench.locksHeld()).toBe(2)
      await note(before, 'after')
    })
    await release()
    expect(await bench.notes()).toEqual(['after', 'before'])
  })

  test('keeps the settings of the caller', async () => {
    const { lockstep, begin } = bench.open(driver)
    await begin('', async (client) => {
      const before = await lockstep.join(client)
      await before.query(`SET LOCAL lock_timeout = '5s'`)
      await before.query(`SET LOCAL client_connection_check_interval = '9s'`)
      const tx = await lockstep.join(client, { lock: ['Transfer:1', 'Transfer:2'] })
      expect(await settingOf(tx, 'lock_timeout')).toBe('5s')
      expect(await settingOf(tx, 'client_connection_check_interval')).toBe('9s')
    })
  })

  test('accepts a savepoint of the same name and a second join()', async () => {
    const { lockstep, begin } = bench.open(driver)
    await begin('', async (client) => {
      const tx = await lockstep.join(client, { lock: 'Transfer:1' })
      await tx.query('SAVEPOINT lockstep_join')
      await note(tx, 'undone')
      await lockstep.join(client, { lock: 'Transfer:2' })
      await tx.query('ROLLBACK TO lockstep_join')
      await note(tx, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('does not hang with more callers than connections', async () => {
    const { lockstep, begin } = bench.open(driver, { max: 2 })
    const joiners = Array.from({ length: 8 }, (_, index) =>
      begin('', async (client) => {
        const tx = await lockstep.join(client, { lock: 'Transfer:1' })
        await note(tx, `joiner ${index}`)
      }),
    )
    await Promise.all(joiners)
    expect(await bench.notes()).toHaveLength(8)
  })
})
