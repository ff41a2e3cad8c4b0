import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Proxy } from '../testing/index.ts'
import { type Client, DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import {
  DriverUnsupportedError,
  InvalidKeyError,
  InvalidOptionError,
  type JoinOptions,
  type Key,
  key,
  Lockstep,
  LockstepError,
  type LockstepOptions,
  type Pool,
  PoolClosedError,
  type TransactionOptions,
} from '../index.ts'

const bench = await testBench()

const INVALID_KEY = 'LOCKSTEP_INVALID_KEY'
const INVALID_OPTION = 'LOCKSTEP_INVALID_OPTION'

/** What a caller without types may hand over. */
const wrongKeys: readonly (readonly [string, unknown])[] = [
  ['empty', ''],
  ['generic', 'lock'],
  ['without an operation', ':42'],
  ['with a blank operation', '  :42'],
  ['without a resource', 'Transfer:'],
  ['with blank resources', 'Transfer: : '],
  ['too long', `Transfer:${'x'.repeat(504)}`],
  ['too long in bytes', `Transfer:${'ü'.repeat(252)}`],
  ['with a NUL byte', 'Transfer:a\0b'],
  ['with half a surrogate pair', 'Transfer:\ud800'],
  ['with a forgotten value', 'Transfer:undefined'],
  ['with a forgotten null', 'Position:null:kraken'],
  ['with a forgotten number', 'Transfer:NaN'],
  ['with a forgotten object', 'Transfer:[object Object]'],
  ['with a forgotten promise', 'Transfer:[object Promise]'],
]

const notKeys: readonly unknown[] = [null, 42, 42n, true, {}, Symbol('Transfer:42'), () => 'Transfer:42', new Date(0)]

const many: readonly Key[] = Array.from({ length: 257 }, (_, index): Key => `Transfer:${index}`)

const allUndefined = Object.fromEntries(
  ['streams', 'isolation', 'waitMs', 'noWait', 'signal', 'retry'].map((name) => [name, undefined]),
)

const wrongOptions: readonly (readonly [string, unknown])[] = [
  ['no options', undefined],
  ['null for options', null],
  ['a key for options', 'Transfer:42'],
  ['an unknown option', { locks: 'Order:1' }],
  ['a key that was forgotten', { lock: undefined }],
  ['a shared key that was forgotten', { lockShared: undefined }],
  ['an unknown option of retry', { retry: { attempt: 3 } }],
  ['257 keys', { lock: many }],
  ['257 keys in both lists', { lock: many.slice(0, 200), lockShared: many.slice(200) }],
  ['one key both shared and exclusive', { lock: ['Ledger:open', 'Order:1'], lockShared: 'Ledger:open' }],
  ['keys in an object', { lock: { a: 'Order:1' } }],
  ['keys in a set', { lockShared: new Set(['Order:1']) }],
  ['negative waitMs', { waitMs: -1 }],
  ['waitMs NaN', { waitMs: Number.NaN }],
  ['waitMs Infinity', { waitMs: Infinity }],
  ['waitMs beyond every timer', { waitMs: 2 ** 31 }],
  ['waitMs in words', { waitMs: '100' }],
  ['waitMs true', { waitMs: true }],
  ['waitMs null', { waitMs: null }],
  ['a text for noWait', { noWait: 'yes' }],
  ['an unknown isolation', { isolation: 'snapshot' }],
  ['an isolation in capitals', { isolation: 'SERIALIZABLE' }],
  ['SQL for an isolation', { isolation: 'serializable; DROP TABLE notes' }],
  ['isolation null', { isolation: null }],
  ['a number for an isolation', { isolation: 1n }],
  ['a controller for a signal', { signal: new AbortController() }],
  ['something like a signal', { signal: { aborted: false, addEventListener: () => undefined } }],
  ['signal null', { signal: null }],
  ['retry true', { retry: true }],
  ['a number for retry', { retry: 3 }],
  ['retry null', { retry: null }],
  ['no attempts', { retry: { attempts: 0 } }],
  ['half an attempt', { retry: { attempts: 1.5 } }],
  ['attempts NaN', { retry: { attempts: Number.NaN } }],
  ['attempts in words', { retry: { attempts: '3' } }],
  ['too many attempts', { retry: { attempts: 1001 } }],
]

describe.each(DRIVERS)('rejects before anything is sent, %s', (driver) => {
  let proxy: Proxy
  let client: Client
  let ran = 0
  const fn = async (): Promise<void> => void ran++

  beforeEach(async () => {
    ran = 0
    proxy = await bench.proxy()
    client = bench.open(driver, { url: proxy.url(bench.url) })
  })
  afterEach(async () => {
    expect(ran).toBe(0)
    expect([proxy.roundTrips, proxy.connections.length]).toEqual([0, 0])
    expect(await bench.locksHeld()).toBe(0)
  })

  async function refused(options: unknown, code: string): Promise<LockstepError> {
    const error = await failureOf(client.lockstep.transaction(options as TransactionOptions, fn))
    expect(error).toBeInstanceOf(LockstepError)
    expect(error).toMatchObject({ code })
    expect((error as LockstepError).advice).not.toBe('')
    return error as LockstepError
  }

  test.each(wrongKeys)('a key %s', async (_, wrong) => {
    for (const options of [{ lock: wrong }, { lockShared: wrong }, { lock: ['Order:1', wrong] }]) {
      expect(await refused(options, INVALID_KEY)).toBeInstanceOf(InvalidKeyError)
      const joined = await failureOf(client.lockstep.join(client.pool, options as JoinOptions))
      expect(joined).toBeInstanceOf(InvalidKeyError)
    }
    expect(() => client.lockstep.lockId(wrong as 'Order:1')).toThrow(InvalidKeyError)
  })

  test('a key that is not a string', async () => {
    for (const wrong of notKeys) {
      await refused({ lock: [wrong] }, INVALID_KEY)
      await refused({ lockShared: ['Order:1', wrong] }, INVALID_KEY)
      await refused({ lock: wrong }, INVALID_OPTION)
      expect(() => client.lockstep.lockId(wrong as 'Order:1')).toThrow(InvalidKeyError)
    }
    await refused({ lock: [undefined] }, INVALID_KEY)
    await refused({ lock: ['Order:1', ['Order:2']] }, INVALID_KEY)
  })

  test.each(wrongOptions)('%s', async (_, options) => {
    expect(await refused(options, INVALID_OPTION)).toBeInstanceOf(InvalidOptionError)
  })

  test.each([[undefined], [null], ['fn'], [{}]])('%o instead of a function', async (wrong) => {
    const call = client.lockstep.transaction({ lock: 'Order:1' }, wrong as unknown as typeof fn)
    expect(await failureOf(call)).toMatchObject({ code: INVALID_OPTION })
  })

  test('a signal that was aborted before', async () => {
    const reason = new Error('changed my mind')
    const options = { lock: 'Order:1', signal: AbortSignal.abort(reason) } as const
    expect(await refused(options, 'LOCKSTEP_LOCK_ABORTED')).toMatchObject({ cause: reason, keys: ['Order:1'] })
    await refused({ signal: AbortSignal.abort() }, 'LOCKSTEP_LOCK_ABORTED')
  })

  test('a Lockstep that was closed', async () => {
    await client.lockstep.close()
    await refused({ lock: 'Order:1' }, 'LOCKSTEP_CLOSED')
    await refused({}, 'LOCKSTEP_CLOSED')
    // What is wrong with the call is said first.
    await refused({ waitMs: -1 }, INVALID_OPTION)
  })

  test('a pool that was ended', async () => {
    await client.pool.end()
    expect(await refused({ lock: 'Order:1' }, 'LOCKSTEP_POOL_CLOSED')).toBeInstanceOf(PoolClosedError)
    await refused({ isolation: 'serializable' }, 'LOCKSTEP_POOL_CLOSED')
    await expect(client.lockstep.migrate()).rejects.toBeInstanceOf(PoolClosedError)
    await expect(client.lockstep.doctor()).rejects.toBeInstanceOf(PoolClosedError)
  })
})

describe.each(DRIVERS)('accepts values at the limits, %s', (driver) => {
  test.each<[string, TransactionOptions]>([
    ['no keys', { lock: [], lockShared: [] }],
    ['one key twice', { lock: ['Order:1', 'Order:1'], lockShared: ['Ledger:open', 'Ledger:open'] }],
    ['the longest key', { lock: `Transfer:${'x'.repeat(503)}` }],
    ['quotes, percent signs and astral characters', { lock: `Transfer:'"\\%s$1;--😀` }],
    ['256 keys', { lock: many.slice(0, 256), isolation: 'serializable' }],
    ['undefined wherever it may stand', allUndefined],
    ['waitMs 0 on a pool without a connection', { lock: 'Order:1', waitMs: 0 }],
    ['the longest waitMs', { lock: 'Order:1', waitMs: 2 ** 31 - 1 }],
    ['part of a millisecond', { lock: 'Order:1', waitMs: 2000.5, isolation: 'serializable' }],
    ['no limit', { lock: 'Order:1', waitMs: false, isolation: 'serializable' }],
    ['one attempt', { retry: { attempts: 1 } }],
    ['a thousand attempts', { retry: { attempts: 1000 } }],
  ])('%s', async (_, options) => {
    const { lockstep } = bench.open(driver)
    expect(await lockstep.transaction(options, async () => 'ran')).toBe('ran')
  })
})

describe.each(DRIVERS)('tx.query(), %s', (driver) => {
  test('rejects what is not text', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      for (const wrong of [undefined, null, 7, { text: 'SELECT 1' }]) {
        expect(await failureOf(tx.query(wrong as unknown as string))).toMatchObject({ code: 'LOCKSTEP_INVALID_OPTION' })
      }
      await note(tx, 'goes on')
    })
    expect(await bench.notes()).toEqual(['goes on'])
  })

  test('rejects a value that cannot be sent, and keeps the connection', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    const failed = lockstep.transaction({ lock: 'Order:1' }, (tx) => tx.query('SELECT $1::json', [circular]))
    expect(await failureOf(failed)).toBeInstanceOf(Error)
    expect(await query('SELECT 1 AS one')).toEqual([{ one: 1 }])
  })
})

