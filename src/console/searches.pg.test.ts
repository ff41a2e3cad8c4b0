import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, workbench } from '../../tools/server/testing/workbench.ts'
import { key, type Lockstep } from '../index.ts'
import { type Bench, bench } from './consoleBench.conformance.ts'
import { failure } from './responses.ts'
import type {
  AuditList,
  ConsumerList,
  DeadLetterList,
  EventList,
  IdempotencyList,
  InboxList,
  LeaseSearch,
  ManyPreview,
  Payload,
  RolloutList,
} from './wire.ts'

/** What the console is asked on request: events, dead letters, and the records of everything else. */

const database = await testDatabase()
const work = workbench(database)

async function read<T>(site: Bench, path: string): Promise<T> {
  const { status, text } = await site.ask(path)
  expect([status, text.slice(0, status === 200 ? 0 : 300)], path).toEqual([200, ''])
  return JSON.parse(text) as T
}

/** All pages of a list. */
async function pages<T extends { readonly next: string | null }>(site: Bench, path: string): Promise<T[]> {
  const all: T[] = []
  for (let cursor = ''; ;) {
    const page = await read<T>(site, `${path}${cursor === '' ? '' : `&cursor=${cursor}`}`)
    all.push(page)
    if (page.next === null) return all
    cursor = page.next
  }
}

const namesIn = ({ events }: EventList): string[] =>
  events.map(({ topic, key: name, seq }) => `${topic}/${name}#${seq}`)

describe.each(DRIVERS)('events, %s', (driver) => {
  test('are found by topic, key, number, time and header, page by page; payloads are for operators', async () => {
    const { lockstep } = work.open(driver)
    await work.admin.query('TRUNCATE lockstep.outbox_events')
    for (let n = 1; n <= 3; n++) {
      await lockstep.transaction({}, async (tx) => {
        await tx.enqueue({ topic: 'trades', key: 'a', payload: { n }, headers: { 'trace-id': `t${n}` } })
        await tx.enqueue({ topic: 'mails', key: 'b', payload: Buffer.from([n]) })
      })
    }
    const { rows } = await work.admin.query<{ seq: string }>(
      `SELECT max(seq)::text AS seq FROM lockstep.outbox_events WHERE topic = 'trades'`,
    )
    const last = Number(rows[0]?.seq)
    const site = await bench(lockstep, { operator: true })
    const find = async (query: string): Promise<string[]> =>
      namesIn(await read<EventList>(site, `/api/events?${query}`))
    const [third, second, first] = [last, last - 1, last - 2].map((seq) => `trades/a#${seq}`)
    expect(await find('topic=trades&key=a')).toEqual([third, second, first])
    expect(await find('topic=trades')).toEqual([third, second, first])
    expect(await find(`topic=trades&key=a&fromSeq=${last - 1}&toSeq=${last - 1}`)).toEqual([second])
    expect(await find('topic=trades&key=a&newestFirst=false')).toEqual([first, second, third])
    expect(await find('from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z')).toEqual([])
    expect(await find('header=trace-id&value=t2')).toEqual([second])
    expect(await find('topic=trades&key=a&header=trace-id&value=t3')).toEqual([third])
    expect(await find('topic=mails&header=trace-id&value=t3')).toEqual([])
    expect(await find(`topic=trades&key=a&toSeq=${last - 1}&header=trace-id&value=t3`)).toEqual([])
    const payload = await read<Payload>(site, `/api/events/payload?topic=trades&key=a&seq=${last}`)
    expect(payload).toMatchObject({ payload: '{"n":3}', encoding: 'json', headers: { 'trace-id': 't3' } })
    const seq = /#(\d+)$/.exec((await find('topic=mails&key=b'))[0] ?? '')?.[1]
    const bytes = await read<Payload>(site, `/api/events/payload?topic=mails&key=b&seq=${seq}`)
    expect(bytes).toMatchObject({ payload: 'Aw==', encoding: 'base64' })
    expect((await site.ask('/api/events/payload?topic=trades&key=a&seq=999999')).problem().code).toBe('no-event')
    const viewer = await bench(lockstep)
    expect(namesIn(await read<EventList>(viewer, '/api/events?topic=trades&key=a'))).toHaveLength(3)
    for (const path of ['events/payload?topic=trades&key=a&seq=1', 'events?header=trace-id&value=t1']) {
      expect((await viewer.ask(`/api/${path}`)).problem().code, path).toBe('operators-only')
    }
    for (const query of ['fromSeq=x', 'from=yesterday', 'cursor=abc', 'key=a']) {
      expect((await site.ask(`/api/events?${query}`)).status, query).toBe(400)
    }
  })
})

