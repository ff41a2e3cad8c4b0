import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import {
  ConnectionLostError,
  ConnectionRejectedError,
  key,
  LockstepError,
  LockTimeoutError,
  RetriesExhaustedError,
} from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { startProxy } from 'pg-lockstep/testing'
import type { Client } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'
import { COUNT_ONE, COUNT_ONE_PLAINLY, CREATE_TELLER, CREATE_TILLS, READ_TILL, RELOAD } from './failedConnects.sql.ts'

const SIZES = {
  full: { callers: 40, restarts: 4, awayMs: 1500 },
  scaledDown: { callers: 10, restarts: 1, awayMs: 500 },
}
type Size = (typeof SIZES)['full']

const POOL_SIZE = 6
/** How long calls continue after each restart. */
const SETTLE_MS = 500
/** How long the driver waits for a connection where nothing answers. */
const CONNECT_MS = 200
const WAIT_MS = 1000
/** As often a program tries that takes every failed connect for a restart. */
const NAIVE_ATTEMPTS = 10

/** How a call ended. */
type Outcome = 'done' | 'no free connection' | 'unreachable' | 'rejected' | 'other of ours' | 'raw'

/**
 * Connects that fail: a restart behind a proxy that accepts and closes, a port that never answers, an exhausted pool, a wrong password.
 * No caller can see an error of the driver; what can be tried again is tried again and succeeds; a password is refused at the first
 * attempt. The controls are the same programs with the driver alone.
 */
export const failedConnects: Edge = {
  name: 'failed-connects',
  async run(arena) {
    const size = arena.scaledDown ? SIZES.scaledDown : SIZES.full
    await arena.lab.admin.query(CREATE_TILLS)
    return [
      ...(await restarts(arena, size)),
      ...(await blackHole(arena, size)),
      ...(await exhaustedPool(arena, size)),
      ...(await wrongPassword(arena, size)),
    ]
  },
}

async function restarts({ lab, driver, reportProgress }: Arena, size: Size): Promise<Goal[]> {
  const proxy = await startProxy({ targetPort: lab.server.port })
  const [client, plain] = [POOL_SIZE, POOL_SIZE].map((poolSize) =>
    lab.client(driver, proxy.url(lab.url('direct')), { poolSize }),
  ) as [Client, Client]
  const tally = newTally()
  let plainErrors = 0
  const end = new AbortController()
  try {
    await client.lockstep.transaction({}, async () => Promise.resolve())
    const callers = Array.from({ length: size.callers }, async (_, number) => {
      while (!end.signal.aborted) {
        const options = { lock: key`Till:${number}`, retry: { attempts: 1000 } }
        tally[await outcomeOf(client.lockstep.transaction(options, (tx) => tx.query(COUNT_ONE)))]++
      }
    })
    const plainCallers = Array.from({ length: size.callers }, async () => {
      while (!end.signal.aborted) {
        await plain.query(COUNT_ONE_PLAINLY).catch(() => plainErrors++)
        await sleep(5)
      }
    })
    for (let number = 1; number <= size.restarts; number++) {
      reportProgress(`failed-connects: restart ${number} of ${size.restarts}`)
      await sleep(SETTLE_MS)
      proxy.refuse(true)
      proxy.cutAll()
      await lab.server.restart()
      await sleep(size.awayMs)
      proxy.refuse(false)
    }
    await sleep(SETTLE_MS)
    end.abort()
    await Promise.all(callers)
    await Promise.all(plainCallers)
    const { rows } = await lab.admin.query<{ count: number }>(READ_TILL)
    return [
      goal('restart, errors of the driver', tally.raw, '=', 0),
      goal('restart, calls that failed', failures(tally), '=', 0),
      goal('restart, calls that succeeded', tally.done, '>=', size.callers),
      goal('restart, effects that are missing or too many', Math.abs((rows[0]?.count ?? -1) - tally.done), '=', 0),
      goal('control, restart: errors of the driver', plainErrors, '>=', 1),
    ]
  } finally {
    end.abort()
    proxy.refuse(false)
    await Promise.all([client.close(), plain.close()])
    await proxy.close()
  }
}

/** A port that accepts connections and says nothing. */
async function blackHole({ lab, driver, reportProgress }: Arena, size: Size): Promise<Goal[]> {
  reportProgress('failed-connects: a port that does not answer')
  const sockets = new Set<Socket>()
  const silent = createServer((socket) => void sockets.add(socket.on('error', () => undefined)))
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const url = new URL(lab.url('direct'))
  url.port = String((silent.address() as AddressInfo).port)
  const client = lab.client(driver, url.href, { poolSize: POOL_SIZE, connectMs: CONNECT_MS })
  try {
    const tally = await tallyOf(size.callers, (number) =>
      client.lockstep.transaction({ lock: key`Hole:${number}`, waitMs: WAIT_MS }, (tx) => tx.query(COUNT_ONE)),
    )
    const plain = await tallyOf(size.callers, () => client.query(COUNT_ONE_PLAINLY))
    return [
      goal('no answer, errors of the driver', tally.raw, '=', 0),
      goal('no answer, connection errors', tally.unreachable + tally['no free connection'], '=', size.callers),
      goal('control, no answer: errors of the driver', plain.raw, '>=', 1),
    ]
  } finally {
    for (const socket of sockets) socket.destroy()
    await client.close()
    silent.close()
  }
}

