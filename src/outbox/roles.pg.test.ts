import { readFileSync } from 'node:fs'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../lockstep.ts'
import { type OutboxEvent, perEvent } from './index.ts'

const database = await testDatabase()
const owner = new pg.Pool({ connectionString: database.url, max: 3 })
afterAll(() => owner.end())

type Role = 'producer' | 'dispatcher' | 'observer' | 'operator'
const ROLES: readonly Role[] = ['producer', 'dispatcher', 'observer', 'operator']

// Roles belong to the server, not to the database: names of this file's own.
const named = (role: Role): string => `${role}_${database.name}`

const pools = {} as Record<Role, pg.Pool>
const locksteps = {} as Record<Role, Lockstep>

beforeAll(async () => {
  for (const role of ROLES) {
    await owner.query(`CREATE ROLE ${named(role)} LOGIN NOSUPERUSER`)
    await new Lockstep(owner).grant({ to: named(role), as: role })
  }
})
afterAll(async () => {
  for (const role of ROLES) await owner.query(`DROP OWNED BY ${named(role)}; DROP ROLE ${named(role)}`)
})

beforeEach(() => {
  for (const role of ROLES) {
    const url = new URL(database.url)
    url.username = named(role)
    pools[role] = new pg.Pool({ connectionString: url.href, max: 4 })
    locksteps[role] = new Lockstep(pools[role])
  }
})
afterEach(async () => {
  for (const role of ROLES) {
    await locksteps[role].close()
    await pools[role].end()
  }
})

const TABLES = [
  'outbox_events',
  'outbox_events_0',
  'outbox_segments',
  'outbox_quiet',
  'outbox_ticks',
  'outbox_dispatchers',
  'outbox_cursors',
  'outbox_parked',
  'outbox_parked_events',
  'outbox_dead',
  'outbox_audit',
]

/** What a role may do with the outbox's tables and sequences, as PostgreSQL says. */
async function rightsOf(role: Role): Promise<string[]> {
  const { rows } = await owner.query<{ name: string; right: string }>(
    `SELECT c.relname AS name, r AS right
       FROM pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS r
      WHERE c.relnamespace = 'lockstep'::regnamespace AND c.relname LIKE 'outbox%' AND c.relkind IN ('r', 'p')
        AND has_table_privilege($1, c.oid, r)
      UNION ALL
     SELECT c.relname, r FROM pg_class c, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS r
      WHERE c.relnamespace = 'lockstep'::regnamespace AND c.relname LIKE 'outbox%' AND c.relkind = 'S'
        AND has_sequence_privilege($1, c.oid, r)
      ORDER BY 1, 2`,
    [named(role)],
  )
  return rows.map(({ name, right }) => `${right} ${name}`)
}

