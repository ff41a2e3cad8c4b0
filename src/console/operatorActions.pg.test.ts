import { expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { signal, workbench } from '../../tools/server/testing/workbench.ts'
import { key, LeaseLostError } from '../index.ts'
import { bench } from './consoleBench.conformance.ts'
import type { LeaseHistory, Payload } from './wire.ts'

const database = await testDatabase()
const work = workbench(database)

test('releases a lease by force, with who and why in its history', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep, { operator: true })
  const lease = await lockstep.leases.acquire(key`Instance:7`, { holder: 'worker' })
  const stream = await site.stream('leases')
  await stream.next('leases', ({ leases }) => leases.length === 1)
  const release = { key: 'Instance:7', reason: 'it hangs', terminate: false }
  const done = await site.post('/api/leases/release', release)
  expect([done.status, JSON.parse(done.text)]).toEqual([
    200,
    { ok: true, message: 'Instance:7 was taken away from its holder.' },
  ])
  await stream.next('leases', ({ leases }) => leases.length === 0)
  const { text } = await site.ask('/api/leases/history?key=Instance:7')
  const { entries } = JSON.parse(text) as LeaseHistory
  expect(entries[0]).toMatchObject({
    holder: 'worker',
    ending: 'forced',
    by: 'console (operator@127.0.0.1)',
    reason: 'it hangs',
  })
  await expect(lease.transaction({}, async () => undefined)).rejects.toThrow(LeaseLostError)
  await lease.release()
  const again = await site.post('/api/leases/release', release)
  expect(JSON.parse(again.text)).toEqual({ ok: true, message: 'Instance:7 is not held: nothing was taken away.' })
  for (const wrong of [{ reason: ' ' }, { reason: undefined }, { key: 'nokey' }, { key: 7 }, { terminate: 'no' }]) {
    expect((await site.post('/api/leases/release', { ...release, ...wrong })).status, JSON.stringify(wrong)).toBe(400)
  }
})

test('writes the name of the login or the proxy, and the address, to the audit', async () => {
  const { lockstep } = work.open('pg')
  const token = 'a-token-that-nobody-guesses'
  const site = await bench(lockstep, {
    operator: true,
    token,
    identify: ({ headers }) => ({ name: headers.get('x-user'), address: headers.get('x-client') }),
  })
  const opened = await site.post('/api/login', { token, name: ' Ada\nLovelace ' }, { 'x-lockstep-csrf': 'any' })
  const cookie = String(opened.headers['set-cookie']).split(';', 1)[0] ?? ''
  const releasedBy = async (headers: Record<string, string>): Promise<string | null | undefined> => {
    const lease = await lockstep.leases.acquire(key`Instance:9`)
    const release = { key: 'Instance:9', reason: 'it hangs', terminate: false }
    expect((await site.post('/api/leases/release', release, headers)).status).toBe(200)
    await lease.release()
    const { text } = await site.ask('/api/leases/history?key=Instance:9', { headers })
    return (JSON.parse(text) as LeaseHistory).entries[0]?.by
  }
  expect(await releasedBy({ cookie })).toBe('console (Ada Lovelace@127.0.0.1)')
  expect(await releasedBy({ cookie, 'x-user': 'grace', 'x-client': '10.0.0.7' })).toBe('console (grace@10.0.0.7)')
  expect(await releasedBy({ authorization: `Bearer ${token}` })).toBe('console (operator@127.0.0.1)')
})

test('ends a holder in the middle of its transaction', async () => {
  const { lockstep } = work.open('pg', { max: 6 })
  const site = await bench(lockstep, { operator: true })
  const lease = await lockstep.leases.acquire(key`Instance:8`, { ttlMs: 60_000 })
  const [inside, over] = [signal(), signal()]
  const stuck = lease.transaction({}, async (tx) => {
    inside.give()
    await over.given
    await tx.query('SELECT 1')
  })
  stuck.catch(() => undefined)
  await inside.given
  const release = { key: 'Instance:8', reason: 'it hangs', terminate: true }
  expect((await site.post('/api/leases/release', release)).status).toBe(200)
  over.give()
  await expect(stuck).rejects.toThrow()
  await lease.release()
})

