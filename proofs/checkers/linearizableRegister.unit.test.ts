import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Entry } from '../history.ts'
import { linearizableRegister } from './linearizableRegister.ts'
import { found, historyOf, operation, texts } from './plantedHistory.ts'

type Told = 'done' | 'failed' | 'unknown' | 'killed'

/** What one caller knows of its increment. */
interface Caller {
  readonly from: number
  readonly to: number
  readonly told: Told
  readonly value: number
}

function storyOf(callers: readonly Caller[], final: number): Entry[] {
  const entries = callers.flatMap(({ from, to, told, value }, index) =>
    operation(`w${index}`, `op ${index}`, 'wallet', [from, to], told, told === 'done' ? { value } : {}),
  )
  return [...entries, found('wallet', final)]
}

function violations(callers: readonly Caller[], final: number): string[] {
  return texts(linearizableRegister.check(historyOf(storyOf(callers, final))))
}

const done = (from: number, to: number, value: number): Caller => ({ from, to, told: 'done', value })
const ended = (told: Told, from: number, to: number): Caller => ({ from, to, told, value: 0 })

test('accepts sequential and concurrent increments, some with unknown outcomes', () => {
  expect(violations([done(0, 1, 1), done(2, 5, 3), done(3, 4, 2), ended('failed', 5, 6)], 3)).toEqual([])
  expect(violations([done(0, 1, 1), ended('unknown', 1, 2), ended('killed', 1, 2)], 1)).toEqual([])
  expect(violations([done(0, 1, 1), ended('unknown', 1, 2), ended('killed', 1, 2), done(3, 4, 4)], 4)).toEqual([])
  expect(violations([ended('failed', 0, 1)], 0)).toEqual([])
})

test('ignores other state than registers', () => {
  const history = historyOf(storyOf([done(0, 1, 1)], 1), found('effect:wallet', undefined, 'op 0'), found('held:x'))
  expect(linearizableRegister.check(history)).toEqual([])
})

test('reports a lost update of two writers', () => {
  expect(violations([done(0, 3, 1), done(1, 4, 2), done(2, 5, 2)], 2)).toEqual([
    'lost update: w1 (op 1) and w2 (op 2) each received wallet 2',
  ])
  // Both have counted; only the answer was wrong. It is reported once.
  expect(violations([done(0, 3, 1), done(1, 4, 2), done(2, 5, 2)], 3)).toHaveLength(1)
})

test('does not report two equal results also as a step back', () => {
  expect(violations([done(0, 1, 2), done(2, 5, 1), done(3, 6, 1)], 2)).toEqual([
    'lost update: w1 (op 1) and w2 (op 2) each received wallet 1',
  ])
})

test('reports a returned value that is missing', () => {
  expect(violations([done(0, 1, 1), done(2, 3, 2), done(4, 5, 3)], 1)).toEqual([
    'lost update: w1 (op 1) received wallet 2, and it stands at 1; 1 other went the same way',
  ])
  const nothingFound = historyOf(operation('w1', 'op 1', 'wallet', [0, 1], 'done', { value: 1 }))
  expect(texts(linearizableRegister.check(nothingFound))).toEqual([
    'lost update: w1 (op 1) received wallet 1, and it stands at 0',
  ])
})

test('reports a later call with a lower result', () => {
  expect(violations([done(0, 1, 2), done(2, 3, 1)], 2)).toEqual([
    'went back: w1 (op 1) made wallet 1, but asked for it after w0 (op 0) received 2',
  ])
  for (const final of [-1, 0.5]) {
    expect(violations([], final)).toEqual([`went back: wallet stands at ${final}, where no increment leaves it`])
  }
  expect(violations([done(0, 1, 0)], 0)).toEqual(['went back: w0 (op 0) received wallet 0, which no increment makes'])
})

test('reports a failed increment that counts', () => {
  const told = linearizableRegister.check(
    historyOf(storyOf([done(0, 1, 1), ended('failed', 2, 3), done(4, 5, 3), ended('failed', 8, 9)], 3)),
  )
  expect(texts(told)).toEqual([
    'counted although it failed: wallet stands at 3, after 2 increments done, 0 of unknown end and 2 failed',
  ])
  // Around when it must have been, and who was nearest to it.
  expect(told).toMatchObject([{ at: 5000, ops: ['op 1', 'op 3'], key: 'wallet' }])
})

test('reports an increment that counts twice, also beside a late one with an unknown outcome', () => {
  expect(violations([done(0, 1, 1), ended('unknown', 2, 3)], 3)).toEqual([
    'counted more than once: wallet stands at 3, after 1 increment done, 1 of unknown end and 0 failed',
  ])
  expect(violations([done(0, 1, 2), ended('unknown', 2, 3)], 2)).toEqual([
    'counted more than once: wallet was 1 before 1 ms, when no operation of unknown end was left that had asked: 1 increment done, 1 of unknown end and 0 failed',
  ])
})

test('assumes that lower values existed when the first higher one was returned', () => {
  // 3 was answered at 5 ms, before 2 was: the one that made 1 had asked by then.
  expect(violations([done(0, 10, 2), done(0, 5, 3), ended('unknown', 4, 8)], 3)).toEqual([])
  expect(violations([done(0, 10, 2), done(0, 5, 3), ended('unknown', 7, 8)], 3)).toEqual([
    expect.stringMatching(/^counted more than once: wallet was 1 before 5 ms/),
  ])
})

