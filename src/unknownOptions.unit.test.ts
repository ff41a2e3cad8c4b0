import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { createConsole } from './console/index.ts'
import { exclusive, fetchHandler, idempotent } from './http/index.ts'
import { StreamVerifier } from './inbox/index.ts'
import {
  InvalidKeyError,
  InvalidOptionError,
  key,
  type Key,
  Lockstep,
  lockRows,
  perEvent,
  type Transaction,
} from './index.ts'
import { lockstepTelemetry } from './observe/otel.ts'
import { lockstepMetrics } from './observe/prometheus.ts'
import { kafkaSink } from './sinks/kafka.ts'
import { natsSink } from './sinks/nats.ts'
import { postgresSink } from './sinks/postgres-sink.ts'
import { rabbitmqSink } from './sinks/rabbitmq.ts'
import { redisSink } from './sinks/redis.ts'
import { verifyWebhook, webhookSink } from './sinks/webhook.ts'
import { advanceLeases, createTemplate, drain, findLeaks, startProxy, strikeAt, testDatabase } from './testing/index.ts'

/** Every options object of the public API. No connection is opened: all of it is refused before anything is sent. */
const pool = new pg.Pool({ host: '127.0.0.1', port: 1 })
const lockstep = new Lockstep(pool)
afterAll(() => pool.end())

const LOCK = key`Transfer:${1}`
const nothing = async (): Promise<undefined> => undefined
const inbox = lockstep.inbox.consumer('reports')
const event = { topic: 'trades', key: 'a', seq: 1, id: '00000000-0000-4000-8000-000000000000' }
const stream = { topic: 'trades', key: 'a' }
const tx = { isolation: 'read committed', query: nothing, queryAtCommit: nothing } as unknown as Transaction
const scope = (): string => 'tenant'
const transaction = { transaction: nothing, inbox: { consumer: () => inbox } } as unknown as Lockstep

/** What a caller without types, or with a cast, can pass. */
type Anything = never
type Call = (options: Anything) => unknown

