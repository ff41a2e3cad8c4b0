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

test('a set is sorted by id, without duplicates, and does not depend on the order of its arguments', () => {
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

test('one key or none needs no list', () => {
  expect(setOf('Account:1', undefined)).toMatchObject([{ key: 'Account:1', shared: false }])
  expect(setOf(undefined, 'Account:1')).toMatchObject([{ key: 'Account:1', shared: true }])
  expect(setOf(undefined, undefined)).toEqual([])
  expect(setOf([], [])).toEqual([])
})

test('shared and exclusive for one key is refused', () => {
  expect(() => setOf('Account:1', 'Account:1')).toThrow(InvalidOptionError)
  expect(() => setOf(['Account:2', 'Account:1'], ['Account:3', 'Account:1'])).toThrow(InvalidOptionError)
})

test('too many keys are refused; duplicates do not count', () => {
  const many = Array.from({ length: MAX_KEYS }, (_, n): Key => `Account:${n}`)
  expect(setOf([...many, ...many], undefined)).toHaveLength(MAX_KEYS)
  expect(() => setOf(many, 'Account:another')).toThrow(InvalidOptionError)
})

test('what is no key is refused', () => {
  expect(() => setOf('lock' as Key, undefined)).toThrow(InvalidKeyError)
  expect(() => setOf([undefined as unknown as Key], undefined)).toThrow(InvalidKeyError)
  expect(() => setOf(42 as unknown as Key, undefined)).toThrow(InvalidOptionError)
  expect(() => setOf(undefined, { key: 'a' } as unknown as Key)).toThrow(InvalidOptionError)
})

test('an id is the same, remembered or not, over more keys than are remembered', () => {
  for (let round = 0; round < 2; round++) {
    for (let n = 0; n < 2500; n++) expect(ids.idOf(`Many:${n}`)).toBe(lockId('lockstep', 'lock', `Many:${n}`))
  }
  expect(() => ids.idOf('lock' as Key)).toThrow(InvalidKeyError)
  expect(() => ids.idOf('lock' as Key)).toThrow(InvalidKeyError)
})

test('schema, domain and key each make another id, and none can be moved into the next', () => {
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

test('places for waiting leave half of the pool free, and one connection at least', () => {
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
