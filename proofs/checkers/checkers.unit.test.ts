import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Checker, Entry } from '../history.ts'
import { conservedTotal, explainedBalances } from './conservedTotal.ts'
import { exactlyOnce, onePerKey } from './exactlyOnce.ts'
import { failsOnlyWith } from './failsOnlyWith.ts'
import { fenceOrder } from './fenceOrder.ts'
import { keyOrder } from './keyOrder.ts'
import { linearizableRegister } from './linearizableRegister.ts'
import { atMost } from './mutualExclusion.ts'
import { neverBelowZero } from './neverBelowZero.ts'
import { noConnectionLeaked } from './noConnectionLeaked.ts'
import { noDeadlock, noSerializationFailure } from './noServerError.ts'
import { nothingHeld } from './nothingHeld.ts'
import { nothingLost } from './nothingLost.ts'
import { refusedWhileHeld } from './refusedWhileHeld.ts'
import { entry, found, historyOf, operation, SCENARIO, took } from './plantedHistory.ts'

/** What is true of all checkers. */

const OF_FILES: Readonly<Record<string, readonly Checker[]>> = {
  'conservedTotal.ts': [conservedTotal(0), explainedBalances(0)],
  'exactlyOnce.ts': [exactlyOnce, onePerKey('position')],
  'failsOnlyWith.ts': [failsOnlyWith('INSUFFICIENT FUNDS')],
  'fenceOrder.ts': [fenceOrder],
  'keyOrder.ts': [keyOrder({ repeats: true })],
  'linearizableRegister.ts': [linearizableRegister],
  'mutualExclusion.ts': [atMost(1), atMost(3)],
  'neverBelowZero.ts': [neverBelowZero],
  'noConnectionLeaked.ts': [noConnectionLeaked],
  'noServerError.ts': [noDeadlock, noSerializationFailure],
  'nothingHeld.ts': [nothingHeld],
  'nothingLost.ts': [nothingLost],
  'refusedWhileHeld.ts': [refusedWhileHeld],
}
const HELPERS = ['foundKeys.ts', 'openAtOnce.ts', 'operations.ts', 'plantedHistory.ts', 'wording.ts']
/** They read what an attack brings them, not a history. */
const OF_ATTACKS = ['arrivals.ts', 'leftovers.ts', 'leftovers.sql.ts', 'wholePool.ts']

const checkers = Object.values(OF_FILES).flat()

test('lists all checkers', () => {
  const files = readdirSync(import.meta.dirname).filter((file) => !file.endsWith('.test.ts'))
  expect(files.toSorted()).toEqual([...Object.keys(OF_FILES), ...HELPERS, ...OF_ATTACKS].toSorted())
})

test('has a unique name per invariant', () => {
  const names = checkers.map(({ name }) => name)
  expect(new Set(names).size).toBe(names.length)
  expect(names).toEqual(expect.arrayContaining(['mutual exclusion', 'at most 3 holders', 'no stale write']))
})

test.each(checkers.map((checker) => [checker.name, checker] as const))(
  'states the promise of %s in a sentence',
  (_, checker) => {
    expect(checker.promise).toMatch(/^[A-Z][^.]{20,}\.$/)
  },
)

test.each(checkers.map((checker) => [checker.name, checker] as const))(
  'reports nothing for an empty history: %s',
  (_, checker) => {
    expect(checker.check(historyOf())).toEqual([])
  },
)

const ENTRIES = 200_000

const NOTES = ['40P01 deadlock detected', '40001 could not serialize access', 'LOCKSTEP_LEASE_HELD', 'created']

/** As many entries as a round has, of everything that goes wrong, on few keys: where a slow way would be seen. */
function manyFaults(): Entry[] {
  const entries: Entry[] = []
  for (let at = 0; entries.length < ENTRIES; at++) {
    const [op, key] = [`op ${at}`, `K${at % 3}`]
    const end = at % 7 === 0 ? 'failed' : at % 5 === 0 ? 'unknown' : 'done'
    entries.push(
      ...operation('w1', op, key, [at, at + 3], end, {
        value: (at * 7919) % 20_000,
        note: NOTES[at % NOTES.length] as string,
      }),
      // Refused although no other caller asks.
      ...operation('w2', `alone ${at}`, `L${at}`, [at, at + 1], 'failed', { note: 'LOCKSTEP_LEASE_HELD' }),
      entry(at, 'w1', op, 'active', key),
      entry(at + (at % 50), 'w1', op, 'active', key),
      took(at, op, key, { value: (at * 7907) % 20_000, ...(at % 2 === 0 ? { fence: String(at % 1000) } : {}) }),
      found(`effect:${key}`, undefined, `op ${at % 1000}`),
      found(key, at),
      found(`below ${at}`, -1),
      found(`held:${at}`),
      found(`connections:${at}`, 1),
    )
  }
  return entries
}

test('reads a long history full of faults, and each checker reports its own', () => {
  const history = historyOf(manyFaults())
  for (const checker of checkers) {
    const violations = checker.check(history)
    expect(violations.length, checker.name).toBeGreaterThan(0)
    for (const { invariant, scenario, text, ops } of violations) {
      if (invariant !== checker.name || scenario !== SCENARIO || text.length > 600 || ops.length > 5) {
        expect.fail(`${checker.name} speaks of ${invariant} in ${scenario}: ${text} ${ops.join(', ')}`)
      }
    }
  }
  // All of them take about a second. What grows with the square takes minutes, and fails by the timeout.
})
