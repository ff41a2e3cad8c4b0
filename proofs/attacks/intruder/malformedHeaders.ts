import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Lockstep } from 'pg-lockstep'
import { webhookSink } from 'pg-lockstep/webhook'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { startWebhookReceiver, type WebhookReceiverServer } from '../../../tools/server/webhook.ts'
import type { Edge } from '../edges/edge.ts'
import { ENQUEUE, enqueuings, PLANT, READ } from './malformedHeaders.sql.ts'

const MALFORMED = ['null', '1', '"text"', '["a"]', '{"a": null}', '{"a": {"toString": 1}}', '{"a": ["b"]}'] as const
const FULL_EVENTS = 100
const SCALED_DOWN_EVENTS = 20
const PATIENCE_MS = 60_000
const NAME = 'malformed-headers'

/**
 * Headers that no broker's message can have, from plain SQL: every enqueuing function refuses them. Written into the table past the
 * functions, in the middle of a batch, they stop their own stream: every other event of the batch is posted, and posted once. The
 * control is a relay that posts a batch, and posts it again one by one when one of its events makes it throw.
 */
export const malformedHeaders: Edge = {
  name: 'malformed-headers',
  async run({ lab, driver, scaledDown, reportProgress }) {
    const events = scaledDown ? SCALED_DOWN_EVENTS : FULL_EVENTS
    const client = lab.client(driver, lab.url('direct'), { poolSize: 6 })
    try {
      reportProgress('intruder: malformed-headers, from SQL')
      const goals: Goal[] = [goal('malformed headers that SQL has taken', await takenBySql(lab.admin), '=', 0)]
      let [twice, missing, notParked] = [0, 0, 0]
      for (const headers of scaledDown ? MALFORMED.slice(0, 6) : MALFORMED) {
        reportProgress(`intruder: malformed-headers, in the table: ${headers}`)
        const outcome = await plant(client.lockstep, lab.admin, events, headers)
        twice += outcome.twice
        missing += outcome.missing
        if (!outcome.parked) notParked++
      }
      reportProgress('intruder: malformed-headers, the control')
      goals.push(
        goal('sound events posted twice', twice, '=', 0),
        goal('sound events not posted', missing, '=', 0),
        goal('malformed events that were not parked', notParked, '=', 0),
        goal('control, events posted twice by a naive relay', await naive(lab.admin, events), '>=', 1),
      )
      return goals
    } finally {
      await client.close()
    }
  },
}

async function takenBySql(admin: pg.Pool): Promise<number> {
  let taken = 0
  for (const headers of MALFORMED) {
    for (const text of enqueuings()) {
      await admin.query(text, [headers]).then(
        () => taken++,
        (error: unknown) => {
          if ((error as { code?: unknown }).code !== '22023') throw error
        },
      )
    }
  }
  return taken
}

let number = 0

async function enqueue(admin: pg.Pool, topic: string, events: number, headers: string): Promise<void> {
  const client = await admin.connect()
  try {
    await client.query('BEGIN')
    await client.query(ENQUEUE, [topic, events])
    await client.query(PLANT, [topic, headers, Math.ceil(events / 2)])
    await client.query('COMMIT')
  } finally {
    client.release()
  }
}

interface Outcome {
  readonly twice: number
  readonly missing: number
  readonly parked: boolean
}

async function plant(lockstep: Lockstep, admin: pg.Pool, events: number, headers: string): Promise<Outcome> {
  const topic = `headers-${++number}`
  const receiver = await startWebhookReceiver()
  const sink = webhookSink({
    url: `http://127.0.0.1:${receiver.port}/`,
    secret: `whsec_${randomBytes(32).toString('base64')}`,
  })
  const stop = new AbortController()
  await enqueue(admin, topic, events, headers)
  const running = lockstep.outbox.dispatcher({ sink, name: NAME, shards: 1, attempts: 1 }).run({ signal: stop.signal })
  try {
    const isParked = async (): Promise<boolean> => {
      const [stream, ...more] = (await lockstep.outbox.parked({ dispatcher: NAME })).filter(
        (each) => each.topic === topic,
      )
      return stream?.state === 'blocked' && more.length === 0
    }
    const until = performance.now() + PATIENCE_MS
    while (performance.now() < until && !((await isParked()) && postsOf(receiver, topic).length >= events - 1))
      await sleep(10)
    const posts = postsOf(receiver, topic)
    const distinct = new Set(posts).size
    return { twice: posts.length - distinct, missing: events - 1 - distinct, parked: await isParked() }
  } finally {
    stop.abort()
    await running
    await receiver.kill()
  }
}

function postsOf({ taken }: WebhookReceiverServer, topic: string): string[] {
  return taken
    .filter(({ headers }) => headers['lockstep-topic'] === topic)
    .map(({ headers }) => String(headers['lockstep-key']))
}

/** Posts a batch; when that throws, every event by itself: the batch had been posted in part. */
async function naive(admin: pg.Pool, events: number): Promise<number> {
  const topic = `headers-${++number}`
  const receiver = await startWebhookReceiver()
  await enqueue(admin, topic, events, '{"a": {"toString": 1}}')
  const { rows } = await admin.query<{ key: string; payload: unknown; headers: Record<string, unknown> | null }>(READ, [
    topic,
  ])
  const post = async ({ key, payload, headers }: (typeof rows)[number]): Promise<void> => {
    const own = Object.entries(headers ?? {}).map(([name, value]): [string, string] => [name, String(value)])
    const response = await fetch(`http://127.0.0.1:${receiver.port}/`, {
      method: 'POST',
      headers: { ...Object.fromEntries(own), 'lockstep-topic': topic, 'lockstep-key': encodeURIComponent(key) },
      body: JSON.stringify(payload),
    })
    await response.body?.cancel()
  }
  try {
    for (const row of rows) await post(row)
  } catch {
    for (const row of rows) await post(row).catch(() => undefined)
  }
  await receiver.kill()
  const posts = postsOf(receiver, topic)
  return posts.length - new Set(posts).size
}
