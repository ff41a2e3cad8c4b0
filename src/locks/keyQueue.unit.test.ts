import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Key } from './key.ts'
import { KeyQueue, type Ticket, type WaitLimit } from './keyQueue.ts'
import { type LockRequest, type LockSet } from './lockSet.ts'
import { QueueFullError } from '../errors.ts'
import { QueueLimit } from './queueLimit.ts'

function lock(id: number, shared = false): LockRequest {
  return { id: BigInt(id), key: `Account:${id}` as Key, shared }
}

/** A budget that ends when the test says so. */
class Impatience implements WaitLimit {
  readonly #listeners = new Set<() => void>()
  ended = false

  get listening(): number {
    return this.#listeners.size
  }

  onEnd(listener: () => void): () => void {
    if (this.ended) listener()
    else this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  end(): void {
    this.ended = true
    for (const listener of this.#listeners) listener()
    this.#listeners.clear()
  }
}

/** Every promise that can settle now has settled. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

interface Caller {
  readonly number: number
  readonly locks: LockSet
  readonly budget: Impatience
  state: 'waiting' | 'asking' | 'confirmed' | 'gone'
  ticket: Ticket | undefined
}

/** What must be true of the queue at every moment, whatever has happened. */
function checkExclusion(callers: readonly Caller[]): void {
  const inside = callers.filter(({ state }) => state === 'asking' || state === 'confirmed')
  const holders = new Map<bigint, { readonly shared: boolean }[]>()
  for (const caller of inside) {
    for (const each of caller.locks) holders.set(each.id, [...(holders.get(each.id) ?? []), each])
  }
  for (const [id, list] of holders) {
    if (list.some(({ shared }) => !shared)) expect(list, `key ${id}`).toHaveLength(1)
  }
}

const schedule = fc.record({
  callers: fc.array(
    fc.uniqueArray(fc.record({ id: fc.integer({ min: 1, max: 3 }), shared: fc.boolean() }), {
      selector: ({ id }) => id,
      minLength: 1,
      maxLength: 3,
    }),
    { minLength: 1, maxLength: 8 },
  ),
  steps: fc.array(fc.record({ who: fc.nat(7), what: fc.constantFrom('enter', 'confirm', 'release', 'abort') }), {
    maxLength: 60,
  }),
})

test('keeps exclusive holders alone, and serves every caller, in any schedule', async () => {
  await fc.assert(
    fc.asyncProperty(schedule, async ({ callers: sets, steps }) => {
      const limit = new QueueLimit()
      const queue = new KeyQueue(limit)
      const callers: Caller[] = []
      const enter = (number: number): void => {
        const locks = (sets[number] ?? []).toSorted((a, b) => a.id - b.id).map(({ id, shared }) => lock(id, shared))
        const caller: Caller = { number, locks, budget: new Impatience(), state: 'waiting', ticket: undefined }
        callers.push(caller)
        void queue.enter(locks, caller.budget).then((ticket) => {
          caller.ticket = ticket
          caller.state = ticket === undefined ? 'gone' : 'asking'
          return undefined
        })
      }
      const leave = (caller: Caller): void => {
        caller.state = 'gone'
        caller.ticket?.release()
        // Once more does nothing.
        caller.ticket?.release()
      }
      for (const { who, what } of steps) {
        const caller = callers.findLast(({ number, state }) => number === who && state !== 'gone')
        if (what === 'enter' && who < sets.length && caller === undefined) enter(who)
        else if (what === 'confirm' && caller?.state === 'asking') {
          caller.state = 'confirmed'
          caller.ticket?.confirm()
        } else if (what === 'release' && caller?.ticket !== undefined) leave(caller)
        else if (what === 'abort') caller?.budget.end()
        await settled()
        checkExclusion(callers)
      }
      // Every caller that still waits gets the lock once those before it are done.
      for (let round = 0; callers.some(({ state }) => state !== 'gone'); round++) {
        const inside = callers.filter(({ state }) => state === 'asking' || state === 'confirmed')
        expect(inside, 'a caller waits although no other is ahead').not.toHaveLength(0)
        for (const caller of inside) leave(caller)
        await settled()
        checkExclusion(callers)
        expect(round).toBeLessThan(100)
      }
      expect(queue.size).toBe(0)
      expect(limit.waiting).toBe(0)
      for (const { budget } of callers) expect(budget.listening).toBe(0)
    }),
    { numRuns: 400 },
  )
})

test('serves callers of one key in order of arrival, shared or not', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.boolean(), { minLength: 2, maxLength: 20 }), async (shares) => {
      const queue = new KeyQueue()
      const order: number[] = []
      const done = shares.map(async (shared, number) => {
        const ticket = await queue.enter([lock(1, shared)], new Impatience())
        order.push(number)
        ticket?.confirm()
        await settled()
        ticket?.release()
      })
      await Promise.all(done)
      expect(order).toEqual(order.toSorted((a, b) => a - b))
      expect(queue.size).toBe(0)
    }),
    { numRuns: 100 },
  )
})