const CALLS: readonly (readonly [where: string, typo: object, meant: string, call: Call])[] = [
  ['new Lockstep()', { waitMS: 5 }, 'waitMs', (options) => new Lockstep(pool, options)],
  ['retry of new Lockstep()', { attempt: 3 }, 'attempts', (retry) => new Lockstep(pool, { retry })],
  ['switchBack', { waitMS: 3 }, 'waitMs', (switchBack) => new Lockstep(pool, { rollout: 'on', switchBack })],
  ['a rollout', { percent: 5, percents: 3 }, 'percent', (rollout) => new Lockstep(pool, { rollout })],
  ['transaction()', { locks: LOCK }, 'lock', (options) => lockstep.transaction(options, nothing)],
  ['retry', { attempt: 3 }, 'attempts', (retry) => lockstep.transaction({ retry }, nothing)],
  [
    'retry.connectionPauseMs',
    { longst: 3 },
    'longest',
    (connectionPauseMs) => lockstep.transaction({ retry: { connectionPauseMs } }, nothing),
  ],
  ['join()', { isolation: 'serializable' }, 'waitMs', (options) => lockstep.join(pool, options)],
  ['once()', { find: nothing, create: nothing, lock: LOCK }, 'find', (options) => lockstep.once(LOCK, options)],
  [
    'onceExternal()',
    { find: nothing, begin: nothing, act: nothing, finish: nothing, ttl: 5 },
    'ttlMs',
    (options) => lockstep.onceExternal(LOCK, options),
  ],
  ['lease()', { ttl: 5 }, 'ttlMs', (options) => lockstep.lease(LOCK, options, nothing)],
  ['acquire()', { permit: 5 }, 'permits', (options) => lockstep.leases.acquire(LOCK, options)],
  ['tryAcquire()', { waitMillis: 5 }, 'waitMs', (options) => lockstep.leases.tryAcquire(LOCK, options)],
  ['leader()', { waitMs: 5 }, 'ttlMs', (options) => lockstep.leader(LOCK, options, nothing)],
  ['leases.list()', { prefixes: 'A' }, 'prefix', (options) => lockstep.leases.list(options)],
  ['leases.history()', { limits: 5 }, 'limit', (options) => lockstep.leases.history(LOCK, options)],
  ['forceRelease()', { by: 'me', reasons: 'x' }, 'reason', (options) => lockstep.leases.forceRelease(LOCK, options)],
  ['combine()', { key: () => LOCK, run: nothing, lock: LOCK }, 'key', (options) => lockstep.combine(options)],
  [
    'a combined call',
    { signals: undefined },
    'signal',
    (options) => lockstep.combine({ key: () => LOCK, run: async () => [] })(1, options),
  ],
  ['dispatcher()', { sink: nothing, topic: ['a'] }, 'topics', (options) => lockstep.outbox.dispatcher(options)],
  ['backoffMs', { frist: 5 }, 'first', (backoffMs) => lockstep.outbox.dispatcher({ sink: () => undefined, backoffMs })],
  [
    'dispatcher.run()',
    { abort: 1 },
    'signal',
    (options) => lockstep.outbox.dispatcher({ sink: () => undefined }).run(options),
  ],
  ['perEvent()', { concurency: 5 }, 'concurrency', (options) => perEvent(options, nothing)],
  ['an event', { ...stream, payload: 1, header: {} }, 'headers', (given) => lockstep.outbox.enqueue(pool, given)],
  ['outbox.parked()', { dispatchers: 'a' }, 'dispatcher', (options) => lockstep.outbox.parked(options)],
  ['outbox.retry()', { ...stream, dispatchr: 'a' }, 'dispatcher', (options) => lockstep.outbox.retry(options)],
  ['outbox.skip()', { reson: 'a' }, 'reason', (options) => lockstep.outbox.skip({ ...stream, seq: 1 }, options)],
  ['outbox.pause()', { ...stream, dispatchr: 'a' }, 'dispatcher', (options) => lockstep.outbox.pause(options)],
  ['outbox.resume()', { ...stream, dispatchr: 'a' }, 'dispatcher', (options) => lockstep.outbox.resume(options)],
  ['outbox.erase()', { reasons: 'a' }, 'reason', (options) => lockstep.outbox.erase(stream, options)],
  ['outbox.erase()', { topics: 'a', key: 'a' }, 'topic', (given) => lockstep.outbox.erase(given)],
  ['outbox.retain()', { olderThan: 5 }, 'olderThanMs', (options) => lockstep.outbox.retain(options)],
  ['removeDispatcher()', { reasons: 'b' }, 'reason', (options) => lockstep.outbox.removeDispatcher('a', options)],
  ['rollout.set()', { reasons: 'b' }, 'reason', (options) => lockstep.rollout.set('A:', 'on', options)],
  ['outbox.rebase()', { deliver: 'all', reasons: 'b' }, 'reason', (options) => lockstep.outbox.rebase(options)],
  ['replay()', { sink: nothing, topics: 'trades' }, 'topic', (options) => lockstep.outbox.replay(options)],
  ['accept()', { begin: 5 }, 'start', (options) => inbox.accept(tx, event, options)],
  ['acceptMany()', { idle: 5 }, 'idleMs', (options) => inbox.acceptMany(tx, [], options)],
  ['handle()', { locks: LOCK }, 'lock', (options) => inbox.handle(event, options, nothing)],
  ['startAt()', { forced: true }, 'force', (options) => inbox.startAt(tx, stream, 1, options)],
  ['new StreamVerifier()', { example: 1 }, 'examples', (options) => new StreamVerifier(options)],
  ['lockRows()', { skipLock: true }, 'skipLocked', (options) => lockRows(tx, 'accounts', [1], options)],
  ['locks.list()', { statement: true }, 'statements', (options) => lockstep.locks.list(options)],
  ['migrate()', { version: 3 }, 'to', (options) => lockstep.migrate(options)],
  ['exclusive()', { key: () => LOCK, leases: {} }, 'lease', (options) => exclusive(lockstep, options)],
  ['`lease` of exclusive()', { ttl: 5 }, 'ttlMs', (lease) => exclusive(lockstep, { key: () => LOCK, lease })],
  ['idempotent()', { scope, locks: () => LOCK }, 'lock', (options) => idempotent(lockstep, options)],
  ['idempotent()', { scope, form: 'plain', lock: () => LOCK }, 'form', (options) => idempotent(lockstep, options)],
  [
    '`transaction` of idempotent()',
    { waitMS: 5 },
    'waitMs',
    (given) => idempotent(lockstep, { scope, transaction: given }),
  ],
  ['`lease` of idempotent()', { ttl: 5 }, 'ttlMs', (lease) => idempotent(lockstep, { form: 'plain', scope, lease })],
  ['createConsole()', { operators: true }, 'operator', (options) => createConsole(lockstep, options)],
  ['lockstepTelemetry()', { key: true }, 'keys', (options) => lockstepTelemetry({} as never, options)],
  ['lockstepMetrics()', { byKeys: true }, 'byKey', (options) => lockstepMetrics({} as never, options)],
  ['kafkaSink()', { producer: {}, topics: 1 }, 'topic', (options) => kafkaSink(options)],
  ['natsSink()', { client: {}, stream: 'E', subjects: '' }, 'subject', (options) => natsSink(options)],
  ['rabbitmqSink()', { connect: nothing, exchanges: 'E' }, 'exchange', (options) => rabbitmqSink(options)],
  ['redisSink()', { client: {}, streams: 'E' }, 'stream', (options) => redisSink(options)],
  ['webhookSink()', { url: 'https://a.example', secrets: 'x' }, 'secret', (options) => webhookSink(options)],
  ['`tls` of webhookSink()', { cas: 'x' }, 'ca', (tls) => webhookSink({ url: 'https://a.example', tls })],
  ['verifyWebhook()', { tolerance: 5 }, 'toleranceMs', (options) => verifyWebhook({}, '', 'whsec_', options)],
  ['drain()', { sinks: nothing }, 'sink', (options) => drain(lockstep, options)],
  ['findLeaks()', { kind: ['lock'] }, 'kinds', (options) => findLeaks(pool, options)],
  ['advanceLeases()', { schemas: 'x' }, 'schema', (options) => advanceLeases(pool, 5, options)],
  ['createTemplate()', { pool: nothing, prepares: nothing }, 'prepare', (options) => createTemplate(options)],
  ['testDatabase()', { pool: nothing, templates: 'x' }, 'template', (options) => testDatabase({} as never, options)],
  ['startProxy()', { targetPorts: 1 }, 'targetPort', (options) => startProxy(options)],
  ['strikeAt()', { statements: '' }, 'statement', (options) => strikeAt({} as never, 'commit', 'hold', options)],
  [
    'postgresSink()',
    { lockstep: transaction, consumer: 'a', handles: nothing },
    'handle',
    (options) => postgresSink(options),
  ],
]

