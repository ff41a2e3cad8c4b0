import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { freePort } from '../../tools/server/freePort.ts'
import { noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import {
  type Client,
  DRIVERS,
  failureOf,
  firstCall,
  note,
  pidOf,
  type Signal,
  signal,
  strikeNext,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import { CommitOutcomeUnknownError, ConnectionLostError, RetriesExhaustedError, type Transaction } from '../index.ts'
import { type EventMessage, on } from '../observe/index.ts'

const bench = await testBench()

beforeAll(async () => {
  await bench.admin.query('CREATE TABLE doctors (name text PRIMARY KEY, on_call boolean NOT NULL)')
})
beforeEach(async () => {
  await bench.admin.query(`TRUNCATE doctors; INSERT INTO doctors VALUES ('ann', true), ('bob', true)`)
})

/** One row of the table, changed by a transaction that began its snapshot before: 40001. */
async function collide(tx: Transaction): Promise<void> {
  await tx.query('SELECT count(*) FROM doctors')
  await bench.admin.query(`UPDATE doctors SET on_call = NOT on_call WHERE name = 'ann'`)
  await tx.query(`UPDATE doctors SET on_call = NOT on_call WHERE name = 'ann'`)
}

async function onCall(): Promise<number> {
  const { rows } = await bench.admin.query<{ n: number }>('SELECT count(*)::int AS n FROM doctors WHERE on_call')
  return rows[0]?.n ?? -1
}

type Retried = EventMessage<'transaction.retried'>

/** What was published while the work was done. */
async function retriesDuring(work: () => Promise<unknown>): Promise<Retried[]> {
  const heard: Retried[] = []
  const stop = on('transaction.retried', (message) => heard.push(message))
  try {
    await work()
  } finally {
    stop()
  }
  return heard
}

describe.each(DRIVERS)('a conflict, %s', (driver) => {
  test('is retried and reported for write skew without locks', async () => {
    const [one, two] = [bench.open(driver), bench.open(driver)]
    // Each leaves if another stays; both reading first, without retry both would leave.
    const bothRead = [signal(), signal()] as const
    let runs = 0
    const leave = (client: Client, name: string, mine: Signal, other: Signal): Promise<void> =>
      client.lockstep.transaction({ isolation: 'serializable' }, async (tx) => {
        runs++
        const { rowCount } = await tx.query('SELECT 1 FROM doctors WHERE on_call')
        mine.give()
        await other.given
        if (rowCount > 1) await tx.query('UPDATE doctors SET on_call = false WHERE name = $1', [name])
      })
    const heard = await retriesDuring(() =>
      Promise.all([leave(one, 'ann', bothRead[0], bothRead[1]), leave(two, 'bob', bothRead[1], bothRead[0])]),
    )
    expect(await onCall()).toBe(1)
    expect(runs).toBe(2 + heard.length)
    expect(heard.length).toBeGreaterThan(0)
    expect(heard[0]).toMatchObject({
      schema: 'lockstep',
      keys: [],
      attempt: 1,
      reason: '40001',
      error: { code: '40001' },
    })
    expect(heard[0]?.delayMs).toBeGreaterThanOrEqual(0)
  })

  test('is retried for a deadlock by row locks', async () => {
    const [one, two] = [bench.open(driver), bench.open(driver)]
    const first = [signal(), signal()] as const
    const touch = (client: Client, names: readonly [string, string], mine: Signal, other: Signal): Promise<void> =>
      client.lockstep.transaction({}, async (tx) => {
        await tx.query(`SET LOCAL deadlock_timeout = '10ms'`)
        await tx.query('UPDATE doctors SET on_call = false WHERE name = $1', [names[0]])
        mine.give()
        await other.given
        await tx.query('UPDATE doctors SET on_call = false WHERE name = $1', [names[1]])
      })
    const heard = await retriesDuring(() =>
      Promise.all([touch(one, ['ann', 'bob'], first[0], first[1]), touch(two, ['bob', 'ann'], first[1], first[0])]),
    )
    expect(heard.map((each) => each.reason)).toContain('40P01')
    expect(await onCall()).toBe(0)
  })

  test.each([
    ['caught', (tx: Transaction) => collide(tx).catch(() => undefined)],
    [
      'caught, with a statement after it',
      async (tx: Transaction) => {
        await collide(tx).catch(() => undefined)
        await tx.query('SELECT 1')
      },
    ],
    ['caught in a savepoint', (tx: Transaction) => tx.savepoint((part) => collide(part).catch(() => undefined))],
    [
      'caught in a savepoint, with a statement after it',
      (tx: Transaction) =>
        tx.savepoint(async (part) => {
          await collide(part).catch(() => undefined)
          await part.query('SELECT 1')
        }),
    ],
    [
      'wrapped',
      (tx: Transaction) =>
        collide(tx).catch((cause: unknown) => {
          throw new TypeError('my repository failed', { cause: new Error('my query failed', { cause }) })
        }),
    ],
  ])('is retried when the function has %s it', async (_, work) => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const heard = await retriesDuring(() =>
      lockstep.transaction({ isolation: 'repeatable read', lock: 'Order:1' }, async (tx) => {
        await note(tx, `run ${++runs}`)
        if (runs === 1) await work(tx)
      }),
    )
    expect(runs).toBe(2)
    expect(heard).toMatchObject([{ attempt: 1, reason: '40001', keys: ['Order:1'] }])
    expect(await bench.notes()).toEqual(['run 2'])
  })

  test('exhausts the attempts when it never ends', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const heard = await retriesDuring(async () => {
      const call = lockstep.transaction(
        { isolation: 'repeatable read', retry: { attempts: 3 }, lock: 'Order:1' },
        (tx) => {
          runs++
          return collide(tx)
        },
      )
      const error = await failureOf(call)
      expect(error).toBeInstanceOf(RetriesExhaustedError)
      expect(error).toMatchObject({ attempts: 3, keys: ['Order:1'], cause: { code: '40001' } })
    })
    expect(runs).toBe(3)
    expect(heard.map((each) => each.attempt)).toEqual([1, 2])
  })

  test('uses the attempts of the Lockstep by default', async () => {
    const { lockstep } = bench.open(driver, { retry: { attempts: 2 } })
    const call = lockstep.transaction({ isolation: 'repeatable read' }, collide)
    expect(await failureOf(call)).toMatchObject({ code: 'LOCKSTEP_RETRIES_EXHAUSTED', attempts: 2 })
  })

  test('pauses as long as the Lockstep and the call say', async () => {
    const { lockstep } = bench.open(driver, { retry: { attempts: 4, conflictPauseMs: { first: 1, longest: 2 } } })
    const byLockstep = await retriesDuring(() =>
      failureOf(lockstep.transaction({ isolation: 'repeatable read' }, collide)),
    )
    expect(byLockstep).toHaveLength(3)
    for (const { delayMs } of byLockstep) expect(delayMs).toBeLessThanOrEqual(2)
    const retry = { attempts: 2, conflictPauseMs: { first: 100, longest: 100 } }
    const byCall: number[] = []
    while (byCall.length < 5) {
      const [heard] = await retriesDuring(() =>
        failureOf(lockstep.transaction({ isolation: 'repeatable read', retry }, collide)),
      )
      byCall.push(heard?.delayMs ?? -1)
    }
    // Each is random, up to 100.
    expect(Math.max(...byCall)).toBeGreaterThan(2)
  })

  test.each([[{ attempts: 1 }], [false as const]])('is the raw error with retry: %o', async (retry) => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const heard = await retriesDuring(async () => {
      const call = lockstep.transaction({ isolation: 'repeatable read', retry }, (tx) => {
        runs++
        return collide(tx)
      })
      const error = await failureOf(call)
      expect(error).toMatchObject({ code: '40001' })
      expect(error).not.toBeInstanceOf(RetriesExhaustedError)
    })
    expect(runs).toBe(1)
    expect(heard).toEqual([])
  })
})