test('a search has a time limit at the server, and pages', async () => {
  const { lockstep } = work.open('pg')
  await work.admin.query('TRUNCATE lockstep.outbox_events')
  await work.admin.query(
    `SELECT lockstep.outbox_append_many(array_agg('many'::text), array_agg('k' || n % 10), array_agg('{}'::text), array_agg(NULL::bytea), array_agg(NULL::text))
       FROM generate_series(1, 120) AS n`,
  )
  const asked: unknown[] = []
  const outbox = Object.assign(Object.create(lockstep.outbox) as Lockstep['outbox'], {
    events: (options: object) => (asked.push(options), lockstep.outbox.events(options)),
  })
  const { schema, locks, guards, leases, consumers } = lockstep
  const site = await bench({
    schema,
    locks,
    guards,
    leases,
    consumers,
    outbox,
    detached: (fn) => lockstep.detached(fn),
    transaction: (options, fn) => lockstep.transaction(options, fn),
  })
  const all = await pages<EventList>(site, '/api/events?topic=many')
  expect(all.map(({ events }) => events.length)).toEqual([50, 50, 20])
  expect(new Set(all.flatMap(namesIn)).size).toBe(120)
  expect(asked).toMatchObject(all.map(() => ({ timeoutMs: 5000, limit: 50, maxScanned: 50_000 })))
  // Another session has the table to itself.
  const other = await work.session()
  await other.query('BEGIN; LOCK TABLE lockstep.outbox_events, lockstep.outbox_dead IN ACCESS EXCLUSIVE MODE')
  const error: unknown = await lockstep.outbox
    .events({ topic: 'many', timeoutMs: 20 })
    .catch((thrown: unknown) => thrown)
  const dead = lockstep.outbox.deadLetters({ timeoutMs: 20 })
  await expect(dead).rejects.toMatchObject({ code: '57014' })
  const redriven = lockstep.outbox.redrive('dead', { all: true, preview: true, timeoutMs: 20 })
  await expect(redriven).rejects.toMatchObject({ code: '57014' })
  await other.query('ROLLBACK')
  expect(await failure(error).json()).toMatchObject({ status: 503, code: 'took-too-long' })
  // The limit was that of one message.
  expect((await lockstep.outbox.events({ topic: 'many', timeoutMs: 60_000 })).events).toHaveLength(100)
})

test('redrives and skips many after a preview, and what has changed meanwhile is left alone', async () => {
  const { lockstep } = work.open('pg', { max: 6 })
  const site = await bench(lockstep, { operator: true })
  let broken = true
  const run = dispatching(lockstep, {
    name: 'many',
    attempts: 1,
    topics: ['orders'],
    sink: (events) =>
      events.map(({ tombstone }) =>
        broken && tombstone === undefined ? { refused: 'Timeout at noon' } : ('sent' as const),
      ),
  })
  const keys = ['a', 'b', 'c', 'd']
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(keys.map((each) => ({ topic: 'orders', key: each, payload: { each } }))),
  )
  await eventually(async () => {
    const parked = await lockstep.outbox.parked({ dispatcher: 'many' })
    return parked.length === keys.length && parked.every(({ state }) => state === 'blocked')
  })
  const preview = (query: string): Promise<ManyPreview> =>
    read(site, `/api/outbox/many?what=parked&dispatcher=many&${query}`)
  expect((await preview('error=nothing')).found).toEqual([])
  const { found, more: rest } = await preview('error=timeout')
  expect([found.map((row) => row.key).toSorted(), rest]).toEqual([keys, false])
  const idsOf = (...names: string[]): string[] => found.filter((row) => names.includes(row.key)).map(({ id }) => id)
  const act = async (verb: string, ids: readonly string[], more: object = {}): Promise<unknown> => {
    const wish = { what: 'parked', dispatcher: 'many', ids, reason: 'the sink was away', ...more }
    const { status, text } = await site.post(`/api/outbox/${verb}`, wish)
    return [status, (JSON.parse(text) as { message?: string }).message]
  }
  for (const wrong of [{ reason: '' }, { what: 'else' }, { dispatcher: '' }]) {
    expect((await act('redrive', idsOf('a'), wrong)) as unknown[], JSON.stringify(wrong)).toContain(400)
  }
  expect(await act('redrive', [])).toEqual([400, undefined])
  expect(await act('skip-many', idsOf('a', 'b'))).toEqual([200, '2 of 2 given up.'])
  await run.until(2)
  expect(run.delivered.toSorted()).toEqual(['orders/a#1†', 'orders/b#1†'])
  broken = false
  // Two of them have gone on.
  expect(await act('skip-many', idsOf('a', 'b'))).toEqual([200, '0 of 2 given up. 2 changed meanwhile.'])
  expect(await act('redrive', idsOf('a', 'c', 'd'))).toEqual([200, '2 of 3 tried again now. 1 changed meanwhile.'])
  await run.until(4)
  expect(run.delivered.slice(2).toSorted()).toEqual(['orders/c#1', 'orders/d#1'])
  const running = await site.post('/api/outbox/remove', { dispatcher: 'many', reason: 'no longer used' })
  expect([running.status, running.problem().code]).toEqual([400, 'LOCKSTEP_INVALID_OPTION'])
  await run.stop()
  expect((await site.post('/api/outbox/remove', { dispatcher: 'many', reason: ' ' })).status).toBe(400)
  expect((await site.post('/api/outbox/remove', { dispatcher: 'many', reason: 'no longer used' })).status).toBe(200)
  expect((await lockstep.outbox.status()).dispatchers).toEqual([])
  const { entries } = await read<AuditList>(site, '/api/audit?topic=orders')
  expect(entries.map(({ verb }) => verb).toSorted()).toEqual(['redrive', 'redrive', 'skip', 'skip'])
})

