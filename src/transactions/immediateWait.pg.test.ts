import { beforeAll, describe, expect, test } from 'vitest'
import {
  type Client,
  DRIVERS,
  failureOf,
  firstCall,
  note,
  pidOf,
  signal,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import { key, LockAbortedError, LockstepClosedError, LockTimeoutError, type TransactionOptions } from '../index.ts'
import { on } from '../observe/index.ts'
import { type Held, hold } from '../testing/index.ts'

/** A transaction waits at once for a key that was found taken a moment ago, without trying it first. This opening message has its own faults. */

const bench = await testBench()
const ROUTES = bench.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)

const SETTINGS = { lock_timeout: '7s', statement_timeout: '9s', client_connection_check_interval: '5s' }
beforeAll(async () => {
  for (const [name, value] of Object.entries(SETTINGS)) {
    await bench.admin.query(`ALTER DATABASE ${bench.name} SET ${name} = '${value}'`)
  }
})
const HOT = { lock: key`Order:hot` }

/** Holds the lock in a process of its own until it is stopped. */
const holdBy = (driver: (typeof DRIVERS)[number], lock = HOT.lock): Promise<Held> =>
  hold(bench.open(driver).lockstep, lock)

/** Makes this client know that the lock is taken. */
async function learn({ lockstep }: Client, options: TransactionOptions = HOT): Promise<void> {
  await firstCall(lockstep)
  const error = await failureOf(lockstep.transaction({ ...options, waitMs: 30 }, () => Promise.resolve()))
  expect(error).toBeInstanceOf(LockTimeoutError)
}

/** Keeps the client's connections in use, so that the next caller gets a new one. */
async function occupy({ lockstep }: Client): Promise<() => Promise<void>> {
  const [held, letGo] = [signal(), signal()]
  const busy = lockstep.transaction({}, async (tx) => {
    await tx.query('SELECT 1')
    held.give()
    await letGo.given
  })
  await held.given
  return async () => {
    letGo.give()
    await busy
  }
}

/** What those who wait have sent: without a ROLLBACK before it, it was sent at once. */
async function waitingFor(count: number): Promise<string[]> {
  await bench.waiters(count)
  const { rows } = await bench.admin.query<{ query: string }>(
    `SELECT query FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()`,
  )
  return rows.map(({ query }) => query)
}

/** On a busy machine the memory of the contention or the first slice can end before the test has looked: then it runs once more. */
async function firstSlice(
  client: Client,
  driver: (typeof DRIVERS)[number],
  expected: RegExp,
  options: TransactionOptions = HOT,
) {
  for (let tries = 1; ; tries++) {
    const { release: letGo } = await holdBy(driver)
    await learn(client, options)
    const shown = client.lockstep.transaction(options, async (tx) => {
      const held = await bench.locksHeld()
      return { held, rows: (await tx.query(`SELECT ${SHOW}`)).rows }
    })
    const [sent] = await waitingFor(1)
    if (expected.test(sent ?? '')) return { shown, letGo }
    await letGo()
    await shown
    if (tries === 10) throw new Error(`At first it sent ${sent}`)
  }
}

const SHOW = Object.keys(SETTINGS)
  .map((name) => `current_setting('${name}') AS ${name}`)
  .join(', ')

