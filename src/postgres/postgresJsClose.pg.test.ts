import { EventEmitter, once } from 'node:events'
import { type AddressInfo, connect, createServer, Socket } from 'node:net'
import pg from 'pg'
import postgres, { type Sql } from 'postgres'
import { describe, expect, test, vi } from 'vitest'
import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../lockstep.ts'

const database = await testDatabase()
const cleanUp = cleanUps()

/** A query that hangs fails its test long before this. */
const LIMIT = { timeout: 30_000 }

interface Network {
  readonly port: number
  /** How many sockets of clients are open. */
  readonly openClients: () => number
  /** Closes them all. */
  close(): void
}

/** A second address of the server, whose connections can be closed. */
async function startNetwork(): Promise<Network> {
  const target = new URL(database.url)
  const clients = new Set<Socket>()
  const server = createServer((client) => {
    clients.add(client)
    const upstream = connect(Number(target.port), target.hostname)
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => undefined)
      one.on('close', () => {
        clients.delete(client)
        other.destroy()
      })
      one.pipe(other)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = (): void => {
    for (const client of clients) client.destroy()
  }
  cleanUp(() => {
    close()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, openClients: () => clients.size, close }
}

interface Opened {
  readonly sql: Sql
  readonly lockstep: Lockstep
  /** How many sockets of it are open. */
  readonly openClients: () => number
  /** Waits until the server executes a statement with this text. */
  readonly executes: (text: string) => Promise<void>
}

let pools = 0

/** A pool of one connection, which Lockstep has used and which is idle. */
async function open({ port, openClients }: Network, hosts = 1): Promise<Opened> {
  const name = `postgresJsClose ${process.pid} ${++pools}`
  const { host } = new URL(database.url)
  const url = database.url.replace(host, Array<string>(hosts).fill(`127.0.0.1:${port}`).join(','))
  const sql = postgres(url, {
    max: 1,
    backoff: () => 0.005,
    onnotice() {},
    connection: { application_name: name },
  })
  const lockstep = new Lockstep(sql)
  const admin = new pg.Client(database.url)
  await admin.connect()
  cleanUp(async () => {
    await lockstep.close()
    await sql.end({ timeout: 1 })
    // A backend that sleeps does not notice that its client has gone.
    await admin.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1', [name])
    await admin.end()
  })
  await lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
  const executing = async (text: string): Promise<number | null> => {
    const { rowCount } = await admin.query(
      `SELECT FROM pg_stat_activity WHERE application_name = $1 AND state = 'active' AND query = $2`,
      [name, text],
    )
    return rowCount
  }
  return {
    sql,
    lockstep,
    openClients,
    executes: (text) => expect.poll(() => executing(text)).toBe(1),
  }
}

async function outcome(query: PromiseLike<unknown>): Promise<string> {
  try {
    await query
    return 'answered'
  } catch (error) {
    return (error as { code: string }).code
  }
}

describe('a postgres.js pool that ends while a query waits in its queue closes all its connections', () => {
  /** Sends a query and calls `sql.end()` when it is in the queue. Returns what settles, in that order. */
  async function queueAndEnd(
    sql: Sql,
  ): Promise<{ queued: Promise<string>; ending: Promise<unknown>; order: string[] }> {
    const order: string[] = []
    const settles = (name: string) => (): unknown => order.push(name)
    const queued = outcome(sql.unsafe('SELECT 2'))
    void queued.then(settles('queued'))
    await new Promise(setImmediate)
    return { queued, ending: sql.end().then(settles('ended')), order }
  }

  test('and waits for that query, where the connection closes before', LIMIT, async () => {
    const network = await startNetwork()
    const { sql, executes, openClients } = await open(network)
    // With a parameter its connection takes no other query.
    const sleeping = outcome(sql.unsafe('SELECT pg_sleep(60), $1::int', [1]))
    await executes('SELECT pg_sleep(60), $1::int')
    const { queued, ending, order } = await queueAndEnd(sql)
    network.close()
    expect(await sleeping).not.toBe('answered')
    expect(await queued).toBe('answered')
    await ending
    expect(order).toEqual(['queued', 'ended'])
    await expect.poll(openClients).toBe(0)
  })

  test('where the query before is answered', LIMIT, async () => {
    const { sql, openClients } = await open(await startNetwork())
    const [begun, over] = [signal(), signal()]
    const holding = sql.begin(async () => {
      begun.give()
      await over.given
    })
    await begun.given
    const { queued, ending } = await queueAndEnd(sql)
    over.give()
    await Promise.all([holding, ending])
    expect(await queued).toBe('answered')
    await expect.poll(openClients).toBe(0)
  })

  test('where a transaction of Lockstep comes before', LIMIT, async () => {
    const { sql, lockstep, openClients } = await open(await startNetwork())
    const [begun, over] = [signal(), signal()]
    const holding = lockstep.transaction({}, async (tx) => {
      await tx.query('SELECT 1')
      begun.give()
      await over.given
    })
    await begun.given
    const { queued, ending } = await queueAndEnd(sql)
    over.give()
    await Promise.all([holding, ending])
    expect(await queued).toBe('answered')
    await expect.poll(openClients).toBe(0)
  })

  test('where a transaction of Lockstep is the one that waits', LIMIT, async () => {
    const { sql, lockstep, openClients } = await open(await startNetwork())
    const [begun, over] = [signal(), signal()]
    const holding = sql.begin(async () => {
      begun.give()
      await over.given
    })
    await begun.given
    const queued = outcome(lockstep.transaction({}, (tx) => tx.query('SELECT 2')))
    await new Promise(setImmediate)
    const ending = sql.end()
    over.give()
    await Promise.all([holding, ending])
    // On a busy machine it asks for its connection after the end.
    expect(await queued).toBeOneOf(['answered', 'LOCKSTEP_POOL_CLOSED'])
    await expect.poll(openClients).toBe(0)
  })
})

type Emit = (event: string | symbol, ...given: unknown[]) => boolean

describe.each([1, 2])('a connection of postgres.js that closes some time after its error, %i hosts,', (hosts) => {
  /**
   * A pool whose connection closes two turns of the event loop after its error, as on Bun and Deno. `fail` has the socket fail, and sends a
   * query before it closes; it returns the outcome of that query.
   */
  async function openLate(): Promise<Opened & { fail: () => Promise<string>; closed: Promise<void> }> {
    const closed = signal()
    const network = await startNetwork()
    const ours = new Set<Socket>()
    const emit = Object.getOwnPropertyDescriptor(EventEmitter.prototype, 'emit')?.value as Emit
    const late = function (this: Socket, ...given: Parameters<Emit>): boolean {
      const [event] = given
      const emitNow = (): boolean => Reflect.apply(emit, this, given)
      if (event === 'connect' && this.remotePort === network.port) ours.add(this)
      if (event !== 'close' || !ours.delete(this)) return emitNow()
      setImmediate(() =>
        setImmediate(() => {
          emitNow()
          closed.give()
        }),
      )
      return true
    }
    const spy = vi.spyOn(Socket.prototype, 'emit').mockImplementation(late)
    cleanUp(() => spy.mockRestore())
    const opened = await open(network, hosts)
    const fail = (): Promise<string> =>
      new Promise((resolve) => {
        const [socket] = ours
        socket?.once('error', () => resolve(outcome(opened.sql.unsafe('SELECT 1'))))
        socket?.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }))
      })
    return { ...opened, fail, closed: closed.given }
  }

  test('rejects a query that was sent in between, though no other query comes', LIMIT, async () => {
    const { fail } = await openLate()
    expect(await fail()).toBe('CONNECTION_DESTROYED')
  })

  test('does not answer it with nothing when the connection is opened again', LIMIT, async () => {
    const { sql, fail, closed } = await openLate()
    const between = fail()
    await closed
    expect(await outcome(sql.unsafe('SELECT 2'))).toBe('answered')
    expect(await between).toBe('CONNECTION_DESTROYED')
  })

  test('keeps its place when one was sent in between, behind another one', LIMIT, async () => {
    const { sql, executes, fail, closed } = await openLate()
    const sleeping = outcome(sql.unsafe('SELECT pg_sleep(60)'))
    await executes('SELECT pg_sleep(60)')
    const between = fail()
    expect(await sleeping).toBe('ECONNRESET')
    await closed
    for (let n = 2; n < 5; n++) expect(await outcome(sql.unsafe(`SELECT ${n}`))).toBe('answered')
    expect(await between).toBe('CONNECTION_DESTROYED')
  })
})
