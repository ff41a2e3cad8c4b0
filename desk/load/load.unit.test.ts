import { describe, expect, test } from 'vitest'
import { outcomeOf } from './client.ts'
import { Memory } from './memory.ts'
import { OptionError, parseOptions } from './options.ts'
import { Durations } from './tally.ts'

describe('what a client makes of an answer', () => {
  const problem = (status: number, code: string) => ({ status, body: { code } })

  test('no answer and failures are asked for again', () => {
    expect(outcomeOf({ status: 'cut' }, 1)).toBeUndefined()
    expect(outcomeOf({ status: 'late' }, 1)).toBeUndefined()
    expect(outcomeOf(problem(503, 'unavailable'), 1)).toBeUndefined()
  })

  test('counts busy as a refusal at first; later it can be its own request', () => {
    expect(outcomeOf(problem(409, 'busy'), 1)).toEqual({ kind: 'refused', status: 409, code: 'busy' })
    expect(outcomeOf(problem(409, 'busy'), 2)).toBeUndefined()
    expect(outcomeOf(problem(422, 'insufficient-funds'), 2)).toMatchObject({ kind: 'refused' })
    expect(outcomeOf({ status: 201, body: { id: '1' } }, 3)).toMatchObject({ kind: 'acknowledged' })
  })
})

describe('the memory', () => {
  const memory = new Memory('bid')
  memory.remember('a', { kind: 'acknowledged', status: 201, body: {} }, '1')
  memory.remember('r', { kind: 'refused', status: 409, code: 'bid-too-low' })
  memory.remember('u', { kind: 'unknown' })
  const violations = (found: { mark: string; id: string }[]): readonly string[] => memory.compare(found).violations

  test('is content with what was said', () => {
    expect(violations([{ mark: 'a', id: '1' }])).toEqual([])
    expect(
      violations([
        { mark: 'a', id: '1' },
        { mark: 'u', id: '2' },
      ]),
    ).toEqual([])
    expect(memory.compare([{ mark: 'a', id: '1' }]).looked).toBe(3)
  })

  const there = { mark: 'a', id: '1' }
  test.each([
    ['lost', [], 'client (a) was acknowledged, and has left nothing at bid'],
    ['twice', [there, { mark: 'a', id: '2' }], 'client (a) has changed bid 2 times instead of once'],
    ['another one', [{ mark: 'a', id: '7' }], 'client (a) received 1, and has made 7 of bid'],
    [
      'refused, and done',
      [there, { mark: 'r', id: '2' }],
      'client (r) received an error, and has changed bid all the same',
    ],
    [
      'done twice without an answer',
      [there, { mark: 'u', id: '2' }, { mark: 'u', id: '3' }],
      'client (u) has changed bid 2 times instead of once',
    ],
    ['from nobody', [there, { mark: 'x', id: '2' }], 'x has changed bid, which no operation had asked for'],
  ])('sees what is %s', (_, found, expected) => {
    expect(violations(found)).toEqual([expected])
  })
})

test('percentiles', () => {
  const durations = new Durations()
  for (let ms = 1; ms <= 200; ms++) durations.add(ms)
  expect([durations.percentile(0.5), durations.percentile(0.99), durations.percentile(1)]).toEqual([100, 198, 200])
  expect(new Durations().percentile(0.99)).toBe(0)
})

test('options', () => {
  expect(parseOptions(['--minutes', '2', '--faults', '--seed', '7'], {})).toMatchObject({
    minutes: 2,
    faults: true,
    seed: 7,
    processes: 3,
    running: undefined,
  })
  expect(() => parseOptions(['--rate', 'fast'], {})).toThrow(OptionError)
  expect(() => parseOptions(['--minuets', '2'], {})).toThrow(OptionError)
  expect(() => parseOptions(['--url', 'http://127.0.0.1:4800'], {})).toThrow(/DATABASE_URL/)
  expect(parseOptions(['--url', 'http://127.0.0.1:4800/'], { DATABASE_URL: 'postgres://x' })).toMatchObject({
    running: { origin: 'http://127.0.0.1:4800', databaseUrl: 'postgres://x' },
  })
})