describe.each(DRIVERS)('an immediate wait, %s', (driver) => {
  test.each(ROUTES)('restores the settings of the caller and the session, %s', async (route) => {
    const url = route === 'direct' ? bench.url : (bench.pooledUrl as string)
    const client = bench.open(driver, { url, names: false })
    for (const slices of ['one slice', 'several']) {
      const atFirst = route === 'direct' ? /^BEGIN/ : /^ROLLBACK/
      const { shown, letGo } = await firstSlice(client, driver, atFirst)
      // The next slice begins with the rollback of this one.
      if (slices === 'several') await expect.poll(async () => (await waitingFor(1))[0]).toMatch(/^ROLLBACK/)
      await letGo()
      expect(await shown).toMatchObject({ rows: [SETTINGS] })
      expect(await client.query(`SELECT ${SHOW}`)).toEqual([SETTINGS])
    }
  })

  test('takes several locks in order, one of them shared, and reports contention', async () => {
    const client = bench.open(driver, { names: false })
    const options = { lock: [key`Order:a`, HOT.lock], lockShared: key`Order:b` }
    const { shown, letGo } = await firstSlice(client, driver, /^BEGIN/, options)
    const acquired: boolean[] = []
    const stop = on('lock.acquired', ({ keys, contended }) => void (keys.length === 2 && acquired.push(contended)))
    await letGo()
    expect(await shown).toEqual({ held: 3, rows: [SETTINGS] })
    // Free by now: waited for at once all the same, and reported as what it was.
    await client.lockstep.transaction(options, () => Promise.resolve())
    stop()
    expect(acquired).toEqual([true, false])
  })

  test('names the holder on a timeout, and leaves nothing', async () => {
    const client = bench.open(driver, { names: false })
    const { release: letGo } = await holdBy(driver)
    await learn(client)
    const error = await failureOf(client.lockstep.transaction({ ...HOT, waitMs: 50 }, () => Promise.resolve()))
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ waitedFor: 'server', holders: [{ where: 'server', key: 'Order:hot' }] })
    await bench.waiters(0)
    await letGo()
  })

  test('asks once with waitMs: 0', async () => {
    const client = bench.open(driver, { names: false })
    const { release: letGo } = await holdBy(driver)
    await learn(client)
    await expect(client.lockstep.transaction({ ...HOT, waitMs: 0 }, () => Promise.resolve())).rejects.toBeInstanceOf(
      LockTimeoutError,
    )
    await letGo()
    expect(await client.lockstep.transaction({ ...HOT, waitMs: 0 }, () => Promise.resolve('free'))).toBe('free')
  })

  test.each(['read committed', 'serializable'] as const)(
    'rejects a taken lock with noWait, but waits for a connection, %s',
    async (isolation) => {
      const client = bench.open(driver, { max: 1, names: false })
      const options = { ...HOT, noWait: true, isolation, waitMs: false } as const
      const { release: letGo } = await holdBy(driver)
      const error = await failureOf(client.lockstep.transaction(options, () => Promise.resolve()))
      expect(error).toBeInstanceOf(LockTimeoutError)
      expect(error).toMatchObject({ waitedFor: 'server' })
      await letGo()
      const free = await occupy(client)
      const waiting = client.lockstep.transaction(options, () => Promise.resolve('had'))
      await free()
      expect(await waiting).toBe('had')
    },
  )

  test('releases its slot, connection and lock however it ends', async () => {
    const proxy = await bench.proxy()
    const client = bench.open(driver, { url: proxy.url(bench.url), max: 4, names: false })
    for (const end of ['abort', 'terminate', 'cut', 'abort', 'terminate', 'cut'] as const) {
      const { release: letGo } = await holdBy(driver)
      await learn(client)
      const controller = new AbortController()
      const waiter = client.lockstep.transaction({ ...HOT, signal: controller.signal }, (tx) => pidOf(tx))
      const settled = waiter.catch((error: unknown) => error)
      // At once, or, where the machine was slow and the key forgotten, after a question.
      expect((await waitingFor(1))[0]).toMatch(/^(BEGIN|ROLLBACK)/)
      if (end === 'abort') controller.abort()
      if (end === 'cut') proxy.cutAll()
      if (end === 'terminate') {
        await bench.admin.query(
          `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`,
        )
      }
      if (end === 'abort') expect(await settled).toBeInstanceOf(LockAbortedError)
      await letGo()
      if (end !== 'abort') expect(await settled).toBeGreaterThan(0)
    }
    // Two places in a pool of four: both are still there. Who has none waits 60 ms at a time.
    const [one, two] = [await holdBy(driver), await holdBy(driver, key`Order:two`)]
    const waiters = [HOT.lock, key`Order:two`].map((lock) =>
      client.lockstep.transaction({ lock }, () => Promise.resolve(lock)),
    )
    for (const sent of await waitingFor(2)) expect(sent).not.toMatch(/lock_timeout = 60;/)
    await Promise.all([one.release(), two.release()])
    expect(await Promise.all(waiters)).toEqual(['Order:hot', 'Order:two'])
  })

  test('ends on close(), also at the server', async () => {
    const client = bench.open(driver, { names: false })
    const { release: letGo } = await holdBy(driver)
    await learn(client)
    const waiter = failureOf(client.lockstep.transaction(HOT, () => Promise.resolve()))
    await bench.waiters(1)
    await client.lockstep.close()
    expect(await waiter).toBeInstanceOf(LockstepClosedError)
    await bench.waiters(0)
    await letGo()
  })

  test('loses no update of sixty writers in three processes', async () => {
    const clients = [bench.open(driver), bench.open(driver), bench.open(driver)] as const
    await bench.admin.query(
      'CREATE TABLE IF NOT EXISTS counter (n integer); TRUNCATE counter; INSERT INTO counter VALUES (0)',
    )
    await Promise.all(
      Array.from({ length: 60 }, (_, number) =>
        clients[(number % 3) as 0 | 1 | 2].lockstep.transaction(HOT, async (tx) => {
          const { rows } = await tx.query<{ n: number }>('SELECT n FROM counter')
          await tx.query('UPDATE counter SET n = $1', [(rows[0]?.n ?? 0) + 1])
          await note(tx, String(number))
        }),
      ),
    )
    expect((await bench.admin.query('SELECT n FROM counter')).rows).toEqual([{ n: 60 }])
    expect(await bench.notes()).toHaveLength(60)
  })
})