/** Other callers have all connections of the pool. */
async function exhaustedPool({ lab, driver, reportProgress }: Arena, size: Size): Promise<Goal[]> {
  reportProgress('failed-connects: an exhausted pool')
  const client = lab.client(driver, lab.url('direct'), { poolSize: 2, connectMs: CONNECT_MS })
  await client.lockstep.transaction({}, async () => Promise.resolve())
  const { pool } = client
  const taken = await Promise.all([1, 2].map(() => (pool instanceof pg.Pool ? pool.connect() : pool.reserve())))
  try {
    const tally = await tallyOf(size.callers, (number) =>
      client.lockstep.transaction({ lock: key`Full:${number}`, waitMs: WAIT_MS }, (tx) => tx.query(COUNT_ONE)),
    )
    const plain = await Promise.all(
      Array.from({ length: size.callers }, () =>
        // postgres.js waits for as long as it takes.
        Promise.race([outcomeOf(client.query(COUNT_ONE_PLAINLY)), sleep(2 * WAIT_MS, 'hangs' as const)]),
      ),
    )
    for (const connection of taken.splice(0)) connection.release()
    const after = await outcomeOf(client.lockstep.transaction({ lock: key`Full:${0}` }, (tx) => tx.query(COUNT_ONE)))
    return [
      goal('exhausted pool, errors of the driver', tally.raw, '=', 0),
      goal('exhausted pool, LockTimeoutError for a connection', tally['no free connection'], '=', size.callers),
      goal('exhausted pool, calls that fail afterwards', after === 'done' ? 0 : 1, '=', 0),
      goal('control, exhausted pool: errors of the driver, or no answer', plain.filter(isFault).length, '>=', 1),
    ]
  } finally {
    for (const connection of taken) connection.release()
    await client.close()
  }
}

function isFault(outcome: Outcome | 'hangs'): boolean {
  return outcome === 'raw' || outcome === 'hangs'
}

async function wrongPassword({ lab, driver, reportProgress }: Arena, size: Size): Promise<Goal[]> {
  reportProgress('failed-connects: a wrong password')
  const forget = await requirePasswords(lab)
  const retried = { count: 0 }
  const stop = on('transaction.retried', ({ keys }) => {
    if (keys.some((each) => each.startsWith('Password:'))) retried.count++
  })
  const clients = ['teller:wrong', 'teller'].map((who) =>
    lab.client(driver, lab.url('direct').replace('postgres@', `${who}@`), { poolSize: 2 }),
  )
  try {
    const tallies = await Promise.all(
      clients.map(({ lockstep }) =>
        tallyOf(size.callers, (number) =>
          lockstep.transaction({ lock: key`Password:${number}` }, (tx) => tx.query(COUNT_ONE)),
        ),
      ),
    )
    const sum = (outcome: Outcome): number => tallies.reduce((total, tally) => total + tally[outcome], 0)
    return [
      goal('password, errors of the driver', sum('raw'), '=', 0),
      goal('password, calls that were rejected', sum('rejected'), '=', clients.length * size.callers),
      goal('password, attempts after the first', retried.count, '=', 0),
      goal('control, password: attempts of a program that retries failed connects', await naive(lab), '>=', 2),
    ]
  } finally {
    stop()
    await Promise.all(clients.map((each) => each.close()))
    await forget()
  }
}

/** Lets a role in by its password only. The answer undoes it. */
async function requirePasswords(lab: Arena['lab']): Promise<() => Promise<void>> {
  const { admin, server } = lab
  await admin.query(CREATE_TELLER)
  const file = join(server.dataDir, 'pg_hba.conf')
  const before = await readFile(file, 'utf8')
  await writeFile(file, `host all teller 127.0.0.1/32 scram-sha-256\n${before}`)
  await admin.query(RELOAD)
  // The server reads it when it comes to it.
  while (await canConnect(wrongUrl(lab))) await sleep(10)
  return async () => {
    await writeFile(file, before)
    await admin.query(RELOAD)
  }
}

function wrongUrl(lab: Arena['lab']): string {
  return lab.url('direct').replace('postgres@', 'teller:wrong@')
}

async function canConnect(url: string): Promise<boolean> {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  try {
    await client.connect()
    return true
  } catch {
    return false
  } finally {
    await client.end()
  }
}

/** A program that takes every failed connect for a restart. Gives how often it tried. */
async function naive(lab: Arena['lab']): Promise<number> {
  for (let attempts = 1; ; attempts++) {
    if ((await canConnect(wrongUrl(lab))) || attempts === NAIVE_ATTEMPTS) return attempts
  }
}

function newTally(): Record<Outcome, number> {
  return { done: 0, 'no free connection': 0, unreachable: 0, rejected: 0, 'other of ours': 0, raw: 0 }
}

async function tallyOf(
  callers: number,
  call: (number: number) => Promise<unknown>,
): Promise<Readonly<Record<Outcome, number>>> {
  const tally = newTally()
  const outcomes = Array.from({ length: callers }, (_, number) => outcomeOf(call(number)))
  for (const outcome of await Promise.all(outcomes)) tally[outcome]++
  return tally
}

function failures({ done: _done, ...rest }: Readonly<Record<Outcome, number>>): number {
  return Object.values(rest).reduce((sum, count) => sum + count, 0)
}

async function outcomeOf(call: Promise<unknown>): Promise<Outcome> {
  try {
    await call
    return 'done'
  } catch (error) {
    if (error instanceof LockTimeoutError && error.waitedFor === 'connection') return 'no free connection'
    if (error instanceof ConnectionRejectedError) return 'rejected'
    const cause: unknown = error instanceof RetriesExhaustedError ? error.cause : error
    if (cause instanceof ConnectionLostError) return 'unreachable'
    return error instanceof LockstepError ? 'other of ours' : 'raw'
  }
}
