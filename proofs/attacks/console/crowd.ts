import { setTimeout as sleep } from 'node:timers/promises'
import { key, type Lease, type Lockstep } from 'pg-lockstep'
import type { Client, Lab } from '../lab.ts'

const LOCKS_A_SESSION = 10
const CHANGE_EVERY_MS = 100
const LOOK_EVERY_MS = 100

/** So many locks held, leases held and streams parked, as many services would have them. */
export interface Crowd {
  /** What is seen changes all the time, until it is stopped: locks and leases change hands, events come to parked streams. */
  change(): { stop(): Promise<void> }
  /** Comes back when no event waits but those of parked streams. */
  delivered(): Promise<void>
  leave(): Promise<void>
}

export async function gather(lab: Lab, many: number): Promise<Crowd> {
  const sessions = Math.ceil(many / LOCKS_A_SESSION)
  const holder = lab.client('pg', lab.url('direct'), { poolSize: sessions + 1 })
  const worker = lab.client('pg', lab.url('direct'), { poolSize: 8 })
  const locks = await Promise.all(Array.from({ length: sessions }, (_, session) => hold(holder.lockstep, session, 0)))
  const leases: Lease[] = []
  for (let number = 0; number < many; number++) {
    leases.push(await worker.lockstep.leases.acquire(key`Instance:${number}`, { holder: `engine-${number % 12}` }))
  }
  const delivering = new AbortController()
  const delivered = worker.lockstep.outbox
    .dispatcher({
      shards: 8,
      attempts: 1_000_000,
      backoffMs: { first: 60_000, longest: 60_000 },
      sink: (events) => events.map(({ topic }) => (topic === 'bad' ? { refused: 'it is not wanted' } : 'sent')),
    })
    .run({ signal: delivering.signal })
  await enqueue(
    worker,
    'bad',
    Array.from({ length: many }, (_, number) => `portfolio-${number}`),
  )
  while ((await worker.lockstep.outbox.parked({ limit: many + 1 })).length < many) await sleep(LOOK_EVERY_MS)
  return {
    change() {
      let round = 0
      const stopping = new AbortController()
      const changing = (async () => {
        while (!stopping.signal.aborted) {
          // The new ones first: at no moment are there fewer than so many.
          const place = ++round % locks.length
          const letGo = locks[place]
          locks[place] = await hold(holder.lockstep, place, round)
          await letGo?.()
          const number = round % leases.length
          const before = leases[number] as Lease
          leases[number] = await worker.lockstep.leases.acquire(key`Instance:${number}:${round}`, {
            holder: `engine-${round % 12}`,
          })
          await before.release()
          await enqueue(worker, 'bad', [`portfolio-${round % many}`])
          await sleep(CHANGE_EVERY_MS)
        }
      })()
      return { stop: () => (stopping.abort(), changing) }
    },
    async delivered() {
      const behind = async (): Promise<number> =>
        (await worker.lockstep.outbox.status()).shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)
      while ((await behind()) > 0) await sleep(LOOK_EVERY_MS)
    },
    async leave() {
      for (const letGo of locks) await letGo()
      delivering.abort()
      await delivered
      await holder.close()
      await worker.close()
    },
  }
}

/** One session with ten locks. */
async function hold(lockstep: Lockstep, session: number, round: number): Promise<() => Promise<void>> {
  const lock = Array.from({ length: LOCKS_A_SESSION }, (_, n) => key`Wallet:${session}:${round}:${n}`)
  let letGo = (): void => undefined
  const until = new Promise<void>((resolve) => (letGo = resolve))
  let ended: Promise<void> | undefined
  await new Promise<void>((granted, failed) => {
    ended = lockstep.transaction({ lock }, () => (granted(), until))
    ended.catch(failed)
  })
  return async () => {
    letGo()
    await ended
  }
}

async function enqueue({ lockstep }: Client, topic: string, keys: readonly string[]): Promise<void> {
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(keys.map((each) => ({ topic, key: each, payload: { text: 'something that was ordered' } }))),
  )
}
