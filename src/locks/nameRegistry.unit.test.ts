import { AsyncLocalStorage } from 'node:async_hooks'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Connection, type Driver, SilenceWatch, type StatementResult, type TextRow } from '../postgres/index.ts'
import { RecentLockIds } from './lockId.ts'
import { NameRegistry } from './nameRegistry.ts'

/** A driver that writes down what is sent. */
class Pretender implements Driver {
  readonly name = 'pg'
  readonly poolSize = 2
  readonly connects = { option: '', limitMs: 1000, silenceMs: 1000, watched: false }
  readonly sent: string[] = []
  idle = true
  room = false
  released = 0
  destroyed = 0
  /** What the server answers. */
  answer = (): Promise<StatementResult<TextRow>[]> => Promise.resolve([])
  /** What the pool answers. */
  pool = (): Promise<void> => Promise.resolve()

  hasIdle(): boolean {
    return this.idle
  }

  hasCapacity(): boolean {
    return this.room
  }

  isExhausted(): boolean {
    return false
  }

  async connect(): Promise<Connection> {
    await this.pool()
    return {
      script: (text) => {
        this.sent.push(text)
        return this.answer()
      },
      read: () => Promise.reject(new Error('not used')),
      ownValues: () => [],
      query: () => Promise.reject(new Error('not used')),
      ask: () => undefined,
      commit: () => Promise.reject(new Error('not used')),
      lost: false,
      onLost: undefined,
      virtualClient: () => ({}),
      neverSent: () => false,
      protocolPid: 1,
      memory: {},
      client: {},
      release: () => void this.released++,
      destroy: () => void this.destroyed++,
    }
  }

  listen(): never {
    throw new Error('nobody listens here')
  }

  wrap(): Connection {
    throw new Error('not used')
  }

  /** How many names each message had. */
  get batches(): number[] {
    return this.sent
      .filter((text) => text.includes('lock_names_record'))
      .map((text) => [...text.matchAll(/Key:\d+/g)].length)
  }
}

let driver: Pretender
let registry: NameRegistry
let ready = true

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  driver = new Pretender()
  ready = true
  registry = new NameRegistry(driver, '"lockstep"', new SilenceWatch(30_000), () => ready, { trimEvery: Infinity })
})
afterEach(() => {
  vi.useRealTimers()
})

function note(from: number, to: number): void {
  for (let n = from; n < to; n++) registry.note(BigInt(n), `Key:${n}`)
}

const refusal = (code: string): (() => Promise<never>) => {
  return () => Promise.reject(Object.assign(new Error('refused'), { code }))
}

