import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { testBench } from '../tools/server/testing/workbench.ts'
import { key, LockAbortedError } from './index.ts'
import { hold } from './testing/index.ts'

const bench = await testBench()

/** More than the ten from which on Node warns. */
const MANY = 25

const warnings: Error[] = []
const note = (warning: Error): void => void warnings.push(warning)
beforeEach(() => {
  warnings.length = 0
  process.on('warning', note)
})
afterEach(() => void process.off('warning', note))

function listenersOf(signal: AbortSignal): number {
  return getEventListeners(signal, 'abort').length
}

/** Node warns a moment after the listener was added. */
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Calls that wait with one signal: it gets one listener, all of them end with its abort, and nothing stays on it. */
async function expectOneListener(
  call: (number: number, signal: AbortSignal) => Promise<unknown>,
  allWait: () => Promise<unknown>,
): Promise<void> {
  const controller = new AbortController()
  const calls = Array.from({ length: MANY }, (_, number) => call(number, controller.signal))
  const outcomes = Promise.allSettled(calls)
  await allWait()
  expect(listenersOf(controller.signal)).toBe(1)
  controller.abort(new Error('enough'))
  for (const outcome of await outcomes) {
    expect(outcome.status === 'rejected' && outcome.reason).toBeInstanceOf(LockAbortedError)
  }
  expect(listenersOf(controller.signal)).toBe(0)
  await nextTurn()
  expect(warnings.map(({ message }) => message)).toEqual([])
}

test('shares a listener among transactions in the queue of one key', async () => {
  const { lockstep } = bench.open('pg')
  const { release } = await hold(lockstep, key`Shared:${1}`)
  await expectOneListener((_, signal) => lockstep.transaction({ lock: key`Shared:${1}`, signal }, nextTurn), nextTurn)
  await release()
})

test('shares a listener among transactions that wait for a connection', async () => {
  const { lockstep } = bench.open('pg', { max: 1 })
  const { release } = await hold(lockstep, key`Shared:${2}`)
  await expectOneListener(
    (number, signal) => lockstep.transaction({ lock: key`Waiting:${number}`, signal }, nextTurn),
    nextTurn,
  )
  await release()
})

test('shares a listener among transactions that wait at the server', async () => {
  const holder = bench.open('pg').lockstep
  const { lockstep } = bench.open('pg', { max: 8 })
  const { release } = await hold(holder, key`Shared:${3}`)
  await expectOneListener(
    (_, signal) => lockstep.transaction({ lockShared: key`Shared:${3}`, signal }, nextTurn),
    () => bench.waiters(1),
  )
  await release()
})

test('shares a listener among callers that wait for leases', async () => {
  const { lockstep } = bench.open('pg')
  const leases = await Promise.all(
    Array.from({ length: MANY }, (_, number) => lockstep.leases.acquire(key`Job:${number}`)),
  )
  await expectOneListener(
    (number, signal) => lockstep.leases.acquire(key`Job:${number}`, { waitMs: 20_000, signal }),
    () => expect.poll(async () => (await bench.admin.query('SELECT FROM lockstep.lease_waiters')).rowCount).toBe(MANY),
  )
  await Promise.all(leases.map((lease) => lease.release()))
})

test('shares a listener among combined calls of many keys', async () => {
  const { lockstep } = bench.open('pg', { max: 1 })
  const { release } = await hold(lockstep, key`Shared:${4}`)
  const deposit = lockstep.combine({
    key: (item: number) => key`Account:${item}`,
    run: async (_tx, items: readonly number[]) => items.map(() => 'done'),
  })
  await expectOneListener((number, signal) => deposit(number, { signal }), nextTurn)
  await release()
})

test('leaves nothing on a long-lived signal after a thousand transactions', async () => {
  const { lockstep } = bench.open('pg')
  const { signal } = new AbortController()
  let most = 0
  for (let round = 0; round < 40; round++) {
    await Promise.all(
      Array.from({ length: MANY }, (_, number) =>
        lockstep.transaction({ lock: key`Long:${number % 5}`, signal }, async () => {
          most = Math.max(most, listenersOf(signal))
        }),
      ),
    )
  }
  expect(most).toBeLessThanOrEqual(1)
  expect(listenersOf(signal)).toBe(0)
})