describe.each(DRIVERS)('what is not retried, %s', (driver) => {
  test.each([
    ['an error of the business', async () => Promise.reject(new Error('insufficient funds'))],
    ['one that looks like a conflict by its text', async () => Promise.reject(new Error('40001 deadlock detected'))],
    ['a constraint', async (tx: Transaction) => tx.query('INSERT INTO doctors VALUES (null, true)')],
    [
      "another user's refused connection",
      async () => fetch(`http://127.0.0.1:${await freePort()}/`).then(() => undefined),
    ],
  ])('%s', async (_, work) => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const failed = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, `run ${++runs}`)
      await work(tx)
    })
    expect(await failureOf(failed)).toBeInstanceOf(Error)
    expect(runs).toBe(1)
    expect(await bench.notes()).toEqual([])
  })
})

describe.each(DRIVERS)('a lost connection, %s', (driver) => {
  test('runs the function a second time when its backend was terminated', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const heard = await retriesDuring(() =>
      lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async (tx) => {
        await note(tx, `run ${++runs}`)
        if (runs > 1) return
        const pid = await pidOf(tx)
        await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
        await bench.gone(pid)
        await tx.query('SELECT 1')
      }),
    )
    expect(runs).toBe(2)
    expect(heard).toMatchObject([{ attempt: 1 }])
    expect(await bench.notes()).toEqual(['run 2'])
  })

  test('pauses after it as long as the call says', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const retry = { connectionPauseMs: { first: 1, longest: 1 } }
    const heard = await retriesDuring(() =>
      lockstep.transaction({ retry }, async (tx) => {
        if (++runs > 3) return
        const pid = await pidOf(tx)
        await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
        await bench.gone(pid)
        await tx.query('SELECT 1')
      }),
    )
    expect(heard.map(({ attempt }) => attempt)).toEqual([1, 2, 3])
    for (const { delayMs } of heard) expect(delayMs).toBeLessThanOrEqual(1)
  })

  test('runs it a second time when the function has returned', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const value = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, `run ${++runs}`)
      if (runs > 1) return 'second'
      const pid = await pidOf(tx)
      await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
      await bench.gone(pid)
      return 'first'
    })
    expect(value).toBe('second')
    expect(await bench.notes()).toEqual(['run 2'])
  })

  test('is reported without a retry', async () => {
    const { lockstep } = bench.open(driver)
    const failed = lockstep.transaction({ lock: 'Order:1', retry: { attempts: 1 } }, async (tx) => {
      const pid = await pidOf(tx)
      await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
      await bench.gone(pid)
      await tx.query('SELECT 1')
    })
    expect(await failureOf(failed)).toBeInstanceOf(ConnectionLostError)
  })

  test('is replaced by another when it falls silent while it opens', async () => {
    const proxy = await bench.proxy()
    const url = proxy.url(bench.url)
    const { lockstep } = bench.open(driver, { url, silenceMs: 300 })
    await firstCall(lockstep)
    for (const connection of proxy.connections) connection.silence()
    let runs = 0
    const heard = await retriesDuring(() =>
      lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        runs++
        await note(tx, 'through another')
      }),
    )
    expect(runs).toBe(1)
    expect(heard[0]).toMatchObject({ attempt: 1, error: { code: 'LOCKSTEP_CONNECTION_LOST' } })
    expect(await bench.notes()).toEqual(['through another'])
    proxy.cutAll()
  })

  test('does not stop later calls when it falls silent in the first question', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 500 })
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('migrations')) return 'forward'
      proxy.onClientData(undefined)
      connection.silence()
      return 'hold'
    })
    try {
      await lockstep.transaction({ lock: 'Order:1', waitMs: 300 }, async () => 'ran').catch(() => undefined)
      expect(await lockstep.transaction({ lock: 'Order:1', waitMs: 10_000 }, async () => 'ran')).toBe('ran')
    } finally {
      proxy.cutAll()
    }
  })

  test.each([
    ['before it arrived', 'client', []],
    ['before it was answered', 'server', ['written']],
  ] as const)(
    'rejects with CommitOutcomeUnknownError when cut in COMMIT %s, with retry: false',
    async (_, side, written) => {
      const { proxy, lockstep } = await bench.proxied(driver)
      await lockstep.transaction({}, async () => undefined)
      let runs = 0
      const failed = lockstep.transaction({ lock: 'Order:1', retry: false }, async (tx) => {
        runs++
        await note(tx, 'written')
        if (side === 'client') proxy.onClientData((chunk) => (chunk.includes('COMMIT\0') ? 'cut-before' : 'forward'))
        else proxy.onServerData((chunk) => (chunk.includes('COMMIT\0') ? 'cut-before' : 'forward'))
      })
      const error = await failureOf(failed)
      expect(error).toBeInstanceOf(CommitOutcomeUnknownError)
      expect(error).toMatchObject({ code: 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN', keys: ['Order:1'] })
      expect(runs).toBe(1)
      expect(await bench.notes()).toEqual(written)
    },
  )
})

