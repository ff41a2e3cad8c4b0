import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { type DriverName, signal, type Workbench } from '../../tools/server/testing/workbench.ts'
import { key, NestedTransactionError } from '../index.ts'
import { idempotent } from './index.ts'
import { abandon, type Reply, type Seen, type Stage } from './site.conformance.ts'

export function idempotentConforms<Request>(driver: DriverName, bench: Workbench, stage: Stage<Request>): void {
  describe.each(['transaction', 'plain'] as const)('idempotent, %s', (form) => {
    /** A route whose effect is a row; in both forms by the same handler. */
    function serve(
      work: (seen: Seen, write: (id: string) => Promise<void>) => Promise<Reply>,
      options: { headers?: string[]; maxBodyBytes?: number; required?: boolean; retainMs?: number } = {},
    ): void {
      const scope = (request: Request): string => stage.site.see(request).tenant
      const insert = 'INSERT INTO effects VALUES ($1)'
      if (form === 'plain') {
        const guard = idempotent(stage.lockstep, { scope, form, ...options })
        stage.site.add('/pay', guard, (seen, lease) =>
          work(seen, async (id) => void (await lease.transaction({}, (tx) => tx.query(insert, [id])))),
        )
      } else {
        const guard = idempotent(stage.lockstep, { scope, form, ...options })
        stage.site.add('/pay', guard, (seen, tx) => work(seen, async (id) => void (await tx.query(insert, [id]))))
      }
    }

    const effects = async (id: string): Promise<number> =>
      (await stage.rows(`SELECT FROM effects WHERE id = '${id}'`)).length

    function pay(status = 201, options = {}): void {
      let runs = 0
      serve(async (seen, write) => {
        await write(seen.id)
        const headers = {
          location: `/payments/${++runs}`,
          'set-cookie': 'session=sesame',
          'x-token': 'sesame',
          'x-request': String(runs),
        }
        return { status, headers, json: { paid: seen.id, run: runs, text: 'Grüße' } }
      }, options)
    }

    test('replays the first answer byte by byte, without a second effect', async () => {
      pay()
      await stage.listen()
      const id = stage.fresh()
      const first = await stage.post(`/pay/${id}`, { key: id, body: { amount: 1 } })
      const second = await stage.post(`/pay/${id}`, { key: `"${id}"`, body: { amount: 1 } })
      expect([first.status, second.status]).toEqual([201, 201])
      expect(first.headers.get('idempotency-replayed')).toBeNull()
      expect(second.headers.get('idempotency-replayed')).toBe('true')
      expect(Buffer.from(await second.arrayBuffer())).toEqual(Buffer.from(await first.arrayBuffer()))
      for (const header of ['content-type', 'location']) {
        expect(second.headers.get(header)).toBe(first.headers.get(header))
        expect(first.headers.get(header)).not.toBeNull()
      }
      expect(await effects(id)).toBe(1)
      // Only the first answer had it: no retry gets it, and it is not in the table.
      expect(first.headers.getSetCookie()).toEqual(['visit=1', 'session=sesame'])
      expect(second.headers.getSetCookie()).toEqual(['visit=1'])
      const stored = await stage.rows(
        `SELECT t::text AS row, headers::text FROM lockstep.idempotency t WHERE key = '${id}'`,
      )
      expect(stored).toHaveLength(1)
      expect(JSON.stringify(stored)).not.toContain('sesame')
    })

    test('has one effect for concurrent requests, and answers all others with the first answer or 409', async () => {
      pay()
      await stage.listen()
      const id = stage.fresh()
      const answers = await Promise.all(Array.from({ length: 8 }, () => stage.post(`/pay/${id}`, { key: id })))
      for (const answer of answers) expect([201, 409]).toContain(answer.status)
      expect(await effects(id)).toBe(1)
      expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(201)
    })

    test('keeps tenants apart, and answers 422 to another body or path', async () => {
      pay()
      await stage.listen()
      const id = stage.fresh()
      const first = await stage.post(`/pay/${id}`, { key: id, body: { amount: 1 } })
      const other = await stage.post(`/pay/${id}`, { key: id, body: { amount: 1 }, tenant: 'other' })
      expect(other.headers.get('idempotency-replayed')).toBeNull()
      expect(await other.json()).not.toEqual(await first.json())
      expect(await effects(id)).toBe(2)
      for (const reused of [
        await stage.post(`/pay/${id}`, { key: id, body: { amount: 2 } }),
        await stage.post(`/pay/${id}?fast=1`, { key: id, body: { amount: 1 } }),
      ]) {
        expect(reused.status).toBe(422)
        expect(await reused.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:key-reused', status: 422 })
      }
      expect(await effects(id)).toBe(2)
    })

    test('replays an answer that was lost, and answers 409 while the first request runs', async () => {
      const [entered, leave] = [signal(), signal()]
      let runs = 0
      serve(async (seen, write) => {
        entered.give()
        await leave.given
        await write(seen.id)
        return { json: { run: ++runs, at: Math.random() } }
      })
      await stage.listen()
      const id = stage.fresh()
      await abandon(`${stage.url}/pay/${id}`, { key: id }, entered.given)
      const meanwhile = await stage.post(`/pay/${id}`, { key: id })
      expect(meanwhile.status).toBe(409)
      expect(Number(meanwhile.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
      expect(await meanwhile.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:running' })
      leave.give()
      const stored = async (): Promise<unknown> =>
        (
          await stage.rows(`SELECT convert_from(body, 'UTF8') AS body FROM lockstep.idempotency WHERE key = '${id}'`)
        )[0]?.['body']
      await expect.poll(stored).toBeDefined()
      await expect.poll(async () => (await stage.post(`/pay/${id}`, { key: id })).status).toBe(200)
      expect(await (await stage.post(`/pay/${id}`, { key: id })).text()).toBe(await stored())
      expect(runs).toBe(1)
      expect(await effects(id)).toBe(1)
    })

    test('stores a 4xx answer but no failure, whose retry runs again', async () => {
      let status = 503
      serve(async (seen, write) => {
        await write(seen.id)
        return { status, json: { status } }
      })
      await stage.listen()
      const id = stage.fresh()
      expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(503)
      expect(await effects(id)).toBe(form === 'plain' ? 1 : 0)
      status = 402
      expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(402)
      status = 200
      const again = await stage.post(`/pay/${id}`, { key: id })
      expect(again.status).toBe(402)
      expect(again.headers.get('idempotency-replayed')).toBe('true')
    })

    test('stores nothing when the handler throws', async () => {
      let fails = true
      serve(async (seen, write) => {
        await write(seen.id)
        if (fails) throw new Error('no')
        return { json: 'done' }
      })
      await stage.listen()
      const id = stage.fresh()
      expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(500)
      fails = false
      expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(200)
      expect(await effects(id)).toBe(form === 'plain' ? 2 : 1)
    })

    test('answers 400 to a missing, invalid or long key, and runs requests without a key unless `required`', async () => {
      pay()
      await stage.listen()
      const id = stage.fresh()
      const missing = await stage.post(`/pay/${id}`)
      expect(missing.status).toBe(400)
      expect(await missing.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:key-missing' })
      for (const bad of ['two words', '"open', '""', 'x'.repeat(256), 'a, b']) {
        const response = await stage.post(`/pay/${id}`, { key: bad })
        expect(response.status).toBe(400)
        expect(await response.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:key-malformed' })
      }
      expect((await stage.post(`/pay/${id}`, { key: id.padEnd(255, 'x') })).status).toBe(201)
      stage.site = stage.newSite()
      pay(201, { required: false })
      await stage.listen()
      expect((await stage.post(`/pay/${id}`)).status).toBe(201)
      expect((await stage.post(`/pay/${id}`)).status).toBe(201)
      expect(await effects(id)).toBe(3)
    })

    test('rejects a request that is too large with 413, and such an answer with 500', async () => {
      serve(
        async (seen, write) => {
          await write(seen.id)
          return { json: 'x'.repeat(seen.tenant === 'large' ? 2000 : 10) }
        },
        { maxBodyBytes: 1000 },
      )
      await stage.listen()
      const id = stage.fresh()
      const request = await stage.post(`/pay/${id}`, { key: id, body: 'x'.repeat(1000) })
      expect(request.status).toBe(413)
      expect(await effects(id)).toBe(0)
      const answer = await stage.post(`/pay/${id}`, { key: id, tenant: 'large' })
      expect(answer.status).toBe(500)
      expect(await answer.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:response-too-large' })
      expect(await effects(id)).toBe(form === 'plain' ? 1 : 0)
      expect(await stage.rows(`SELECT FROM lockstep.idempotency WHERE key = '${id}'`)).toEqual([])
    })

    test('does not replay an expired answer', async () => {
      pay(201, { retainMs: 1 })
      await stage.listen()
      const id = stage.fresh()
      await stage.post(`/pay/${id}`, { key: id })
      await sleep(5)
      const again = await stage.post(`/pay/${id}`, { key: id })
      expect(again.headers.get('idempotency-replayed')).toBeNull()
      expect(await effects(id)).toBe(2)
    })
  })

  test('transactional: retries after a conflict, on a clean answer', async () => {
    let runs = 0
    const guard = idempotent(stage.lockstep, { scope: (request: Request) => stage.site.see(request).tenant })
    stage.site.add('/pay', guard, async (seen, tx) => {
      await tx.query('INSERT INTO effects VALUES ($1)', [seen.id])
      if (++runs > 1) return { json: { run: runs } }
      // What the first attempt answers is thrown away with it.
      await tx.query(`DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
      return { json: {} }
    })
    await stage.listen()
    const id = stage.fresh()
    const response = await stage.post(`/pay/${id}`, { key: id, body: { amount: 1 } })
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({ run: 2 })
    expect(await stage.rows(`SELECT FROM effects WHERE id = '${id}'`)).toHaveLength(1)
  })

  test('transactional: nests through the tx of the handler, and rolls back when it uses another transaction of its Lockstep', async () => {
    const insert = 'INSERT INTO effects VALUES ($1)'
    const scope = (request: Request): string => stage.site.see(request).tenant
    const lock = (request: Request) => key`Payment:${stage.site.see(request).id}`
    const guard = idempotent(stage.lockstep, { scope, lock })
    const errors: unknown[] = []
    stage.site.add('/pay', guard, async (seen, tx) => {
      await tx.transaction({ lock: key`Payment:${seen.id}` }, (part) => part.query(insert, [seen.id]))
      return { json: 'paid' }
    })
    stage.site.add('/wrong', guard, async (seen, tx) => {
      await tx.query(insert, [seen.id])
      await stage.lockstep
        .transaction({}, (own) => own.query(insert, [seen.id]))
        .catch((error: unknown) => {
          errors.push(error)
          throw error
        })
      return { json: 'never' }
    })
    await stage.listen()
    const [right, wrong] = [stage.fresh(), stage.fresh()]
    expect((await stage.post(`/pay/${right}`, { key: right })).status).toBe(200)
    expect(await stage.rows(`SELECT FROM effects WHERE id = '${right}'`)).toHaveLength(1)
    expect((await stage.post(`/wrong/${wrong}`, { key: wrong })).status).toBe(500)
    expect(errors).toEqual([expect.any(NestedTransactionError)])
    expect(await stage.rows(`SELECT FROM effects WHERE id = '${wrong}'`)).toEqual([])
  })

  test('plain: ends a reservation whose process is gone, and runs the retry', async () => {
    const [entered, goOn] = [signal(), signal()]
    let runs = 0
    const scope = (request: Request): string => stage.site.see(request).tenant
    // Renewed no more after 300 ms, as after a crash.
    const lease = { ttlMs: 3000, maxHoldMs: 300 }
    const crashed = idempotent(bench.open(driver).lockstep, { form: 'plain', lease, scope })
    stage.site.add('/pay', crashed, async () => {
      entered.give()
      await goOn.given
      return { json: 'late' }
    })
    await stage.listen()
    const id = stage.fresh()
    const gone = stage.post(`/pay/${id}`, { key: id })
    await entered.given
    stage.site = stage.newSite()
    stage.site.add('/pay', idempotent(stage.lockstep, { form: 'plain', scope }), async () =>
      Promise.resolve({ json: ++runs }),
    )
    await stage.listen()
    expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(409)
    const status = async (): Promise<number> => (await stage.post(`/pay/${id}`, { key: id })).status
    await expect.poll(status).toBe(200)
    goOn.give()
    expect((await gone).status).toBe(503)
    const again = await stage.post(`/pay/${id}`, { key: id })
    expect(await again.json()).toBe(1)
    expect(again.headers.get('idempotency-replayed')).toBe('true')
  })

  test('both forms on one key, as in a rolling deploy: each answers 409 while the other runs', async () => {
    const [entered, leave] = [signal(), signal()]
    const scope = (request: Request): string => stage.site.see(request).tenant
    const work = async (): Promise<Reply> => {
      entered.give()
      await leave.given
      return { json: 1 }
    }
    const id = stage.fresh()
    stage.site.add('/pay', idempotent(stage.lockstep, { form: 'plain', scope }), work)
    await stage.listen()
    const first = stage.post(`/pay/${id}`, { key: id })
    await entered.given
    stage.site = stage.newSite()
    stage.site.add('/pay', idempotent(stage.lockstep, { scope }), work)
    await stage.listen()
    expect((await stage.post(`/pay/${id}`, { key: id })).status).toBe(409)
    leave.give()
    expect((await first).status).toBe(200)
    expect((await stage.post(`/pay/${id}`, { key: id })).headers.get('idempotency-replayed')).toBe('true')
  })
}
