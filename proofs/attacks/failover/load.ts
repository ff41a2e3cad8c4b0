import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import pg from 'pg'
import { LeaseHeldError, Lockstep, type OutboxEvent } from 'pg-lockstep'
import { fetchHandler, idempotent } from 'pg-lockstep/http'
import { postgresSink } from 'pg-lockstep/postgres-sink'
import { redisSink } from 'pg-lockstep/redis'
import type { Random } from '../../seed.ts'
import { FIND_ONCE, MAKE_ONCE, PAY, RECEIVE, WRITE_MARK } from './failover.sql.ts'

/** How long leases and shards live without a heartbeat. */
export const TTL_MS = 2000
export const STREAMS = 12
const LEASES = 3
/** Of a fence, below its generation. */
const GENERATION_BITS = 40n
const TOPIC = 'trades'

/** A time during which a holder trusted its lease, by the clock of this process. */
export interface Holding {
  readonly key: string
  readonly fence: bigint
  readonly from: number
  to: number
}

/** When something happened, and on which timeline: that of the commit, of the fence, or on which the event was enqueued. */
export interface Moment {
  readonly at: number
  readonly timeline: number
}

/** What was answered, and when. */
export class Record {
  /** Marks of transactions whose COMMIT was answered. */
  readonly committed = new Set<string>()
  /** Marks of transactions whose outcome was reported as unknown. */
  readonly unknown = new Set<string>()
  readonly holdings: Holding[] = []
  readonly created = new Map<string, number>()
  /** By the key of the request: the answers, as bytes. */
  readonly answers = new Map<string, Set<string>>()
  /** Ascending. */
  readonly commits: Moment[] = []
  readonly grants: Moment[] = []
  readonly deliveries: Moment[] = []
  marks = 0
  /** Of the failovers: streams that have lost events wait for an operator, and others take their place. */
  round = 0
}

/** Ends what it began. */
export interface Load {
  readonly record: Record
  /** Nothing more is written; dispatchers continue. */
  writersEnd(): Promise<void>
  stop(): Promise<void>
}

export interface Targets {
  readonly url: string
  readonly redisPort: number
  readonly targetUrl: string
}

function open(url: string, max: number): { lockstep: Lockstep; pool: pg.Pool; close(): Promise<void> } {
  const pool = new pg.Pool({ connectionString: url, max, connectionTimeoutMillis: 2000 })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  return {
    lockstep,
    pool,
    async close() {
      await lockstep.close()
      await pool.end()
    },
  }
}

/** Writers, holders of leases, callers of `once`, requests, and two dispatchers: each as a process of its own would be, with its own pool. */
export function startLoad({ url, redisPort, targetUrl }: Targets, random: Random): Load {
  const record = new Record()
  const stopping = new AbortController()
  const ending = new AbortController()
  const [forWriters, holding, other, toRedis, toInbox] = [8, 6, 6, 6, 6].map((max) => open(url, max)) as [
    ReturnType<typeof open>,
    ReturnType<typeof open>,
    ReturnType<typeof open>,
    ReturnType<typeof open>,
    ReturnType<typeof open>,
  ]
  const target = open(targetUrl, 8)
  const client = new Redis({ host: '127.0.0.1', port: redisPort })
  const loop = async (work: () => Promise<void>): Promise<void> => {
    while (!ending.signal.aborted) {
      await work().catch(() => sleep(20))
      // So that failures do not keep the processor busy.
      await sleep(2)
    }
  }
  const writers = [
    ...Array.from({ length: 4 }, () => loop(() => write(forWriters.lockstep, record, random))),
    ...[holding, other].flatMap(({ lockstep }) =>
      Array.from({ length: LEASES }, (_, n) => loop(() => hold(lockstep, `Job:${n}`, record, random))),
    ),
    loop(() => makeOnce([forWriters.lockstep, other.lockstep], record)),
    loop(() => request([forWriters.lockstep, other.lockstep], record)),
  ]
  const dispatchers = [
    dispatch(toRedis.lockstep, 'redis', redisSink({ client }), record, stopping.signal),
    dispatch(toInbox.lockstep, 'inbox', inboxOf(target.lockstep), record, stopping.signal),
  ]
  return {
    record,
    async writersEnd() {
      ending.abort()
      await Promise.all(writers)
    },
    async stop() {
      ending.abort()
      stopping.abort()
      await Promise.all([...writers, ...dispatchers])
      client.disconnect()
      await Promise.all([forWriters, holding, other, toRedis, toInbox, target].map((each) => each.close()))
    },
  }
}

