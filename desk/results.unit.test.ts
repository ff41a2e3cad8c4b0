import { describe, expect, test } from 'vitest'
import { holds, meaning, type Result, resultTable } from './results.ts'
import { type WayName, WAYS } from './ways.ts'

function result(way: WayName, confirmed: number, balance: number, failed = 0): Result {
  return { way: WAYS[way], confirmed, balance, failed, tookMs: 500 }
}

describe('the results', () => {
  test('are shown in columns', () => {
    expect(resultTable([result('unlocked', 400, 239), result('handedOver', 400, 400)]).split('\n')).toEqual([
      '                          confirmed   in the wallet   lost   failed (40001)   a second',
      'READ COMMITTED, no lock         400             239    161                0        800',
      'SERIALIZABLE, Lockstep          400             400      0                0        800',
    ])
  })

  test('are explained by their own numbers', () => {
    const text = meaning([
      result('unlocked', 400, 239),
      result('lockedInside', 300, 300, 100),
      result('locked', 400, 400),
    ])
    expect(text[0]).toMatch(
      /^Without Lockstep 161 increments .* overwritten, and 100 failed although they held the lock/,
    )
    expect(text).toHaveLength(2)
  })

  test('claim nothing where chance was kind', () => {
    expect(meaning([result('unlocked', 10, 10), result('locked', 10, 10)])[0]).toContain('which was luck')
  })

  test('admit a broken promise', () => {
    const broken = [result('unlocked', 10, 10), result('locked', 10, 9)]
    expect(holds(broken)).toBe(false)
    expect(meaning(broken)[0]).toContain('BROKEN')
    expect(holds([result('handedOver', 9, 9, 1)])).toBe(false)
  })
})
