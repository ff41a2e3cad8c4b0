import { setTimeout as sleep } from 'node:timers/promises'
import { key, type Lockstep } from 'pg-lockstep'
import { DEPOSIT, FORGET_STATEMENTS, TIME_BY_ROLE } from '../console.sql.ts'
import type { Lab } from '../lab.ts'

const ACCOUNTS = 10_000
const WORKERS = 16
const VIEWERS = 3

/** What the console's own questions take of the database's time, in percent. */
export interface Cost {
  readonly percent: number
  readonly questions: number
  readonly statements: number
}

/** Three viewers of all tabs at once, while the load runs. */
export async function costUnderLoad(lab: Lab, url: string, seconds: number): Promise<Cost> {
  const client = lab.client('pg', lab.url('direct'), { poolSize: WORKERS })
  const leaving = new AbortController()
  const viewers = Array.from({ length: VIEWERS }, () =>
    watch(`${url}api/stream?show=overview,locks,leases,outbox`, leaving.signal),
  )
  // People search now and then.
  const searching = Array.from({ length: VIEWERS }, (_, viewer) => searchNowAndThen(url, viewer, leaving.signal))
  const load = Array.from({ length: WORKERS }, async (_, number) => {
    for (let round = number; !leaving.signal.aborted; round += WORKERS) await work(client.lockstep, round)
  })
  try {
    // What was asked when the first viewer came is not how it continues.
    await sleep(1000)
    await lab.admin.query(FORGET_STATEMENTS)
    await sleep(seconds * 1000)
    const { rows } = await lab.admin.query<{ ours: number; everybody: number; questions: number; statements: number }>(
      TIME_BY_ROLE,
    )
    const { ours = 0, everybody = 0, questions = 0, statements = 0 } = rows[0] ?? {}
    return { percent: (100 * ours) / everybody, questions, statements }
  } finally {
    leaving.abort()
    await Promise.all([...load, ...viewers, ...searching])
    await client.close()
  }
}

/** Many different accounts: time that is spent waiting would pass for time of the database. */
async function work(lockstep: Lockstep, round: number): Promise<void> {
  const account = (round * 7919) % ACCOUNTS
  await lockstep.transaction({ lock: key`Account:${account}` }, async (tx) => {
    await tx.query(DEPOSIT, [account])
    await tx.enqueue({ topic: 'deposits', key: String(account), payload: { amount: 1 } })
  })
  if (round % 8 === 0) await lockstep.lease(key`Statement:${account}`, {}, async () => undefined)
}

/** What a page asks for when the tabs of events and records are opened, and a stream that is looked for. */
const SEARCHES = [
  'events?',
  'dead?',
  'audit?',
  'inbox?',
  'idempotency?',
  'rollout?',
  'events?topic=history&key=stream-7',
  'leases/search?q=service-7',
]
const SEARCH_EVERY_MS = 5000

async function searchNowAndThen(url: string, viewer: number, signal: AbortSignal): Promise<void> {
  for (let round = viewer; !signal.aborted; round++) {
    const answer = await fetch(`${url}api/${SEARCHES[round % SEARCHES.length]}`)
    if (!answer.ok) throw new Error(`The console answered ${answer.status}: ${await answer.text()}`)
    await answer.arrayBuffer()
    await sleep(SEARCH_EVERY_MS, undefined, { signal }).catch(() => undefined)
  }
}

/** Reads, as a page does. */
async function watch(url: string, signal: AbortSignal): Promise<void> {
  try {
    const answer = await fetch(url, { signal })
    if (!answer.ok) throw new Error(`The console answered ${answer.status}.`)
    for await (const _ of answer.body ?? []) if (signal.aborted) return
  } catch (error) {
    if (!signal.aborted) throw error
  }
}
