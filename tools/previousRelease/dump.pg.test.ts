import { readFileSync } from 'node:fs'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { fetchHandler, idempotent } from '../../src/http/index.ts'
import { Lockstep, type MigrateResult } from '../../src/index.ts'
import { KNOWN_VERSION } from '../../src/postgres/migrations.ts'
import { asAdmin, dropCopy, newName, withDatabase } from '../../src/testing/template.ts'
import { poolOf } from '../server/testDatabase.ts'
import { dispatching, eventually } from '../server/testing/dispatching.ts'
import {
  ABANDONED,
  BLOCKED,
  BYTES,
  CONSUMER,
  DELIVERED_EACH,
  DUMP_FILE,
  dumpedRequest,
  HALF_DELIVERED,
  HEADERS,
  LOCKED,
  PREFIX_OFF,
  RELEASED,
  SCOPE,
  TOPIC,
} from './dumped.ts'

// A dump of the previous release with data, restored on another server, as by an operator who moves and upgrades at once.
const dump = readFileSync(DUMP_FILE, 'utf8')
const version = Number(/^-- Schema version (\d+)/.exec(dump)?.[1])
const name = newName('test')
const adminUrl = inject('adminUrl')
const pool = new pg.Pool({ connectionString: withDatabase(adminUrl, name), max: 6 })
const lockstep = new Lockstep(pool)
let result: MigrateResult

beforeAll(async () => {
  await asAdmin(poolOf, adminUrl, (connection) => connection.script(`CREATE DATABASE ${name} TEMPLATE template0`))
  const client = await pool.connect()
  try {
    await client.query(dump)
  } finally {
    // The dump changes settings of its session.
    client.release(true)
  }
  result = await lockstep.migrate({ synchronousFailover: true })
})
afterAll(async () => {
  await lockstep.close()
  await pool.end()
  await dropCopy(poolOf, adminUrl, name)
})

describe('a schema of the previous release with data, migrated to this one', () => {
  test('goes from its version to the newest, and is as this release makes it', async () => {
    expect(result).toMatchObject({ from: version, to: KNOWN_VERSION })
    expect(result.applied).toHaveLength(KNOWN_VERSION - version)
    const schema = (await lockstep.doctor()).filter((finding) => finding.name === 'schema')
    expect(schema).toMatchObject([{ level: 'ok' }])
  })

  test('keeps the rules of the rollout and the names of locks', async () => {
    expect(await lockstep.rollout.list()).toMatchObject([{ prefix: PREFIX_OFF, mode: 'off' }])
    await lockstep.transaction({ lock: LOCKED }, async () => {
      await eventually(async () => (await lockstep.locks.list()).locks.some(({ key }) => key === LOCKED))
    })
  })

  test('gives leases with higher fences than before, and keeps their history', async () => {
    const [ended] = await lockstep.leases.history(RELEASED)
    expect(ended).toMatchObject({ ending: 'released', metadata: { from: 'the previous release' } })
    const { rows } = await pool.query<{ last: string }>('SELECT max(fence)::text AS last FROM lockstep.leases')
    for (const key of [RELEASED, ABANDONED] as const) {
      const lease = await lockstep.leases.acquire(key, { ttlMs: 1000, waitMs: 60_000 })
      expect(lease.fence).toBeGreaterThan(BigInt(rows[0]?.last ?? 0))
      await lease.release()
    }
  })

  test('gives the stored answer again', async () => {
    const guard = idempotent<Request>(lockstep, { scope: () => SCOPE })
    let ran = 0
    const answer = await fetchHandler(guard, () => Response.json({ ran: ++ran }))(dumpedRequest())
    expect([answer.status, await answer.json(), ran]).toEqual([201, { answered: 'by the previous release' }, 0])
  })

  test('delivers what was not delivered, and continues with the next number; the inbox knows what it had', async () => {
    await lockstep.outbox.rebase({ deliver: 'undelivered', reason: 'restored' })
    const inbox = lockstep.inbox.consumer(CONSUMER)
    const verdicts: string[] = []
    const run = dispatching(lockstep, {
      shards: 2,
      sink: async (events) => {
        for (const event of events) {
          if (event.key !== BLOCKED) verdicts.push(await inbox.handle(event, {}, async () => undefined))
        }
      },
    })
    const [next, after] = [DELIVERED_EACH + 1, DELIVERED_EACH + 2]
    await run.until(HALF_DELIVERED.length)
    expect(run.names.toSorted()).toEqual(HALF_DELIVERED.map((key) => `${key}#${next}`))
    expect(run.events[0]).toMatchObject({ headers: HEADERS, payload: { number: next } })
    expect(verdicts).toEqual(HALF_DELIVERED.map(() => 'first'))
    const waiting = (await lockstep.outbox.parked()).filter(({ state }) => state === 'blocked')
    expect(waiting).toMatchObject([{ topic: TOPIC, key: BLOCKED }])
    await lockstep.outbox.retry({ topic: TOPIC, key: BLOCKED })
    await run.until(HALF_DELIVERED.length + next)
    const blocked = run.events.filter(({ key }) => key === BLOCKED)
    expect(blocked.map(({ seq }) => seq)).toEqual(Array.from({ length: next }, (_, n) => n + 1))
    expect(Buffer.from(blocked[0]?.payload as Uint8Array)).toEqual(BYTES)
    const enqueue = lockstep.transaction({}, (tx) => tx.enqueue({ topic: TOPIC, key: HALF_DELIVERED[0], payload: {} }))
    await enqueue
    await run.until(HALF_DELIVERED.length + next + 1)
    expect(run.names.at(-1)).toBe(`${HALF_DELIVERED[0]}#${after}`)
    await run.stop()
    const first = { topic: TOPIC, key: HALF_DELIVERED[0], seq: 1, id: undefined }
    expect(await inbox.position(first)).toMatchObject({ seq: after })
  })
})