test('lets one shared caller ask the server for all up to the next exclusive one', async () => {
  const queue = new KeyQueue()
  const inside: string[] = []
  const enter = (name: string, shared: boolean): Promise<Ticket | undefined> => {
    return queue.enter([lock(1, shared)], new Impatience()).then((ticket) => {
      inside.push(name)
      return ticket
    })
  }
  const first = enter('first', true)
  const others = [enter('second', true), enter('third', true), enter('writer', false), enter('late', true)]
  await settled()
  expect(inside).toEqual(['first'])
  ;(await first)?.confirm()
  await settled()
  expect(inside).toEqual(['first', 'second', 'third'])
  ;(await first)?.release()
  for (const reader of [others[0], others[1]]) (await reader)?.release()
  await settled()
  expect(inside).toEqual(['first', 'second', 'third', 'writer'])
  ;(await others[2])?.release()
  ;(await others[3])?.release()
  expect(queue.size).toBe(0)
})

test('lets the next shared caller ask when the first one fails', async () => {
  const queue = new KeyQueue()
  const first = await queue.enter([lock(1, true)], new Impatience())
  const second = queue.enter([lock(1, true)], new Impatience())
  first?.release()
  expect((await second)?.waited).toBe(true)
  ;(await second)?.release()
  expect(queue.size).toBe(0)
})

test('admits readers behind a writer that gives up', async () => {
  const queue = new KeyQueue()
  const reader = await queue.enter([lock(1, true)], new Impatience())
  reader?.confirm()
  const impatience = new Impatience()
  const writer = queue.enter([lock(1)], impatience)
  const behind = queue.enter([lock(1, true)], new Impatience())
  impatience.end()
  expect(await writer).toBeUndefined()
  ;(await behind)?.release()
  reader?.release()
  expect(queue.size).toBe(0)
})

test('releases the first key when a caller gives up at the second', async () => {
  const queue = new KeyQueue()
  const holder = queue.tryEnter([lock(2)])
  const impatience = new Impatience()
  const both = queue.enter([lock(1), lock(2)], impatience)
  await settled()
  expect(queue.isBusy([lock(1)])).toBe(true)
  impatience.end()
  expect(await both).toBeUndefined()
  expect(queue.isBusy([lock(1)])).toBe(false)
  expect(queue.tryEnter([lock(1), lock(2)])).toBeUndefined()
  holder?.release()
  expect(queue.size).toBe(0)
})

test('does not wait when the budget is already spent', async () => {
  const queue = new KeyQueue()
  const holder = queue.tryEnter([lock(1)])
  const over = new Impatience()
  over.end()
  expect(await queue.enter([lock(1)], over)).toBeUndefined()
  holder?.release()
  expect(queue.size).toBe(0)
})

