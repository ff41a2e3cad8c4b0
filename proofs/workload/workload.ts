/**
 * All modules at a steady rate, each with a check of its own promise: what the soak and the upgrade run. An operation begins when it is due,
 * whether the last ones have ended or not. The library comes from outside, so that two versions of it can do the same work.
 *
 * A counter that is read and written in two statements shows whether callers were kept apart (`workload.sql.ts`). Events are counted under
 * the lock of their stream; the effects of their consumers must be as many. A second request with the same idempotency key must get the
 * first answer. A key of `once` has one row.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type * as Library from 'pg-lockstep'
import type { Lockstep, Transaction } from 'pg-lockstep'
import type * as Http from 'pg-lockstep/http'
import { type Random, random } from '../seed.ts'
import { FIND_MADE, MAKE, READ_COUNTER, UNMAKE, WRITE_COUNTER } from './workload.sql.ts'

/** What an operation is about. */
export const PARTS = [
  'transactions',
  'serializable',
  'rows',
  'leases',
  'once',
  'combine',
  'outbox',
  'idempotency',
] as const
export type Part = (typeof PARTS)[number]

/** Consumers of the events: their effects are counted under these names. */
export const SINK_EFFECT = 'Sink'
export const CONSUMER_EFFECT = 'Consumer'

/** The library of one version. */
export interface LoadedLibrary {
  readonly library: typeof Library
  readonly http: typeof Http
}

export interface WorkloadOptions {
  /** Of the process. */
  readonly name: string
  readonly seed: number
  /** Operations of each part in a second. */
  readonly perSecond: number
  /** Of leases, and of the shards of dispatchers. */
  readonly ttlMs: number
  /** How long delivered events are kept, and stored answers at least. */
  readonly retainMs: number
  /** Whether a consumer in the database runs beside the dispatcher with its sink. A library of the previous release has none. */
  readonly consumes: boolean
  /** A planted leak: the judge must find it. */
  readonly leak?: Leak
}

/** `memory`: 1 kB of each operation stay in memory. `handles`: one of a hundred leaves a timer. */
export const LEAKS = ['memory', 'handles'] as const
export type Leak = (typeof LEAKS)[number]

/** What a process did since it was asked the last time. */
export interface WorkDone {
  readonly ended: Readonly<Record<Part, number>>
  readonly failed: Readonly<Record<string, number>>
  /** Those that were due while too many of their part were open. */
  readonly skipped: number
  readonly latenciesMs: Readonly<Record<Part, readonly number[]>>
  /** Broken promises that the process has seen itself. */
  readonly violations: readonly string[]
}

const KEYS = 40
const WAIT_MS = 30_000
/** Of one part. A server that is down for seconds does not leave a pile of calls. */
const OPEN_AT_ONCE = 3
/** All that are open at once, with those that deliver: with fewer connections, a lease ends while its transaction waits for one. */
export const CONNECTIONS = PARTS.length * OPEN_AT_ONCE + 10
/** A second request is sent within this time, however busy the machine. */
const ANSWERS_MS = 60_000
/** Of a dispatcher that could not continue. */
const RESTART_MS = 200
const LEAKED_BYTES = 1000
const LEAKED_HANDLE_EVERY = 100
const TOPIC = 'workload'
/** The ids that `lockRows` locks. */
export const ROWS = Array.from({ length: KEYS }, (_, n) => `Row:${n}`)

const perPart = <Of>(make: () => Of): Record<Part, Of> =>
  Object.fromEntries(PARTS.map((part) => [part, make()])) as Record<Part, Of>

export class Workload {
  readonly #loaded: LoadedLibrary
  readonly #lockstep: Lockstep
  readonly #options: WorkloadOptions
  readonly #random: Random
  readonly #stopping = new AbortController()
  readonly #running: Promise<void>[] = []
  readonly #open = perPart(() => 0)
  readonly #leaked: Buffer[] = []
  readonly #work: Record<Part, () => Promise<unknown>>
  #timers: NodeJS.Timeout[] = []
  #begun = 0
  #skipped = 0
  #ended = perPart(() => 0)
  #latenciesMs = perPart((): number[] => [])
  #failed: Record<string, number> = {}
  #violations: string[] = []

