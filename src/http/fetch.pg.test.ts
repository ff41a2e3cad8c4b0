import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from 'express'
import { afterEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, key, type Lockstep } from '../index.ts'
import { exclusive, expressHandler, fetchHandler, idempotent } from './index.ts'

const bench = await testBench()

const scope = (): string => 'acme'

function posted(idempotencyKey: string, body: string | ReadableStream = 'body'): Request {
  return new Request('http://localhost/pay', {
    method: 'POST',
    headers: { 'idempotency-key': idempotencyKey },
    body,
    ...(body instanceof ReadableStream && { duplex: 'half' }),
  })
}

describe.each(DRIVERS)('fetch, %s', (driver) => {
  test('reads the body in each attempt, and replays its bytes', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    const handle = fetchHandler(idempotent(lockstep, { scope }), async (request, tx) => {
      const text = await request.text()
      if (++runs === 1) await tx.query(`DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$`)
      return new Response(new Uint8Array([0, 255, 128, runs]), { headers: { 'x-read': text } })
    })
    const first = await handle(posted(`again-${driver}`))
    expect(first.headers.get('x-read')).toBe('body')
    const second = await handle(posted(`again-${driver}`))
    expect(new Uint8Array(await second.arrayBuffer())).toEqual(new Uint8Array([0, 255, 128, 2]))
    expect(new Uint8Array(await first.arrayBuffer())).toEqual(new Uint8Array([0, 255, 128, 2]))
    expect(second.headers.get('x-read')).toBeNull()
  })

  test('stores an answer without a body', async () => {
    const { lockstep } = bench.open(driver)
    const handle = fetchHandler(idempotent(lockstep, { scope }), () => new Response(null, { status: 204 }))
    expect((await handle(posted(`empty-${driver}`))).status).toBe(204)
    expect((await handle(posted(`empty-${driver}`))).headers.get('idempotency-replayed')).toBe('true')
  })

  test('counts a body without a length', async () => {
    const { lockstep } = bench.open(driver)
    const handle = fetchHandler(idempotent(lockstep, { scope, maxBodyBytes: 10 }), () => new Response('ok'))
    const endless = new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(8)) })
    expect((await handle(posted(`endless-${driver}`, endless))).status).toBe(413)
  })

  test('waits for the locks of the handler, and answers busy', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const guard = idempotent(one, { scope, lock: () => key`Account:${driver}`, transaction: { waitMs: 500 } })
    // `waitMs` is for the connection, too: one is open already.
    await one.transaction({}, (tx) => tx.query('SELECT 1'))
    const handle = fetchHandler(guard, async (_request, tx) => {
      await note(tx, driver)
      return new Response('ok')
    })
    const [held, letGo] = [signal(), signal()]
    const holding = other.transaction({ lock: key`Account:${driver}` }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    const busy = await handle(posted(`locks-${driver}`))
    expect(busy.status).toBe(409)
    expect(await busy.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:busy' })
    letGo.give()
    await holding
    expect((await handle(posted(`locks-${driver}`))).status).toBe(200)
    expect((await handle(posted(`locks-${driver}`))).headers.get('idempotency-replayed')).toBe('true')
    expect(await bench.notes()).toEqual([driver])
  })

  test('removes expired answers in the background', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query(`
      INSERT INTO lockstep.idempotency SELECT 'gone', n::text, '', 200, '[]', '', now(), now() - interval '1 minute'
        FROM generate_series(1, 1500) n`)
    const handle = fetchHandler(idempotent(lockstep, { scope }), () => new Response('ok'))
    for (let turn = 0; turn < 200; turn++) await handle(posted(`clean-${driver}-${turn}`))
    const left = async (): Promise<number | null> =>
      (await bench.admin.query(`SELECT FROM lockstep.idempotency WHERE scope = 'gone'`)).rowCount
    await expect.poll(left).toBe(0)
  })

  test('refusals link to the documentation, answers do not', async () => {
    const { lockstep } = bench.open(driver)
    const documentation = 'https://example.com/api/idempotency'
    const handle = fetchHandler(idempotent(lockstep, { scope, documentation }), () => new Response('ok'))
    const link = `<${documentation}>; rel="describedby"; type="text/html"`
    const missing = await handle(new Request('http://localhost/pay', { method: 'POST' }))
    expect([missing.status, missing.headers.get('link')]).toEqual([400, link])
    expect((await handle(posted(`link-${driver}`))).headers.get('link')).toBeNull()
    expect((await handle(posted(`link-${driver}`))).headers.get('link')).toBeNull()
    const reused = await handle(posted(`link-${driver}`, 'another body'))
    expect([reused.status, reused.headers.get('link')]).toEqual([422, link])
  })

  test('rejects a missing scope', async () => {
    const { lockstep } = bench.open(driver)
    for (const forgotten of ['', 'undefined', undefined, 'x'.repeat(256)]) {
      const handle = fetchHandler(idempotent(lockstep, { scope: () => forgotten as string }), () => new Response('ok'))
      expect(await failureOf(handle(posted('forgotten')))).toBeInstanceOf(InvalidOptionError)
    }
  })
})

