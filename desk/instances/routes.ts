import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { key, type Lease } from 'pg-lockstep'
import { type BusyDetails, exclusive, honoHandler } from 'pg-lockstep/http'
import type pg from 'pg'
import type { Desk } from '../desk.ts'
import { wantsPage } from '../http/page.ts'
import { retriedPlainly } from '../http/retried.ts'
import { answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { cancelInstance, type InstanceRow, leftOfTask, PROCESS, readInstance, stateOf, takeNextStep } from './engine.ts'
import { CREATE, LIST, READ_MANY, STEPS_OF } from './instances.sql.ts'
import { lockedOf, lockedPage, PREFIX } from './lockedPage.ts'
import { Payments } from './payments.ts'
import { expectedStates, preferredWaitMs } from './requestWishes.ts'

/** After a crash an instance is free again this much later. */
const TTL_MS = 5_000
/** As long as a provider of payments takes. */
const CHARGE_MS = 300

const Instance = z.object({ id: Id, steps: z.int(), state: z.string() }).openapi('Instance')
const Step = z.object({ step: z.int(), task: z.string(), fence: z.string(), process: z.string(), at: z.string() })
const InstanceWithSteps = Instance.extend({ history: z.array(Step) }).openapi('InstanceWithSteps')
const Taken = z.object({ id: Id, step: z.int(), task: z.string(), state: z.string() }).openapi('Taken')
const Locked = z
  .object({
    id: Id,
    holder: z.string(),
    request: z.string().nullable().openapi({ description: 'its X-Request-Id' }),
    action: z.string().nullable().openapi({ description: 'next or cancel' }),
    task: z.string().nullable(),
    since: z.string(),
    leftMs: z.number().openapi({ description: 'until the lease ends, if it is not renewed' }),
    fence: z.string(),
  })
  .openapi('Locked')

const WishHeaders = RetryHeaders.extend({
  'if-match': z.string().max(200).optional().openapi({
    description: 'The state that the instance must be in, as its ETag has it: "reserve". Otherwise 412.',
    example: '"reserve"',
  }),
  prefer: z.string().max(200).optional().openapi({
    description: 'wait=5: wait up to 5 seconds for a request that is at it, instead of 409 at once.',
    example: 'wait=5',
  }),
})
const Wishes = z
  .object({
    from: z
      .enum(PROCESS.map(({ name }) => name))
      .optional()
      .openapi({ description: 'The step that is meant: the same as If-Match.' }),
  })
  .strict()

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

const readRoute = createRoute({
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
  request: {
    params: IdInPath,
    headers: WishHeaders,
    body: { required: false, content: { 'application/json': { schema: Wishes } } },
  },
  responses: answers({ 200: ['The step that was taken.', Taken] }, [400, 404, 409, 412, 422, 503]),
})

const cancel = createRoute({
  method: 'post',
  path: '/instances/{id}/cancel',
  tags,
  summary: 'End an instance that is not charged yet; under the same lock as its steps',
  request: { params: IdInPath, headers: WishHeaders },
  responses: answers({ 200: ['It is cancelled.', Instance] }, [400, 404, 409, 412, 422, 503]),
})

export function instanceRoutes(desk: Desk): OpenAPIHono {
  const { pool, lockstep, processName } = desk
  const routes = newRoutes()
  const payments = new Payments(pool, CHARGE_MS)
  // All that changes an instance excludes all else that does.
  const oneAtATime = (action: 'next' | 'cancel') =>
    exclusive(lockstep, {
      key: (c: Context) => key`Instance:${c.req.param('id') ?? ''}`,
      lease: async (c: Context) => {
        const waitMs = preferredWaitMs(c, desk.waitMs)
        // If it waits, the task that it will find is not known yet.
        const task = waitMs === 0 ? await taskOf(c) : undefined
        const request = c.get('requestId') as string | undefined
        return { ttlMs: TTL_MS, waitMs, holder: processName, metadata: { request, action, task } }
      },
      describeBusy: (_, c) => describeWork(c.req.param('id') ?? ''),
    })
  const [nextAlone, cancelAlone] = [oneAtATime('next'), oneAtATime('cancel')]
  const retried = retriedPlainly(lockstep, { ttlMs: TTL_MS, holder: processName })

  routes.openapi(createInstance, async (c) => {
    const { id } = c.req.valid('json')
    const { rowCount } = await pool.query(CREATE, [id])
    if (rowCount === 1) return c.json(shown({ id, steps: 0, cancelled: false }), 201)
    return c.json(shown(await readInstance(desk, id)), 200)
  })

  routes.openapi(listInstances, async (c) => {
    const { rows } = await pool.query<InstanceRow>(LIST)
    return c.json(rows.map(shown), 200)
  })

  // Before /instances/{id}, which would take it for an id.
  routes.openapi(listLocked, async (c) => {
    const leases = await lockstep.leases.list({ prefix: PREFIX })
    const ids = leases.map((lease) => lease.key.slice(PREFIX.length))
    const { rows } = await pool.query<InstanceRow>(READ_MANY, [ids])
    const locked = lockedOf(leases, new Map(rows.map((row) => [row.id, stateOf(row)])))
    return wantsPage(c) ? c.html(lockedPage(locked)) : c.json(locked, 200)
  })

  routes.openapi(readRoute, async (c) => {
    const instance = shown(await readInstance(desk, c.req.valid('param').id))
    const { rows: history } = await pool.query(STEPS_OF, [instance.id])
    c.header('etag', `"${instance.state}"`)
    return c.json({ ...instance, history }, 200)
  })

  // A body is optional here. Many clients say that they send JSON and send nothing.
  routes.use('/instances/:id/process/next', async (c, goOn) => {
    if (c.req.header('content-length') === '0') {
      const headers = new Headers(c.req.raw.headers)
      headers.delete('content-type')
      c.req.raw = new Request(c.req.url, { method: c.req.method, headers })
    }
    await goOn()
  })

  // The lease outside: that another request works on it just now is no answer to be remembered for a retry.
  routes.openapi(next, (c) => {
    const { id } = c.req.valid('param')
    const request = c.req.valid('header')['idempotency-key']
    const { from } = c.req.valid('json')
    const wish = { request, expected: expectedStates(c, from) }
    return inTurn(c, nextAlone, async (lease) => c.json(await takeNextStep(desk, payments, id, lease, wish), 200))
  })

  routes.openapi(cancel, (c) => {
    const { id } = c.req.valid('param')
    const expected = expectedStates(c, undefined)
    return inTurn(c, cancelAlone, async (lease) =>
      c.json(shown(await cancelInstance(desk, payments, id, lease, expected)), 200),
    )
  })

  async function inTurn(
    c: Context,
    alone: typeof nextAlone,
    work: (lease: Lease<pg.PoolClient>) => Promise<Response>,
  ): Promise<Response> {
    const answer = await honoHandler(alone, (_, lease) => honoHandler(retried, () => work(lease))(c))(c)
    const waitMs = preferredWaitMs(c, desk.waitMs)
    if (waitMs > 0) answer.headers.set('preference-applied', `wait=${waitMs / 1000}`)
    return answer
  }

  /** For those who look at the leases. A request for an instance that is not there is refused later. */
  async function taskOf(c: Context): Promise<string | undefined> {
    const { rows } = await pool.query<InstanceRow>(READ_MANY, [[c.req.param('id')]])
    return rows[0] && stateOf(rows[0])
  }

  /** What the request that is refused learns of the one that is at it, and when that one is likely to be done. */
  async function describeWork(id: string): Promise<BusyDetails> {
    const [holder] = (await lockstep.leases.inspect(key`Instance:${id}`)).holders
    // It was at it a moment ago.
    if (holder === undefined) return { retryAfterMs: 0 }
    const { request, action } = holder.metadata ?? {}
    const task = stateOf(await readInstance(desk, id))
    const work = { request, action, task, since: holder.since.toISOString() }
    return { retryAfterMs: leftOfTask(payments, task, holder.since), members: { work } }
  }

  return routes
}

function shown(row: InstanceRow) {
  return { id: row.id, steps: row.steps, state: stateOf(row) }
}