test('retries, skips, pauses and resumes streams, and shows payloads', async () => {
  const { lockstep } = work.open('pg', { max: 6 })
  const site = await bench(lockstep, { operator: true })
  let poisonous = true
  const run = dispatching(lockstep, {
    attempts: 1,
    sink: (events) =>
      events.map(({ key: stream, tombstone }) =>
        stream === 'bad' && poisonous && tombstone === undefined ? { refused: 'poison' } : ('sent' as const),
      ),
  })
  const enqueue = (payload: unknown): Promise<void> =>
    lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: 'bad', payload, headers: { 'trace-id': '1' } }))
  const blocked = (head: number): Promise<void> =>
    eventually(async () => {
      const [parked] = await lockstep.outbox.parked()
      return parked?.state === 'blocked' && parked.head === head
    })
  const stream = { dispatcher: 'default', topic: 'trades', key: 'bad', reason: 'fixed' }
  const act = async (verb: string, more: object = {}): Promise<unknown> => {
    const { status, text } = await site.post(`/api/outbox/${verb}`, { ...stream, ...more })
    return [status, (JSON.parse(text) as { message?: string; code?: string }).message ?? JSON.parse(text).code]
  }
  const payload = async (): Promise<Payload> =>
    JSON.parse((await site.ask('/api/outbox/payload?dispatcher=default&topic=trades&key=bad')).text) as Payload
  await enqueue({ amount: 5 })
  await enqueue(Buffer.from([0, 255]))
  await blocked(1)
  expect(await payload()).toMatchObject({
    seq: 1,
    headers: { 'trace-id': '1' },
    payload: '{"amount":5}',
    encoding: 'json',
  })
  const wrong = await site.post('/api/outbox/skip', { ...stream, seq: 2 })
  expect([wrong.status, wrong.problem().code]).toEqual([409, 'LOCKSTEP_STREAM_NOT_PARKED'])
  expect((await site.post('/api/outbox/skip', { ...stream, seq: 1, reason: '' })).status).toBe(400)
  expect((await site.post('/api/outbox/skip', { ...stream })).status).toBe(400)
  expect(await act('skip', { seq: 1 })).toEqual([200, expect.stringContaining('Event 1 of trades/bad is given up')])
  await blocked(2)
  expect(run.delivered).toEqual(['trades/bad#1†'])
  expect(await payload()).toMatchObject({ seq: 2, payload: 'AP8=', encoding: 'base64' })
  poisonous = false
  expect((await site.post('/api/outbox/retry', { ...stream, reason: '' })).status).toBe(400)
  expect(await act('retry')).toEqual([200, 'trades/bad is tried again now.'])
  await run.until(2)
  await eventually(async () => (await lockstep.outbox.parked()).length === 0)
  expect(await act('pause')).toEqual([200, 'trades/bad is paused, from the next batch on.'])
  expect((await lockstep.outbox.parked())[0]).toMatchObject({ state: 'paused', reason: 'fixed' })
  const none = await site.ask('/api/outbox/payload?dispatcher=default&topic=trades&key=bad')
  expect([none.status, none.problem().code]).toEqual([404, 'not-parked'])
  await enqueue({ amount: 6 })
  await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 1)
  expect(await act('resume')).toEqual([200, 'trades/bad goes on.'])
  await run.until(3)
  await eventually(async () => (await lockstep.outbox.parked()).length === 0)
  expect(await act('resume')).toEqual([409, 'LOCKSTEP_STREAM_NOT_PARKED'])
  await run.stop()
  const { rows } = await work.admin.query(
    'SELECT verb, reason, by_role, by_name, by_address FROM lockstep.outbox_audit ORDER BY id',
  )
  const who = { by_role: 'postgres', by_name: 'console (operator@127.0.0.1)', by_address: '127.0.0.1' }
  expect(rows).toEqual([
    { verb: 'skip', reason: 'fixed', ...who },
    { verb: 'retry', reason: 'fixed', ...who },
    { verb: 'pause', reason: 'fixed', ...who },
    { verb: 'resume', reason: 'fixed', ...who },
  ])
})

test('reports a payload that is gone or too large', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep, { operator: true })
  await work.admin.query(`
    INSERT INTO lockstep.outbox_parked_events (dispatcher, stream, seq, id, uuid, enqueued_at, topic, key, payload, tombstone)
    SELECT 'd', lockstep.outbox_stream('t', k), 1, 1, gen_random_uuid(), now(), 't', k, p::json, m
      FROM (VALUES ('gone', NULL, 'skipped'), ('large', to_json(repeat('x', 1000000))::text, NULL)) AS v (k, p, m)`)
  const ask = async (name: string): Promise<string> =>
    (await site.ask(`/api/outbox/payload?dispatcher=d&topic=t&key=${name}`)).problem().code
  expect(await ask('gone')).toBe('no-payload')
  expect(await ask('large')).toBe('payload-too-large')
  await work.admin.query('TRUNCATE lockstep.outbox_parked_events')
})
