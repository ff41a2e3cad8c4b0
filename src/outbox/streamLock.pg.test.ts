import { beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, signal, testBench } from '../../tools/server/testing/workbench.ts'
import type { Lockstep } from '../index.ts'

/**
 * A single event takes the lock of its stream inside the function that appends it. Within a segment a unique index would refuse a
 * second event with the same number; between two segments nothing but this lock does.
 */

const bench = await testBench()

const trade = (portfolio: string): { topic: string; key: string; payload: object } => ({
  topic: 'trades',
  key: portfolio,
  payload: {},
})

async function numbersOf(portfolio: string): Promise<number[]> {
  const { rows } = await bench.admin.query<{ seq: string }>(
    'SELECT seq FROM lockstep.outbox_events WHERE key = $1 ORDER BY id',
    [portfolio],
  )
  return rows.map(({ seq }) => Number(seq))
}

const beginSegment = (lockstep: Lockstep): Promise<void> =>
  expect.poll(async () => (await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })).rotated).toBe(true)

beforeEach(() => bench.admin.query('TRUNCATE lockstep.outbox_events'))

describe.each(DRIVERS)('two writers of one stream, one event each, %s', (driver) => {
  test.each([
    ['in one segment', async () => undefined],
    ['with a new segment between them', beginSegment],
  ])('give the second the next number after the first has committed, %s', async (_, between) => {
    const { lockstep, begin } = bench.open(driver)
    const other = bench.open(driver)
    await lockstep.transaction({}, (tx) => tx.enqueue(trade('somebody else')))
    const [written, goOn] = [signal(), signal()]
    const first = begin('', async (client) => {
      const { seq } = await lockstep.outbox.enqueue(client, trade('a'))
      written.give()
      await goOn.given
      return seq
    })
    await Promise.race([written.given, first])
    await between(other.lockstep)
    const second = other.lockstep.transaction({}, (tx) => tx.enqueue(trade('a')))
    // It waits for the first writer; a broken one would be through by now.
    await Promise.race([second, bench.waiters(1)])
    goOn.give()
    expect(await first).toBe(1)
    await second
    expect(await numbersOf('a')).toEqual([1, 2])
  })
})
