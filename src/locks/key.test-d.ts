import pg from 'pg'
import { expectTypeOf, test } from 'vitest'
import { type Key, key, Lockstep } from '../index.ts'

declare const someString: string
declare const id: number

test('what names a concept is a key', () => {
  expectTypeOf<'Transfer:42'>().toExtend<Key>()
  expectTypeOf<`Transfer:${string}`>().toExtend<Key>()
  expectTypeOf(key`Transfer:${id}`).toEqualTypeOf<Key>()
})

test('a generic label and a plain string are none', () => {
  expectTypeOf<'lock'>().not.toExtend<Key>()
  expectTypeOf<string>().not.toExtend<Key>()
})

test('transaction() takes keys only', () => {
  const lockstep = new Lockstep(new pg.Pool())
  const fn = async (): Promise<void> => undefined
  void (() => {
    void lockstep.transaction({ lock: `Transfer:${id}` }, fn)
    void lockstep.transaction({ lock: key`Transfer:${someString}` }, fn)
    void lockstep.transaction({ lock: [`Transfer:${id}`, 'Ledger:global'], lockShared: 'Rates:global' }, fn)
    // @ts-expect-error a plain string may be anything, such as 'lock'
    void lockstep.transaction({ lock: someString }, fn)
    // @ts-expect-error a list of plain strings may be as well
    void lockstep.transaction({ lock: [someString] }, fn)
    // @ts-expect-error names no resource
    void lockstep.transaction({ lock: 'lock' }, fn)
    // @ts-expect-error names no resource
    void lockstep.transaction({ lockShared: 'lock' }, fn)
    // @ts-expect-error an object cannot stand in a key
    void key`Transfer:${{}}`
    // @ts-expect-error a forgotten value
    void key`Transfer:${undefined}`
  })
})
