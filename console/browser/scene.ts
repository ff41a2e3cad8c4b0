import { type Delivery, key, type Lease, Lockstep, type OutboxEvent } from 'pg-lockstep'
import pg from 'pg'
import { type Dispatching, dispatching } from '../../tools/server/testing/dispatching.ts'
import { hold } from 'pg-lockstep/testing'

/** Work as services do it, for an operator to look at. */
export interface Scene {
  /** A service of its own: one Lockstep with its pool, under its name. */
  service(name: string, poolSize?: number): Lockstep
  /** Holds a lock until it is asked to release it. */
  hold(lockstep: Lockstep, name: string): Promise<() => Promise<void>>
  /** Asks for a lock that another session holds, and releases it when granted. */
  ask(lockstep: Lockstep, name: string): Promise<void>
  lease(lockstep: Lockstep, name: string, holder: string): Promise<Lease>
  /** A dispatcher that refuses events whose payload is bad, until it is repaired. */
  deliver(lockstep: Lockstep): Delivering
  enqueue(lockstep: Lockstep, topic: string, keys: readonly string[], bad: boolean): Promise<void>
  /** Some of everything that is kept: dead letters, inbox positions, answers, rollout rules, and what operators did. */
  remember(lockstep: Lockstep): Promise<void>
  end(): Promise<void>
}

export interface Delivering extends Dispatching {
  repair(): void
}

const MEMORIES = [
  `INSERT INTO lockstep.outbox_dead (dispatcher, stream, seq, id, uuid, enqueued_at, topic, key, payload, reason)
   SELECT 'default', lockstep.outbox_stream('mails', 'customer-' || n), 1, n, gen_random_uuid(), now(), 'mails', 'customer-' || n, '{}', 'the mail server timed out'
     FROM generate_series(1, 3) AS n`,
  `INSERT INTO lockstep.inbox (consumer, topic, key, seq, uuid)
   SELECT c, 'trades', 'portfolio-' || n, n * 10, gen_random_uuid() FROM unnest(ARRAY['billing', 'reports']) AS c, generate_series(1, 3) AS n`,
  `INSERT INTO lockstep.idempotency (scope, key, fingerprint, status, headers, body, created_at, expires_at)
   SELECT 'acme', 'order-' || n, '', 201, '[]', 'kept', now(), now() + interval '1 day' FROM generate_series(1, 3) AS n`,
  `INSERT INTO lockstep.outbox_audit (verb, by_name, dispatcher, topic, key, seq, reason)
   SELECT v, 'console (Ada@10.0.0.7)', 'default', 'trades', 'portfolio-7', 12, 'a wrong price, corrected by #13'
     FROM unnest(ARRAY['pause', 'skip', 'resume']) AS v`,
]

export const REASON = 'the price is not a number'

export function openScene(url: string): Scene {
  const ending: (() => Promise<unknown>)[] = []
  return {
    service(name, poolSize = 4) {
      const pool = new pg.Pool({ connectionString: url, max: poolSize, application_name: name })
      // A server that is restarted ends idle connections.
      pool.on('error', () => undefined)
      const lockstep = new Lockstep(pool)
      ending.push(async () => {
        await lockstep.close()
        await pool.end()
      })
      return lockstep
    },
    async hold(lockstep, name) {
      const { release } = await hold(lockstep, key`Wallet:${name}`)
      // Also where the test has failed before it came to it.
      ending.push(release)
      return release
    },
    ask(lockstep, name) {
      const asking = lockstep.transaction({ lock: key`Wallet:${name}`, waitMs: false }, async () => undefined)
      // A test that awaits it receives the error; one that has failed does not.
      asking.catch(() => undefined)
      return asking
    },
    lease: (lockstep, name, holder) => lockstep.leases.acquire(key`Instance:${name}`, { holder, ttlMs: 60_000 }),
    deliver(lockstep) {
      let repaired = false
      const run = dispatching(lockstep, {
        name: 'default',
        holder: 'trades-1',
        shards: 4,
        attempts: 2,
        sink: (events) => refuseBad(events, repaired),
      })
      let stopped: Promise<void> | undefined
      const stop = (): Promise<void> => (stopped ??= run.stop())
      ending.push(stop)
      return { ...run, stop, repair: () => (repaired = true) }
    },
    enqueue: (lockstep, topic, keys, bad) =>
      lockstep.transaction({}, async (tx) => {
        await tx.enqueueMany(keys.map((each) => ({ topic, key: each, payload: { price: bad ? 'NaN' : 12.5 } })))
      }),
    async remember(lockstep) {
      await lockstep.rollout.set('Import:', 'observe', { reason: 'the new import, for a week' })
      await lockstep.transaction({}, async (tx) => {
        for (const statement of MEMORIES) await tx.query(statement)
      })
    },
    async end() {
      for (const each of ending.toReversed()) await each()
    },
  }
}

/** Refuses what is bad, and whatever comes after it in its stream. */
function refuseBad(events: readonly OutboxEvent[], repaired: boolean): Delivery[] {
  const stopped = new Set<string>()
  return events.map((event) => {
    if (stopped.has(event.key)) return { unknown: 'behind it' }
    const { price } = (event.payload ?? {}) as { price?: unknown }
    if (repaired || event.tombstone !== undefined || price !== 'NaN') return 'sent'
    stopped.add(event.key)
    return { refused: REASON }
  })
}