  constructor(loaded: LoadedLibrary, lockstep: Lockstep, options: WorkloadOptions) {
    this.#loaded = loaded
    this.#lockstep = lockstep
    this.#options = options
    this.#random = random(options.seed, options.name)
    const combined = this.#combined()
    const answer = this.#answers()
    this.#work = {
      transactions: () => this.#transact('read committed'),
      serializable: () => this.#transact('serializable'),
      rows: () => this.#lockRows(),
      leases: () => this.#lease(),
      once: () => this.#once(),
      combine: () => combined(this.#key('Combined', 2)),
      outbox: () => this.#enqueue(),
      idempotency: () => this.#request(answer),
    }
  }

  start(): void {
    this.#running.push(this.#keepGoing(() => this.#dispatch()))
    if (this.#options.consumes) this.#running.push(this.#keepGoing(() => this.#consume()))
    const everyMs = 1000 / this.#options.perSecond
    const startedAt = performance.now()
    this.#timers = PARTS.map((part, place) => {
      let begun = 0
      return setInterval(() => {
        // Parts do not begin at the same moment.
        const due = (performance.now() - startedAt - (place * everyMs) / PARTS.length) / everyMs
        for (; begun < due; begun++) void this.#run(part)
      }, everyMs)
    })
  }

  async #run(part: Part): Promise<void> {
    if (this.#open[part] >= OPEN_AT_ONCE) {
      this.#skipped++
      return
    }
    this.#open[part]++
    this.#leak()
    const startedAt = performance.now()
    try {
      await this.#work[part]()
      this.#ended[part]++
      this.#latenciesMs[part].push(performance.now() - startedAt)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#open[part]--
    }
  }

  #leak(): void {
    const { leak } = this.#options
    if (leak === 'memory') this.#leaked.push(Buffer.from('x'.repeat(LEAKED_BYTES)))
    if (leak === 'handles' && this.#begun++ % LEAKED_HANDLE_EVERY === 0)
      this.#timers.push(setInterval(() => undefined, 60_000))
  }

  #fail(error: unknown): void {
    const code = (error as { code?: string }).code ?? String(error)
    this.#failed[code] = (this.#failed[code] ?? 0) + 1
  }

  #key(operation: string, keys = KEYS): `${string}:${string}` {
    return `${operation}:${this.#random.below(keys)}`
  }

  async #step(tx: Pick<Transaction, 'query'>, id: string, count = 1): Promise<number> {
    const { rows } = await tx.query<{ value: number }>(READ_COUNTER, [id])
    const value = (rows[0]?.value ?? 0) + count
    await tx.query(WRITE_COUNTER, [id, value, count])
    return value
  }

  async #transact(isolation: 'read committed' | 'serializable'): Promise<void> {
    const lock = [...new Set([this.#key('Counter'), this.#key('Counter')])]
    await this.#lockstep.transaction({ lock, isolation, waitMs: WAIT_MS }, async (tx) => {
      for (const id of lock) await this.#step(tx, id)
    })
  }

  async #lockRows(): Promise<void> {
    const ids = [...new Set([this.#random.pick(ROWS), this.#random.pick(ROWS), this.#random.pick(ROWS)])]
    await this.#lockstep.transaction({ waitMs: WAIT_MS }, async (tx) => {
      await this.#loaded.library.lockRows(tx, 'counters', ids, { mode: 'noKeyUpdate' })
      for (const id of ids) await this.#step(tx, id)
    })
  }

  async #lease(): Promise<void> {
    const name = this.#key('Lease')
    await this.#lockstep.lease(name, { ttlMs: this.#options.ttlMs, waitMs: WAIT_MS }, async (lease) => {
      await lease.transaction({ waitMs: WAIT_MS }, (tx) => this.#step(tx, name))
    })
  }

  /** Made, found and taken away again. */
  async #once(): Promise<void> {
    const name = this.#key('Made')
    if (this.#random.chance(0.3)) {
      const gone = await this.#lockstep.transaction({ lock: name, waitMs: WAIT_MS }, async (tx) => {
        return (await tx.query(UNMAKE, [name])).rows.length
      })
      if (gone > 1) this.#violations.push(`${name} was made ${gone} times`)
      return
    }
    await this.#lockstep.once<{ id: number }>(name, {
      find: async (tx) => (await tx.query<{ id: number }>(FIND_MADE, [name])).rows[0],
      create: async (tx) => (await tx.query<{ id: number }>(MAKE, [name])).rows[0] as { id: number },
      waitMs: WAIT_MS,
    })
  }

  #combined(): (name: `${string}:${string}`) => Promise<unknown> {
    return this.#lockstep.combine({
      key: (name: `${string}:${string}`) => name,
      run: async (tx, names) => {
        await this.#step(tx, names[0] as string, names.length)
        return names.map(() => true)
      },
    })
  }

  async #enqueue(): Promise<void> {
    const stream = this.#key('Stream')
    const key = stream.slice('Stream:'.length)
    await this.#lockstep.transaction({ lock: stream, waitMs: WAIT_MS }, async (tx) => {
      const number = await this.#step(tx, stream)
      await tx.enqueue({ topic: TOPIC, key, payload: { number } })
    })
  }

  #answers(): (request: Request) => Promise<Response> {
    const { fetchHandler, idempotent } = this.#loaded.http
    const guard = idempotent<Request>(this.#lockstep, {
      scope: () => 'workload',
      retainMs: Math.max(ANSWERS_MS, this.#options.retainMs),
      lock: (request) => `Request:${new URL(request.url).pathname}`,
      transaction: { waitMs: WAIT_MS },
    })
    return fetchHandler(guard, async (request, tx) => {
      return Response.json({ value: await this.#step(tx, `Request:${new URL(request.url).pathname}`) })
    })
  }

  /** Sent twice, as by a client that did not get the answer. */
  async #request(answer: (request: Request) => Promise<Response>): Promise<void> {
    const url = `http://localhost/${this.#random.below(KEYS)}`
    const headers = { 'idempotency-key': `${this.#options.name}-${process.pid}-${performance.now()}` }
    const send = async (): Promise<string | undefined> => {
      const response = await answer(new Request(url, { method: 'POST', headers, body: '{}' }))
      const body = await response.text()
      return response.status === 200 ? body : undefined
    }
    const first = await send()
    const second = await send()
    // Without an answer the client does not know, and the second request may have been the one that worked.
    if (first === undefined || second === undefined) throw new Error('no answer')
    if (first !== second) this.#violations.push(`one key was answered with ${first} and ${second}`)
  }

  async #dispatch(): Promise<void> {
    const inbox = this.#lockstep.inbox.consumer(SINK_EFFECT)
    await this.#lockstep.outbox
      .dispatcher({
        name: SINK_EFFECT,
        shards: 4,
        ttlMs: this.#options.ttlMs,
        retainMs: this.#options.retainMs,
        holder: `${this.#options.name}-${process.pid}`,
        sink: async (events) => {
          for (const event of events) {
            await inbox.handle(event, {}, async (tx) => {
              await tx.query(WRITE_COUNTER, [`${SINK_EFFECT}:${event.key}`, event.seq, 1])
            })
          }
        },
      })
      .run({ signal: this.#stopping.signal })
  }

  async #consume(): Promise<void> {
    const { ttlMs, retainMs, name } = this.#options
    const options = { topics: [TOPIC], shards: 4, ttlMs, retainMs, holder: `${name}-${process.pid}`, concurrency: 2 }
    const consumer = this.#lockstep.consumer(CONSUMER_EFFECT, options, async (event, tx) => {
      await tx.query(WRITE_COUNTER, [`${CONSUMER_EFFECT}:${event.key}`, event.seq, 1])
    })
    await consumer.run({ signal: this.#stopping.signal })
  }

  /** As a supervisor does. */
  async #keepGoing(run: () => Promise<void>): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await run().catch((error: unknown) => {
        this.#fail(error)
        return sleep(RESTART_MS)
      })
    }
  }

  takeDone(): WorkDone {
    const done: WorkDone = {
      ended: this.#ended,
      failed: this.#failed,
      skipped: this.#skipped,
      latenciesMs: this.#latenciesMs,
      violations: this.#violations,
    }
    this.#ended = perPart(() => 0)
    this.#failed = {}
    this.#skipped = 0
    this.#latenciesMs = perPart(() => [])
    this.#violations = []
    return done
  }

  /** No further operations; comes back when those that are open have ended. Events are delivered further. */
  async pause(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer)
    while (Object.values(this.#open).some((open) => open > 0)) await sleep(5)
  }

  async stop(): Promise<void> {
    await this.pause()
    this.#stopping.abort()
    await Promise.all(this.#running)
  }
}
