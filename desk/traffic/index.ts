/**
 * A little traffic of the desk's own: a few requests a second, so that there is something to see in the console.
 *
 * They come as clients send them, over HTTP. Some are meant to meet: two requests for one instance at once, of which one receives 409;
 * customers who all pay into one hot account; bidders who outbid each other in the same auction. What is refused is no trouble. What
 * fails is not repeated: `npm run load` is the one that asks whether everything is right.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { ACTIONS, prepareTraffic } from './actions.ts'
import { Client } from './client.ts'

/** Begins of actions; most are one request. */
const ACTIONS_PER_SECOND = 4
/** So many may be in progress: a desk that is slow is not sent more and more. */
const MOST_AT_ONCE = 20
const AGAIN_MS = 1_000

export interface Traffic {
  close(): Promise<void>
}

export function startTraffic(origin: string, token: string | undefined): Traffic {
  const stopping = new AbortController()
  const running = run(new Client(origin, token, stopping.signal), stopping.signal)
  return {
    async close() {
      stopping.abort()
      await running
    },
  }
}

async function run(client: Client, signal: AbortSignal): Promise<void> {
  const underWay = new Set<Promise<void>>()
  const pause = (ms: number): Promise<void> => delay(ms, undefined, { signal }).catch(() => undefined)
  while (!signal.aborted && !(await prepareTraffic(client))) await pause(AGAIN_MS)
  for (let turn = 0; !signal.aborted; turn++) {
    const action = ACTIONS[turn % ACTIONS.length]
    if (action !== undefined && underWay.size < MOST_AT_ONCE) {
      const work = action(client, turn).finally(() => underWay.delete(work))
      underWay.add(work)
    }
    // Not as a clock ticks: people do not.
    await pause((1000 / ACTIONS_PER_SECOND) * (0.5 + Math.random()))
  }
  await Promise.all(underWay)
}
