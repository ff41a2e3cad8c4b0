import { expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, signal } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, type Lockstep, ShardsBusyError } from '../index.ts'
import { groupsOf, shardsOf } from './groups.ts'

/** Shards that are split while they are delivered. */

const bench = await outboxBench()
const reason = 'more processes'
const KEYS = Array.from({ length: 40 }, (_, n) => `k${n}`)

async function write(lockstep: Lockstep, rounds: number, keys = KEYS): Promise<void> {
  for (let n = 0; n < rounds; n++)
    await lockstep.transaction({}, (tx) => tx.enqueueMany(keys.map((key) => ({ topic: 't', key, payload: n }))))
}

/** The numbers that arrived, by key: without those that came again. */
function firstNumbers(delivered: readonly string[]): Map<string, number[]> {
  const numbers = new Map<string, number[]>()
  for (const name of new Set(delivered)) {
    const [, key = '', seq] = /\/(.*)#(\d+)$/.exec(name) ?? []
    numbers.set(key, [...(numbers.get(key) ?? []), Number(seq)])
  }
  return numbers
}

const splitOf = (lockstep: Lockstep, shards: number): Promise<unknown> =>
  lockstep.outbox.split('default', { shards, reason }).catch((error: unknown) => {
    if (error instanceof ShardsBusyError) return error
    throw error
  })

const upTo = (last: number): number[] => Array.from({ length: last }, (_, n) => n + 1)

const shardsNow = async (lockstep: Lockstep): Promise<number> => (await lockstep.outbox.status()).shards.length

test.each(DRIVERS)('continue where they were, from 8 to 512, and every stream keeps its order, %s', async (driver) => {
  const { lockstep } = bench.open(driver, { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { shards: 8, batch: 50 })
  await write(lockstep, 3)
  await dispatcher.until(KEYS.length)
  const writing = write(lockstep, 20)
  expect(await lockstep.outbox.split('default', { shards: 64, reason })).toMatchObject({ from: 8, to: 64 })
  // An owner that was slow to release its shards delays the next split.
  await expect.poll(() => splitOf(lockstep, 512)).toMatchObject({ from: 64, to: 512 })
  await writing
  await eventually(() => new Set(dispatcher.delivered).size === 23 * KEYS.length)
  for (const [key, numbers] of firstNumbers(dispatcher.delivered)) expect([key, numbers]).toEqual([key, upTo(23)])
  const { shards } = await lockstep.outbox.status()
  expect(shards).toHaveLength(512)
  expect(shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)).toBe(0)
})

test.each([128, 256])('of %i shards 512 can be made, and each of them is delivered', async (from) => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const names: string[] = []
  const drained = lockstep.outbox.dispatcher({
    shards: from,
    sink: (events) => void names.push(...events.map(({ key, seq }) => `t/${key}#${seq}`)),
  })
  await drained.drain()
  await lockstep.outbox.split('default', { shards: 512, reason })
  await write(lockstep, 2)
  expect(await drained.drain()).toMatchObject({ delivered: 2 * KEYS.length, ended: 'empty' })
  for (const key of KEYS) expect(firstNumbers(names).get(key)).toEqual([1, 2])
})

test('sends nothing twice where owners are healthy', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { shards: 8 })
  await write(lockstep, 2)
  await dispatcher.until(2 * KEYS.length)
  expect(await lockstep.outbox.split('default', { shards: 16, reason })).toMatchObject({ notReleased: 0 })
  await write(lockstep, 2)
  await dispatcher.until(4 * KEYS.length)
  expect(new Set(dispatcher.delivered).size).toBe(dispatcher.delivered.length)
})

test('an owner that still has a batch in progress can move no cursor, and its parts wait for its lease', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const other = bench.open('pg', { max: 6 })
  const [sending, go] = [signal(), signal()]
  const slow: string[] = []
  const stop = new AbortController()
  const first = lockstep.outbox
    .dispatcher({
      shards: 1,
      ttlMs: 60_000,
      slowAfterMs: false,
      sink: async (events) => {
        sending.give()
        await go.given
        slow.push(...events.map(({ key, seq }) => `t/${key}#${seq}`))
      },
    })
    .run({ signal: stop.signal })
  await write(lockstep, 1)
  await sending.given
  const reading = `SELECT verdict FROM lockstep.outbox_read('default', '{0}', ARRAY[$1::bigint], '{10}', 1)`
  const { rows: cursors } = await bench.admin.query<{ fence: string }>(
    'SELECT fence FROM lockstep.outbox_cursors ORDER BY version DESC LIMIT 1',
  )
  const fence = cursors[0]?.fence
  expect((await bench.admin.query(reading, [fence])).rows).not.toEqual([{ verdict: 'lost' }])
  expect(await lockstep.outbox.split('default', { shards: 4, reason })).toMatchObject({ owned: 1, notReleased: 1 })
  expect((await bench.admin.query(reading, [fence])).rows).toEqual([{ verdict: 'lost' }])
  const second = bench.dispatch(other.lockstep, { shards: 4 })
  // It gets their leases, is refused the parts, and releases the leases. The fourth lease has the name of the old shard's.
  const tried = `SELECT FROM lockstep.leases
                  WHERE name LIKE 'Outbox:default:shard:%' AND name <> 'Outbox:default:shard:0' AND token IS NULL`
  await eventually(async () => (await bench.admin.query(tried)).rowCount === 3)
  expect(second.delivered).toEqual([])
  await expect(lockstep.outbox.split('default', { shards: 8, reason })).rejects.toBeInstanceOf(ShardsBusyError)
  go.give()
  // Its move was refused: the parts send it again, whichever process owns them.
  await eventually(() => slow.length + second.delivered.length >= 2 * KEYS.length)
  // The old owner cannot continue reading: the other process gets its share.
  await eventually(async () => {
    await write(lockstep, 1)
    return second.delivered.length > 0
  })
  stop.abort()
  await first
  expect(slow.slice(0, KEYS.length).every((name) => name.endsWith('#1'))).toBe(true)
})