describe('key`…`', () => {
  test.each([[undefined], [null], [{}], [true], [[1]], [Symbol('x')]])('refuses %o for a part', (part) => {
    expect(() => key`Transfer:${part as unknown as string}`).toThrow(InvalidKeyError)
  })

  test.each([[''], [Number.NaN], ['undefined'], ['\0'], ['\udc00'], ['x'.repeat(600)]])('refuses %o', (part) => {
    expect(() => key`Transfer:${part}`).toThrow(InvalidKeyError)
  })
})

describe('new Lockstep()', () => {
  const pool = new pg.Pool({ connectionString: bench.url })

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['an empty object', {}],
    ['a URL', bench.url],
    ['a function', () => undefined],
    ['a single pg.Client', new pg.Client(bench.url)],
  ])('refuses %s for a pool', (_, wrong) => {
    expect(() => new Lockstep(wrong as Pool)).toThrow(DriverUnsupportedError)
    expect(() => new Lockstep(wrong as Pool)).toThrow(expect.objectContaining({ code: 'LOCKSTEP_DRIVER_UNSUPPORTED' }))
  })

  test.each<[string, unknown]>([
    ['an empty schema', { schema: '' }],
    ['a schema that PostgreSQL would cut', { schema: 'x'.repeat(64) }],
    ['a schema that PostgreSQL would cut, in bytes', { schema: 'ü'.repeat(32) }],
    ["one of PostgreSQL's own", { schema: 'pg_lockstep' }],
    ['a NUL byte', { schema: 'a\0b' }],
    ['half a surrogate pair', { schema: 'a\ud800' }],
    ['an end of a function body', { schema: 'a$$b' }],
    ['a schema that is no string', { schema: 7 }],
    ['an object for a schema', { schema: {} }],
    ['silenceMs 0', { silenceMs: 0 }],
    ['negative silenceMs', { silenceMs: -1 }],
    ['silenceMs NaN', { silenceMs: Number.NaN }],
    ['silenceMs Infinity', { silenceMs: Infinity }],
    ['silenceMs in words', { silenceMs: '300' }],
    ['negative waitMs', { waitMs: -1 }],
    ['waitMs in words', { waitMs: '1s' }],
    ['no attempts', { retry: { attempts: 0 } }],
    ['retry false, which is a choice of each call', { retry: false }],
    ['a number for retry', { retry: 3 }],
  ])('refuses %s', (_, options) => {
    expect(() => new Lockstep(pool, options as LockstepOptions)).toThrow(InvalidOptionError)
    expect(() => new Lockstep(pool, options as LockstepOptions)).toThrow(
      expect.objectContaining({ code: INVALID_OPTION }),
    )
    expect(pool.totalCount).toBe(0)
  })

  test.each(['lockstep', 'x'.repeat(63), 'with "quotes" and \'more\'', 'ümläut', 'select', 'UPPER', ' '])(
    'takes the schema %o',
    (schema) => {
      expect(new Lockstep(pool, { schema }).schema).toBe(schema)
      expect(pool.totalCount).toBe(0)
    },
  )
})
