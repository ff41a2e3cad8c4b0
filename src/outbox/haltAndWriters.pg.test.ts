import { expect, test } from 'vitest'
import { signal, testBench } from '../../tools/server/testing/workbench.ts'

/** Who halts everything (rebase, remove) waits for those who write, in whichever way, and they never for it and each other in a circle. */

const bench = await testBench()

test('resolves two writers that need the streams of each other', async () => {
  const { lockstep } = bench.open('pg', { max: 6, retry: { attempts: 1 } })
  const [first, second, both] = [signal(), signal(), signal()]
  const single = lockstep.transaction({}, async (tx) => {
    await tx.query(`SELECT lockstep.enqueue('halt', 'a', '1')`)
    first.give()
    await both.given
    await tx.query(`SELECT lockstep.enqueue('halt', 'b', '1')`)
  })
  await first.given
  // Has the lock of the stream, and has not come to its events yet.
  const many = lockstep.transaction({}, async (tx) => {
    await tx.query(`SELECT lockstep.outbox_lock(ARRAY['halt'], ARRAY['b'])`)
    second.give()
    await both.given
    await bench.admin.query('SELECT 1')
    await tx.enqueueMany(Array.from({ length: 3 }, (_, n) => ({ topic: 'halt', key: 'b', payload: n })))
  })
  await second.given
  const halting = bench.admin.query('BEGIN; SELECT lockstep.outbox_halt(); COMMIT')
  const waits = `SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted AND locktype = 'relation'`
  await expect.poll(async () => (await bench.admin.query<{ n: number }>(waits)).rows[0]?.n).toBeGreaterThan(0)
  both.give()
  const ended = await Promise.allSettled([single, many, halting])
  expect(ended.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'fulfilled'])
})