test('rejects a success without its value', () => {
  const history = historyOf(operation('w1', 'op 1', 'wallet', [0, 1], 'done'))
  expect(() => linearizableRegister.check(history)).toThrow(
    "'done' of w1 on wallet has to carry a number, not undefined",
  )
})

/** Tries every order. */
function canBeOrdered(callers: readonly Caller[], final: number, before: readonly Caller[] = []): boolean {
  const left = callers.filter((caller) => !before.includes(caller) && caller.told !== 'failed')
  if (before.length === final && left.every(({ told }) => told !== 'done')) return true
  return left.some((next) => {
    const value = before.length + 1
    if (value > final || (next.told === 'done' && next.value !== value)) return false
    // No increment that is not yet in the order was answered before this one asked.
    const tooLate = left.some((other) => other !== next && other.told === 'done' && other.to < next.from)
    return !tooLate && canBeOrdered(callers, final, [...before, next])
  })
}

const anyCaller = fc
  .record({
    from: fc.integer({ min: 0, max: 8 }),
    lasts: fc.integer({ min: 1, max: 4 }),
    told: fc.constantFrom<Told>('done', 'done', 'done', 'failed', 'unknown', 'killed'),
    value: fc.integer({ min: 0, max: 5 }),
  })
  .map(({ from, lasts, told, value }) => ({ from, to: from + lasts, told, value }))

test('reports nothing exactly if there is an order', () => {
  let right = 0
  fc.assert(
    fc.property(fc.array(anyCaller, { maxLength: 6 }), fc.integer({ min: 0, max: 5 }), (callers, final) => {
      const expected = canBeOrdered(callers, final)
      if (expected && final > 1) right++
      expect(violations(callers, final).length === 0).toBe(expected)
    }),
    { numRuns: 5000 },
  )
  // Chance must have come upon both.
  expect(right).toBeGreaterThan(20)
})

/** Increments that took effect at a moment of their own between their beginning and their end. */
const legal = fc
  .array(
    fc.record({
      before: fc.integer({ min: 1, max: 60 }),
      after: fc.integer({ min: 1, max: 60 }),
      told: fc.constantFrom<Told>('done', 'done', 'done', 'failed', 'unknown', 'killed'),
      counts: fc.boolean(),
    }),
    { minLength: 4, maxLength: 60 },
  )
  .map((all) => {
    let value = 0
    const callers = all.map(({ before, after, told, counts }, index): Caller => {
      const counted = told === 'done' || (told !== 'failed' && counts)
      if (counted) value++
      return { from: 100 + index * 10 - before, to: 100 + index * 10 + after, told, value: counted ? value : 0 }
    })
    return { callers, final: value }
  })

test('accepts any operations that each take effect at one moment', () => {
  fc.assert(
    fc.property(legal, ({ callers, final }) => {
      expect(violations(callers, final)).toEqual([])
    }),
  )
})

test('reports nothing exactly if there is still an order after one change', () => {
  const change = fc.record({
    who: fc.nat(),
    earlier: fc.integer({ min: -60, max: 60 }),
    told: fc.option(fc.constantFrom<Told>('failed', 'unknown', 'killed')),
    more: fc.integer({ min: -1, max: 1 }),
  })
  let broken = 0
  fc.assert(
    fc.property(legal, change, ({ callers: all }, { who, earlier, told, more }) => {
      const few = all.slice(0, 6)
      const callers = few.map((caller, index) =>
        index === who % few.length
          ? { ...caller, told: told ?? caller.told, from: caller.from - earlier, to: caller.to - earlier }
          : caller,
      )
      const final = Math.max(0, ...few.map(({ value }) => value)) + more
      const expected = canBeOrdered(callers, final)
      if (!expected && more === 0) broken++
      expect(violations(callers, final).length === 0).toBe(expected)
    }),
    { numRuns: 2000 },
  )
  expect(broken).toBeGreaterThan(50)
})

test('reports a lost one, one with the result of another, and a failed one that counts', () => {
  fc.assert(
    fc.property(legal, fc.nat(), ({ callers, final }, choice) => {
      const told = callers.filter((caller) => caller.told === 'done')
      fc.pre(told.length > 1)
      const victim = told[choice % told.length] as Caller
      const other = told[(choice + 1) % told.length] as Caller
      const replaced = (by: Caller): Caller[] => callers.map((caller) => (caller === victim ? by : caller))
      const unknown = callers.filter(({ told: end }) => end === 'unknown' || end === 'killed').length

      expect(violations(replaced({ ...victim, value: other.value }), final)).not.toEqual([])
      expect(violations(callers, Math.max(...told.map(({ value }) => value)) - 1)).not.toEqual([])
      expect(violations(callers, told.length + unknown + 1)).not.toEqual([])
      if (unknown > 0) return
      expect(violations(replaced({ ...victim, told: 'failed', value: 0 }), final)).toEqual([
        expect.stringMatching(/^counted although it failed: /),
      ])
    }),
  )
})