describe.each(DRIVERS)('a statement of tx.client, %s', (driver) => {
  test('is retried with its transaction when the connection is cut', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    await firstCall(lockstep)
    let runs = 0
    const heard = await retriesDuring(() =>
      lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        runs++
        if (runs === 1) void strikeNext(proxy, 'INSERT INTO notes', 'cut-before')
        await noteBy(ofTransaction(driver, tx), 'once')
      }),
    )
    expect(heard).toHaveLength(1)
    expect(await bench.notes()).toEqual(['once'])
  })

  test('is retried with its transaction when the session is terminated', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const heard = await retriesDuring(() =>
      lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        runs++
        const client = ofTransaction(driver, tx)
        await noteBy(client, 'once')
        if (runs === 1) await client.send('SELECT pg_terminate_backend(pg_backend_pid())')
      }),
    )
    expect(heard).toHaveLength(1)
    expect(await bench.notes()).toEqual(['once'])
  })
})

describe('a session that a server timeout has ended, pg', () => {
  test.each(['asks again', 'returns'])('is not retried when the function %s', async (then) => {
    const { lockstep } = bench.open('pg')
    let runs = 0
    const failed = lockstep.transaction({ lock: 'Order:1', retry: { attempts: 3 } }, async (tx) => {
      runs++
      const pid = await pidOf(tx)
      await tx.query('SET LOCAL idle_in_transaction_session_timeout = 20')
      await bench.gone(pid)
      if (then === 'asks again') await tx.query('SELECT 1')
    })
    const error = (await failureOf(failed)) as { code?: string; cause?: { code?: string } }
    // Raw where the client had not yet seen the end.
    expect([error.code, error.cause?.code]).toContain('25P03')
    expect(runs).toBe(1)
  })
})
