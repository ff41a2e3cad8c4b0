import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS } from '../../tools/server/testing/workbench.ts'
import type { Delivery, Lockstep, OutboxEvent, Sink } from '../index.ts'

/** When the shards of a process whose sessions have ended are taken over, and those of one that is only silent. */

const bench = await outboxBench()

const KEYS = Array.from({ length: 16 }, (_, number) => `k${number}`)
const SHARDS = 4

/** A sink that takes a number only behind the one before, once: as Redis, JetStream and PostgreSQL do. */
class GuardedSink implements Sink {
  readonly name = 'guarded'
  readonly enforcesFences: boolean
  readonly events: OutboxEvent[] = []
  readonly #last = new Map<string, number>()

  constructor(enforcesFences = true) {
    this.enforcesFences = enforcesFences
  }

  async send(batch: readonly OutboxEvent[]): Promise<Delivery[]> {
    return batch.map((event) => {
      const last = this.#last.get(event.key) ?? 0
      if (event.seq <= last) return 'sent'
      if (event.seq > last + 1) return { refused: `#${last + 1} is next` }
      this.#last.set(event.key, event.seq)
      this.events.push(event)
      return 'sent'
    })
  }
}

function run(lockstep: Lockstep, sink: Sink, ttlMs: number, holder: string): void {
  const stopping = new AbortController()
  const ended = lockstep.outbox
    .dispatcher({ sink, shards: SHARDS, ttlMs, holder, retainMs: false })
    .run({ signal: stopping.signal })
  bench.cleanUp(async () => {
    stopping.abort()
    await ended
  })
}

interface Owner {
  readonly holder: string
  readonly session: string | null
  readonly shards: number
}

/** Who has how many shards. */
async function owners(): Promise<Owner[]> {
  const { rows } = await bench.admin.query<Owner>(`
    SELECT holder, metadata->>'session' AS session, count(*)::int AS shards FROM lockstep.leases
     WHERE name LIKE 'Outbox:default:shard:%' AND token IS NOT NULL AND expires_at > clock_timestamp() GROUP BY 1, 2 ORDER BY 1`)
  return rows
}

/** How leases of shards were taken away, and by whom. */
async function endings(): Promise<string[]> {
  const { rows } = await bench.admin.query<{ ending: string }>(
    `SELECT DISTINCT ending FROM lockstep.lease_history WHERE name LIKE 'Outbox:default:%' AND id > $1`,
    [historyBegins],
  )
  return rows.map(({ ending }) => ending)
}

let historyBegins = '0'
const forgetHistory = async (): Promise<void> => {
  const { rows } = await bench.admin.query<{ last: string }>(
    'SELECT COALESCE(max(id), 0)::text AS last FROM lockstep.lease_history',
  )
  historyBegins = rows[0]?.last ?? '0'
}

interface Lab {
  readonly proxy: Awaited<ReturnType<typeof bench.proxied>>['proxy']
  /** Stops writing, and resolves when everything has arrived, each stream in its order. */
  readonly arrived: () => Promise<void>
}

/** Two processes that have the half of the shards each, the first of them behind a proxy. Events are written all the time, so that none rests. */
async function share(ttlMs: number, sink: GuardedSink): Promise<Lab> {
  await forgetHistory()
  const { lockstep: first, proxy } = await bench.proxied('pg', { max: 8 })
  const { lockstep: writer } = bench.open('pg', { max: 2 })
  const over = new AbortController()
  let rounds = 0
  const writing = (async (): Promise<void> => {
    for (; !over.signal.aborted; rounds++) {
      await writer.transaction({}, (tx) => tx.enqueueMany(KEYS.map((key) => ({ topic: 't', key, payload: 1 }))))
      await sleep(20)
    }
  })()
  bench.cleanUp(async () => {
    over.abort()
    await writing
  })
  run(first, sink, ttlMs, 'one')
  await eventually(async () => (await owners()).length > 0)
  run(bench.open('postgres.js', { max: 8 }).lockstep, sink, ttlMs, 'two')
  await owned({ one: SHARDS / 2, two: SHARDS / 2 })
  return {
    proxy,
    arrived: async () => {
      over.abort()
      await writing
      await eventually(() => sink.events.length === rounds * KEYS.length)
      const seqs = Array.from({ length: rounds }, (_, place) => place + 1)
      for (const each of KEYS) {
        expect(sink.events.filter(({ key }) => key === each).map(({ seq }) => seq)).toEqual(seqs)
      }
    },
  }
}

/** Resolves when each has so many shards. */
const owned = (wanted: Readonly<Record<string, number>>): Promise<void> =>
  eventually(async () => {
    const all = await owners()
    const names = Object.keys(wanted)
    return all.length === names.length && all.every(({ holder, shards }) => wanted[holder] === shards)
  })

/** As long as the schema allows by default. */
const LONG_MS = 60_000
const SHORT_MS = 2000

test('shards of a process whose sessions have ended are taken over before their ttl, where the sink enforces fences', async () => {
  const { proxy, arrived } = await share(LONG_MS, new GuardedSink())
  // The process is alive, and has a batch in progress: what it sends is a duplicate at the sink.
  proxy.refuse(true)
  proxy.cutAll()
  await owned({ two: SHARDS })
  expect(await endings()).toEqual(['forced'])
  // It comes back, and gets its share again.
  proxy.refuse(false)
  await owned({ one: SHARDS / 2, two: SHARDS / 2 })
  await arrived()
})

test('shards of a process that is silent stay with it until its ttl ends', async () => {
  const { proxy, arrived } = await share(SHORT_MS, new GuardedSink())
  proxy.silence()
  await owned({ two: SHARDS })
  // No process released them: they expired.
  expect(await endings()).toEqual([])
  proxy.cutAll()
  proxy.resume()
  await arrived()
})

test('leases name no session where the sink does not enforce fences', async () => {
  const { proxy, arrived } = await share(SHORT_MS, new GuardedSink(false))
  expect((await owners()).map(({ session }) => session)).toEqual([null, null])
  proxy.refuse(true)
  proxy.cutAll()
  await owned({ two: SHARDS })
  expect(await endings()).toEqual([])
  proxy.refuse(false)
  await arrived()
})

test.each(DRIVERS)(
  'a process whose session is ended alone marks another one, and names the same number, %s',
  async (driver) => {
    const { lockstep } = bench.open(driver, { max: 8 })
    run(lockstep, new GuardedSink(), LONG_MS, 'one')
    await eventually(async () => (await owners())[0]?.shards === SHARDS)
    const [{ session } = { session: null }] = await owners()
    const holders = async (): Promise<number[]> => {
      const { rows } = await bench.admin.query<{ pid: number }>(
        `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND (classid::bigint << 32 | objid::bigint) = $1`,
        [session],
      )
      return rows.map(({ pid }) => pid)
    }
    const [pid] = await holders()
    expect(pid).toBeDefined()
    await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
    await eventually(async () => {
      const now = await holders()
      return now.length === 1 && now[0] !== pid
    })
    expect((await owners()).map((owner) => [owner.session, owner.shards])).toEqual([[session, SHARDS]])
  },
)
