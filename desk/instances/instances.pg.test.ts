import { randomUUID } from 'node:crypto'
import { key } from 'pg-lockstep'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks, foundAfter, violations } from '../testing/desks.ts'
import { takeNextStep } from './engine.ts'
import { instances } from './index.ts'
import { Payments } from './payments.ts'

const database = await testDatabase()
const desks = await Desks.start(database, [instances])

async function begin(): Promise<string> {
  const id = `i-${randomUUID()}`
  expect((await desks.post('/instances', { id })).status).toBe(201)
  return id
}

async function tasksOf(id: string): Promise<string[]> {
  const { text } = await desks.get(`/instances/${id}`)
  return (JSON.parse(text) as { history: { task: string }[] }).history.map(({ task }) => task)
}

describe('instances', () => {
  test('takes each step once, in order, and answers 409 to concurrent clients of both desks', async () => {
    const id = await begin()
    const next = `/instances/${id}/process/next`
    let refused = 0
    for (let round = 0; (await tasksOf(id)).length < 4; round++) {
      expect(round).toBeLessThan(20)
      const answers = await Promise.all(Array.from({ length: 6 }, () => desks.post(next)))
      for (const { status, body, headers } of answers) {
        expect([200, 409]).toContain(status)
        if (status === 200) continue
        refused++
        expect(['busy', 'process-ended']).toContain(body['code'])
        if (body['code'] === 'busy') expect(Number(headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
      }
    }
    expect(refused).toBeGreaterThan(0)
    expect(await tasksOf(id)).toEqual(['check', 'reserve', 'charge', 'ship'])
    expect((await desks.get(`/instances/${id}`)).body).toMatchObject({ steps: 4, state: 'done' })
    const ended = await desks.post(next)
    expect([ended.status, ended.body['code']]).toEqual([409, 'process-ended'])
  })

  test('takes one step for a repeated request', async () => {
    const id = await begin()
    const request = randomUUID()
    const first = await desks.post(`/instances/${id}/process/next`, undefined, { key: request })
    const again = await desks.post(`/instances/${id}/process/next`, undefined, { key: request })
    expect([first.status, again.status, again.text]).toEqual([200, 200, first.text])
    expect(await tasksOf(id)).toEqual(['check'])
  })

  test('takes no second step when the request is repeated after a crash before the answer', async () => {
    const id = await begin()
    const request = randomUUID()
    const desk = desks.desk(0)
    // What the handler does, without the end of it.
    await desk.lockstep.lease(key`Instance:${id}`, {}, (lease) =>
      takeNextStep(desk, new Payments(desk.pool, 10), id, lease, { request, expected: undefined }),
    )
    const { status, body } = await desks.post(`/instances/${id}/process/next`, undefined, { key: request })
    expect([status, body]).toEqual([200, { id, step: 1, task: 'check', state: 'reserve' }])
    expect(await tasksOf(id)).toEqual(['check'])
  })

  test('writes nothing after the lease was lost', async () => {
    const id = await begin()
    const desk = desks.desk(0)
    for (let step = 0; step < 2; step++) await desks.post(`/instances/${id}/process/next`)
    const charging = desks.post(`/instances/${id}/process/next`, undefined, { desk: 1 })
    const held = async (): Promise<boolean> => (await desk.lockstep.leases.inspect(key`Instance:${id}`)).held
    await expect.poll(() => held()).toBe(true)
    await desk.lockstep.leases.forceRelease(key`Instance:${id}`, { by: 'test', reason: 'a test of a lost lease' })
    const { status, body } = await charging
    expect([status, body['code']]).toEqual([503, 'lost'])
    expect(await tasksOf(id)).toEqual(['check', 'reserve'])
  })

  test('lists locked instances as JSON and as text', async () => {
    const id = await begin()
    const desk = desks.desk(0)
    const held = { holder: '<b>somebody</b>', metadata: { request: 'r-1', action: 'next' } }
    await desk.lockstep.lease(key`Instance:${id}`, held, async () => {
      const locked = JSON.parse((await desks.get('/instances/locked')).text) as { id: string; holder: string }[]
      expect(locked.find((each) => each.id === id)).toMatchObject({
        holder: '<b>somebody</b>',
        request: 'r-1',
        action: 'next',
        task: 'check',
      })
      const page = await desks.ask('/instances/locked', { headers: { accept: 'text/html,*/*' } })
      expect(page.headers.get('content-type')).toContain('text/html')
      expect(page.text).toContain('&lt;b&gt;somebody')
      expect(page.text).toContain(id)
    })
    const after = JSON.parse((await desks.get('/instances/locked')).text) as { id: string }[]
    expect(after.map((each) => each.id)).not.toContain(id)
  })

  test('takes a step only from the one that the request expects', async () => {
    const id = await begin()
    const next = `/instances/${id}/process/next`
    const from = (step: string) => desks.post(next, { from: step })
    expect(await from('check')).toMatchObject({ status: 200, body: { task: 'check' } })
    // A second click of the same user.
    expect(await from('check')).toMatchObject({ status: 412, body: { code: 'step-mismatch', state: 'reserve' } })
    const etag = (await desks.get(`/instances/${id}`)).headers.get('etag')
    expect(etag).toBe('"reserve"')
    const matching = (tag: string) => desks.ask(next, { method: 'POST', headers: { 'if-match': tag } })
    expect(await matching('"check", "ship"')).toMatchObject({ status: 412, body: { state: 'reserve' } })
    expect(await matching(etag ?? '')).toMatchObject({ status: 200, body: { task: 'reserve' } })
    expect(await tasksOf(id)).toEqual(['check', 'reserve'])
    expect(await from('fly')).toMatchObject({ status: 400, body: { fields: [{ field: 'from' }] } })
    expect(await desks.post(next, { form: 'check' })).toMatchObject({
      status: 400,
      body: { fields: [{ field: 'form' }] },
    })
  })

  test('reports the holder, its action and its start to the second request, or lets it wait', async () => {
    const id = await begin()
    const next = `/instances/${id}/process/next`
    const ask = (headers: Record<string, string>) => desks.ask(next, { method: 'POST', headers })
    await ask({ 'x-request-id': 'first-click' })
    await desks.post(next)
    const { leases } = desks.desk(0).lockstep
    const [, first] = await leases.history(key`Instance:${id}`)
    expect(first?.metadata).toEqual({ request: 'first-click', action: 'next', task: 'check' })
    const lease = await leases.acquire(key`Instance:${id}`, { metadata: { request: 'r-3', action: 'next' } })
    const refused = await ask({})
    // Not the thirty seconds after which the lease would end.
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([409, '1'])
    const work = { request: 'r-3', action: 'next', task: 'charge', since: expect.any(String) }
    expect(refused.body).toMatchObject({ code: 'busy', work })
    const waiting = ask({ prefer: 'respond-async, wait=5' })
    await expect.poll(async () => (await leases.inspect(key`Instance:${id}`)).waiters).toHaveLength(1)
    await lease.release()
    expect(await waiting).toMatchObject({ status: 200, body: { task: 'charge' } })
    expect((await waiting).headers.get('preference-applied')).toBe('wait=5')
  })

  test('cancels under the same lock, and never what is charged', async () => {
    const [early, late] = [await begin(), await begin()]
    await desks.post(`/instances/${early}/process/next`)
    await desks.desk(0).lockstep.lease(key`Instance:${early}`, {}, async () => {
      expect(await desks.post(`/instances/${early}/cancel`)).toMatchObject({ status: 409, body: { code: 'busy' } })
    })
    for (let turn = 0; turn < 2; turn++)
      expect(await desks.post(`/instances/${early}/cancel`)).toMatchObject({
        status: 200,
        body: { state: 'cancelled' },
      })
    expect(await desks.post(`/instances/${early}/process/next`)).toMatchObject({
      status: 409,
      body: { code: 'process-ended', state: 'cancelled' },
    })
    for (let step = 0; step < 2; step++) await desks.post(`/instances/${late}/process/next`)
    // A step that died after the charge, and before it was written down.
    const desk = desks.desk(0)
    await new Payments(desk.pool, 0).charge(`${late}:charge`, new AbortController().signal)
    expect(await desks.post(`/instances/${late}/cancel`)).toMatchObject({
      status: 409,
      body: { code: 'already-charged', state: 'charge' },
    })
    // The next attempt charges with the same id: the provider was asked twice, and has charged once.
    expect(await desks.post(`/instances/${late}/process/next`)).toMatchObject({ status: 200, body: { task: 'charge' } })
    const charges = 'SELECT status, asked FROM lockstep_desk.charges WHERE id = $1'
    expect((await desks.pool.query(charges, [`${late}:charge`])).rows).toEqual([{ status: 'charged', asked: 2 }])
    await expect(new Payments(desk.pool, 0).charge(`${early}:charge`, new AbortController().signal)).rejects.toThrow(
      'was voided',
    )
  })

  test('rejects unknown instances', async () => {
    expect((await desks.post('/instances/nobody/process/next')).status).toBe(404)
    expect((await desks.get('/instances/nobody')).status).toBe(404)
    expect((await desks.post('/instances', { id: 'a b' })).status).toBe(400)
  })

  test('passes the check after these tests, with rows to check', async () => {
    const findings = await instances.check(desks.pool)
    expect(violations(findings)).toEqual([])
    expect(findings.every(({ looked }) => looked > 0)).toBe(true)
  })

  const DONE = `(SELECT id FROM lockstep_desk.instances WHERE steps = 4 LIMIT 1)`
  test.each([
    [
      'each step is taken once, in order',
      `INSERT INTO lockstep_desk.instance_steps (instance, step, task, fence, process) VALUES (${DONE}, 4, 'ship', 1, 'x')`,
    ],
    [
      'each step is taken once, in order',
      `DELETE FROM lockstep_desk.instance_steps WHERE instance = ${DONE} AND step = 2`,
    ],
    ['what was charged is what the instances say', `DELETE FROM lockstep_desk.charges WHERE id = ${DONE} || ':charge'`],
    [
      'what was charged is what the instances say',
      `UPDATE lockstep_desk.instances SET cancelled_at = now() WHERE id = ${DONE}`,
    ],
    ['an instance has as many steps as it counts', `UPDATE lockstep_desk.instances SET steps = 3 WHERE id = ${DONE}`],
    [
      'fences rise from step to step',
      `UPDATE lockstep_desk.instance_steps SET fence = -1 WHERE instance = ${DONE} AND step = 3`,
    ],
    [
      'a request takes one step at most',
      `UPDATE lockstep_desk.instance_steps SET request = 'one' WHERE instance = ${DONE} AND step IN (1, 2)`,
    ],
  ])('reports a violation: %s', async (invariant, sql) => {
    const findings = await foundAfter(desks.pool, instances, sql)
    expect(findings.find((finding) => finding.invariant === invariant)?.violations).not.toEqual([])
  })
})
