import { expect, test } from 'vitest'
import { signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type Key, key, QueueFullError } from '../index.ts'

const bench = await testBench()

function outcomeOf(call: Promise<unknown>): Promise<unknown> {
  return call.catch((error: unknown) => error)
}

test.each(['pg', 'postgres.js'] as const)(
  'limits callers that wait for a connection, and serves those that wait, %s',
  async (driver) => {
    const { lockstep } = bench.open(driver, { max: 1, maxQueue: 1 })
    const [inside, leave] = [signal(), signal()]
    const holder = lockstep.transaction({}, async () => {
      inside.give()
      await leave.given
    })
    await inside.given
    const ask = (id: number): Promise<unknown> =>
      outcomeOf(lockstep.transaction({ lock: key`Account:${id}` }, async () => 'served'))
    const calls = Array.from({ length: 13 }, (_, id) => ask(id))
    // The last three are refused while all others wait.
    const refused = await Promise.all(calls.slice(10))
    for (const error of refused) {
      expect(error).toBeInstanceOf(QueueFullError)
      expect(error).toMatchObject({ code: 'LOCKSTEP_QUEUE_FULL', waiting: 10 })
    }
    expect((refused[0] as QueueFullError).keys).toEqual(['Account:10'])
    leave.give()
    await holder
    expect(await Promise.all(calls.slice(0, 10))).toEqual(Array.from({ length: 10 }, () => 'served'))
    expect(await ask(99)).toBe('served')
  },
)

test('limits callers that wait for the first answer of a server', async () => {
  const proxy = await bench.proxy()
  const { lockstep } = bench.open('pg', { url: proxy.url(bench.url), maxQueue: 1 })
  proxy.onClientData(() => 'hold')
  const leaving = new AbortController()
  const ask = (id: number): Promise<unknown> =>
    outcomeOf(lockstep.transaction({ lock: key`Account:${id}`, signal: leaving.signal }, async () => 'served'))
  const calls = Array.from({ length: 11 }, (_, id) => ask(id))
  expect(await calls[10]).toBeInstanceOf(QueueFullError)
  leaving.abort()
  await Promise.all(calls)
  await proxy.close()
})

test('limits calls for one lease, with the limit of transactions', async () => {
  const { lockstep } = bench.open('pg', { maxQueue: 2 })
  const held = await lockstep.leases.acquire(key`Instance:${1}`)
  const leaving = new AbortController()
  const ask = (name: Key): Promise<unknown> =>
    outcomeOf(lockstep.leases.acquire(name, { waitMs: false, signal: leaving.signal }))
  const waiting = [ask(key`Instance:${1}`), ask(key`Instance:${1}`)]
  expect(await ask(key`Instance:${1}`)).toMatchObject({
    code: 'LOCKSTEP_QUEUE_FULL',
    waiting: 2,
    keys: ['Instance:1'],
  })
  const other = (await ask(key`Instance:${2}`)) as typeof held
  await other.release()
  leaving.abort()
  for (const each of await Promise.all(waiting)) expect(each).toMatchObject({ code: 'LOCKSTEP_LOCK_ABORTED' })
  // Those that gave up have made room.
  expect(await outcomeOf(lockstep.leases.acquire(key`Instance:${1}`, { waitMs: 0 }))).toMatchObject({
    code: 'LOCKSTEP_LEASE_HELD',
  })
  await held.release()
})

test('rejects an invalid maxQueue', () => {
  for (const maxQueue of [0, 0.5, Infinity, '5' as unknown as number])
    expect(() => bench.open('pg', { maxQueue }).lockstep).toThrow('maxQueue is')
})