async function write(lockstep: Lockstep, record: Record, random: Random): Promise<void> {
  const mark = String(++record.marks)
  const streamKey = `portfolio ${record.round}.${random.below(STREAMS)}`
  try {
    const timeline = await lockstep.transaction({ waitMs: 5000 }, async (tx) => {
      const { rows } = await tx.query<{ timeline: number }>(WRITE_MARK, [mark])
      await tx.enqueue({ topic: TOPIC, key: streamKey, payload: { mark } })
      return rows[0]?.timeline ?? 0
    })
    record.committed.add(mark)
    record.commits.push({ at: performance.now(), timeline })
  } catch (error) {
    record.unknown.add(mark)
    throw error
  }
}

/** Holds a lease for a while, or until it is lost; and the time in which it was trusted. */
async function hold(lockstep: Lockstep, key: `${string}:${string}`, record: Record, random: Random): Promise<void> {
  const lease = await lockstep.leases.acquire(key, { ttlMs: TTL_MS, waitMs: 3000 }).catch((error: unknown) => {
    if (!(error instanceof LeaseHeldError)) throw error
  })
  if (lease === undefined) return
  const held: Holding = { key, fence: lease.fence, from: performance.now(), to: Infinity }
  // The schema was never copied: its generation is the timeline.
  record.grants.push({ at: held.from, timeline: Number(lease.fence >> GENERATION_BITS) })
  record.holdings.push(held)
  const until = performance.now() + random.next() * 2 * TTL_MS
  let trustedUntil = held.from
  while (performance.now() < until && lease.trustedMs > 0) {
    trustedUntil = performance.now() + lease.trustedMs
    await sleep(10)
  }
  // Before it is released: from then on others can have it. A timer can be late; trust is over when it is over.
  held.to = Math.min(performance.now(), trustedUntil)
  await lease.release()
}

async function makeOnce(locksteps: readonly Lockstep[], record: Record): Promise<void> {
  const name = `thing ${record.created.size}`
  record.created.set(name, 0)
  await Promise.allSettled(
    locksteps.map((lockstep) =>
      lockstep.once(`Thing:${name}`, {
        find: async (tx) => (await tx.query<{ name: string }>(FIND_ONCE, [name])).rows[0]?.name,
        create: async (tx) => {
          await tx.query(MAKE_ONCE, [name])
          return name
        },
      }),
    ),
  )
}

/** The same request several times, as a client does that got no answer. */
async function request(locksteps: readonly Lockstep[], record: Record): Promise<void> {
  const name = `order ${record.answers.size}`
  const answers = new Set<string>()
  record.answers.set(name, answers)
  for (let attempt = 0; attempt < 6; attempt++) {
    const lockstep = locksteps[attempt % locksteps.length] as Lockstep
    const pay = fetchHandler(idempotent<Request>(lockstep, { scope: () => 'tenant' }), async (_, tx) => {
      await tx.query(PAY, [name])
      return new Response(`receipt ${randomUUID()}`, { status: 201 })
    })
    const headers = { 'idempotency-key': `"${name}"` }
    const answer = await pay(new Request('http://desk/pay', { method: 'POST', body: name, headers })).catch(
      () => undefined,
    )
    if (answer?.status === 201) answers.add(await answer.text())
    else await sleep(300)
    if (answers.size > 0 && attempt >= 2) return
  }
}

function inboxOf(lockstep: Lockstep): ReturnType<typeof postgresSink> {
  return postgresSink({
    lockstep,
    consumer: 'failover',
    async handle(tx, { topic, key, seq, id }: OutboxEvent) {
      await tx.query(RECEIVE, [topic, key, seq, id])
    },
  })
}

async function dispatch(
  lockstep: Lockstep,
  name: string,
  sink: ReturnType<typeof postgresSink>,
  record: Record,
  signal: AbortSignal,
): Promise<void> {
  const noting = {
    ...sink,
    name: sink.name,
    open: async () => sink.open?.(),
    close: async () => sink.close?.(),
    healthy: async () => (await sink.healthy?.()) ?? true,
    async send(events: readonly OutboxEvent[], context: Parameters<typeof sink.send>[1]) {
      const answers = await sink.send(events, context)
      const latest = events.findLast((_, place) => answers[place] === 'sent')
      if (latest !== undefined) record.deliveries.push({ at: performance.now(), timeline: latest.generation })
      return answers
    },
  }
  const options = {
    name,
    sink: noting,
    shards: 2,
    ttlMs: TTL_MS,
    retainMs: false,
    attempts: 1,
    backoffMs: { first: 50, longest: 500 },
  } as const
  while (!signal.aborted) {
    await lockstep.outbox
      .dispatcher(options)
      .run({ signal })
      .catch(() => sleep(100))
  }
}
