import { randomUUID } from 'node:crypto'
import { key } from 'pg-lockstep'
import { describe, expect, test, vi } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks, foundAfter, violations } from '../testing/desks.ts'
import { takeNextStep } from './engine.ts'
import { instances } from './index.ts'

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
    await desk.lockstep.lease(key`Instance:${id}`, {}, (lease) => takeNextStep(desk, id, lease, request))
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
    await vi.waitFor(async () => expect(await held()).toBe(true), { interval: 5 })
    await desk.lockstep.leases.forceRelease(key`Instance:${id}`, { by: 'test', reason: 'to see what becomes of it' })
    const { status, body } = await charging
    expect([status, body['code']]).toEqual([503, 'lost'])
    expect(await tasksOf(id)).toEqual(['check', 'reserve'])
  })

  test('lists locked instances as JSON and as text', async () => {
    const id = await begin()
    const desk = desks.desk(0)
    await desk.lockstep.lease(key`Instance:${id}`, { holder: '<b>somebody</b>' }, async () => {
      const locked = JSON.parse((await desks.get('/instances/locked')).text) as { id: string; holder: string }[]
      expect(locked.find((each) => each.id === id)).toMatchObject({ holder: '<b>somebody</b>' })
      const page = await desks.ask('/instances/locked', { headers: { accept: 'text/html,*/*' } })
      expect(page.headers.get('content-type')).toContain('text/html')
      expect(page.text).toContain('&lt;b&gt;somebody')
      expect(page.text).toContain(id)
    })
    const after = JSON.parse((await desks.get('/instances/locked')).text) as { id: string }[]
    expect(after.map((each) => each.id)).not.toContain(id)
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
