import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { InboxConsumer, InboxEvent } from '../inbox/index.ts'
import type { Delivery } from '../outbox/index.ts'
import type { Transaction, TransactionOptions } from '../transactions/index.ts'
import { Applier, type ApplierPlan } from './applier.ts'

const EVENTS: InboxEvent[] = ['a', 'b'].map((key) => ({ topic: 't', key, seq: 1, id: key }))

interface Given extends Partial<Pick<ApplierPlan<InboxEvent>, 'handle' | 'timeoutMs'>> {
  /** What COMMIT comes to. */
  readonly commit?: () => Promise<unknown>
}

/** An applier without a database: its inbox accepts everything. */
function applierOf({ handle = () => undefined, timeoutMs = 30_000, commit = turn }: Given): Applier<InboxEvent> {
  return new Applier<InboxEvent>({
    async transaction<T>(_: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
      const value = await fn({} as Transaction)
      await commit()
      return value
    },
    inbox: {
      acceptMany: (_: unknown, events: InboxEvent[]) => Promise.resolve(events.map(() => 'first')),
    } as unknown as InboxConsumer,
    handle,
    handlesTombstones: false,
    start: () => 1,
    isolation: undefined,
    timeoutMs,
    handlerFails: 'refused',
    durable: false,
  })
}

async function answersTo(events: readonly InboxEvent[], given: Given): Promise<string[]> {
  const answers = await applierOf(given).apply(events, { signal: new AbortController().signal })
  return answers.map((answer: Delivery) => (typeof answer === 'string' ? answer : (Object.keys(answer)[0] as string)))
}

/** A handler that fails with this code for the stream `a`. */
const failing =
  (code: string): ApplierPlan<InboxEvent>['handle'] =>
  async (_, events) => {
    if (events.some(({ key }) => key === 'a')) throw Object.assign(new Error('it failed'), { code })
  }

describe('applying events', () => {
  test.each(['404', '409', '530', 'EPIPE'])('blames the event alone for code %s of another service', async (code) => {
    expect(await answersTo(EVENTS, { handle: failing(code) })).toEqual(['refused', 'sent'])
  })

  test.each(['40001', '53300', '57P01', '55P03'])('blames no event for %s of PostgreSQL', async (code) => {
    expect(await answersTo(EVENTS, { handle: failing(code) })).toEqual(['unknown', 'unknown'])
  })

  test('blames the event for a handler that takes too long', async () => {
    const handle = (): Promise<never> => new Promise<never>(() => undefined)
    expect(await answersTo(EVENTS.slice(0, 1), { handle, timeoutMs: 20 })).toEqual(['refused'])
  })

  // As with a synchronous standby that does not answer: it may be committed.
  test('blames no event for a COMMIT that takes too long', async () => {
    const commit = (): Promise<never> => new Promise<never>(() => undefined)
    expect(await answersTo(EVENTS.slice(0, 1), { commit, timeoutMs: 20 })).toEqual(['unknown'])
  })

  test('blames the event for what COMMIT reports', async () => {
    const commit = (): Promise<never> => Promise.reject(Object.assign(new Error('deferred'), { code: '23503' }))
    expect(await answersTo(EVENTS.slice(0, 1), { commit })).toEqual(['refused'])
  })
})
