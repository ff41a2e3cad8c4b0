import postgres, { type Options, type Sql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { openAtOnce } from '../../proofs/checkers/openAtOnce.ts'
import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { PoolClosedError } from '../errors.ts'
import { Lockstep } from '../lockstep.ts'
import { type Proxy, type ProxyConnection, startProxy } from '../testing/index.ts'
import { PROBE } from './postgres.sql.ts'

const database = await testDatabase()
const cleanUp = cleanUps()

/** A connection that is lost times out forever; one that is not is open long before, also on a busy machine. */
const WAIT_MS = 20_000
/** Longer than the wait: a connect that is never answered does not look like one that was tried again. */
const CONNECT_TIMEOUT_S = 60

const CANCELLED = `DO $$ BEGIN RAISE EXCEPTION 'canceled' USING ERRCODE = '57014'; END $$`

interface Opened {
  readonly sql: Sql
  readonly lockstep: Lockstep
  readonly proxy: Proxy
  /** How many transactions can be open at the same time. */
  readonly openTransactions: () => Promise<number>
}

async function open(max: number, options: Options<Record<string, never>> = {}): Promise<Opened> {
  const { hostname, port } = new URL(database.url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432) })
  const sql = postgres(proxy.url(database.url), {
    max,
    backoff: () => 0.005,
    connect_timeout: CONNECT_TIMEOUT_S,
    onnotice() {},
    ...options,
  })
  const lockstep = new Lockstep(sql, { waitMs: WAIT_MS })
  cleanUp(async () => {
    await lockstep.close()
    await sql.end({ timeout: 1 })
    await proxy.close()
  })
  return {
    sql,
    lockstep,
    proxy,
    openTransactions: () =>
      openAtOnce(max, WAIT_MS, async (held) => {
        // One that waits in vain was not open.
        await lockstep.transaction({}, held).catch(() => undefined)
      }),
  }
}

describe('a postgres.js pool keeps all its connections', () => {
  test('when all of them are closed at once, some of them in a transaction', async () => {
    const size = 4
    const { lockstep, proxy, openTransactions } = await open(size)
    expect(await openTransactions()).toBe(size)
    for (let round = 0; round < 15; round++) {
      const atWork = 1 + (round % 3)
      let begun = 0
      const work = Array.from({ length: atWork }, () =>
        lockstep.transaction({}, async (tx) => {
          // With an id the outcome of a lost one is looked up, at once and on another connection.
          await tx.query('SELECT pg_current_xact_id()')
          if (++begun > atWork) return
          if (begun === atWork) setImmediate(() => proxy.cutAll())
          await tx.query('SELECT pg_sleep(60)')
        }),
      )
      await Promise.all(work)
      expect(await openTransactions(), `round ${round}`).toBe(size)
    }
  })

  test('when they close in the turn of the event loop in which a query is written', async () => {
    const size = 2
    const { sql, proxy, openTransactions } = await open(size)
    expect(await openTransactions()).toBe(size)
    for (let round = 0; round < 10; round++) {
      proxy.cutAll()
      const queries: Promise<unknown>[] = []
      // What is written by an immediate is sent one turn later. In between come the sockets that close.
      await new Promise<void>((resolve) => {
        const turn = (left: number): void => {
          queries.push(sql.unsafe('SELECT 1').catch(() => undefined))
          if (left === 0) resolve()
          else setImmediate(turn, left - 1)
        }
        setImmediate(turn, 15)
      })
      expect(await openTransactions(), `round ${round}`).toBe(size)
      await Promise.all(queries)
    }
  })

  test('when the query fails by which the first one was taken', async () => {
    const opened = await open(2)
    await failProbe(opened)
    expect(await opened.openTransactions()).toBe(2)
  })

  test('when the query fails by which another one was taken', async () => {
    const opened = await open(2)
    const used = new Promise<ProxyConnection>((resolve) => {
      opened.proxy.onStep((_, statements, connection) => {
        if (statements[0]?.text === 'SELECT 2') resolve(connection)
        return undefined
      })
    })
    let end = (): void => undefined
    const ended = new Promise<void>((resolve) => (end = resolve))
    const holding = opened.lockstep.transaction({}, async (tx) => {
      await tx.query('SELECT 2')
      await ended
    })
    const mine = await used
    // A slow connect can have opened more than one.
    for (const connection of opened.proxy.connections) if (connection !== mine) connection.cut()
    try {
      await failProbe(opened)
    } finally {
      end()
    }
    await holding
    expect(await opened.openTransactions()).toBe(2)
  })
})

test('sql.end() ends, although a connection that opens for Lockstep is there only after the call', async () => {
  const { sql, lockstep, proxy } = await open(4)
  await lockstep.transaction({}, () => Promise.resolve())
  const known = new Set(proxy.connections)
  let ended: Promise<void> | undefined
  proxy.onServerData((_chunk, connection) => {
    if (!known.has(connection)) ended ??= sql.end()
    return 'forward'
  })
  const held = Array.from(known, () =>
    lockstep.transaction({}, () => expect.poll(() => ended !== undefined).toBe(true)),
  )
  // A slow connect can have opened more than one before.
  const opening = await Promise.allSettled([...held, lockstep.transaction({}, () => Promise.resolve())])
  // Where this connect takes long, the pool has ended before.
  for (const each of opening) if (each.status === 'rejected') expect(each.reason).toBeInstanceOf(PoolClosedError)
  await ended
})

/** Has the first query on a new connection fail, as if an operator had canceled it. */
async function failProbe({ lockstep, proxy }: Opened): Promise<void> {
  let failed = 0
  const forget = proxy.onStep((when, statements, connection) => {
    if (when !== 'sent' || statements[0]?.text !== PROBE) return undefined
    failed++
    queueMicrotask(() => connection.failHeld(CANCELLED))
    return 'hold'
  })
  await lockstep.transaction({}, () => Promise.resolve()).catch(() => undefined)
  forget()
  expect(failed).toBeGreaterThan(0)
}
