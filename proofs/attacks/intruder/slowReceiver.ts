import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Lockstep } from 'pg-lockstep'
import { webhookSink } from 'pg-lockstep/webhook'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { startWebhookReceiver, type WebhookReceiverServer } from '../../../tools/server/webhook.ts'
import type { Edge } from '../edges/edge.ts'

interface Size {
  /** Of the hostile customer. */
  readonly streams: number
  readonly eventsPerStream: number
  /** Of the other customer, one after the other. */
  readonly honest: number
}

const FULL: Size = { streams: 40, eventsPerStream: 15, honest: 100 }
const SCALED_DOWN: Size = { streams: 12, eventsPerStream: 3, honest: 15 }
/** How long the hostile receiver takes for an answer, where it gives one. */
const ANSWER_MS = 900
/** More than any answer takes: the dispatcher must not be saved by it. */
const TIMEOUT_MS = 120_000
/** How long the other customer's events are waited for: with protection, and where they are not to come. */
const PATIENCE_MS = 90_000
const CONTROL_MS = 4000

interface Outcome {
  /** Events of the other customer that came while the hostile one kept its requests waiting. */
  readonly honest: number
  /** The longest that one of them waited. */
  readonly longestMs: number
  readonly twice: number
  readonly outOfOrder: number
  readonly missing: number
}

type Hostility = 'never answers' | 'answers late'

/**
 * Two customers on one shard, each with a webhook of its own. One of them answers late, or not at all, and has many events. The other's
 * events come all the same: a stream that exceeds its time is parked, and continues beside the others. The hostile customer gets each
 * of its events once, in order. The control is a dispatcher without a time for streams: it waits for the hostile customer.
 */
export const slowReceiver: Edge = {
  name: 'slow-receiver',
  async run({ lab, driver, scaledDown, reportProgress }) {
    const size = scaledDown ? SCALED_DOWN : FULL
    const client = lab.client(driver, lab.url('direct'), { poolSize: 6 })
    const goals: Goal[] = []
    try {
      const attacks: readonly Hostility[] = ['never answers', 'answers late']
      for (const hostility of attacks) {
        reportProgress(`intruder: slow-receiver, the hostile one ${hostility}`)
        const { honest, longestMs, twice, outOfOrder, missing } = await attack(client.lockstep, size, hostility)
        const named = (name: string): string => `${hostility}, ${name}`
        goals.push(
          goal(named("the other customer's events that did not come"), size.honest - honest, '=', 0),
          goal(named('hostile events posted twice'), twice, '=', 0),
          goal(named('hostile events out of order'), outOfOrder, '=', 0),
          goal(named('hostile events lost'), missing, '=', 0),
        )
        // Far from what they wait for without protection: all answers of one stream.
        if (!scaledDown) goals.push(goal(named('longest wait of the other customer, ms'), longestMs, '<=', 5000))
      }
      reportProgress('intruder: slow-receiver, the control')
      const control = await attack(client.lockstep, size, 'never answers', false)
      goals.push(goal("control, the other customer's events held up", size.honest - control.honest, '>=', 1))
    } finally {
      await client.close()
    }
    return goals
  },
}

let number = 0

async function attack(lockstep: Lockstep, size: Size, hostility: Hostility, slowAfterMs?: false): Promise<Outcome> {
  const topic = `slow-${++number}`
  let letGo = (): void => undefined
  const released = new Promise<void>((resolve) => (letGo = resolve))
  const hostile = await startWebhookReceiver(() => (hostility === 'never answers' ? released : sleep(ANSWER_MS)))
  const arrivals = new Map<string, number>()
  const other = await startWebhookReceiver(async ({ headers }) => {
    if (headers['lockstep-topic'] === topic) arrivals.set(String(headers['lockstep-seq']), performance.now())
  })
  const urlOf = ({ port }: WebhookReceiverServer): string => `http://127.0.0.1:${port}/`
  const sink = webhookSink({
    // What other attacks have left in the database is none of the hostile customer's.
    url: (event) => urlOf(event.topic === topic && event.key !== 'other' ? hostile : other),
    secret: `whsec_${randomBytes(32).toString('base64')}`,
    allowPrivateAddresses: true,
    timeoutMs: TIMEOUT_MS,
  })
  const stop = new AbortController()
  const running = lockstep.outbox
    .dispatcher({ sink, name: 'slow-receiver', shards: 1, ...(slowAfterMs === undefined ? {} : { slowAfterMs }) })
    .run({ signal: stop.signal })
  /** Enqueues the other customer's next event, and waits for it: gives how long it took. */
  const honestly = async (seq: number, until: number): Promise<number> => {
    const begun = performance.now()
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic, key: 'other', payload: seq }))
    while (!arrivals.has(String(seq)) && performance.now() < until) await sleep(2)
    return performance.now() - begun
  }
  try {
    // What other attacks have left comes first, and is not measured.
    await honestly(1, performance.now() + PATIENCE_MS)
    const streams = Array.from({ length: size.streams }, (_, n) => `hostile ${n}`)
    for (let round = 0; round < size.eventsPerStream; round++) {
      await lockstep.transaction({}, (tx) => tx.enqueueMany(streams.map((key) => ({ topic, key, payload: round }))))
    }
    // The hostile customer has the dispatcher's attention.
    while (hostile.taken.length === 0) await sleep(5)
    let longestMs = 0
    const until = performance.now() + (slowAfterMs === undefined ? PATIENCE_MS : CONTROL_MS)
    for (let seq = 2; seq <= size.honest + 1 && performance.now() < until; seq++) {
      longestMs = Math.max(longestMs, await honestly(seq, until))
    }
    const honest = arrivals.size - 1
    letGo()
    const all = size.streams * size.eventsPerStream
    const end = performance.now() + PATIENCE_MS + ANSWER_MS * size.eventsPerStream * size.streams
    while (new Set(hostile.taken.map(nameOf)).size < all && performance.now() < end) await sleep(20)
    return { honest, longestMs, ...judge(hostile, all) }
  } finally {
    letGo()
    stop.abort()
    await running
    await hostile.kill()
    await other.kill()
  }
}

function nameOf({ headers }: WebhookReceiverServer['taken'][number]): string {
  return `${String(headers['lockstep-key'])} ${String(headers['lockstep-seq'])}`
}

function judge({ taken }: WebhookReceiverServer, all: number): Pick<Outcome, 'twice' | 'outOfOrder' | 'missing'> {
  const last = new Map<string, number>()
  const seen = new Set<string>()
  let outOfOrder = 0
  for (const request of taken) {
    if (seen.has(nameOf(request))) continue
    seen.add(nameOf(request))
    const [key, seq] = [String(request.headers['lockstep-key']), Number(request.headers['lockstep-seq'])]
    if (seq !== (last.get(key) ?? 0) + 1) outOfOrder++
    last.set(key, seq)
  }
  return { twice: taken.length - seen.size, outOfOrder, missing: all - seen.size }
}
