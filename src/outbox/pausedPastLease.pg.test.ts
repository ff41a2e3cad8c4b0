import { expect, test } from 'vitest'
import { dispatching } from '../../tools/server/testing/dispatching.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'

const bench = await testBench()

test('aborts a sink that was paused past its lease before any timer runs', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const seen: { before: boolean | undefined; after: boolean | undefined; aborted: boolean }[] = []
  const one = dispatching(lockstep, {
    shards: 1,
    ttlMs: 500,
    sink: (_, { owned, signal }) => {
      const before = owned?.()
      // The whole process stands still, as when it is stopped: until the time of the lease is over.
      if (seen.length === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600)
      seen.push({ before, after: owned?.(), aborted: signal.aborted })
    },
  })
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: 'a', payload: 1 }))
  await one.until(1)
  await one.stop()
  expect(seen[0]).toEqual({ before: true, after: false, aborted: false })
})
