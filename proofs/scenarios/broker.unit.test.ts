import { expect, test } from 'vitest'
import { Broker, type BrokerEvent, type Polled } from './broker.ts'

const event = (key: string, seq: number): BrokerEvent => ({ key, seq, id: `${key}#${seq}`, op: `op ${key} ${seq}` })

test('stores sent events in order with duplicates, and delivers them until they are acknowledged', () => {
  const broker = new Broker()
  const taken: unknown[] = []
  const ask = (question: Parameters<Broker['answer']>[0]): unknown =>
    broker.answer(question, (entry) => taken.push(entry))
  ask({ send: [event('a', 1), event('a', 2), event('a', 1)] })
  expect(taken).toEqual([1, 2, 1].map((seq) => ({ op: `op a ${seq}`, key: 'a', value: seq })))
  expect(broker.left).toBe(3)
  const polled = ask({ poll: true }) as Polled
  expect(polled).toEqual({ stream: 'a', events: [event('a', 1), event('a', 2), event('a', 1)], upTo: 3 })
  // Two consumers at the same time: both get it.
  expect(ask({ poll: true })).toEqual(polled)
  ask({ ack: { stream: 'a', upTo: 3 } })
  ask({ ack: { stream: 'a', upTo: 1 } })
  expect(broker.left).toBe(0)
  expect(ask({ poll: true })).toBeUndefined()
})

test('refuses one of fifty twice, and delays only its own stream', () => {
  const broker = new Broker()
  const taken: number[] = []
  const send = (...events: BrokerEvent[]): unknown =>
    broker.answer({ send: events }, ({ value }) => taken.push(value as number))
  const batch = [event('a', 49), event('a', 50), event('a', 51), event('b', 7)]
  expect(send(...batch)).toEqual([true, false, false, true])
  expect(send(event('a', 50))).toEqual([false])
  expect(send(event('a', 50), event('a', 51))).toEqual([true, true])
  expect(taken).toEqual([49, 7, 50, 51])
})

test('serves streams in turn', () => {
  const broker = new Broker()
  broker.answer({ send: [event('a', 1), event('b', 1)] }, () => undefined)
  const streams = [1, 2].map(() => (broker.answer({ poll: true }, () => undefined) as Polled).stream)
  expect(streams.toSorted()).toEqual(['a', 'b'])
})

test('counts streams in which one number is two events, and stops one that a consumer reports', () => {
  const broker = new Broker()
  const ask = (question: Parameters<Broker['answer']>[0]): unknown => broker.answer(question, () => undefined)
  const other = { ...event('a', 1), id: 'another' }
  ask({ send: [event('a', 1), other, event('b', 1), event('b', 1)] })
  expect(broker.divergence).toEqual({ diverged: 1, reported: 0, silent: 1 })
  ask({ diverged: 'a' })
  expect(broker.divergence).toEqual({ diverged: 1, reported: 1, silent: 0 })
  expect(broker.left).toBe(2)
  expect((ask({ poll: true }) as Polled).stream).toBe('b')
})