test('lists dead letters, and redrives those that were seen', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep, { operator: true })
  await work.admin.query(`
    INSERT INTO lockstep.outbox_dead (dispatcher, stream, seq, id, uuid, enqueued_at, topic, key, payload, reason)
    SELECT 'default', lockstep.outbox_stream('late', 'k' || n), 1, n, gen_random_uuid(), now(), 'late', 'k' || n,
           CASE WHEN n = 60 THEN NULL ELSE '{}'::json END, CASE WHEN n = 1 THEN 'Gone away' ELSE 'late' END
      FROM generate_series(1, 60) AS n`)
  const all = await pages<DeadLetterList>(site, '/api/dead?topic=late')
  expect(all.map(({ deadLetters }) => deadLetters.length)).toEqual([50, 10])
  const [one] = (await read<DeadLetterList>(site, '/api/dead?error=gone')).deadLetters
  expect(one).toMatchObject({ dispatcher: 'default', topic: 'late', key: 'k1', reason: 'Gone away', usable: true })
  const preview = await read<ManyPreview>(site, '/api/outbox/many?what=dead&topic=late')
  expect([preview.found.length, preview.found.filter(({ usable }) => !usable).length]).toEqual([60, 1])
  const wish = { what: 'dead', dispatcher: 'default', ids: [one?.id], reason: 'it is back' }
  const { text } = await site.post('/api/outbox/redrive', wish)
  expect(JSON.parse(text)).toMatchObject({ message: '1 of 1 enqueued again.' })
  expect((await read<EventList>(site, '/api/events?topic=late')).events).toMatchObject([{ key: 'k1', seq: 1 }])
  const again = await site.post('/api/outbox/redrive', wish)
  expect(JSON.parse(again.text)).toMatchObject({ message: '0 of 1 enqueued again. 1 changed meanwhile.' })
  await work.admin.query('TRUNCATE lockstep.outbox_dead')
})

test('replays a part of a stream to a sink of the service, and writes it into the audit first', async () => {
  const { lockstep } = work.open('pg')
  const sent: string[] = []
  const site = await bench(lockstep, {
    operator: true,
    replayTo: {
      archive: (events) => events.map(({ topic, key: name, seq }) => (sent.push(`${topic}/${name}#${seq}`), 'sent')),
    },
  })
  for (let n = 1; n <= 4; n++) {
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'again', key: 'x', payload: { n } }))
  }
  expect((await site.session()).replayTo).toEqual(['archive'])
  const wish = { to: 'archive', topic: 'again', key: 'x', fromSeq: 2, toSeq: 3, reason: 'the archive lost them' }
  for (const wrong of [{ to: 'toString' }, { to: 'elsewhere' }, { toSeq: 1 }, { toSeq: 2000 }, { reason: '' }]) {
    expect((await site.post('/api/outbox/replay', { ...wish, ...wrong })).status, JSON.stringify(wrong)).toBe(400)
  }
  expect(sent).toEqual([])
  const { text } = await site.post('/api/outbox/replay', wish)
  expect(JSON.parse(text)).toMatchObject({ message: '2 events of again/x were sent to archive.' })
  expect(sent).toEqual(['again/x#2', 'again/x#3'])
  const { entries } = await read<AuditList>(site, '/api/audit?topic=again')
  expect(entries).toMatchObject([
    { verb: 'replay', key: 'x', seq: 2, reason: 'the archive lost them', by: 'console (operator@127.0.0.1)' },
  ])
})