describe('names are written', () => {
  test('in batches of a thousand, at most twice a second, up to five thousand', async () => {
    note(0, 7000)
    await vi.advanceTimersByTimeAsync(60)
    expect(driver.batches).toEqual([1000])
    await vi.advanceTimersByTimeAsync(1000)
    expect(driver.batches).toEqual([1000, 1000, 1000])
    await vi.advanceTimersByTimeAsync(10_000)
    expect(driver.batches).toEqual([1000, 1000, 1000, 1000, 1000])
    expect(driver.released).toBe(5)
  })

  test('in ascending order of id', async () => {
    for (const id of [5n, -7n, 3n]) registry.note(id, `Key:${id}`)
    await vi.advanceTimersByTimeAsync(60)
    expect(driver.sent[0]).toContain('[["-7","Key:-7"],["3","Key:3"],["5","Key:5"]]')
  })

  test('not before the server is known to have the table', async () => {
    ready = false
    note(0, 1)
    await vi.advanceTimersByTimeAsync(600)
    expect(driver.sent).toEqual([])
    ready = true
    await vi.advanceTimersByTimeAsync(2000)
    expect(driver.batches).toEqual([1])
  })

  test('on an idle connection, or on a new one if the pool has room', async () => {
    driver.idle = false
    note(0, 1)
    await vi.advanceTimersByTimeAsync(3000)
    expect(driver.sent).toEqual([])
    driver.room = true
    await vi.advanceTimersByTimeAsync(3000)
    expect(driver.batches).toEqual([1])
    driver.room = false
    note(1, 2)
    // It gives up, and holds nothing forever.
    await vi.advanceTimersByTimeAsync(300_000)
    expect(vi.getTimerCount()).toBe(0)
    driver.idle = true
    note(2, 3)
    await vi.advanceTimersByTimeAsync(1000)
    expect(driver.batches).toEqual([1, 1])
  })

  test('again after a failure, and on another connection', async () => {
    driver.answer = () => Promise.reject(new Error('lost'))
    note(0, 2)
    await vi.advanceTimersByTimeAsync(60)
    expect(driver.destroyed).toBe(1)
    driver.answer = () => Promise.resolve([])
    await vi.advanceTimersByTimeAsync(1000)
    expect(driver.batches).toEqual([2, 2])
    expect(driver.released).toBe(1)
  })

  test.each(['42501', '42P01', '25006'])(
    'no more for five minutes after %s, and the connection is kept',
    async (code) => {
      driver.answer = refusal(code)
      note(0, 1)
      await vi.advanceTimersByTimeAsync(60)
      expect([driver.sent.length, driver.released, driver.destroyed]).toEqual([1, 1, 0])
      note(1, 2)
      await vi.advanceTimersByTimeAsync(200_000)
      expect(driver.sent).toHaveLength(1)
      expect(vi.getTimerCount()).toBe(0)
      await vi.advanceTimersByTimeAsync(200_000)
      driver.answer = () => Promise.resolve([])
      note(2, 3)
      await vi.advanceTimersByTimeAsync(60)
      expect(driver.sent).toHaveLength(2)
    },
  )

  test('without an async context', async () => {
    const context = new AsyncLocalStorage<string>()
    const seen: (string | undefined)[] = []
    driver.pool = () => Promise.resolve(void seen.push(context.getStore()))
    context.run('a transaction', () => note(0, 1))
    await vi.advanceTimersByTimeAsync(60)
    expect(seen).toEqual([undefined])
  })
})

describe('close()', () => {
  test('starts no new write', async () => {
    note(0, 1)
    await registry.close()
    expect(vi.getTimerCount()).toBe(0)
    note(1, 2)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(driver.sent).toEqual([])
  })

  test('waits for the write in progress', async () => {
    let finish = (): void => undefined
    driver.answer = () => new Promise((resolve) => (finish = () => resolve([])))
    note(0, 1)
    await vi.advanceTimersByTimeAsync(60)
    let closed = false
    const closing = registry.close().then(() => (closed = true))
    await vi.advanceTimersByTimeAsync(100)
    expect(closed).toBe(false)
    finish()
    await closing
    expect(driver.released).toBe(1)
  })

  test('does not wait for a connection, and releases one that comes late', async () => {
    let come = (): void => undefined
    driver.pool = () => new Promise((resolve) => (come = resolve))
    note(0, 1)
    await vi.advanceTimersByTimeAsync(60)
    await registry.close()
    come()
    await vi.advanceTimersByTimeAsync(0)
    expect([driver.sent.length, driver.released]).toEqual([0, 1])
  })
})

test('notes keys when they are new, and again after five minutes', () => {
  const noted: string[] = []
  const ids = new RecentLockIds('lockstep', (_id, key) => noted.push(key))
  for (let n = 0; n < 3; n++) ids.idOf('Account:1')
  ids.idOf('Account:2')
  expect(noted).toEqual(['Account:1', 'Account:2'])
  vi.advanceTimersByTime(299_000)
  ids.idOf('Account:1')
  expect(noted).toHaveLength(2)
  vi.advanceTimersByTime(2000)
  for (let n = 0; n < 3; n++) ids.idOf('Account:1')
  expect(noted).toEqual(['Account:1', 'Account:2', 'Account:1'])
  expect(() => ids.idOf('nonsense' as never)).toThrow()
  expect(noted).toHaveLength(3)
})
