import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidOptionError } from '../errors.ts'
import { type Key, lockId } from '../locks/index.ts'
import { checkMode, decide, longestRule, type Rollout, rolloutInProcess } from './rollout.ts'

const request = (key: string): { id: bigint; key: Key; shared: boolean } => {
  return { id: lockId('lockstep', 'lock', key), key: key as Key, shared: false }
}

describe('percent', () => {
  test('never releases a key from locking when the percentage grows', () => {
    const percentage = fc.double({ min: 0, max: 100, noNaN: true })
    fc.assert(
      fc.property(fc.string(), percentage, percentage, (name, one, other) => {
        const [less, more] = one < other ? [one, other] : [other, one]
        const lock = request(`Transfer:${name}`)
        if (decide({ percent: less }, lock) === 'on') expect(decide({ percent: more }, lock)).toBe('on')
      }),
    )
  })

  test.each([0, 10, 50, 100])('locks %i percent of many keys, and observes the rest', (percent) => {
    const decisions = Array.from({ length: 20_000 }, (_, number) => decide({ percent }, request(`Transfer:${number}`)))
    const locked = decisions.filter((decision) => decision === 'on').length / 200
    expect(locked).toBeGreaterThanOrEqual(percent - 1)
    expect(locked).toBeLessThanOrEqual(percent + 1)
    expect(new Set(decisions.filter((decision) => decision !== 'on'))).toEqual(
      new Set(percent === 100 ? [] : ['observe']),
    )
  })
})

describe('rules', () => {
  test('prefer the longest prefix, whatever the order', () => {
    const rules = [
      { prefix: '', mode: 'off' as const },
      { prefix: 'Transfer:EU:', mode: 'on' as const },
      { prefix: 'Transfer:', mode: 'observe' as const },
    ]
    expect(longestRule(rules, 'Transfer:EU:1')?.mode).toBe('on')
    expect(longestRule(rules.toReversed(), 'Transfer:US:1')?.mode).toBe('observe')
    expect(longestRule(rules, 'Order:1')?.mode).toBe('off')
  })

  test('lock keys without a rule', () => {
    expect(rolloutInProcess({ 'Transfer:': 'off' }).ruleFor('Order:1').mode).toBe('on')
  })

  test('call a function for each key', () => {
    let mode: 'on' | 'off' = 'off'
    const source = rolloutInProcess(() => mode)
    expect(source.ruleFor('Order:1').mode).toBe('off')
    mode = 'on'
    expect(source.ruleFor('Order:1').mode).toBe('on')
  })

  test('keep a prefix switched back, and only that one', async () => {
    const source = rolloutInProcess('on')
    expect(await source.switchBack('Transfer:', source.ruleFor('Transfer:1'), 'because')).toBe(true)
    expect(source.ruleFor('Transfer:1').mode).toBe('observe')
    expect(source.ruleFor('Order:1').mode).toBe('on')
  })

  test.each([{ percent: -1 }, { percent: 101 }, { percent: Number.NaN }, 'sometimes', 3, null, undefined])(
    'reject the mode %j',
    (mode) => {
      expect(() => checkMode(mode)).toThrow(InvalidOptionError)
      expect(() => rolloutInProcess({ 'Transfer:': mode as never })).toThrow(InvalidOptionError)
      if (mode !== undefined)
        expect(() => rolloutInProcess(mode as Exclude<Rollout, 'database'>)).toThrow(InvalidOptionError)
    },
  )
})
