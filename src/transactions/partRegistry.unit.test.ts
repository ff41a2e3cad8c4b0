import { expect, test } from 'vitest'
import { Closing, lockMethod, RecentLockIds, WaitBudget } from '../locks/index.ts'
import type { Driver, SilenceWatch } from '../postgres/index.ts'
import { planDefaults, planTransaction, type TransactionPlan } from './options.ts'
import type { Around, Part, PartHooks, PartSetup } from './part.ts'
import { PartRegistry } from './partRegistry.ts'
import type { PlannedPart } from './plannedPart.ts'
import { OpenTransaction } from './transaction.ts'
import { beginKept, beginTrying, handOver, type Opening } from './transactions.sql.ts'

const method = lockMethod('advisory', '"lockstep"')
const closing = new Closing()
const setup: PartSetup = {
  driver: {} as Driver,
  silence: {} as SilenceWatch,
  schema: 'lockstep',
  quotedSchema: '"lockstep"',
  method,
  closing,
}
const PART_LOCK = { id: 7n, key: 'Part:7', shared: false } as const

interface Limit {
  readonly limit: number
}

/** A part that owns the option `streams`, the only one that the options of a transaction have for parts. */
function partWith(planned: PlannedPart | undefined, seen: unknown[] = []): Part {
  const plan = (given: unknown): PlannedPart | undefined => {
    seen.push(given)
    return planned
  }
  return { install: () => ({ planner: { option: 'streams', plan } }) }
}

function planWith(parts: readonly Part[], options: Parameters<typeof planTransaction>[1]): TransactionPlan {
  const context = { lockIds: new RecentLockIds('lockstep'), defaults: planDefaults({}), closing, method }
  return planTransaction({ ...context, parts: new PartRegistry(parts).install(setup, {}) }, options)
}

function openingOf(parts: readonly PlannedPart[]): Opening {
  const more = { withXid: true, serverEpoch: undefined, checksConnections: false }
  return { isolation: 'read committed', method, locks: [{ id: 1n, key: 'Order:1', shared: false }], parts, ...more }
}

test('installs each part once per Lockstep, and returns its result', () => {
  const part: Part<Limit & PartHooks, Limit> = { install: (_, { limit }) => ({ limit }) }
  const registry = new PartRegistry<Limit>([part, {}])
  const [one, two] = [registry.install(setup, { limit: 1 }), registry.install(setup, { limit: 2 })]
  expect([one.of(part).limit, two.of(part).limit]).toEqual([1, 2])
  expect(one).toMatchObject({ planners: [], around: undefined })
})

test('adds the methods of a part to every transaction', () => {
  const greet = function (this: OpenTransaction): string {
    return `at ${this.isolation}`
  }
  const registry = new PartRegistry([{ methods: { greet } }])
  expect(registry.install(setup, {}).planners).toEqual([])
  expect(Reflect.get(OpenTransaction.prototype, 'greet')).toBe(greet)
  Reflect.deleteProperty(OpenTransaction.prototype, 'greet')
})

test('runs the first part outermost, each with the plan of the one before', async () => {
  const steps: string[] = []
  const around = (name: string): Part => {
    const run: Around = async (plan, _, next) => {
      steps.push(`${name} sees ${plan.attempts}`)
      const value = await next({ ...plan, attempts: plan.attempts + 1 })
      steps.push(`${name} ends`)
      return value
    }
    return { install: () => ({ around: run }) }
  }
  const installed = new PartRegistry([around('a'), around('b')]).install(setup, {})
  const plan = planWith([], { retry: { attempts: 1 } })
  const budget = new WaitBudget(1, undefined, closing)
  expect(await installed.around?.(plan, budget, async ({ attempts }) => attempts)).toBe(3)
  expect(steps).toEqual(['a sees 1', 'b sees 2', 'b ends', 'a ends'])
})

test('plans a part only where its option is given, and locks what it needs after what the caller declares', () => {
  const seen: unknown[] = []
  const part = partWith({ locks: [PART_LOCK] }, seen)
  const without = planWith([part], { lock: 'Order:1' })
  expect(without).toMatchObject({ parts: [], partLocks: [] })
  expect(without.locks).toHaveLength(1)
  const streams = [{ topic: 'trades', key: 'a' }]
  const plan = planWith([part], { lock: 'Order:1', streams })
  expect(seen).toEqual([streams])
  expect(plan.locks.map(({ key }) => key)).toEqual(['Order:1', 'Part:7'])
  expect(plan.allKeys).toEqual(['Order:1'])
  expect(planWith([partWith(undefined)], { streams }).parts).toEqual([])
})

test('sends the same prepared statements with a part that adds nothing to the opening', () => {
  const plain = beginKept(openingOf([]))
  expect(plain).toHaveLength(2)
  expect(beginKept(openingOf([{ beforeSnapshot: () => 'SELECT 1 AS number;' }]))).toEqual(plain)
})

test('sends the SQL of a part before the row of the locks, and its columns in it', () => {
  const opening = openingOf([{ opening: { before: 'SELECT 1 AS before;', columns: '2 AS own' } }])
  expect(beginKept(opening)).toBeUndefined()
  expect(beginTrying(opening)).toMatch(/^BEGIN .*; SELECT 1 AS before; SELECT CASE .* AS held, .* AS pid, 2 AS own$/)
})

test('reads before the snapshot of a hand-over, while the session has the locks', () => {
  const part = { beforeSnapshot: () => 'SELECT 1 AS number;' }
  const text = handOver({ ...openingOf([part]), isolation: 'serializable' }, 5, false)
  expect(text).toMatch(/pg_advisory_lock\(1\); SELECT 1 AS number; COMMIT AND CHAIN;\s+SET TRANSACTION/)
})
