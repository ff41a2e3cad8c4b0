import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidKeyError, InvalidOptionError } from '../errors.ts'
import type { Key } from './key.ts'
import { lockId, RecentLockIds } from './lockId.ts'
import { type Keys, type LockSet, lockSet, MAX_KEYS } from './lockSet.ts'
import { ServerWaitSlots } from './serverWaitSlots.ts'

const ids = new RecentLockIds('lockstep')

function setOf(exclusive: Keys | undefined, shared: Keys | undefined): LockSet {
  return lockSet(ids, exclusive, shared)
}

const keys = fc.array(
  fc.integer({ min: 0, max: 40 }).map((n): Key => `Account:${n}`),
  { maxLength: 30 },
)

test('sorts by id, without duplicates, whatever the order of its arguments', () => {
  fc.assert(
    fc.property(keys, keys, (exclusive, given) => {
      const shared = given.filter((each) => !exclusive.includes(each))
      const set = setOf(exclusive, shared)
      const order = set.map(({ id }) => id)
      expect(order).toEqual(order.toSorted((a, b) => (a < b ? -1 : 1)))
      expect(new Set(order).size).toBe(order.length)
      expect(new Set(set.map(({ key }) => key))).toEqual(new Set([...exclusive, ...shared]))
      for (const { id, key, shared: isShared } of set) {
        expect(id).toBe(lockId('lockstep', 'lock', key))
        expect(isShared).toBe(!exclusive.includes(key))
      }
      expect(setOf(exclusive.toReversed(), shared.toReversed())).toEqual(set)
    }),
  )
})

test('accepts one key or none without a list', () => {
  expect(setOf('Account:1', undefined)).toMatchObject([{ key: 'Account:1', shared: false }])
  expect(setOf(undefined, 'Account:1')).toMatchObject([{ key: 'Account:1', shared: true }])
  expect(setOf(undefined, undefined)).toEqual([])
  expect(setOf([], [])).toEqual([])
})

test('rejects one key as shared and exclusive', () => {
  expect(() => setOf('Account:1', 'Account:1')).toThrow(InvalidOptionError)
  expect(() => setOf(['Account:2', 'Account:1'], ['Account:3', 'Account:1'])).toThrow(InvalidOptionError)
})

test('rejects too many keys, not counting duplicates', () => {
  const many = Array.from({ length: MAX_KEYS }, (_, n): Key => `Account:${n}`)
  expect(setOf([...many, ...many], undefined)).toHaveLength(MAX_KEYS)
  expect(() => setOf(many, 'Account:another')).toThrow(InvalidOptionError)
})

test('rejects what is not a key', () => {
  expect(() => setOf('lock' as Key, undefined)).toThrow(InvalidKeyError)
  expect(() => setOf([undefined as unknown as Key], undefined)).toThrow(InvalidKeyError)
  expect(() => setOf(42 as unknown as Key, undefined)).toThrow(InvalidOptionError)
  expect(() => setOf(undefined, { key: 'a' } as unknown as Key)).toThrow(InvalidOptionError)
})

test('gives the same id with and without the cache', () => {
  for (let round = 0; round < 2; round++) {
    for (let n = 0; n < 2500; n++) expect(ids.idOf(`Many:${n}`)).toBe(lockId('lockstep', 'lock', `Many:${n}`))
  }
  expect(() => ids.idOf('lock' as Key)).toThrow(InvalidKeyError)
  expect(() => ids.idOf('lock' as Key)).toThrow(InvalidKeyError)
})

test('gives another id for another schema, domain or key', () => {
  const made = [
    lockId('a', 'lock', 'b:c'),
    lockId('b', 'lock', 'b:c'),
    lockId('a', 'migrate', 'b:c'),
    lockId('a', 'lock', 'b:d'),
    lockId('alock', 'lock', 'b:c'),
    lockId('a', 'lock', 'lockb:c'),
  ]
  expect(new Set(made).size).toBe(made.length)
})

test('leaves half of the pool free from server waits', () => {
  const placesOf = (size: number): number => {
    const waitSlots = new ServerWaitSlots(size)
    let taken = 0
    while (waitSlots.tryTake()) taken++
    for (let place = 0; place < taken; place++) waitSlots.release()
    expect(waitSlots.tryTake()).toBe(taken > 0)
    return taken
  }
  expect([1, 2, 3, 4, 10, 11].map(placesOf)).toEqual([0, 1, 2, 2, 5, 6])
})
