import { expect, test } from 'vitest'
import { LeaseHeldError } from '../errors.ts'
import type { Leases } from '../leases/index.ts'
import { Ownership } from './ownership.ts'
import type { ShardSetting } from './shardSetting.ts'

const SHARDS = 64
const NEVER = new AbortController().signal

/** A dispatcher for whose shards every lease is refused, and what it sends. `held` gives the shards that the database shows as held. */
function refused(
  held: () => readonly number[] = () => [],
  onTake: () => void = () => undefined,
): {
  owned: Ownership
  sent: { takes: number; looks: number }
} {
  const sent = { takes: 0, looks: 0 }
  const acquireAlways = (key: string): Promise<unknown> => {
    if (key.includes(':member:')) return Promise.resolve({ signal: NEVER, holder: 'me' })
    sent.takes++
    onTake()
    const details = { holder: undefined, since: undefined, leftMs: 1, waitedMs: 0, advice: 'none' }
    return Promise.reject(new LeaseHeldError('held', details))
  }
  const script = (text: string): Promise<unknown> => {
    const isLook = text.includes('outbox_shares(')
    if (isLook) sent.looks++
    const row = isLook
      ? { shards: String(SHARDS), members: '1', place: '0', held: JSON.stringify(held()) }
      : { value: 'h', epoch: '1', timeline: '1' }
    const answer = { command: 'SELECT', rowCount: 1, rows: [row] }
    return Promise.resolve([answer, answer])
  }
  const connection = { script, release() {} }
  const context = {
    driver: { connect: () => Promise.resolve(connection) },
    quotedSchema: 'lockstep',
    schema: 'lockstep',
  }
  const plan = { name: 'default', shards: SHARDS, ttlMs: 1000, sink: {} }
  const owned = new Ownership({ acquireAlways } as unknown as Leases, { context, plan } as unknown as ShardSetting)
  return { owned, sent }
}

test('looks no more for free shards when all are refused that no process is shown to hold, as after a failover', async () => {
  const { owned, sent } = refused()
  await owned.balance(NEVER)
  expect(sent).toEqual({ takes: 3, looks: 2 })
})

test('looks again while other processes take shards', async () => {
  let others = 0
  const { owned, sent } = refused(
    () => Array.from({ length: others }, (_, shard) => shard),
    () => others++,
  )
  await owned.balance(NEVER)
  expect(others).toBeGreaterThan(SHARDS / 2)
  expect(sent.takes).toBe(others)
})

test('takes no more shards when it is stopped', async () => {
  const stopping = new AbortController()
  const { owned, sent } = refused(undefined, () => stopping.abort())
  await owned.balance(stopping.signal)
  expect(sent).toEqual({ takes: 1, looks: 1 })
})
