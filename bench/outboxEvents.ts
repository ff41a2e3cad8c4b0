import type { EventToEnqueue, Lockstep } from 'pg-lockstep'

export const CONNECTIONS = 8
export const KEYS = 1000

const PAYLOAD = {
  portfolio: 'portfolio 0001',
  instrument: 'DE000A1EWWW0',
  quantity: 5,
  price: '101.25',
  at: '2026-01-01T00:00:00.000Z',
}
const HEADERS = { 'trace-id': '4bf92f3577b34da6a3ce929d0e0e4736' }

/** The event with that number: all keys in turn, in an order that spreads neighboring keys. */
export function eventOf(number: number, keys = KEYS): EventToEnqueue {
  return {
    topic: 'trades',
    key: keyOf((number * 7919) % keys),
    payload: { id: number, ...PAYLOAD },
    headers: HEADERS,
  }
}

/** The same as values of a statement. */
export function valuesOf(number: number): string[] {
  const { topic, key, payload, headers } = eventOf(number)
  return [topic, key, JSON.stringify(payload), JSON.stringify(headers)]
}

function keyOf(number: number): string {
  return `portfolio ${String(number).padStart(4, '0')}`
}

/** Does it so many times, on as many connections as there are, each beginning the next as soon as it has its answer. */
export function onAllConnections(work: (number: number) => Promise<unknown>): (count: number) => Promise<void> {
  return async (count) => {
    let next = 0
    await Promise.all(
      Array.from({ length: CONNECTIONS }, async () => {
        while (next < count) await work(next++)
      }),
    )
  }
}

/** All numbers below `count`, so many at a time, one after the other: in 1,000 of them every key is there once. */
export async function inChunks(
  count: number,
  size: number,
  work: (numbers: number[]) => Promise<void>,
): Promise<number> {
  for (let from = 0; from < count; from += size) {
    await work(Array.from({ length: Math.min(size, count - from) }, (_, place) => from + place))
  }
  return count
}

/** A transaction that writes to more streams than that locks whole groups, and the others wait for it. */
const STREAMS_AT_ONCE = 100
/** As many as lie between two ticks: a backlog of single events is cut into such pieces, too. */
const EVENTS_AT_ONCE = 1000

/** Fills an outbox quickly. Gives the number of events, rounded up to whole transactions. */
export async function fill(lockstep: Pick<Lockstep, 'transaction'>, count: number, keys = KEYS): Promise<number> {
  const size = Math.min(EVENTS_AT_ONCE, count)
  const streams = Math.min(STREAMS_AT_ONCE, keys)
  const groups = Math.ceil(keys / streams)
  const transactions = Math.ceil(count / size)
  await onAllConnections((number) =>
    lockstep.transaction({}, async (tx) => {
      const first = (number % groups) * streams
      const events = Array.from({ length: size }, (_, place) => ({
        ...eventOf(number * size + place),
        key: keyOf((first + (place % streams)) % keys),
      }))
      await tx.enqueueMany(events)
    }),
  )(transactions)
  return transactions * size
}
