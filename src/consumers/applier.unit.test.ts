import { expect, test } from 'vitest'
import { ConnectionLostError } from '../errors.ts'
import type { InboxEvent } from '../inbox/index.ts'
import { Applier, type ApplierPlan } from './applier.ts'

const events: InboxEvent[] = ['a', 'b', 'a'].map((key, place) => ({ id: `${place}`, topic: 't', key, seq: place + 1 }))

test('counts no event as sent whose transaction was lost', async () => {
  const plan: ApplierPlan<InboxEvent> = {
    transaction: () => Promise.reject(new ConnectionLostError('The connection was lost.', { advice: 'Again.' })),
    inbox: {} as ApplierPlan<InboxEvent>['inbox'],
    handle: () => undefined,
    handlesTombstones: false,
    start: () => 1,
    isolation: undefined,
    timeoutMs: 1000,
    handlerFails: 'failed',
    durable: false,
  }
  const answers = await new Applier(plan).apply(events, { signal: new AbortController().signal })
  for (const answer of answers) expect(answer).toMatchObject({ unknown: 'The connection was lost. Again.' })
  expect(answers).toHaveLength(events.length)
})