test('lists the audit of the outbox and of the leases together, the newest first, page by page', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  await work.admin.query(`
    INSERT INTO lockstep.outbox_audit (at, verb, topic, key, by_name, reason)
    SELECT timestamptz '2030-01-01' + n * interval '2 minutes', 'retry', 'audited', 'o' || n, 'Ada', 'r'
      FROM generate_series(1, 40) AS n;
    INSERT INTO lockstep.lease_history (name, slot, fence, holder, acquired_at, ended_at, ending, ended_by, reason)
    SELECT 'Audited:' || n, 0, n, 'h', now(), timestamptz '2030-01-01' + n * interval '3 minutes', e, 'Ada', 'r'
      FROM generate_series(1, 30) AS n, unnest(ARRAY['forced', 'released']) AS e`)
  const all = await pages<AuditList>(site, '/api/audit?name=ada')
  const entries = all.flatMap((page) => page.entries)
  expect(all.map((page) => page.entries.length)).toEqual([50, 20])
  expect(entries.map(({ at }) => at)).toEqual(
    entries
      .map(({ at }) => at)
      .toSorted()
      .toReversed(),
  )
  expect(new Set(entries.map(({ of, id }) => `${of} ${id}`)).size).toBe(70)
  expect(entries.filter(({ of }) => of === 'leases').every(({ verb }) => verb === 'release')).toBe(true)
  const one = await read<AuditList>(site, '/api/audit?key=Audited:7')
  expect(one.entries).toMatchObject([{ of: 'leases', key: 'Audited:7', by: 'Ada', reason: 'r' }])
  expect((await read<AuditList>(site, '/api/audit?name=ada&verb=retry&key=o3')).entries).toMatchObject([{ key: 'o3' }])
})

test('lists inbox positions and answers that are kept, without bodies', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  await work.admin.query(`
    INSERT INTO lockstep.inbox (consumer, topic, key, seq) SELECT 'billing', 'trades', 'k' || n, n FROM generate_series(1, 60) AS n;
    INSERT INTO lockstep.inbox VALUES ('reports', 'trades', 'k1', 9, gen_random_uuid());
    INSERT INTO lockstep.idempotency (scope, key, fingerprint, status, headers, body, created_at, expires_at)
    SELECT 'acme', 'order-' || n, '', 201, '[["x","secret header"]]', 'secret body', now(), now() + interval '1 day' FROM generate_series(1, 60) AS n`)
  const inbox = await pages<InboxList>(site, '/api/inbox?consumer=billing')
  expect(inbox.map(({ positions }) => positions.length)).toEqual([50, 10])
  expect((await read<InboxList>(site, '/api/inbox?topic=trades&key=k1')).positions).toMatchObject([
    { consumer: 'billing', seq: 1, id: null },
    { consumer: 'reports', seq: 9, id: expect.any(String) },
  ])
  const kept = await pages<IdempotencyList>(site, '/api/idempotency?scope=acme')
  expect(kept.map(({ records }) => records.length)).toEqual([50, 10])
  const [record] = (await read<IdempotencyList>(site, '/api/idempotency?prefix=order-60')).records
  expect(record).toMatchObject({ scope: 'acme', key: 'order-60', status: 201, bodyBytes: 11 })
  expect((await site.ask('/api/idempotency?scope=acme')).text).not.toContain('secret')
})

