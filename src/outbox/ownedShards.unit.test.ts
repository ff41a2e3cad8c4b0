import { expect, test } from 'vitest'
import { LeaseHeldError } from '../errors.ts'
import type { Leases } from '../leases/index.ts'
import { OwnedShards } from './ownedShards.ts'
import type { ShardSetting } from './shardSetting.ts'

const MANY = Array.from({ length: 512 }, (_, shard) => shard)

test('asks again which shards are free when some of them were not', async () => {
  let asked = 0
  const acquireAlways = (): Promise<never> => {
    asked++
    return Promise.reject(
      new LeaseHeldError('held', { holder: 'other', since: undefined, leftMs: 1, waitedMs: 0, advice: 'none' }),
    )
  }
  const answer = { command: 'SELECT', rowCount: 1, rows: [{ value: 'h', epoch: '1', timeline: '1' }] }
  const connection = { script: () => Promise.resolve([answer, answer]), release() {} }
  const context = {
    driver: { connect: () => Promise.resolve(connection) },
    quotedSchema: 'lockstep',
    schema: 'lockstep',
  }
  const owned = new OwnedShards(
    { acquireAlways } as unknown as Leases,
    { context, plan: { name: 'default', ttlMs: 1000 } } as unknown as ShardSetting,
  )
  expect(await owned.take(MANY, 512, { stopping: new AbortController().signal, mostTaken: 16, mostRefused: 3 })).toBe(
    false,
  )
  expect(asked).toBe(3)
})