async function refusalOf(call: () => unknown): Promise<unknown> {
  try {
    await call()
  } catch (error) {
    return error
  }
  throw new Error('It was accepted.')
}

describe('refuses a name that is not known', () => {
  test.each(CALLS)('%s %o', async (where, typo, meant, call) => {
    const error = await refusalOf(() => call(typo as Anything))
    expect(error).toBeInstanceOf(InvalidOptionError)
    expect((error as Error).message).toMatch(/^Unknown option "\w+" of /)
    expect((error as Error).message).toContain(meant)
  })

  test('refuses a name of Object.prototype', async () => {
    const call = (): unknown => lockstep.transaction(JSON.parse('{"__proto__":1}') as object, nothing)
    expect(await refusalOf(call)).toBeInstanceOf(InvalidOptionError)
  })
})

describe('refuses an old form, and names the current one', () => {
  const untyped = lockstep as unknown as Record<string, (...args: unknown[]) => unknown>
  const operator = lockstep.outbox as unknown as Record<string, (...args: unknown[]) => unknown>
  const consumer = inbox as unknown as Record<string, (...args: unknown[]) => unknown>
  const external = { find: nothing, begin: nothing, act: nothing, finish: nothing }
  test.each<[string, () => unknown, string]>([
    ['leader(key, fn)', () => untyped['leader']?.(LOCK, nothing), 'leader(key, options, fn)'],
    ['leader(key, fn, options)', () => untyped['leader']?.(LOCK, nothing, { ttlMs: 500 }), 'leader(key, options, fn)'],
    ['leader(key, options)', () => untyped['leader']?.(LOCK, {}), 'leader(key, options, fn)'],
    ['lease(key, fn)', () => untyped['lease']?.(LOCK, nothing), 'lease(key, options, fn)'],
    ['transaction(fn)', () => untyped['transaction']?.(nothing), 'transaction(options, fn)'],
    ['handle(event, handler)', () => consumer['handle']?.(event, nothing), 'handle(event, options, handler)'],
    ['handle(event, handler, {})', () => consumer['handle']?.(event, nothing, {}), 'handle(event, options, handler)'],
    ['perEvent(handler)', () => perEvent(nothing as never, undefined as never), 'perEvent(options, handler)'],
    ['once(key, { act })', () => untyped['once']?.(LOCK, external), 'lockstep.onceExternal(key, {'],
    ['rollback', () => new Lockstep(pool, { rollout: 'on', rollback: { waitMs: 5 } } as never), '"switchBack"'],
    ['rollout.set(…, reason)', () => lockstep.rollout.set('A:', 'on', 'a test' as never), 'The options are reason.'],
    ['maxWaitMs', () => untyped['combine']?.({ key: () => LOCK, run: nothing, maxWaitMs: 5 }), '"waitMs"'],
    ['idempotent({ ttlMs })', () => idempotent(lockstep, { scope, ttlMs: 5 } as never), '"retainMs"'],
    ['new StreamVerifier({ begin })', () => new StreamVerifier({ begin: 'first' } as never), '"start"'],
    ...['retry', 'pause', 'resume'].flatMap((verb): [string, () => unknown, string][] => [
      [`${verb}({ by })`, () => operator[verb]?.({ ...stream, by: 'me' }), `outbox.${verb}(stream, { reason, by })`],
      [
        `${verb}({ reason })`,
        () => operator[verb]?.({ ...stream, reason: 'x' }),
        `outbox.${verb}(stream, { reason, by })`,
      ],
    ]),
    [
      'skip({ reason })',
      () => operator['skip']?.({ ...stream, seq: 1, reason: 'x' }),
      'outbox.skip(stream, { reason, by })',
    ],
    [
      'erase({ reason })',
      () => operator['erase']?.({ ...stream, reason: 'x' }),
      'outbox.erase(stream, { reason, by })',
    ],
  ])('%s', async (_, call, now) => {
    const error = await refusalOf(call)
    expect(error).toBeInstanceOf(InvalidOptionError)
    expect((error as Error).message).toContain(now)
  })
})