test('serves a thousand callers of one key in turn', async () => {
  const queue = new KeyQueue()
  let inside = 0
  await Promise.all(
    Array.from({ length: 1000 }, async () => {
      const ticket = await queue.enter([lock(1)], new Impatience())
      expect(++inside).toBe(1)
      await Promise.resolve()
      inside--
      ticket?.release()
    }),
  )
  expect(queue.size).toBe(0)
})

test('keeps a held key among thousands that come and go', async () => {
  const queue = new KeyQueue()
  const held = queue.tryEnter([lock(1)])
  const next = queue.enter([lock(1)], new Impatience())
  for (let id = 2; id < 3000; id++) queue.tryEnter([lock(id)])?.release()
  expect(queue.tryEnter([lock(1)])).toBeUndefined()
  expect(queue.keys()).toEqual([expect.objectContaining({ waiting: 1 })])
  const other = queue.tryEnter([lock(5000)])
  held?.release()
  const ticket = await next
  expect(queue.tryEnter([lock(1)])).toBeUndefined()
  ticket?.release()
  other?.release()
  expect(queue.size).toBe(0)
})

test('rejects callers beyond maxQueue of one key', async () => {
  const limit = new QueueLimit(3)
  const queue = new KeyQueue(limit)
  const holder = queue.tryEnter([lock(2)])
  const waiting = Array.from({ length: 3 }, () => queue.enter([lock(2)], new Impatience()))
  const refused = queue.enter([lock(1), lock(2)], new Impatience())
  await expect(refused).rejects.toThrow(QueueFullError)
  await expect(refused).rejects.toMatchObject({ code: 'LOCKSTEP_QUEUE_FULL', waiting: 3, keys: ['Account:2'] })
  expect(queue.isBusy([lock(1)])).toBe(false)
  // Another key has room, and a caller that need not wait is not counted.
  const other = await queue.enter([lock(3)], new Impatience())
  const behind = queue.enter([lock(3)], new Impatience())
  other?.release()
  ;(await behind)?.release()
  holder?.release()
  for (const each of waiting) (await each)?.release()
  expect([queue.size, limit.waiting]).toEqual([0, 0])
})

test('rejects callers beyond ten times maxQueue over all keys', async () => {
  const limit = new QueueLimit(2)
  const queue = new KeyQueue(limit)
  const holders = Array.from({ length: 11 }, (_, id) => queue.tryEnter([lock(id)]))
  const budget = new Impatience()
  const waiting = Array.from({ length: 20 }, (_, place) => queue.enter([lock(place % 10)], budget))
  await expect(queue.enter([lock(10)], new Impatience())).rejects.toMatchObject({ waiting: 20, keys: ['Account:10'] })
  expect(queue.tryEnter([lock(11)])).toBeDefined()
  // Those that give up make room.
  budget.end()
  expect(await Promise.all(waiting)).toEqual(Array.from({ length: 20 }, () => undefined))
  const late = queue.enter([lock(10)], new Impatience())
  for (const holder of holders) holder?.release()
  expect(await late).toBeDefined()
  expect(limit.waiting).toBe(0)
})

test('queues half of 20,000 callers of one key, and rejects the rest', async () => {
  const queue = new KeyQueue()
  const holder = queue.tryEnter([lock(1)])
  const budget = new Impatience()
  const calls = Array.from({ length: 20_000 }, () => queue.enter([lock(1)], budget).catch((error: unknown) => error))
  expect(queue.keys()).toEqual([expect.objectContaining({ waiting: 10_000 })])
  budget.end()
  const refused = (await Promise.all(calls)).filter((outcome) => outcome instanceof QueueFullError)
  expect(refused).toHaveLength(10_000)
  holder?.release()
})

test.each([0, -1, 1.5, Number.NaN, '10' as unknown as number])('rejects a maxQueue of %s', (maxQueue) => {
  expect(() => new QueueLimit(maxQueue)).toThrow('maxQueue is')
})
