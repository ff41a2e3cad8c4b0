import { request as httpRequest } from 'node:http'
import { describe, expect, test } from 'vitest'
import { type IdempotentOptions, idempotent } from './index.ts'
import type { Stage } from './site.conformance.ts'

/** Headers without which a stored answer would be another one, or a dangerous one. */
const STORED = {
  'content-disposition': 'attachment; filename="receipt.html"',
  'content-language': 'de',
  'content-security-policy': "default-src 'none'; sandbox",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-site',
  'permissions-policy': 'camera=()',
  'referrer-policy': 'no-referrer',
  'strict-transport-security': 'max-age=31536000',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cache-control': 'no-store',
  etag: '"first"',
  location: '/payments/1',
  vary: 'Accept-Language',
}
const NOT_STORED = { 'x-trace': 'first', 'set-cookie': 'session=sesame', 'x-token': 'sesame', 'retry-after': '7' }

export function answersConform<Request>(stage: Stage<Request>): void {
  describe('what is stored, and what is refused before it', () => {
    const scope = (request: Request): string => stage.site.see(request).tenant

    function serve(headers: Readonly<Record<string, string>>, options: Partial<IdempotentOptions<Request>> = {}): void {
      stage.site.add('/pay', idempotent(stage.lockstep, { scope, ...options }), async (seen, tx) => {
        await tx.query('INSERT INTO effects VALUES ($1)', [seen.id])
        return { status: 201, headers, json: { paid: true } }
      })
    }

    const effects = async (id: string): Promise<number> =>
      (await stage.rows(`SELECT FROM effects WHERE id = '${id}'`)).length

    test('replays headers that describe the answer or protect its reader, but no cookies and no others', async () => {
      serve({ ...STORED, ...NOT_STORED, 'x-wanted': 'yes' }, { headers: ['X-Wanted'] })
      await stage.listen()
      const id = stage.fresh()
      const first = await stage.post(`/pay/${id}`, { key: id })
      const again = await stage.post(`/pay/${id}`, { key: id })
      expect(again.headers.get('idempotency-replayed')).toBe('true')
      for (const response of [first, again]) {
        expect(response.headers.get('content-type')).toMatch(/^application\/json/)
        expect(response.headers.get('x-wanted')).toBe('yes')
        for (const [name, value] of Object.entries(STORED)) {
          // A server can add to what an answer varies by, as Next.js does.
          const right = name === 'vary' ? expect.stringContaining(value) : value
          expect([name, response.headers.get(name)]).toEqual([name, right])
        }
      }
      expect(again.headers.getSetCookie()).toEqual(['visit=1'])
      for (const name of ['x-trace', 'x-token', 'retry-after']) expect(again.headers.get(name)).toBeNull()
      const stored = await stage.rows(`SELECT headers::text FROM lockstep.idempotency WHERE key = '${id}'`)
      expect(JSON.stringify(stored)).not.toContain('sesame')
    })

    test('rejects JSON that is nested too deeply, without running the handler', async () => {
      serve({})
      await stage.listen()
      const id = stage.fresh()
      const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth)
      const deep = await stage.post(`/pay/${id}`, { key: id, json: nested(40_000) })
      expect(deep.status).toBe(400)
      expect(await deep.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:request-too-deep', status: 400 })
      // Some frameworks bound the size of a body below this.
      const deeper = await stage.post(`/pay/${id}`, { key: id, json: nested(100_000) })
      expect([400, 413]).toContain(deeper.status)
      expect(await deeper.text()).not.toMatch(/RangeError|call stack| at /)
      expect(await effects(id)).toBe(0)
      expect((await stage.post(`/pay/${id}`, { key: id, json: nested(900) })).status).toBe(201)
    })

    test('answers 400 to two keys and to an empty one', async () => {
      serve({})
      await stage.listen()
      const id = stage.fresh()
      const keys = [['one', 'two'], ['one', 'one'], ['"one"', '"two"'], [''], ['', 'one'], [' '], ['""'], ['one, two']]
      for (const each of keys) {
        expect([each, await statusWith(`${stage.url}/pay/${id}`, each)]).toEqual([each, 400])
      }
      expect(await effects(id)).toBe(0)
      expect(await statusWith(`${stage.url}/pay/${id}`, [id])).toBe(201)
    })
  })
}

/** Sends a header for each key, as fetch does not. */
function statusWith(url: string, keys: readonly string[]): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { 'x-tenant': 'acme', 'idempotency-key': keys.length === 1 ? keys[0] : [...keys] }
    const asking = httpRequest(url, { method: 'POST', headers }, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
    asking.on('error', reject).end()
  })
}