/** With which SQLSTATE the wait of a caller that aborts ends: 57014 where it was cancelled, 55P03 where its slice had to end first. */
async function endOfAbortedWait(driver: (typeof DRIVERS)[number], connection: 'used' | 'new'): Promise<string> {
  const proxy = await bench.proxy()
  const client = bench.open(driver, { url: proxy.url(bench.url), names: false })
  const { release: letGo } = await holdBy(driver)
  await learn(client)
  const free = connection === 'new' ? await occupy(client) : undefined
  const controller = new AbortController()
  const waiter = failureOf(client.lockstep.transaction({ ...HOT, signal: controller.signal }, () => Promise.resolve()))
  await bench.waiters(1)
  let state = ''
  proxy.onServerData((chunk) => {
    state ||= /C(57014|55P03)\0/.exec(chunk.toString('latin1'))?.[1] ?? ''
    return 'forward'
  })
  controller.abort()
  expect(await waiter).toBeInstanceOf(LockAbortedError)
  proxy.onServerData(undefined)
  await letGo()
  await free?.()
  return state
}

// On a busy machine a slice can end by itself before the cancellation arrives. Without a cancellation it always does.
describe('an abort cancels the wait at the server', () => {
  test('pg, on a connection that was used before', async () => {
    await expect.poll(() => endOfAbortedWait('pg', 'used')).toBe('57014')
  })

  // Until a connection is known nothing could be cancelled: there the lock is asked for first, and what it is comes with the answer.
  test('postgres.js, on a connection that was used before', async () => {
    await expect.poll(() => endOfAbortedWait('postgres.js', 'used')).toBe('57014')
  })

  // A new connection of postgres.js is known with its first answer at the earliest: there the end of a short slice will do.
  test('pg, on a new connection', async () => {
    await expect.poll(() => endOfAbortedWait('pg', 'new')).toBe('57014')
  })
})

/** Who waits first on a new connection, and who waits behind it: the order in which they are served. */
async function orderOfService(driver: (typeof DRIVERS)[number]): Promise<string[]> {
  const [client, other] = [bench.open(driver, { names: false }), bench.open(driver)]
  const { release: letGo } = await holdBy(driver)
  await learn(client)
  const free = await occupy(client)
  const order: string[] = []
  const serve = (who: string, { lockstep }: Client): Promise<unknown> =>
    lockstep.transaction(HOT, () => Promise.resolve(order.push(who)))
  const first = serve('first', client)
  await bench.waiters(1)
  const second = serve('second', other)
  await bench.waiters(2)
  await letGo()
  await Promise.all([first, second])
  await free()
  return order
}

describe('a lock that was waited for on a new connection is kept', () => {
  test('pg', async () => {
    expect(await orderOfService('pg')).toEqual(['first', 'second'])
  })

  // If it counted as a known one, the grant would have to be released, and the next waiter would be served first.
  test('postgres.js', async () => {
    expect(await orderOfService('postgres.js')).toEqual(['first', 'second'])
  })
})
