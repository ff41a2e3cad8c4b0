import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { key, Lockstep } from 'pg-lockstep'
import { afterAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import type { System } from '../desk.ts'
import { startExchange } from '../exchange/server.ts'
import { positionKey } from '../positions/position.ts'
import { QUICK } from '../positions/testing/positionBench.ts'
import { SYSTEMS } from '../systems.ts'
import { Desks } from '../testing/desks.ts'
import { Check, type Checked, checkPage } from './check.ts'
import { text as inHtml } from './page.ts'
import { PROBLEMS, problemTable } from './problems.ts'

const database = await testDatabase()
// Only the routes are looked at, and nothing runs beside them.
const systems = SYSTEMS.map((system) => ({ ...system, background: () => Promise.resolve() }))
const exchange = await startExchange({ url: database.url, timings: QUICK })
afterAll(() => exchange.close())
const desks = await Desks.start(database, systems, { exchangeUrl: exchange.url }, 1)
const closed = await Desks.start(database, systems, { token: 'a-token-nobody-knows', log: true }, 1)

const JSON_TYPE = { 'content-type': 'application/json' }

test('follows the rollout rules in the database', async () => {
  const lockstep = new Lockstep(desks.pool)
  const id = 'rolled-out'
  await desks.post('/instances', { id })
  const next = async (): Promise<unknown> => {
    const { status, body } = await desks.post(`/instances/${id}/process/next`)
    return status === 200 ? body['task'] : body['code']
  }
  await lockstep.lease(key`Instance:${id}`, {}, async () => {
    expect(await next()).toBe('busy')
    // Not off: a step without a fence is no step for the check of the fences.
    await lockstep.rollout.set('Instance:', 'observe')
    await expect.poll(next).toBe('check')
    await lockstep.rollout.unset('Instance:')
    await expect.poll(next).toBe('busy')
  })
  // Steps that were taken without the lease have no fence: a check would find them.
  await desks.pool.query('DELETE FROM lockstep_desk.instance_steps WHERE instance = $1', [id])
  await desks.pool.query('DELETE FROM lockstep_desk.instances WHERE id = $1', [id])
  await lockstep.close()
})

test('opens and closes positions without their lease while the rules in the database say off', async () => {
  const lockstep = new Lockstep(desks.pool)
  const market = { symbol: 'ROLLED', exchange: 'north' } as const
  const hold = () => lockstep.leases.acquire(positionKey(market), { ttlMs: 60_000 })
  const waiting = async () => (await lockstep.leases.inspect(positionKey(market))).waiters.length
  // What the process of the desk makes of another key with the same prefix.
  const mode = () => desks.desk(0).lockstep.lease(key`Position:${randomUUID()}`, {}, async (lease) => lease.mode)
  const open = () => desks.post('/positions', { ...market, side: 'long', quantity: 1 })
  const close = () => desks.post(`/positions/${market.symbol}/close`)

  let held = await hold()
  const waited = open()
  await expect.poll(waiting).toBe(1)
  await held.release()
  expect(await waited).toMatchObject({ status: 201, body: { status: 'active' } })

  held = await hold()
  await lockstep.rollout.set('Position:', 'off')
  await expect.poll(mode).toBe('off')
  expect(await close()).toMatchObject({ status: 200, body: { status: 'closed' } })
  expect(await open()).toMatchObject({ status: 201, body: { status: 'active' } })
  expect(await waiting()).toBe(0)
  held.assertHeld()

  await lockstep.rollout.unset('Position:')
  await expect.poll(mode).toBe('on')
  const waitedAgain = close()
  await expect.poll(waiting).toBe(1)
  await held.release()
  expect(await waitedAgain).toMatchObject({ status: 200, body: { status: 'closed' } })
  await lockstep.close()
})

describe('the desk over HTTP', () => {
  test('answers with the request id of the client, or a new one', async () => {
    const own = await desks.ask('/health', { headers: { 'x-request-id': 'mine-1' } })
    expect(own.headers.get('x-request-id')).toBe('mine-1')
    const given = await desks.get('/nowhere')
    expect(given.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
    expect(given.body).toEqual({
      type: 'urn:lockstep-desk:problem:not-found',
      title: 'There is no such thing',
      status: 404,
      code: 'not-found',
      detail: 'There is nothing at /nowhere.',
      instance: '/nowhere',
    })
  })

  test('answers with the request id where the library answers, too', async () => {
    await desks.post('/wallets', { id: 'w' })
    let sent = 0
    const post = async (
      path: string,
      idempotencyKey: string,
      body: object = {},
    ): Promise<[number, string | undefined]> => {
      const id = `own-${sent++}`
      const headers = { ...JSON_TYPE, 'idempotency-key': idempotencyKey, 'x-request-id': id }
      const answer = await desks.ask(path, { method: 'POST', headers, body: JSON.stringify(body) })
      expect([path, answer.headers.get('x-request-id')]).toEqual([path, id])
      return [answer.status, answer.headers.get('idempotency-replayed') ?? (answer.body['code'] as string | undefined)]
    }
    expect(await post('/wallets/w/deposits', 'k-1', { amount: 1 })).toEqual([201, undefined])
    expect(await post('/wallets/w/deposits', 'k-1', { amount: 1 })).toEqual([201, 'true'])
    expect(await post('/wallets/w/deposits', 'k-1', { amount: 2 })).toEqual([422, 'key-reused'])
    expect(await post('/wallets/w/deposits', 'two words', { amount: 1 })).toEqual([400, 'key-malformed'])
    await desks.post('/instances', { id: 'held' })
    const lease = await desks.desk(0).lockstep.leases.acquire(key`Instance:held`, {})
    expect(await post('/instances/held/process/next', 'k-2')).toEqual([409, 'busy'])
    await lease.release()
    for (const path of ['/', '/docs', '/metrics', '/console', '/console/api/nothing', '/openapi.json', '/page.css']) {
      const answer = await desks.ask(path, { headers: { 'x-request-id': 'page-1' } })
      expect([path, answer.headers.get('x-request-id')]).toEqual([path, 'page-1'])
    }
  })

  test('has every problem in the API document and in the guide', async () => {
    const document = JSON.parse((await desks.get('/openapi.json')).text) as {
      components: { schemas: { Problem: { properties: { code: { enum: string[]; description: string } } } } }
    }
    const { code } = document.components.schemas.Problem.properties
    expect(code.enum).toEqual(Object.keys(PROBLEMS))
    const guide = await readFile(new URL('../../docs/guides/desk.md', import.meta.url), 'utf8')
    const rowsOf = (text: string): string[] => text.split('\n').filter((line) => /^\| \d{3} \| `/.test(line))
    expect(rowsOf(code.description)).toEqual(problemTable())
    expect(rowsOf(guide)).toEqual(problemTable())
  })

  test('checks every invariant of every system, as JSON and as a page', async () => {
    const invariants = await Promise.all(systems.map((system) => system.check(desks.pool)))
    const { body } = await desks.get('/check')
    const checked = body as unknown as Checked
    expect([checked.holds, checked.systems.map(({ system }) => system)]).toEqual([
      true,
      systems.map(({ name }) => name),
    ])
    expect(checked.systems.map((each) => each.invariants.map(({ invariant }) => invariant))).toEqual(
      invariants.map((findings) => findings.map(({ invariant }) => invariant)),
    )
    const shown = await desks.ask('/check', { headers: { accept: 'text/html' } })
    expect(shown.text).toContain(`All ${invariants.flat().length} invariants hold`)
    for (const { invariant } of invariants.flat()) expect(shown.text).toContain(inHtml(invariant))
  })

  test('reports what it finds at every look, and nothing that was in progress', async () => {
    const invariant = 'nothing is left'
    let look = 0
    const system: System = {
      ...(systems[0] as System),
      check: () => Promise.resolve([{ invariant, looked: 3, violations: ['a stays', `b of look ${look++}`] }]),
    }
    const checked = await new Check(desks.desk(0), [system], 1).now()
    expect(checked).toMatchObject({
      holds: false,
      looks: look,
      systems: [{ invariants: [{ invariant, holds: false, violations: ['a stays'] }] }],
    })
    expect(checkPage(checked)).toMatch(/Not all invariants hold[^]*<b>violated<\/b>[^]*a stays/)
  })

  test.each([
    ['malformed JSON', '{"from": ', JSON_TYPE, 400, 'malformed-json'],
    ['no JSON', 'from=a', { 'content-type': 'application/x-www-form-urlencoded' }, 415, 'unsupported-media-type'],
    ['too much', `{"from":"${'a'.repeat(70_000)}"}`, JSON_TYPE, 413, 'request-too-large'],
    ['no body', undefined, JSON_TYPE, 400, 'malformed-json'],
    ['an array', '[]', JSON_TYPE, 400, 'invalid-request'],
    [
      'a key that is none',
      '{"from":"a","to":"b","amount":1}',
      { ...JSON_TYPE, 'idempotency-key': 'two words' },
      400,
      'key-malformed',
    ],
  ])('refuses %s with a problem document', async (_, body, headers, status, code) => {
    const answer = await desks.ask('/transfers', { method: 'POST', headers, ...(body !== undefined && { body }) })
    expect([answer.status, answer.body['code'], answer.body['status']]).toEqual([status, code, status])
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.body['instance']).toBe('/transfers')
  })

  test('names every field that is wrong', async () => {
    const { body } = await desks.post('/portfolios/p/trades', { symbol: 'A B', side: 'hold', quantity: 0, price: 10 })
    expect(body['code']).toBe('invalid-request')
    expect(body['fields']).toEqual([
      { in: 'body', field: 'symbol', message: expect.stringContaining('letters') as string },
      { in: 'body', field: 'side', message: expect.stringContaining('"buy"|"sell"') as string },
      { in: 'body', field: 'quantity', message: expect.any(String) as string },
    ])
    const inPath = await desks.post('/portfolios/%20/trades', { symbol: 'A', side: 'buy', quantity: 1, price: 10 })
    expect(inPath.body['fields']).toMatchObject([{ in: 'param', field: 'id' }])
  })

  test('reports liveness, readiness and metrics', async () => {
    const { body } = await desks.get('/health')
    expect(body).toMatchObject({ status: 'alive', process: 'desk-1', pid: process.pid, pool: { waiting: 0 } })
    expect((await desks.get('/ready')).body).toMatchObject({ status: 'ready' })
    await desks.get('/accounts/nobody')
    const { text, headers } = await desks.get('/metrics')
    expect(headers.get('content-type')).toContain('text/plain')
    expect(text).toMatch(
      /desk_request_seconds_count\{method="GET",route="\/accounts\/:id",status="404",process="desk-1"\} 1/,
    )
    expect(text).toMatch(/desk_pool_connections\{state="waiting",process="desk-1"\} 0/)
    expect(text).toContain('lockstep_lock_acquired_total')
  })

  test('refuses unknown fields in the body of every route', async () => {
    interface Schema {
      readonly $ref?: string
      readonly additionalProperties?: boolean
    }
    interface Operation {
      readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> }
    }
    const { paths, components } = JSON.parse((await desks.get('/openapi.json')).text) as {
      readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
      readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
    }
    const bodies = Object.entries(paths).flatMap(([path, operations]) =>
      Object.values(operations).flatMap(({ requestBody }) =>
        Object.values(requestBody?.content ?? {}).map(({ schema }) => ({
          path,
          schema: components.schemas[schema.$ref?.split('/').at(-1) ?? ''] ?? schema,
        })),
      ),
    )
    expect(bodies.length).toBeGreaterThan(8)
    const lenient = bodies.filter(({ schema }) => schema.additionalProperties !== false)
    expect(lenient.map(({ path }) => path)).toEqual([])
  })

  test('lists every route in the OpenAPI document, whose page loads nothing from other hosts', async () => {
    const document = JSON.parse((await desks.get('/openapi.json')).text) as { paths: Record<string, unknown> }
    for (const path of [
      '/portfolios/{id}/trades',
      '/portfolios/{id}/holdings',
      '/instances/{id}/process/next',
      '/instances/locked',
      '/positions',
      '/transfers',
      '/accounts/{id}/statement',
      '/auctions/{id}/bids',
      '/wallets/{id}/deposits',
    ]) {
      expect(Object.keys(document.paths)).toContain(path)
    }
    const page = await desks.get('/docs')
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'; script-src 'self'")
    expect(page.text).not.toMatch(/<script>|style=|https?:/)
    const sources = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, source]) => source as string)
    expect(sources).toContain('/docs/swagger-ui-bundle.js')
    for (const source of sources) expect([source, (await desks.get(source)).status]).toEqual([source, 200])
    expect((await desks.get('/docs/package.json')).status).toBe(404)
  })

  test('links every page from the start page, and shows the curl commands of the guide', async () => {
    const { text } = await desks.get('/')
    const links = [...text.matchAll(/href="(\/[^"]*)"/g)].map(([, link]) => link as string)
    expect(links).toContain('/console')
    for (const link of links) expect([link, (await desks.get(link)).status]).toEqual([link, 200])
    expect((await desks.get('/favicon.ico')).headers.get('content-type')).toContain('svg')
    const guide = await readFile(new URL('../../docs/guides/desk.md', import.meta.url), 'utf8')
    const curls = [...text.matchAll(/^(?:<h2>.*<code>)?(curl .*?)(?:<\/code>.*)?$/gm)].map(([, line]) =>
      (line as string).replaceAll('&quot;', '"').replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, 'http://127.0.0.1:4800'),
    )
    expect(curls.length).toBeGreaterThanOrEqual(5)
    for (const curl of curls) expect(guide).toContain(curl)
  })

  test('writes internal errors to the log with the request id, and hides them from the client', async () => {
    await desks.pool.query('ALTER TABLE lockstep_desk.instances RENAME TO gone')
    const answer = await desks.ask('/instances', { headers: { 'x-request-id': 'lost-1' } })
    await desks.pool.query('ALTER TABLE lockstep_desk.gone RENAME TO instances')
    expect([answer.status, answer.body['code'], answer.headers.get('x-request-id')]).toEqual([
      500,
      'internal',
      'lost-1',
    ])
    expect(answer.text).not.toContain('lockstep_desk')
    expect(desks.said.join('\n')).toMatch(/^lost-1 GET \/instances: error: relation .* does not exist/m)
  })

  test('logs every request with --log, and only internal errors without it', async () => {
    for (const each of [desks, closed]) await each.ask('/health', { headers: { 'x-request-id': 'seen-1' } })
    await expect.poll(() => closed.said.join('\n')).toMatch(/^seen-1 GET \/health 200 \d+ ms$/m)
    expect(desks.said.join('\n')).not.toContain('seen-1')
  })

  test('rejects requests of other sites in a browser on this machine', async () => {
    const post = (headers: Record<string, string>) =>
      desks.ask('/instances/i/process/next', { method: 'POST', headers })
    const crossSite = await post({ 'sec-fetch-site': 'cross-site' })
    expect([crossSite.status, crossSite.body['code']]).toEqual([403, 'cross-site'])
    expect((await post({ 'sec-fetch-site': 'same-origin' })).status).toBe(404)
    // fetch() does not let a host be chosen.
    const { port } = desks.services[0] as (typeof desks.services)[0]
    const [response] = (await once(
      request({ port, host: '127.0.0.1', path: '/accounts/bank', headers: { host: 'evil.example' } }).end(),
      'response',
    )) as [IncomingMessage]
    response.resume()
    expect(response.statusCode).toBe(403)
  })

  test('requires the token for everything that shows data', async () => {
    const asked = (path: string, authorization?: string) =>
      closed.ask(path, authorization === undefined ? {} : { headers: { authorization } })
    for (const path of ['/metrics', '/accounts/bank', '/instances']) {
      const refused = await asked(path)
      expect([path, refused.status, refused.body['code']]).toEqual([path, 401, 'token-missing'])
      expect(refused.headers.get('www-authenticate')).toBe('Bearer')
      expect((await asked(path, 'Bearer a-token-nobody-know')).status).toBe(401)
      expect([path, (await asked(path, 'Bearer a-token-nobody-knows')).status]).toEqual([path, 200])
    }
    for (const path of ['/', '/docs', '/health', '/ready']) expect((await asked(path)).status).toBe(200)
    expect((await asked('/openapi.json')).body).toMatchObject({ security: [{ token: [] }] })
    expect((await asked('/console/api/session')).status).toBe(401)
  })
})
