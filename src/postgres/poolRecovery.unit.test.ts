import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Connection, Driver, StatementResult, TextRow } from './connection.ts'
import { PoolRecovery, type Suspect } from './poolRecovery.ts'

const SILENCE_MS = 1000
const OWN_PID = 99

/** What the server says of its backends: for how long each waits for its client, null where it is at work. */
type Backends = ReadonlyMap<number, number | null>

/** A pool of one connection, which is not idle. */
class Pretender {
  suspect: Partial<Suspect> = {}
  backends: Backends = new Map()
  hasOneServer = true
  readonly keepsBeside = false
  lent = 0
  looks = 0
  asked = 0
  ended = 0
  ownPid = OWN_PID
  readonly driver = { hasIdle: () => false, poolSize: 1 } as unknown as Driver
  readonly id = {}

  lentCount(): number {
    return this.lent
  }

  suspects(): Suspect[] {
    this.looks++
    return [{ id: this.id, pid: 1, state: 'asked', end: () => void this.ended++, ...this.suspect }]
  }

  beside(): Promise<Connection> {
    this.asked++
    const rows = [...this.backends].map(([pid, waited]) => ({
      pid: String(pid),
      waited: waited === null ? null : String(waited),
    }))
    const answer = [{ rows: [{ own: String(this.ownPid) }] }, { rows }] as unknown as StatementResult<TextRow>[]
    const connection = {
      script: () => Promise.resolve(answer),
      protocolPid: OWN_PID,
      release: () => undefined,
      destroy: () => undefined,
    }
    return Promise.resolve(connection as unknown as Connection)
  }
}

let pool: Pretender
let recovery: PoolRecovery
beforeEach(() => {
  vi.useFakeTimers()
  pool = new Pretender()
  recovery = new PoolRecovery(pool, SILENCE_MS)
})
afterEach(() => vi.useRealTimers())

/** A caller waits for a connection all the time. */
async function whileSomebodyWaits(milliseconds: number): Promise<void> {
  void recovery.whileWaiting(new Promise(() => undefined))
  await vi.advanceTimersByTimeAsync(milliseconds)
}

describe('an unanswered query', () => {
  test('is given up if the server waits for the client', async () => {
    pool.backends = new Map([[1, 2 * SILENCE_MS]])
    await whileSomebodyWaits(0.9 * SILENCE_MS)
    expect(pool.ended).toBe(0)
    await vi.advanceTimersByTimeAsync(0.4 * SILENCE_MS)
    expect(pool.ended).toBe(1)
    await vi.advanceTimersByTimeAsync(5 * SILENCE_MS)
    expect(pool.ended).toBe(1)
  })

  test.each([
    ['is at work on it', null],
    ['has answered something a moment ago', 10],
  ])('is kept if the server %s', async (_, waitedMs) => {
    pool.backends = new Map([[1, waitedMs]])
    await whileSomebodyWaits(10 * SILENCE_MS)
    expect(pool.ended).toBe(0)
    // Once for each silence, not with each look.
    expect(pool.asked).toBeLessThanOrEqual(10)
  })

  test('is given up soon after the server ended long work', async () => {
    pool.backends = new Map([[1, null]])
    await whileSomebodyWaits(20 * SILENCE_MS)
    pool.backends = new Map([[1, 1.5 * SILENCE_MS]])
    await vi.advanceTimersByTimeAsync(2 * SILENCE_MS)
    expect(pool.ended).toBe(1)
  })

  test.each([
    [true, 1],
    [false, 0],
  ])('of a session that the server does not know: one server %s, given up %i times', async (hasOneServer, ended) => {
    pool.hasOneServer = hasOneServer
    await whileSomebodyWaits(2 * SILENCE_MS)
    expect(pool.ended).toBe(ended)
  })

  test('is kept if it is another one each time', async () => {
    pool.backends = new Map([[1, 5 * SILENCE_MS]])
    const changing = setInterval(() => (pool.suspect = { question: {} }), SILENCE_MS / 2)
    await whileSomebodyWaits(5 * SILENCE_MS)
    clearInterval(changing)
    expect([pool.ended, pool.asked]).toEqual([0, 0])
  })

  test('is kept behind a pooler, which has other process ids', async () => {
    pool.ownPid = OWN_PID + 1
    await whileSomebodyWaits(5 * SILENCE_MS)
    expect(pool.ended).toBe(0)
  })

  test('is kept if the server cannot be reached', async () => {
    pool.beside = () => Promise.reject(new Error('away'))
    await whileSomebodyWaits(5 * SILENCE_MS)
    expect(pool.ended).toBe(0)
  })
})

test('gives up a connection that is being opened without asking the server', async () => {
  pool.suspect = { state: 'opening', pid: undefined }
  await whileSomebodyWaits(1.3 * SILENCE_MS)
  expect([pool.ended, pool.asked]).toEqual([1, 0])
})

describe('a connection that a caller has reserved', () => {
  test('is kept if it answers an empty query, though the caller sends nothing', async () => {
    pool.backends = new Map([[1, 50 * SILENCE_MS]])
    pool.suspect = { state: 'held', poke: () => Promise.resolve() }
    await whileSomebodyWaits(5 * SILENCE_MS)
    expect(pool.ended).toBe(0)
  })

  test('is given up if it does not answer, and the server has received nothing', async () => {
    pool.backends = new Map([[1, 50 * SILENCE_MS]])
    pool.suspect = { state: 'held', poke: () => new Promise(() => undefined) }
    await whileSomebodyWaits(1.6 * SILENCE_MS)
    expect(pool.ended).toBe(1)
  })
})

test('checks only while a caller waits', async () => {
  await vi.advanceTimersByTimeAsync(5 * SILENCE_MS)
  expect(pool.looks).toBe(0)
  let serve = (): void => undefined
  void recovery.whileWaiting(new Promise<void>((resolve) => (serve = resolve)))
  await vi.advanceTimersByTimeAsync(SILENCE_MS)
  expect(pool.looks).toBeGreaterThan(0)
  serve()
  await vi.advanceTimersByTimeAsync(SILENCE_MS)
  const { looks } = pool
  await vi.advanceTimersByTimeAsync(5 * SILENCE_MS)
  expect(pool.looks).toBe(looks)
})

test('closes dead connections of other users, also if no caller waits after the first is closed', async () => {
  pool.backends = new Map([
    [1, 50 * SILENCE_MS],
    [2, 50 * SILENCE_MS],
  ])
  const ended: number[] = []
  let serve = (): void => undefined
  const suspect = (id: object, pid: number): Suspect => {
    const end = (): void => {
      ended.push(pid)
      serve()
    }
    return { id, pid, state: 'asked', end }
  }
  const [first, second] = [{}, {}]
  const begin = performance.now()
  pool.suspects = () => {
    const isLater = performance.now() - begin > SILENCE_MS / 2
    return [...(ended.includes(1) ? [] : [suspect(first, 1)]), ...(isLater ? [suspect(second, 2)] : [])]
  }
  void recovery.whileWaiting(new Promise<void>((resolve) => (serve = resolve)))
  await vi.advanceTimersByTimeAsync(1.4 * SILENCE_MS)
  expect(ended).toEqual([1])
  await vi.advanceTimersByTimeAsync(SILENCE_MS)
  expect(ended).toEqual([1, 2])
})

test('checks connections of Lockstep as long as it holds them', async () => {
  pool.lent = 1
  recovery.noteLent()
  await vi.advanceTimersByTimeAsync(2 * SILENCE_MS)
  expect(pool.looks).toBeGreaterThan(5)
})
