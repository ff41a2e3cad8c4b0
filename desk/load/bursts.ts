import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from './client.ts'
import { type Answer, sendOnce } from './sendOnce.ts'
import { must } from './senders/sender.ts'
import { Durations } from './tally.ts'

/** How many requests come at once. */
export interface BurstSize {
  readonly signals: number
  readonly transfers: number
}

export const FULL_BURST: BurstSize = { signals: 250, transfers: 200 }

/** The outcome of many requests at once for one thing, each sent once. */
export interface Bursts {
  readonly size: BurstSize
  readonly signals: Durations
  /** Signals that were not answered with the position. */
  readonly signalsFailed: number
  /** How many positions they were answered with. */
  readonly positions: number
  readonly transfersFailed: number
  /** An unrelated read during the transfers. */
  readonly reads: Durations
}

/** Longer than every limit that is judged. */
const TIMEOUT_MS = 30_000
const READ_PAUSE_MS = 5

/** Signals for one symbol, and transfers with a key between two accounts: all at once. */
export async function measureBursts(client: Client, prefix: string, size: BurstSize): Promise<Bursts> {
  return { size, ...(await burstOfSignals(client, prefix, size)), ...(await burstOfTransfers(client, prefix, size)) }
}

async function burstOfSignals(
  { origin }: Client,
  prefix: string,
  { signals: count }: BurstSize,
): Promise<Pick<Bursts, 'signals' | 'signalsFailed' | 'positions'>> {
  const signals = new Durations()
  const body = { symbol: `${prefix.toUpperCase()}BURST`, exchange: 'south', side: 'long', quantity: 1 }
  const answers = await atOnce(count, async () => {
    const began = performance.now()
    const answer = await sendOnce({ method: 'POST', url: `${origin}/positions`, body, timeoutMs: TIMEOUT_MS })
    signals.add(performance.now() - began)
    return answer
  })
  const good = answers.filter(({ status }) => status === 200 || status === 201)
  return { signals, signalsFailed: count - good.length, positions: new Set(good.map(idOf)).size }
}

async function burstOfTransfers(
  client: Client,
  prefix: string,
  { transfers: count }: BurstSize,
): Promise<Pick<Bursts, 'transfersFailed' | 'reads'>> {
  const { origin } = client
  const [one, other, reader] = ['one', 'other', 'reader'].map((name) => `burst-${prefix}-${name}`)
  for (const id of [one, other, reader]) {
    await must(client, 'transfers', '/accounts', { id, openingBalance: 1_000_000 })
  }
  const reads = new Durations()
  const done = new AbortController()
  const reading = (async () => {
    while (!done.signal.aborted) {
      const began = performance.now()
      const { status } = await sendOnce({ method: 'GET', url: `${origin}/accounts/${reader}`, timeoutMs: TIMEOUT_MS })
      if (status === 200) reads.add(performance.now() - began)
      await sleep(READ_PAUSE_MS)
    }
  })()
  const answers = await atOnce(count, (turn) => {
    const [from, to] = turn % 2 === 0 ? [one, other] : [other, one]
    return sendOnce({
      method: 'POST',
      url: `${origin}/transfers`,
      body: { from, to, amount: 1 },
      headers: { 'idempotency-key': randomUUID() },
      timeoutMs: TIMEOUT_MS,
    })
  })
  done.abort()
  await reading
  return { transfersFailed: answers.filter(({ status }) => status !== 201).length, reads }
}

function atOnce<T>(count: number, send: (turn: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, turn) => send(turn)))
}

function idOf(answer: Answer): unknown {
  return 'body' in answer ? answer.body['id'] : undefined
}
