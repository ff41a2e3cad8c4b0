import { describe, expect, test } from 'vitest'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS } from '../../tools/server/testing/workbench.ts'

const bench = await outboxBench()

const ROUTES = bench.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)
// Prepared statements of postgres.js behind a pooler need settings that the bench has not: docs/operating/poolers.md.
const SMALL = DRIVERS.flatMap((driver) =>
  ROUTES.flatMap((route) => [1, 2].map((max) => ({ driver, route, max }))),
).filter(({ driver, route, max }) => driver === 'pg' || route === 'direct' || max === 1)
describe.each(SMALL)('a pool of $max, $driver, $route', ({ driver, route, max }) => {
  test('delivers, parks, catches up and stops, while its sink uses the same pool', async () => {
    const url = route === 'pooled' ? (bench.pooledUrl as string) : bench.url
    const { lockstep } = bench.open(driver, { max, url })
    const refused = new Set<string>()
    const running = bench.dispatch(lockstep, {
      shards: 4,
      async sink(batch) {
        await lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
        const now = new Set(batch.filter(({ key, seq }) => seq === 2 && !refused.has(key)).map(({ key }) => key))
        for (const key of now) refused.add(key)
        return batch.map(({ key, seq }) => (seq >= 2 && now.has(key) ? { refused: 'once' } : ('sent' as const)))
      },
    })
    const keys = ['a', 'b', 'c', 'd', 'e', 'f']
    for (let round = 0; round < 5; round++) {
      await lockstep.transaction({}, (tx) =>
        tx.enqueueMany(keys.map((each) => ({ topic: 't', key: each, payload: 1 }))),
      )
    }
    await running.until(30)
    for (const each of keys) {
      const seqs = running.events.filter(({ key }) => key === each).map(({ seq }) => seq)
      expect(seqs).toEqual([1, 2, 3, 4, 5])
    }
    await running.stop()
  })
})
