import { describe, expect, onTestFinished, test } from 'vitest'
import { type Client, DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Lockstep } from '../index.ts'
import { exclusive, fetchHandler, idempotent } from './index.ts'

/** Requests with a key wait for a connection as long as they may, and never for one while they hold another. */

const bench = await testBench()

const scope = (): string => 'acme'
const FORMS = ['transaction', 'locks', 'plain'] as const
type Form = (typeof FORMS)[number]
type Handle = (request: Request) => Promise<Response>

/** Writes the body down, with its key as its answer. */
function handlerOf(lockstep: Lockstep, form: Form, transaction: { waitMs?: number } = {}): Handle {
  const insert = 'INSERT INTO notes VALUES ($1)'
  if (form === 'plain') {
    return fetchHandler(idempotent(lockstep, { scope, form }), async (request, lease) => {
      const body = await request.text()
      await lease.transaction({}, (tx) => tx.query(insert, [body]))
      return new Response(body)
    })
  }
  const lock = (request: Request) => key`Account:${request.headers.get('idempotency-key') ?? ''}`
  const guard = idempotent(lockstep, { scope, transaction, ...(form === 'locks' && { lock }) })
  return fetchHandler(guard, async (request, tx) => {
    const body = await request.text()
    await tx.query(insert, [body])
    return new Response(body)
  })
}

function posted(name: string): Request {
  return new Request('http://localhost/pay', { method: 'POST', headers: { 'idempotency-key': name }, body: name })
}

/** Takes the only connection of a pool, and comes back when it has it. */
async function takeConnection({ begin }: Client): Promise<() => Promise<void>> {
  const [taken, letGo] = [signal(), signal()]
  const holding = begin('', async () => {
    taken.give()
    await letGo.given
  })
  await taken.given
  return async () => {
    letGo.give()
    await holding
  }
}

describe.each(DRIVERS)('%s', (driver) => {
  test.each(FORMS)('serves twenty requests with a pool of one, %s', async (form) => {
    const handle = handlerOf(bench.open(driver, { max: 1 }).lockstep, form)
    const names = Array.from({ length: 20 }, (_, number) => `one-${driver}-${form}-${number}`)
    const answers = await Promise.all(names.map((name) => handle(posted(name))))
    expect(answers.map(({ status }) => status)).toEqual(names.map(() => 200))
    expect(await bench.notes()).toEqual(names.toSorted())
  })

  test.each(['transaction', 'locks'] as const)(
    'waits for a connection until waitMs, then answers 503, %s',
    async (form) => {
      const client = bench.open(driver, { max: 1 })
      await client.lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
      const release = await takeConnection(client)
      onTestFinished(release)
      const name = `wait-${driver}-${form}`
      const refused = await handlerOf(client.lockstep, form, { waitMs: 50 })(posted(name))
      expect(refused.status).toBe(503)
      expect(refused.headers.get('retry-after')).toBe('1')
      expect(await refused.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:unavailable' })
      const patient = handlerOf(client.lockstep, form)(posted(name))
      // The second of these begins when the request waits for a connection, and gives up as a caller with `waitMs: 0` does.
      for (let n = 0; n < 2; n++) {
        const hasty = client.lockstep.transaction({ lock: key`Hasty:${name}`, waitMs: 0 }, async () => undefined)
        expect(await failureOf(hasty)).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
      }
      await release()
      expect((await patient).status).toBe(200)
      expect(await bench.notes()).toEqual([name])
    },
  )

  test('sends two messages for an exclusive request beside its own, and one for a refused one', async () => {
    const { lockstep, proxy } = await bench.proxied(driver, { max: 1 })
    // No heartbeat comes in between.
    const guard = exclusive(lockstep, { key: () => key`Counted:${driver}`, lease: { ttlMs: 60_000 } })
    const plain = fetchHandler(guard, () => Promise.resolve(new Response('done')))
    const writing = fetchHandler(guard, async (_, lease) => {
      await lease.transaction({}, (tx) => tx.query('SELECT 1'))
      return new Response('done')
    })
    const counted = async (handle: Handle): Promise<[status: number, messages: number]> => {
      proxy.roundTrips = 0
      const { status } = await handle(posted('counted'))
      return [status, proxy.roundTrips]
    }
    // What a process asks once.
    for (const handle of [plain, writing]) await handle(posted('first'))
    expect(await counted(plain)).toEqual([200, 2])
    // BEGIN, the guard of the lease, the statement, COMMIT.
    expect(await counted(writing)).toEqual([200, 2 + 4])
    await bench.open(driver).lockstep.lease(key`Counted:${driver}`, {}, async () => {
      expect(await counted(plain)).toEqual([409, 1])
    })
  })

  test('answers 409 while the first request runs', async () => {
    const client = bench.open(driver, { max: 2 })
    const [entered, leave] = [signal(), signal()]
    const handle = fetchHandler(idempotent(client.lockstep, { scope }), async () => {
      entered.give()
      await leave.given
      return new Response('done')
    })
    const first = handle(posted(`running-${driver}`))
    await entered.given
    expect((await handle(posted(`running-${driver}`))).status).toBe(409)
    const other = handlerOf(bench.open(driver).lockstep, 'transaction')
    expect((await other(posted(`running-${driver}`))).status).toBe(409)
    leave.give()
    expect((await first).status).toBe(200)
  })
})
