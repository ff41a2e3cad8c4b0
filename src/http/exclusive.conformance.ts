import { describe, expect, test } from 'vitest'
import { simultaneous, workAtGate } from '../../proofs/attacks/http/servers.ts'
import { note, signal, type Workbench } from '../../tools/server/testing/workbench.ts'
import { key, type Lease } from '../index.ts'
import { exclusive } from './index.ts'
import { abandon, type Seen, type Stage } from './site.conformance.ts'

/** How often two requests meet. `npm run attack -- http` has more of them. */
const TRIES = 20

export function exclusiveConforms<Request>(bench: Workbench, stage: Stage<Request>): void {
  describe('exclusive', () => {
    test(`serves one of two concurrent POSTs and answers 409 to the other, ${TRIES} times`, async () => {
      const keyOf = (request: Request) => key`Instance:${stage.site.see(request).id}`
      stage.site.add('/next', exclusive(stage.lockstep, { key: keyOf }), async (seen, lease) => ({
        json: await workAtGate(seen.tenant, lease),
      }))
      await stage.listen()
      for (let turn = 0; turn < TRIES; turn++) {
        const ask = (name: string) => stage.post('/next/42', { tenant: name })
        const [served, refused] = (await simultaneous(ask)).toSorted((one, other) => one.status - other.status)
        expect(served?.status).toBe(200)
        expect(JSON.parse(served?.body ?? '')).toMatchObject({ done: 'Instance:42' })
        expect(refused).toMatchObject({
          status: 409,
          contentType: expect.stringMatching(/^application\/problem\+json/),
        })
        expect(Number(refused?.retryAfter)).toBeGreaterThanOrEqual(1)
        expect(Number.isInteger(Number(refused?.retryAfter))).toBe(true)
        expect(JSON.parse(refused?.body ?? '')).toEqual({
          type: 'urn:pg-lockstep:problem:busy',
          title: 'Another request works on it',
          status: 409,
          detail: 'Another request works on this just now. Try again later.',
        })
      }
    })

    test('names the holder only if asked to', async () => {
      const keyOf = (request: Request) => key`Instance:${stage.site.see(request).id}`
      const lease = { holder: 'host-7:4711' }
      stage.site.add('/quiet', exclusive(stage.lockstep, { key: keyOf, lease }), async () =>
        Promise.resolve({ json: 1 }),
      )
      stage.site.add('/open', exclusive(stage.lockstep, { key: keyOf, lease, revealHolder: true }), async () =>
        Promise.resolve({ json: 1 }),
      )
      await stage.listen()
      const id = stage.fresh()
      await stage.lockstep.lease(key`Instance:${id}`, lease, async () => {
        const quiet = await (await stage.post(`/quiet/${id}`)).text()
        expect(quiet).not.toContain('host-7')
        expect(await (await stage.post(`/open/${id}`)).json()).toMatchObject({ holder: 'host-7:4711' })
      })
      expect((await stage.post(`/quiet/${id}`)).status).toBe(200)
    })

    test('holds the lease as the request wants it, and describes the work in progress in the 409', async () => {
      const keyOf = (request: Request) => key`Instance:${stage.site.see(request).id}`
      const [entered, leave] = [signal(), signal()]
      const guard = exclusive(stage.lockstep, {
        key: keyOf,
        lease: (request: Request) => ({ metadata: { request: stage.site.see(request).tenant } }),
        describeBusy: async (busy, request) => {
          if (stage.site.see(request).tenant === 'unlucky') throw new Error('no such row')
          const [holder] = (await stage.lockstep.leases.inspect(busy)).holders
          return { retryAfterMs: 2500, members: { work: holder?.metadata, status: 200 } }
        },
      })
      stage.site.add('/described', guard, async () => {
        entered.give()
        await leave.given
        return { json: 'done' }
      })
      await stage.listen()
      const id = stage.fresh()
      const first = stage.post(`/described/${id}`, { tenant: 'first' })
      await entered.given
      const second = await stage.post(`/described/${id}`, { tenant: 'second' })
      expect([second.status, second.headers.get('retry-after')]).toEqual([409, '3'])
      expect(await second.json()).toMatchObject({ status: 409, work: { request: 'first' } })
      const unlucky = await stage.post(`/described/${id}`, { tenant: 'unlucky' })
      expect([unlucky.status, await unlucky.json()]).toEqual([409, expect.not.objectContaining({ work: null })])
      leave.give()
      expect((await first).status).toBe(200)
    })

    test('finishes the work when the client disconnects', async () => {
      const [entered, leave, left] = [signal(), signal(), signal()]
      stage.site.add(
        '/work',
        exclusive(stage.lockstep, { key: (request) => key`Instance:${stage.site.see(request).id}` }),
        async () => {
          entered.give()
          await leave.given
          left.give()
          return { json: 'done' }
        },
      )
      await stage.listen()
      const id = stage.fresh()
      await abandon(`${stage.url}/work/${id}`, {}, entered.given)
      expect((await stage.post(`/work/${id}`)).status).toBe(409)
      leave.give()
      await left.given
      await expect.poll(async () => (await stage.lockstep.leases.inspect(key`Instance:${id}`)).held).toBe(false)
    })

    test('answers 503 when the lease is lost, whatever the handler answers', async () => {
      const keyOf = (seen: Seen) => key`Instance:${seen.id}`
      const losing = async (seen: Seen, lease: Lease): Promise<void> => {
        await stage.lockstep.leases.forceRelease(keyOf(seen), { by: 'test', reason: 'to see it' })
        await expect(lease.transaction({}, (tx) => note(tx, 'late'))).rejects.toThrow('is lost')
      }
      const guard = exclusive(stage.lockstep, { key: (request: Request) => keyOf(stage.site.see(request)) })
      stage.site.add('/answers', guard, async (seen, lease) => {
        await losing(seen, lease)
        return { json: 'done', headers: { 'x-done': 'yes' } }
      })
      stage.site.add('/throws', guard, async (seen, lease) => {
        await losing(seen, lease)
        throw lease.signal.reason
      })
      await stage.listen()
      for (const path of ['/answers', '/throws']) {
        const response = await stage.post(`${path}/${stage.fresh()}`)
        expect(response.status).toBe(503)
        expect(response.headers.get('x-done')).toBeNull()
        expect(await response.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:lost', status: 503 })
      }
      expect(await bench.notes()).toEqual([])
    })

    test('answers 503 with Retry-After, never 409, when the database cannot be reached', async () => {
      const proxy = await bench.proxy()
      const { lockstep } = bench.open('pg', { url: proxy.url(bench.url), silenceMs: 200 })
      // A connection of a busy machine can take longer than the 200 ms.
      const connected = (): Promise<boolean> =>
        lockstep.leases.inspect(key`Instance:${stage.fresh()}`).then(
          () => true,
          () => false,
        )
      await expect.poll(connected).toBe(true)
      const keyOf = (request: Request) => key`Instance:${stage.site.see(request).id}`
      const work = async () => Promise.resolve({ json: 'done' })
      for (const waitMs of [0, 200]) {
        stage.site.add(`/wait${waitMs}`, exclusive(lockstep, { key: keyOf, lease: { waitMs } }), work)
      }
      await stage.listen()
      proxy.silence()
      const responses = [await stage.post(`/wait0/${stage.fresh()}`), await stage.post(`/wait200/${stage.fresh()}`)]
      proxy.resume()
      proxy.cutAll()
      for (const response of responses) {
        expect(response.status).toBe(503)
        expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
        expect(await response.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:unavailable', status: 503 })
      }
    })

    test('releases the lease when the handler throws, and the framework answers', async () => {
      stage.site.add(
        '/work',
        exclusive(stage.lockstep, { key: (request) => key`Instance:${stage.site.see(request).id}` }),
        () => Promise.reject(new Error('no')),
      )
      await stage.listen()
      const id = stage.fresh()
      expect((await stage.post(`/work/${id}`)).status).toBe(500)
      expect((await stage.post(`/work/${id}`)).status).toBe(500)
    })
  })
}
