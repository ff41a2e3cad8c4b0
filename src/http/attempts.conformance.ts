import { describe, expect, test } from 'vitest'
import { key, type Transaction } from '../index.ts'
import { exclusive, idempotent } from './index.ts'
import { BEFORE, type Out, type Stage } from './site.conformance.ts'

const CONFLICT = `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`

/** What an attempt does to the answer before it fails: nothing of it may be seen. */
function spoil(out: Out): void {
  out.status(202)
  out.append('location', '/payments/of-another-attempt')
  out.append('x-attempt', 'first')
  out.append('set-cookie', 'first=1')
  out.append('set-cookie', 'second=1')
  out.remove('x-policy')
}

/** An answer is one attempt's, whole, with what stood on it before the handler ran. */
export function attemptsConform<Request>(stage: Stage<Request>): void {
  describe('begins each attempt with the response as it was before the handler', () => {
    const scope = (request: Request): string => stage.site.see(request).tenant

    function serve(work: (attempt: number, tx: Transaction, out: Out) => Promise<object>): void {
      let attempts = 0
      stage.site.add('/pay', idempotent(stage.lockstep, { scope }), async (_seen, tx, out) => {
        const attempt = ++attempts
        if (attempt === 1) {
          spoil(out)
          await tx.query(CONFLICT)
        }
        return { json: await work(attempt, tx, out) }
      })
    }

    function expectClean(response: Response): void {
      for (const [name, value] of BEFORE) {
        if (name !== 'set-cookie') expect([name, response.headers.get(name)]).toEqual([name, value])
      }
      expect(response.headers.get('location')).toBeNull()
      expect(response.headers.get('x-attempt')).toBeNull()
    }

    test('sends and stores status, headers and cookies of the second attempt after a conflict', async () => {
      serve(async (attempt, _tx, out) => {
        out.append('set-cookie', 'third=1')
        return Promise.resolve({ attempt })
      })
      await stage.listen()
      const id = stage.fresh()
      const first = await stage.post(`/pay/${id}`, { key: id })
      expect(first.status).toBe(200)
      expect(await first.json()).toEqual({ attempt: 2 })
      expectClean(first)
      expect(first.headers.getSetCookie()).toEqual(['visit=1', 'third=1'])
      const [stored] = await stage.rows(
        `SELECT status, headers::text AS headers FROM lockstep.idempotency WHERE key = '${id}'`,
      )
      expect(stored?.['status']).toBe(200)
      expect(stored?.['headers']).not.toMatch(/another-attempt|first/)
      const again = await stage.post(`/pay/${id}`, { key: id })
      expect(again.status).toBe(200)
      expect(again.headers.get('idempotency-replayed')).toBe('true')
      expectClean(again)
      expect(again.headers.getSetCookie()).toEqual(['visit=1'])
    })

    test('lets the framework answer an error after a conflict on the response as it was', async () => {
      serve((_attempt, _tx, out) => {
        spoil(out)
        return Promise.reject(new Error('no'))
      })
      await stage.listen()
      const id = stage.fresh()
      const response = await stage.post(`/pay/${id}`, { key: id })
      expect(response.status).toBe(500)
      expectClean(response)
      expect(response.headers.getSetCookie()).toEqual(['visit=1'])
    })

    test('keeps what was set before the handler when the guard rejects', async () => {
      const keyOf = (request: Request) => key`Instance:${stage.site.see(request).id}`
      stage.site.add('/work', exclusive(stage.lockstep, { key: keyOf }), async (seen, _lease, out) => {
        spoil(out)
        await stage.lockstep.leases.forceRelease(key`Instance:${seen.id}`, { by: 'test', reason: 'to see it' })
        await _lease.transaction({}, (tx) => tx.query('SELECT 1')).catch(() => undefined)
        return { json: 'late' }
      })
      await stage.listen()
      const response = await stage.post(`/work/${stage.fresh()}`)
      expect(response.status).toBe(503)
      expectClean(response)
      expect(response.headers.getSetCookie()).toEqual(['visit=1'])
    })
  })
}
