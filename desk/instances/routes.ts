import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { key } from 'pg-lockstep'
import { exclusive, honoHandler } from 'pg-lockstep/http'
import type { Desk } from '../desk.ts'
import { wantsPage } from '../http/page.ts'
import { notFound } from '../http/problem.ts'
import { retriedPlainly } from '../http/retried.ts'
import { answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { stateOf, takeNextStep } from './engine.ts'
import { CREATE, LIST, READ, STEPS_OF } from './instances.sql.ts'
import { lockedOf, lockedPage, PREFIX } from './lockedPage.ts'

/** After a crash an instance is free again this much later. */
const TTL_MS = 5_000

const Instance = z.object({ id: Id, steps: z.int(), state: z.string() }).openapi('Instance')
const Step = z.object({ step: z.int(), task: z.string(), fence: z.string(), process: z.string(), at: z.string() })
const InstanceWithSteps = Instance.extend({ history: z.array(Step) }).openapi('InstanceWithSteps')
const Taken = z.object({ id: Id, step: z.int(), task: z.string(), state: z.string() }).openapi('Taken')
const Locked = z
  .object({ id: Id, holder: z.string(), since: z.string(), leftMs: z.number(), fence: z.string() })
  .openapi('Locked')

const tags = ['instances']

const createInstance = createRoute({
  method: 'post',
  path: '/instances',
  tags,
  summary: 'Begin an instance; if it is there already, that one',
  request: { body: jsonBody(z.object({ id: Id })) },
  responses: answers({ 201: ['Created.', Instance], 200: ['It was there already.', Instance] }),
})

const listInstances = createRoute({
  method: 'get',
  path: '/instances',
  tags,
  summary: 'The newest 200 instances',
  responses: answers({ 200: ['The instances.', z.array(Instance)] }, []),
})

const listLocked = createRoute({
  method: 'get',
  path: '/instances/locked',
  tags,
  summary: 'Instances that are worked on just now; a page for browsers',
  responses: answers({ 200: ['Who works on what.', z.array(Locked)] }, []),
})

const readInstance = createRoute({
  method: 'get',
  path: '/instances/{id}',
  tags,
  summary: 'An instance with the steps it has taken',
  request: { params: IdInPath },
  responses: answers({ 200: ['The instance.', InstanceWithSteps] }, [400, 404]),
})

const next = createRoute({
  method: 'post',
  path: '/instances/{id}/process/next',
  tags,
  summary: 'Take the next step: check, reserve, charge (slow), ship',
  request: { params: IdInPath, headers: RetryHeaders },
  responses: answers({ 200: ['The step that was taken.', Taken] }, [400, 404, 409, 422, 503]),
})

export function instanceRoutes(desk: Desk): OpenAPIHono {
  const { pool, lockstep, processName } = desk
  const routes = newRoutes()
  const oneAtATime = exclusive(lockstep, {
    key: (c: Context) => key`Instance:${c.req.param('id') ?? ''}`,
    lease: { ttlMs: TTL_MS, holder: processName },
  })
  const retried = retriedPlainly(lockstep, { ttlMs: TTL_MS, holder: processName })

  routes.openapi(createInstance, async (c) => {
    const { id } = c.req.valid('json')
    const { rowCount } = await pool.query(CREATE, [id])
    if (rowCount === 1) return c.json({ id, steps: 0, state: stateOf(0) }, 201)
    return c.json(await read(id), 200)
  })

  routes.openapi(listInstances, async (c) => {
    const { rows } = await pool.query<{ id: string; steps: number }>(LIST)
    return c.json(
      rows.map((row) => ({ ...row, state: stateOf(row.steps) })),
      200,
    )
  })

  // Before /instances/{id}, which would take it for an id.
  routes.openapi(listLocked, async (c) => {
    const locked = lockedOf(await lockstep.leases.list({ prefix: PREFIX }))
    return wantsPage(c) ? c.html(lockedPage(locked)) : c.json(locked, 200)
  })

  routes.openapi(readInstance, async (c) => {
    const instance = await read(c.req.valid('param').id)
    const { rows: history } = await pool.query(STEPS_OF, [instance.id])
    return c.json({ ...instance, history }, 200)
  })

  // The lease outside: that somebody else is at it just now is no answer to be remembered for a retry.
  routes.openapi(next, (c) => {
    const { id } = c.req.valid('param')
    const request = c.req.valid('header')['idempotency-key']
    return honoHandler(oneAtATime, (_, lease) =>
      honoHandler(retried, async () => c.json(await takeNextStep(desk, id, lease, request), 200))(c),
    )(c)
  })

  async function read(id: string): Promise<{ id: string; steps: number; state: string }> {
    const { rows } = await pool.query<{ id: string; steps: number }>(READ, [id])
    const [row] = rows
    if (row === undefined) throw notFound('instance', id)
    return { ...row, state: stateOf(row.steps) }
  }

  return routes
}