test('a process that finds all its old numbers held learns of the split as well', async () => {
  const [first, second] = [bench.open('pg', { max: 6 }), bench.open('pg', { max: 6 })]
  const [one, other] = [bench.dispatch(first.lockstep, {}), bench.dispatch(second.lockstep, {})]
  await write(first.lockstep, 1)
  await eventually(() => one.delivered.length + other.delivered.length === KEYS.length)
  await first.lockstep.outbox.split('default', { shards: 2, reason })
  await eventually(async () => {
    const { shards } = await first.lockstep.outbox.status()
    return shards.length === 2 && shards.every(({ owner }) => owner !== undefined)
  })
  const before = [one.delivered.length, other.delivered.length]
  await eventually(async () => {
    await write(first.lockstep, 1)
    return [one, other].every(({ delivered }, place) => delivered.length > (before[place] ?? 0))
  })
})

test('streams that wait follow their shard', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  let broken = true
  const dispatcher = bench.dispatch(lockstep, {
    shards: 2,
    backoffMs: { first: 5, longest: 20 },
    attempts: 1000,
    sink: (events) => events.map(({ key }) => (broken && key === 'k7' ? { refused: 'not now' } : ('sent' as const))),
  })
  await write(lockstep, 3)
  await eventually(async () => (await lockstep.outbox.parked()).length === 1)
  await lockstep.outbox.pause({ topic: 't', key: 'k8' })
  expect(await lockstep.outbox.split('default', { shards: 256, reason, preview: true })).toMatchObject({
    from: 2,
    parkedStreams: 2,
  })
  expect(await shardsNow(lockstep)).toBe(2)
  await lockstep.outbox.split('default', { shards: 256, reason })
  const { rows } = await bench.admin.query(
    `SELECT key, shard = lockstep.outbox_shard(lockstep.outbox_bucket(stream), 256::smallint) AS follows FROM lockstep.outbox_parked ORDER BY key`,
  )
  expect(rows).toEqual([
    { key: 'k7', follows: true },
    { key: 'k8', follows: true },
  ])
  broken = false
  await lockstep.outbox.resume({ topic: 't', key: 'k8' })
  await write(lockstep, 1)
  await eventually(() => new Set(dispatcher.delivered).size === 4 * KEYS.length)
  for (const key of ['k7', 'k8']) expect(firstNumbers(dispatcher.delivered).get(key)).toEqual(upTo(4))
})

test('a process that dies before it has split them stops delivery for a moment only', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { shards: 8 })
  await write(lockstep, 1)
  await dispatcher.until(KEYS.length)
  await bench.admin.query(`SELECT lockstep.outbox_split_begin('default', 16, 700)`)
  await write(lockstep, 1)
  await dispatcher.until(2 * KEYS.length)
  expect(await shardsNow(lockstep)).toBe(8)
})

test('a drain continues with the new shards', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const names: string[] = []
  const drained = lockstep.outbox.dispatcher({
    sink: (events) => void names.push(...events.map(({ key, seq }) => `t/${key}#${seq}`)),
  })
  await write(lockstep, 1)
  await drained.drain()
  await write(lockstep, 1)
  await lockstep.outbox.split('default', { shards: 128, reason })
  expect(await drained.drain()).toMatchObject({ delivered: KEYS.length, ended: 'empty' })
  for (const [, numbers] of firstNumbers(names)) expect(numbers).toEqual([1, 2])
})

test('only more of them, and only of a dispatcher that exists', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  await lockstep.outbox.dispatcher({ shards: 16, sink: () => undefined }).drain()
  for (const shards of [0, 1, 3, 16, 8, 1024]) {
    await expect(lockstep.outbox.split('default', { shards, reason })).rejects.toBeInstanceOf(InvalidOptionError)
  }
  await expect(lockstep.outbox.split('other', { shards: 32, reason })).rejects.toThrow('There is no dispatcher other')
  await expect(lockstep.outbox.split('default', { shards: 32 })).rejects.toThrow('no reason')
  await lockstep.outbox.split('default', { shards: 32, reason })
  const { rows } = await bench.admin.query(`SELECT verb, reason FROM lockstep.outbox_audit WHERE verb LIKE 'split%'`)
  expect(rows).toEqual([{ verb: 'split 16 to 32', reason }])
  // The number with which it began is no error after a split; another one is.
  await lockstep.outbox.dispatcher({ shards: 16, sink: () => undefined }).drain()
  await expect(lockstep.outbox.dispatcher({ shards: 64, sink: () => undefined }).drain()).rejects.toThrow(
    'has 32 shards',
  )
})

test('a ring names the shards that have its groups, of any number', () => {
  for (const count of [1, 8, 64, 128, 512]) {
    const groups = groupsOf('lockstep', [{ topic: 't', key: 'a' }])
    expect(shardsOf(groups, count)).toHaveLength(Math.max(1, count / 64))
  }
})