/** The functions that run with the owner's rights, of which a role may call some. */
async function functionsOf(who: string): Promise<string[]> {
  const { rows } = await owner.query<{ name: string }>(
    `SELECT p.oid::regprocedure::text AS name FROM pg_proc p
      WHERE p.pronamespace = 'lockstep'::regnamespace AND p.prosecdef AND starts_with(p.proname, 'outbox_')
        AND has_function_privilege($1, p.oid, 'EXECUTE')`,
    [who],
  )
  return rows.map(({ name }) => name.replace(/^lockstep\.outbox_/, '').replace(/\(.*/, '')).toSorted()
}

/** The grants that the page lists for writers that enqueue without the library. */
const plainGrants = [
  ...readFileSync(new URL('../../docs/operating/roles.md', import.meta.url), 'utf8').matchAll(
    /^(GRANT (?:USAGE|EXECUTE) .*) TO shop;$/gm,
  ),
].map(([, grant]) => grant)

const denied = { code: '42501' }

/** Runs a dispatcher of that role until the sink has seen enough. */
async function dispatch(
  refused: (event: OutboxEvent) => boolean,
  enough: (seen: string[]) => boolean,
): Promise<string[]> {
  const seen: string[] = []
  const stop = new AbortController()
  const sink = perEvent({}, (event) => {
    if (refused(event)) throw new Error('not this one')
    seen.push(`${event.topic}/${event.key} ${event.tombstone ?? event.seq}`)
    if (enough(seen)) stop.abort()
  })
  const options = { sink, shards: 2, attempts: 2, backoffMs: { first: 5, longest: 10 }, giveUp: 'deadLetter' } as const
  await locksteps.dispatcher.outbox.dispatcher(options).run({ signal: stop.signal })
  return seen
}

test('grants no function with the owner’s rights by default', async () => {
  await owner.query(`CREATE ROLE nobody_${database.name}`)
  try {
    expect(await functionsOf(`nobody_${database.name}`)).toEqual([])
  } finally {
    await owner.query(`DROP ROLE nobody_${database.name}`)
  }
})

describe('the producer', () => {
  const event = { topic: 'trades', key: 'p', payload: { id: 1 } }

  test('can enqueue in every way', async () => {
    const { producer } = locksteps
    await producer.transaction({}, async (tx) => tx.enqueue(event))
    await producer.transaction({}, async (tx) => tx.enqueueMany([event, { ...event, payload: Buffer.from('b') }]))
    await producer.transaction({}, async (tx) => tx.enqueueMany(Array.from({ length: 5001 }, () => event)))
    const streams = [{ topic: 'trades', key: 'p' }]
    await producer.transaction({ isolation: 'serializable', streams }, async (tx) => tx.enqueue(event))
    const { rows } = await pools.producer.query<{ seq: string }>(`SELECT lockstep.enqueue('trades', 'p', '{}') AS seq`)
    expect(rows).toEqual([{ seq: '5006' }])
    const bytes = `SELECT lockstep.enqueue_bytes('trades', 'p', '\\x00', '{"a": "b"}')::int AS seq`
    expect((await pools.producer.query(bytes)).rows).toEqual([{ seq: 5007 }])
    const client = await pools.producer.connect()
    await client.query('BEGIN')
    expect(await producer.outbox.enqueue(client, event)).toEqual({ seq: 5008 })
    await client.query('COMMIT')
    client.release()
  })

  test('can begin a new server epoch', async () => {
    await owner.query('TRUNCATE lockstep.incarnation')
    await locksteps.producer.transaction({}, async (tx) => tx.enqueue(event))
  })

  test('can enqueue in plain SQL with two grants', async () => {
    const plain = `plain_${database.name}`
    await owner.query(`CREATE ROLE ${plain}`)
    try {
      for (const grant of plainGrants) await owner.query(`${grant} TO ${plain}`)
      const { rows } = await owner
        .query(`SET ROLE ${plain}; SELECT lockstep.enqueue('mails', 'x', '{}')::int AS seq; RESET ROLE`)
        .then((results) => (results as unknown as pg.QueryResult[])[1] as pg.QueryResult)
      expect(rows).toEqual([{ seq: 1 }])
    } finally {
      await owner.query(`DROP OWNED BY ${plain}; DROP ROLE ${plain}`)
    }
  })

  test('has no right on any table, and only on functions that append or ring', async () => {
    expect(await rightsOf('producer')).toEqual([])
    expect(await functionsOf(named('producer'))).toEqual([
      'append',
      'append_at',
      'append_many',
      'append_many_at',
      'last',
      'lock',
      'ring',
    ])
  })

  test.each(TABLES)('cannot read or change %s', async (table) => {
    await expect(pools.producer.query(`SELECT FROM lockstep.${table}`)).rejects.toMatchObject(denied)
    await expect(pools.producer.query(`DELETE FROM lockstep.${table}`)).rejects.toMatchObject(denied)
  })

  test('cannot move cursors, dispatch, or operate', async () => {
    const { producer } = locksteps
    for (const call of [
      `outbox_take('default', 0::smallint, 9, '', 1)`,
      `outbox_flush()`,
      `outbox_flush_read()`,
      `outbox_keep('0 s')`,
      `outbox_drop('0 s')`,
      `outbox_rotate()`,
    ])
      await expect(pools.producer.query(`SELECT lockstep.${call}`)).rejects.toMatchObject(denied)
    await expect(pools.producer.query(`SELECT setval('lockstep.outbox_slot', 3)`)).rejects.toMatchObject(denied)
    await expect(producer.outbox.dispatcher({ sink: () => undefined }).run()).rejects.toMatchObject(denied)
    await expect(producer.outbox.pause({ topic: 'trades', key: 'p' })).rejects.toMatchObject(denied)
    await expect(producer.outbox.erase({ topic: 'trades', key: 'p' })).rejects.toMatchObject(denied)
    await expect(producer.outbox.rebase({ deliver: 'none' })).rejects.toMatchObject(denied)
    await expect(producer.outbox.parked()).rejects.toMatchObject(denied)
  })
})

describe('the dispatcher', () => {
  test('can deliver end to end: park, retry, give up, send a tombstone', async () => {
    await owner.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet')
    for (let number = 1; number <= 3; number++)
      await locksteps.producer.transaction({}, async (tx) => {
        await tx.enqueue({ topic: 'orders', key: 'poor', payload: number })
        await tx.enqueue({ topic: 'orders', key: 'fine', payload: number })
      })
    const seen = await dispatch(
      ({ key, seq, tombstone }) => key === 'poor' && seq === 2 && tombstone === undefined,
      (all) => all.length === 6,
    )
    expect(seen.filter((each) => each.includes('fine'))).toEqual(['orders/fine 1', 'orders/fine 2', 'orders/fine 3'])
    expect(seen.filter((each) => each.includes('poor'))).toEqual(['orders/poor 1', 'orders/poor dead', 'orders/poor 3'])
    const { rows } = await owner.query('SELECT topic, key, seq::int, reason FROM lockstep.outbox_dead')
    expect(rows).toEqual([{ topic: 'orders', key: 'poor', seq: 2, reason: 'not this one' }])
    const audit = await owner.query('SELECT verb, by_role FROM lockstep.outbox_audit')
    expect(audit.rows).toEqual([{ verb: 'dead', by_role: named('dispatcher') }])
  })

  test('can empty segments', async () => {
    const { outbox } = locksteps.dispatcher
    expect(await outbox.retain({ olderThanMs: 1, rotateMs: 1 })).toEqual({ rotated: true, dropped: 0, readied: 0 })
  })

  test('can begin a new server epoch', async () => {
    await locksteps.producer.transaction({}, async (tx) => tx.enqueue({ topic: 'orders', key: 'late', payload: 1 }))
    await owner.query('TRUNCATE lockstep.incarnation')
    expect(
      await dispatch(
        () => false,
        () => true,
      ),
    ).toEqual(['orders/late 1'])
  })

  test('cannot enqueue without a grant', async () => {
    const { dispatcher } = locksteps
    const event = { topic: 'orders', key: 'own', payload: 1 }
    await expect(dispatcher.transaction({}, async (tx) => tx.enqueue(event))).rejects.toMatchObject(denied)
    await expect(pools.dispatcher.query(`SELECT lockstep.enqueue('a', 'b', '{}')`)).rejects.toMatchObject(denied)
    const grant = `EXECUTE ON FUNCTION lockstep.outbox_append`
    await owner.query(`GRANT ${grant} TO ${named('dispatcher')}`)
    try {
      await dispatcher.transaction({}, async (tx) => tx.enqueue(event))
    } finally {
      await owner.query(`REVOKE ${grant} FROM ${named('dispatcher')}`)
    }
  })

  test('cannot read or write tables, or operate', async () => {
    const { outbox } = locksteps.dispatcher
    expect(await rightsOf('dispatcher')).toEqual([])
    // Its lag is a metric.
    expect((await outbox.status()).shards).not.toEqual([])
    await expect(outbox.parked()).rejects.toMatchObject(denied)
    await expect(outbox.replay({ sink: () => undefined })).rejects.toMatchObject(denied)
    await expect(outbox.skip({ topic: 'orders', key: 'fine', seq: 1 }, { reason: 'no' })).rejects.toMatchObject(denied)
    await expect(outbox.erase({ topic: 'orders', key: 'fine' })).rejects.toMatchObject(denied)
    await expect(outbox.rebase({ deliver: 'all' })).rejects.toMatchObject(denied)
  })
})

describe('the observer', () => {
  test('can read status and parked streams', async () => {
    await owner.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet')
    const event = { topic: 'orders', key: 'held', payload: 'a secret' }
    await locksteps.operator.outbox.pause({ topic: 'orders', key: 'held' }, { reason: 'to look at it' })
    await locksteps.producer.transaction({}, async (tx) => tx.enqueueMany([event, { ...event, key: 'free' }]))
    // Until both shards are empty: parked events can be in the other one.
    const seen: string[] = []
    const sink = perEvent({}, ({ topic, key, seq }) => void seen.push(`${topic}/${key} ${seq}`))
    expect(await locksteps.dispatcher.outbox.dispatcher({ sink, shards: 2 }).drain()).toMatchObject({ ended: 'empty' })
    expect(seen).toEqual(['orders/free 1'])
    const { shards, segments } = await locksteps.observer.outbox.status()
    expect(shards.map(({ dispatcher, shard }) => [dispatcher, shard])).toEqual([
      ['default', 0],
      ['default', 1],
    ])
    expect(shards.reduce((sum, { parkedStreams }) => sum + parkedStreams, 0)).toBeGreaterThan(0)
    expect(segments.filter(({ current }) => current)).toHaveLength(1)
    const held = (await locksteps.observer.outbox.parked()).find(({ key }) => key === 'held')
    expect(held).toMatchObject({ topic: 'orders', state: 'paused', reason: 'to look at it', events: 1, head: 1 })
  })

  test('can look at events and dead letters, without payloads', async () => {
    const { outbox } = locksteps.observer
    const { events } = await outbox.events({ topic: 'orders' })
    expect(events.map(({ key }) => key).toSorted()).toEqual(['free', 'held'])
    const { events: held } = await outbox.events({ topic: 'orders', key: 'held' })
    expect(held).toMatchObject([{ seq: 1, erased: false }])
    const shown = [events, await outbox.deadLetters(), await outbox.redrive('dead', { all: true, preview: true })]
    expect(JSON.stringify(shown)).toContain('not this one')
    expect(JSON.stringify(shown)).not.toContain('secret')
  })

  test('cannot read payloads or headers', async () => {
    for (const [table, column] of [
      ['outbox_events', 'payload'],
      ['outbox_events', 'bytes'],
      ['outbox_events', 'headers'],
      ['outbox_parked_events', 'payload'],
      ['outbox_dead', 'payload'],
    ])
      await expect(pools.observer.query(`SELECT ${column} FROM lockstep.${table}`)).rejects.toMatchObject(denied)
  })

  test('can begin a new server epoch', async () => {
    await owner.query('TRUNCATE lockstep.incarnation')
    await locksteps.observer.outbox.status()
    await locksteps.observer.consumers.list()
    await locksteps.observer.inbox.positions({ consumer: 'billing' })
  })

  test('cannot change anything or read tables', async () => {
    expect(await rightsOf('observer')).toEqual([])
    expect(await functionsOf(named('observer'))).toEqual([
      'audit_list',
      'dead_find',
      'dispatcher_list',
      'dispatcher_names',
      'events_between',
      'events_of',
      'held',
      'parked_find',
      'parked_list',
      'position',
      'positions',
      'resting',
      'segment_list',
      'status',
    ])
    const { outbox } = locksteps.observer
    await expect(outbox.retry({ topic: 'orders', key: 'held' })).rejects.toMatchObject(denied)
    await expect(outbox.redrive('dead', { all: true, reason: 'no' })).rejects.toMatchObject(denied)
    await expect(outbox.events({ topic: 'orders', payloads: true })).rejects.toMatchObject(denied)
    await expect(outbox.retain({ olderThanMs: 1 })).rejects.toMatchObject(denied)
    await expect(pools.observer.query(`SELECT lockstep.enqueue('a', 'b', '{}')`)).rejects.toMatchObject(denied)
    await expect(locksteps.observer.outbox.dispatcher({ sink: () => undefined }).run()).rejects.toMatchObject(denied)
  })
})

describe('the operator', () => {
  const stream = { topic: 'orders', key: 'held' }

  test('can resume, pause, skip and retry, with an audit', async () => {
    const { outbox } = locksteps.operator
    await outbox.resume(stream)
    await outbox.skip({ ...stream, seq: 1 }, { reason: 'nobody wants it' })
    await outbox.retry(stream)
    expect(
      await dispatch(
        () => false,
        () => true,
      ),
    ).toEqual(['orders/held skipped'])
    await outbox.pause(stream)
    const { rows } = await owner.query(
      'SELECT verb, reason, by_role FROM lockstep.outbox_audit ORDER BY id DESC LIMIT 3 OFFSET 1',
    )
    expect(rows).toEqual([
      { verb: 'retry', reason: null, by_role: named('operator') },
      { verb: 'skip', reason: 'nobody wants it', by_role: named('operator') },
      { verb: 'resume', reason: null, by_role: named('operator') },
    ])
  })

  test('can redrive a dead letter, and read payloads', async () => {
    const { outbox } = locksteps.operator
    expect(await outbox.redrive('dead', { all: true, reason: 'again' })).toMatchObject({ redriven: 1 })
    const { events } = await outbox.events({ topic: 'orders', key: 'poor', newestFirst: true, payloads: true })
    expect(events[0]).toMatchObject({ payload: 2, headers: { 'redriven-seq': '2' } })
  })

  test('can replay, erase, and rebase after a restore', async () => {
    const { outbox } = locksteps.operator
    const payloads: unknown[] = []
    await outbox.replay({ ...stream, sink: (events) => void payloads.push(...events.map(({ payload }) => payload)) })
    expect(payloads).toEqual(['a secret'])
    expect(await outbox.erase(stream, { reason: 'asked for' })).toEqual({ erased: 1 })
    expect(await outbox.rebase({ deliver: 'none', reason: 'a test' })).toMatchObject({ putAside: 0 })
  })

  test('cannot enqueue or deliver', async () => {
    expect(await rightsOf('operator')).toEqual([])
    const functions = await functionsOf(named('operator'))
    for (const each of ['append', 'take', 'read', 'move', 'advance', 'parked_due', 'parked_tried'])
      expect(functions).not.toContain(each)
    await expect(
      locksteps.operator.transaction({}, async (tx) => tx.enqueue({ topic: 'a', key: 'b', payload: 1 })),
    ).rejects.toMatchObject(denied)
    await expect(locksteps.operator.outbox.dispatcher({ sink: () => undefined }).run()).rejects.toMatchObject(denied)
  })
})