describe('refuses undefined for a key', () => {
  const none = undefined as unknown as Key
  test.each<[string, () => unknown]>([
    ['transaction({ lock })', () => lockstep.transaction({ lock: none }, nothing)],
    ['transaction({ lockShared })', () => lockstep.transaction({ lockShared: none }, nothing)],
    ['transaction({ lock: [] })', () => lockstep.transaction({ lock: [none] }, nothing)],
    ['join({ lock })', () => lockstep.join(pool, { lock: none })],
    ['once()', () => lockstep.once(none, { find: nothing, create: async () => 1 })],
    [
      'onceExternal()',
      () => lockstep.onceExternal(none, { find: nothing, begin: nothing, act: nothing, finish: async () => 1 }),
    ],
    ['lease()', () => lockstep.lease(none, {}, nothing)],
    ['acquire()', () => lockstep.leases.acquire(none)],
    ['leader()', () => lockstep.leader(none, {}, nothing)],
    ['combine({ key })', () => lockstep.combine({ key: () => none, run: async () => [] })(1)],
    ['lockRows({ key })', () => lockRows(tx, 'accounts', [1], { key: undefined as unknown as string })],
    [
      'replay({ key })',
      () => lockstep.outbox.replay({ sink: () => undefined, topic: 'a', key: undefined as unknown as string }),
    ],
    ['idempotent({ lock })', () => idempotent(lockstep, { scope, lock: undefined as unknown as () => Key })],
  ])('%s', async (_, call) => {
    const error = await refusalOf(call)
    expect(error instanceof InvalidOptionError || error instanceof InvalidKeyError).toBe(true)
  })
})

describe('refuses a function that returns no key', () => {
  const request = (): Request =>
    new Request('http://a.example/', { method: 'POST', headers: { 'idempotency-key': 'k' }, body: '{}' })
  const ok = (): Response => new Response('done')

  test.each<[string, () => Promise<Response>, new (...args: never[]) => Error]>([
    [
      'lock of idempotent()',
      () => fetchHandler(idempotent(lockstep, { scope, lock: () => undefined as never }), ok)(request()),
      InvalidOptionError,
    ],
    [
      'scope of idempotent()',
      () => fetchHandler(idempotent(lockstep, { scope: () => undefined as never }), ok)(request()),
      InvalidOptionError,
    ],
    [
      'key of exclusive()',
      () => fetchHandler(exclusive(lockstep, { key: () => undefined as never }), ok)(request()),
      InvalidKeyError,
    ],
  ])('%s', async (_, call, kind) => {
    expect(await refusalOf(call)).toBeInstanceOf(kind)
  })
})
