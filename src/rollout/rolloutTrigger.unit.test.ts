import { describe, expect, test } from 'vitest'
import { type EventMessage, on } from '../observe/index.ts'
import { rolloutInProcess, type RolloutSource, type SeenRule } from './rollout.ts'
import { RolloutTrigger, type SwitchBackTriggers } from './rolloutTrigger.ts'

/** Rules that are switched by hand, and what a trigger did to them. */
class Rules implements RolloutSource {
  rule: SeenRule = { prefix: 'Order:', mode: 'on', version: '1' }
  readonly switched: { readonly prefix: string; readonly reason: string }[] = []
  /** What switching back waits for, as for a database. */
  before: Promise<void> = Promise.resolve()

  ruleFor(): SeenRule {
    return this.rule
  }

  async switchBack(prefix: string, seen: SeenRule, reason: string): Promise<boolean> {
    await this.before
    if (seen.version !== this.rule.version) return false
    this.rule = { prefix, mode: 'observe', version: `${this.rule.version}+` }
    this.switched.push({ prefix, reason })
    return true
  }

  freshen(): undefined {
    return undefined
  }
}

const ORDER = ['Order:1']

function started(triggers: SwitchBackTriggers): { rules: Rules; trigger: RolloutTrigger } {
  const rules = new Rules()
  return { rules, trigger: new RolloutTrigger('lockstep', rules, triggers) }
}

async function eventsOf(work: () => void | Promise<void>): Promise<EventMessage<'rollout.switchedBack'>[]> {
  const events: EventMessage<'rollout.switchedBack'>[] = []
  const stop = on('rollout.switchedBack', (event) => events.push(event))
  await work()
  // What was pulled is switched and reported in the next turns.
  await new Promise((resolve) => setImmediate(resolve))
  stop()
  return events
}

function times(count: number, work: (index: number) => void): void {
  for (let index = 0; index < count; index++) work(index)
}

describe('the trigger slowerPercent', () => {
  /** Observed calls of 9 to 11 ms, then locked calls that take so many percent longer. */
  const played = (percent: number): Promise<EventMessage<'rollout.switchedBack'>[]> => {
    const { trigger, rules } = started({ slowerPercent: 20 })
    return eventsOf(() => {
      rules.rule = { prefix: 'Order:', mode: 'observe', version: '1' }
      times(100, (index) => trigger.sawObserved(ORDER, 9 + (index % 3)))
      rules.rule = { prefix: 'Order:', mode: 'on', version: '2' }
      times(100, (index) => trigger.sawEnd(ORDER, (9 + (index % 3)) * (1 + percent / 100), 'done'))
    })
  }

  test('fires once where calls take longer by more than the bound', async () => {
    expect(await played(40)).toMatchObject([{ prefix: 'Order:', trigger: 'slowerPercent' }])
  })

  test.each([0, 10, 20])('does not fire where calls take %i percent longer', async (percent) => {
    expect(await played(percent)).toEqual([])
  })

  test('does not take a few long calls for a slowdown', async () => {
    const { trigger } = started({ slowerPercent: 20 })
    const events = await eventsOf(() => {
      times(100, () => trigger.sawObserved(ORDER, 10))
      // Twenty times as long, one in fifty: the mean is 38 percent above, by chance.
      times(100, (index) => trigger.sawEnd(ORDER, index % 50 === 0 ? 200 : 10, 'done'))
    })
    expect(events).toEqual([])
  })

  test('does not fire without a baseline, and not by calls that failed', async () => {
    const { trigger } = started({ slowerPercent: 20 })
    const events = await eventsOf(() => {
      times(49, () => trigger.sawObserved(ORDER, 10))
      times(100, () => trigger.sawEnd(ORDER, 100, 'done'))
      times(1, () => trigger.sawObserved(ORDER, 10))
      times(100, () => trigger.sawEnd(ORDER, 100, 'failed'))
    })
    expect(events).toEqual([])
  })
})

describe('a trigger', () => {
  test('is reported once, however many see the same', async () => {
    const { trigger, rules } = started({ waitMs: 10, failurePercent: 5, duplicates: 1 })
    const events = await eventsOf(() => {
      trigger.sawLongWait(ORDER)
      trigger.sawLongWait(ORDER)
      times(40, () => trigger.sawEnd(ORDER, 1, 'harmed'))
      trigger.sawDuplicate('Order:1', '')
    })
    expect(events).toHaveLength(1)
    expect(rules.switched).toHaveLength(1)
  })

  test('is reported once with rules of the process', async () => {
    const trigger = new RolloutTrigger('lockstep', rolloutInProcess('on'), { waitMs: 10 })
    const events = await eventsOf(() => {
      trigger.sawLongWait(ORDER)
      trigger.sawLongWait(ORDER)
    })
    expect(events).toMatchObject([{ prefix: 'Order:', trigger: 'waitMs' }])
  })

  test('is not reported where another process has switched it', async () => {
    const { trigger, rules } = started({ waitMs: 10 })
    let goOn = (): void => undefined
    rules.before = new Promise((resolve) => (goOn = resolve))
    const events = await eventsOf(() => {
      trigger.sawLongWait(ORDER)
      rules.rule = { prefix: 'Order:', mode: 'observe', version: '2' }
      goOn()
    })
    expect(events).toEqual([])
  })

  test('counts again when the rule is set again', async () => {
    const { trigger, rules } = started({ failurePercent: 50 })
    const events = await eventsOf(() => {
      times(15, () => trigger.sawEnd(ORDER, 1, 'harmed'))
      rules.rule = { prefix: 'Order:', mode: 'on', version: '2' }
      times(15, () => trigger.sawEnd(ORDER, 1, 'harmed'))
    })
    expect(events).toEqual([])
  })

  test('ignores what began before the switch', async () => {
    const { trigger, rules } = started({ waitMs: 10, duplicates: 1 })
    rules.rule = { prefix: 'Order:', mode: 'observe', version: '2' }
    const events = await eventsOf(() => {
      trigger.sawLongWait(ORDER)
      trigger.sawDuplicate('Order:1', '')
    })
    expect(events).toEqual([])
  })
})

test.each([
  ['waitMs', -1],
  ['failurePercent', Number.NaN],
  ['duplicates', 0],
  ['slowerPercent', '20' as unknown as number],
])('rejects %s: %s', (name, bound) => {
  expect(() => started({ [name]: bound })).toThrow(`switchBack.${name}`)
})