test('rejects invalid options', () => {
  const { lockstep } = bench.open('pg')
  expect(() => exclusive(lockstep, {} as never)).toThrow(InvalidOptionError)
  expect(() => idempotent(lockstep, {} as never)).toThrow('scope')
  for (const header of ['Set-Cookie', 'authorization', 'X-Api-Key', 'x-session-id', 'content-length', 'two words']) {
    expect(() => idempotent(lockstep, { scope, headers: [header] })).toThrow(InvalidOptionError)
  }
  expect(() => idempotent(lockstep, { scope, maxBodyBytes: 0 })).toThrow('maxBodyBytes')
  expect(() => idempotent(lockstep, { scope, retainMs: 1.5 })).toThrow('retainMs')
  expect(() => idempotent(lockstep, { scope, documentation: 'no page' })).toThrow('documentation')
})

describe('express, the ways to answer', () => {
  const servers: Server[] = []
  afterEach(() => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections()
      server.close()
    }
  })

  type Route = (lockstep: Lockstep) => (request: ExpressRequest, response: ExpressResponse, next: () => void) => unknown

  async function post(route: Route, init: RequestInit = {}, parse = true): Promise<Response> {
    const app = express()
    if (parse) app.use(express.json())
    app.post('/pay', route(bench.open('pg').lockstep))
    app.use((error: Error, _request: ExpressRequest, response: ExpressResponse, _next: () => void) => {
      response.status(500).send(error.message)
    })
    const server = createServer(app)
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/pay`
    return fetch(url, { method: 'POST', ...init })
  }

  const keyed = (name: string) => ({ headers: { 'idempotency-key': name, 'content-type': 'application/json' } })

  test('exclusive: sends a stream, a stream that the handler awaits, and writeHead', async () => {
    const guard = (lockstep: Lockstep) => exclusive(lockstep, { key: () => key`Instance:ways` })
    const answers: ((response: ExpressResponse) => unknown)[] = [
      (response) => pipeline(Readable.from(['a', 'b']), response),
      (response) => pipeline(Readable.from([]), response),
      (response) => new Promise<void>((resolve) => response.end('ab', resolve)),
      (response) => response.writeHead(200, { 'x-way': 'head' }).end('ab'),
      (response) => response.sendStatus(204),
    ]
    const bodies = []
    for (const answer of answers) {
      const response = await post((lockstep) =>
        expressHandler(guard(lockstep), async (_request, out: ExpressResponse) => answer(out)),
      )
      bodies.push(await response.text())
    }
    expect(bodies).toEqual(['ab', '', 'ab', 'ab', ''])
  })

  test('idempotent: joins the pieces of an answer, and rejects one that waits for itself or gives nothing', async () => {
    const ways: ((response: ExpressResponse) => unknown)[] = [
      (response) => {
        response.writeHead(201, 'Made', ['content-type', 'text/x-pieces'])
        response.write('a')
        response.write(Buffer.from('b'))
        response.end('63', 'hex')
      },
      (response) => pipeline(Readable.from(['a', 'b']), response),
      () => undefined,
    ]
    const answered: [number, string][] = []
    for (const [index, way] of ways.entries()) {
      const response = await post(
        (lockstep) =>
          expressHandler(idempotent(lockstep, { scope }), async (_request, out: ExpressResponse) => way(out)),
        keyed(`way-${index}`),
      )
      answered.push([response.status, await response.text()])
    }
    expect(answered).toEqual([
      [201, 'abc'],
      [500, expect.stringContaining('waits for its own response')],
      [500, expect.stringContaining('has ended')],
    ])
  })

  test('idempotent: answers 415 to an unread body, and ignores the order of the keys of JSON', async () => {
    const route: Route = (lockstep) =>
      expressHandler(idempotent(lockstep, { scope }), (_request: ExpressRequest, out: ExpressResponse) =>
        out.send('ok'),
      )
    const unread = await post(route, { ...keyed('unread'), body: '{"a":1}' }, false)
    expect(unread.status).toBe(415)
    expect((await post(route, { ...keyed('sorted'), body: '{"a":1,"b":{"c":2,"d":3}}' })).status).toBe(200)
    const again = await post(route, { ...keyed('sorted'), body: '{"b":{"d":3,"c":2},"a":1}' })
    expect(again.headers.get('idempotency-replayed')).toBe('true')
    expect((await post(route, { ...keyed('sorted'), body: '{"b":{"d":3,"c":2},"a":1,"__proto__":1}' })).status).toBe(
      422,
    )
  })
})