test('lists consumers with their topics, how far they are, and what waits', async () => {
  const { lockstep } = work.open('pg', { max: 8 })
  const site = await bench(lockstep)
  const ledger = lockstep.consumer(
    'ledger',
    { topics: ['books'], shards: 2, backoffMs: { first: 60_000 } },
    (event) => {
      if (event.key === 'bad') throw new Error('the account is closed')
    },
  )
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(['bad', 'good', 'better'].map((each) => ({ topic: 'books', key: each, payload: {} }))),
  )
  await ledger.drain()
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'books', key: 'good', payload: {} }))
  await work.admin.query(
    `INSERT INTO lockstep.inbox (consumer, topic, key, seq) VALUES ('of-a-broker', 'books', 'k', 3)`,
  )
  const { consumers } = await read<ConsumerList>(site, '/api/consumers')
  const named = (name: string): unknown => consumers.find((each) => each.name === name)
  expect(named('ledger')).toEqual({
    name: 'ledger',
    dispatched: true,
    topics: ['books'],
    streams: 2,
    shardsWithoutOwner: 2,
    lagEvents: 1,
    lagMs: expect.any(Number) as number,
    parkedStreams: 1,
  })
  expect(named('of-a-broker')).toMatchObject({ dispatched: false, topics: null, streams: 1, lagEvents: 0 })
})

test('finds leases by key, holder and metadata, also where not all are listed', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  await using lease = await lockstep.leases.acquire(key`Instance:77`, {
    holder: 'Engine-7',
    metadata: { request: 'r-4711', step: 2 },
  })
  await using other = await lockstep.leases.acquire(key`Instance:78`, { holder: 'Engine-7' })
  const find = async (words: string): Promise<string[]> =>
    (await read<LeaseSearch>(site, `/api/leases/search?q=${encodeURIComponent(words)}`)).leases.map((each) => each.key)
  expect(await find('engine-7')).toEqual([lease.key, other.key])
  expect(await find('R-4711 instance')).toEqual(['Instance:77'])
  expect(await find('r-4711 78')).toEqual([])
  const { text } = await site.ask('/api/leases/search?q=4711')
  expect(JSON.parse(text)).toMatchObject({
    leases: [{ key: 'Instance:77', holder: 'Engine-7', fence: String(lease.fence), about: 'step: 2, request: r-4711' }],
    more: false,
  })
  expect((await site.ask('/api/leases/search?q=+')).status).toBe(400)
})

test('shows rollout rules with what this process has observed', async () => {
  const { lockstep } = work.open('pg', { max: 4, rollout: 'database' })
  const site = await bench(lockstep)
  await lockstep.rollout.set('Order:', 'observe', { reason: 'a trial' })
  await lockstep.rollout.set('Order:9', { percent: 10 })
  const row = async (prefix: string): Promise<unknown> =>
    (await read<RolloutList>(site, '/api/rollout')).rules.find((each) => each.prefix === prefix)
  expect(await row('Order:')).toMatchObject({ mode: 'observe', reason: 'a trial', wouldWait: 0, duplicates: 0 })
  expect(await row('Order:9')).toMatchObject({ mode: '10%' })
  lockstep.rollout.reportDuplicate(key`Order:1`)
  lockstep.rollout.reportDuplicate(key`Order:91`)
  lockstep.rollout.reportDuplicate(key`Order:92`)
  expect(await row('Order:')).toMatchObject({ duplicates: 1 })
  expect(await row('Order:9')).toMatchObject({ duplicates: 2 })
  await site.console.close()
})

test('shows callers that wait in the memory of the process that serves the console', async () => {
  const { lockstep } = work.open('pg', { max: 4 })
  const site = await bench(lockstep, { everyMs: 50 })
  const stream = await site.stream('locks')
  let release = (): void => undefined
  const held = new Promise<void>((resolve) => (release = resolve))
  const callers = Array.from({ length: 3 }, () => lockstep.transaction({ lock: key`Hot:1` }, () => held))
  const { locks } = await stream.next('locks', (each) => each.locks.some(({ queued }) => queued === 2))
  expect(locks.find(({ queued }) => queued === 2)).toMatchObject({ key: 'Hot:1', waiters: [] })
  release()
  await Promise.all(callers)
})

test('lets one search after the other go to the database, and refuses the twenty-first that waits', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  const other = await work.session()
  await other.query('BEGIN; LOCK TABLE lockstep.inbox IN ACCESS EXCLUSIVE MODE')
  const asked = Array.from({ length: 20 }, () => site.console.fetch(new Request('http://localhost/api/inbox')))
  const refused = await site.console.fetch(new Request('http://localhost/api/inbox'))
  expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([503, 'busy'])
  await work.lockWaits(1)
  await other.query('ROLLBACK')
  expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200))
})
