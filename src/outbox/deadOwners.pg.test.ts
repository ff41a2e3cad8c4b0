import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS } from '../../tools/server/testing/workbench.ts'
import type { Delivery, Dispatcher, Lockstep, OutboxEvent, Sink } from '../index.ts'

/** What becomes of the shards of a process whose sessions have ended, and of one that is only silent. */

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

interface Run {
  readonly dispatcher: Dispatcher
  stop(): Promise<void>
}

function run(lockstep: Lockstep, sink: Sink, ttlMs: number, holder = 'one'): Run {
  const stopping = new AbortController()
  const dispatcher = lockstep.outbox.dispatcher({ sink, shards: SHARDS, ttlMs, holder, retainMs: false })
  const ended = dispatcher.run({ signal: stopping.signal })
  const stop = async (): Promise<void> => {
    stopping.abort()
    await ended
  }
  bench.cleanUp(stop)
  return { dispatcher, stop }
}

const write = (lockstep: Lockstep): Promise<void> =>
  lockstep.transaction({}, (tx) => tx.enqueueMany(KEYS.map((key) => ({ topic: 't', key, payload: 1 }))))

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

/** Both have the half of the shards, and have been connected for as long as it takes to judge others. */
async function share(ttlMs: number, sink: Sink): Promise<Lab> {
  await forgetHistory()
  const [{ lockstep: first, proxy }, { lockstep: second }] = [
    await bench.proxied('pg', { max: 8 }),
    bench.open('postgres.js', { max: 8 }),
  ]
  run(first, sink, ttlMs)
  await eventually(async () => (await owners()).length > 0)
  const survivor = run(second, sink, ttlMs, 'two')
  await eventually(async () => {
    const all = await owners()
    return all.length === 2 && all.every(({ shards }) => shards === SHARDS / 2)
  })
  return { proxy, writer: bench.open('pg').lockstep, survivor }
}

interface Lab {
  readonly proxy: Awaited<ReturnType<typeof bench.proxied>>['proxy']
  readonly writer: Lockstep
  readonly survivor: Run
}

/** As long as the schema allows by default. */
const LONG_MS = 60_000

describe('shards of a process whose sessions have ended', () => {
  test('are taken over before their ttl, where the sink enforces fences', async () => {
    const sink = new GuardedSink()
    const { proxy, writer } = await share(LONG_MS, sink)
    await write(writer)
    await eventually(() => sink.events.length === KEYS.length)
    // The process is alive, and has events in hand: what it sends is a duplicate at the sink.
    proxy.refuse(true)
    proxy.cutAll()
    await write(writer)
    await eventually(() => sink.events.length === 2 * KEYS.length)
    expect((await owners()).map(({ shards }) => shards)).toEqual([SHARDS])
    expect(await endings()).toEqual(['forced'])
    for (const key of KEYS) {
      expect(sink.events.filter((event) => event.key === key).map(({ seq }) => seq)).toEqual([1, 2])
    }
    // It comes back, and gets its share again.
    proxy.refuse(false)
    await eventually(async () => (await owners()).every(({ shards }) => shards === SHARDS / 2))
  })
})

test('shards of a process that is silent stay with it until its ttl ends', async () => {
  const sink = new GuardedSink()
  const { proxy, writer } = await share(1000, sink)
  proxy.silence()
  await write(writer)
  await eventually(() => sink.events.length === KEYS.length)
  // Nobody has ended them: their time was over.
  expect(await endings()).toEqual([])
  proxy.cutAll()
  proxy.resume()
})

test('leases name no session where the sink does not enforce fences', async () => {
  const sink = new GuardedSink(false)
  const { proxy, writer } = await share(1000, sink)
  expect((await owners()).map(({ session }) => session)).toEqual([null, null])
  proxy.refuse(true)
  proxy.cutAll()
  await write(writer)
  await eventually(() => sink.events.length === KEYS.length)
  expect(await endings()).toEqual([])
  proxy.refuse(false)
})

test.each(DRIVERS)(
  'a process whose session is ended alone marks another one, and names the same number, %s',
  async (driver) => {
    const { lockstep } = bench.open(driver, { max: 8 })
    run(lockstep, new GuardedSink(), LONG_MS)
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
